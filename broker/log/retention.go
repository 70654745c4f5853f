package log

import (
	"time"

	"github.com/carillon-mq/carillon/broker/limits"
)

// Retention is the bounds beyond which old records are deleted. A zero field bounds nothing.
type Retention struct {
	Age      time.Duration
	Bytes    int64
	Messages uint64
}

// SegmentInfo is what retention knows of a segment.
type SegmentInfo struct {
	Base, End   uint64
	Bytes       int64     // on the disk
	First, Last time.Time // of its records
	Active      bool
	File        string
}

// RetentionPlan is what to do: where the log is to start and whether the active segment is due to
// be sealed, so that it can go one day.
type RetentionPlan struct {
	Start uint64
	Roll  bool
}

// timeSlack is how far a record's time may be in the future and still be believed: clocks are never
// exactly equal.
const timeSlack = 2 * time.Second

// PlanRetention decides what goes: whole segments from the oldest on, as long as what is left still
// reaches every bound that the policy keeps. It never passes hold (0 is none).
//
// Records' times may be wrong, since a clock was. What was written before is older, so:
//
//  1. A segment is no older than any segment before it says, in so far as that isn't in the future.
//  2. A segment whose times are in the future is as old as the next one whose times are not.
//     Without such a one it is not old.
func PlanRetention(segments []SegmentInfo, start uint64, now time.Time, policy Retention, hold uint64) RetentionPlan {
	plan := RetentionPlan{Start: start}
	var bytes int64
	var end uint64
	for _, s := range segments {
		bytes += s.Bytes
		end = s.End
	}
	var newest time.Time // of what is before, and not in the future
	for i, s := range segments {
		last, known := believed(segments[i:], now)
		if last.After(newest) {
			newest = last
		}
		old := policy.Age > 0 && s.End > s.Base && known && now.Sub(newest) > policy.Age
		large := policy.Bytes > 0 && bytes-s.Bytes >= policy.Bytes
		many := policy.Messages > 0 && end-s.End >= policy.Messages
		if s.Active {
			// Records after one with a time in the future need another segment, whose age is theirs.
			due := now.Sub(s.First) > policy.Age/limits.SegmentsPerAge || s.Last.Sub(now) > timeSlack
			plan.Roll = policy.Age > 0 && s.End > s.Base && due
			large, many = false, false
		}
		if !old && !large && !many || hold > 0 && s.End > hold {
			break
		}
		plan.Start = max(plan.Start, s.End)
		bytes -= s.Bytes
	}
	return plan
}

// believed is when the records of the first of these segments were written at the latest, by rule 2
// of PlanRetention.
func believed(segments []SegmentInfo, now time.Time) (last time.Time, known bool) {
	for _, s := range segments {
		if s.End > s.Base && s.Last.Sub(now) <= timeSlack {
			return s.Last, true
		}
	}
	return time.Time{}, false
}

// SegmentInfos describes the log's segments, oldest first.
func (l *Log) SegmentInfos() []SegmentInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]SegmentInfo, len(l.segments))
	for i, s := range l.segments {
		out[i] = SegmentInfo{Base: s.base, End: s.end, Bytes: s.bytes(), First: time.Unix(0, s.first), Last: time.Unix(0, s.last), Active: s == l.active, File: s.path}
	}
	return out
}

// Retain applies a policy, and returns the log's start.
func (l *Log) Retain(now time.Time, policy Retention) (uint64, error) {
	infos := l.SegmentInfos()
	l.mu.Lock()
	hold := l.held(l.end)
	start := l.start
	l.mu.Unlock()
	plan := PlanRetention(infos, start, now, policy, hold)
	if plan.Roll && plan.Start < infos[len(infos)-1].End {
		l.Roll()
	}
	if plan.Start <= start {
		return start, nil
	}
	return l.Trim(plan.Start)
}

// Roll seals the active segment, if it holds anything; the next append begins a new one.
func (l *Log) Roll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.active != nil && l.active.end > l.active.base && l.writable() == nil {
		l.retire()
	}
}
