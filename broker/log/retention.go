package log

import (
	"time"

	"github.com/carillon-mq/carillon/broker/limits"
)

// Retention has the bounds beyond which old records are deleted. A zero field is no bound.
type Retention struct {
	Age      time.Duration
	Bytes    int64
	Messages uint64
}

// SegmentInfo describes a segment for PlanRetention.
type SegmentInfo struct {
	Base, End   uint64
	Bytes       int64     // on the disk
	First, Last time.Time // of its records
	Active      bool
	File        string
}

// RetentionPlan is the result of PlanRetention: the log's new start, and whether the active segment
// is to be sealed, so that it can be deleted later.
type RetentionPlan struct {
	Start uint64
	Roll  bool
}

// timeSlack is how far a record's time may be in the future and still count: clocks are never
// exactly equal.
const timeSlack = 2 * time.Second

// PlanRetention decides which segments to delete, the oldest first: segments older than the
// policy's age, and segments without which the log still has the policy's bytes or messages.
// Segments are deleted as a whole. The new start never passes hold (0: none).
//
// Records' times may be wrong, because a clock was. Earlier records are older, so:
//
//  1. A segment is at most as old as the times of any segment before it, except times in the
//     future.
//  2. A segment whose times are in the future is as old as the next segment whose times are not.
//     Without such a segment it counts as new.
func PlanRetention(segments []SegmentInfo, start uint64, now time.Time, policy Retention, hold uint64) RetentionPlan {
	plan := RetentionPlan{Start: start}
	var bytes int64
	var end uint64
	for _, s := range segments {
		bytes += s.Bytes
		end = s.End
	}
	var newest time.Time // of earlier segments, without times in the future
	for i, s := range segments {
		last, known := believed(segments[i:], now)
		if last.After(newest) {
			newest = last
		}
		old := policy.Age > 0 && s.End > s.Base && known && now.Sub(newest) > policy.Age
		large := policy.Bytes > 0 && bytes-s.Bytes >= policy.Bytes
		many := policy.Messages > 0 && end-s.End >= policy.Messages
		if s.Active {
			// After a record with a time in the future, later records need another segment, whose
			// age is known.
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

// believed returns the latest time at which the first of these segments can have been written, by
// rule 2 of PlanRetention.
func believed(segments []SegmentInfo, now time.Time) (last time.Time, known bool) {
	for _, s := range segments {
		if s.End > s.Base && s.Last.Sub(now) <= timeSlack {
			return s.Last, true
		}
	}
	return time.Time{}, false
}

// Next returns when a segment is due by age, to be deleted or to be sealed, and at the latest in an
// hour.
func (policy Retention) Next(segments []SegmentInfo, now time.Time) time.Time {
	next := now.Add(time.Hour)
	for _, s := range segments {
		if s.End == s.Base {
			continue
		}
		at := s.Last.Add(policy.Age)
		if s.Active {
			at = s.First.Add(policy.Age / limits.SegmentsPerAge)
		}
		if at.Before(next) {
			next = at
		}
	}
	return next
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

// Roll seals the active segment, if it has records. The next append begins a new one.
func (l *Log) Roll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.active != nil && l.active.end > l.active.base && l.writable() == nil {
		l.retire()
	}
}
