// Package recount says what Views of whole logs have to have, in the plainest way. The judges of
// test/chaos and test/world compare it with what brokers have written.
package recount

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"
)

// Reading is a record that Views read, as its log has it. Times are in ns.
type Reading struct {
	Offset     uint64
	Stored, At int64 // when it was stored, and the time that it names
	Room       string
	N          float64
}

// Sum is a result of readings.
type Sum struct{ Readings, Total float64 }

func (s *Sum) add(r *Reading) {
	s.Readings++
	s.Total += r.N
}

// Written is a message that a View has written, or has to write: the result of a window, or an
// alert.
type Written struct {
	Room       string
	Start, End int64 // of the window, in ns
	Sum
	Serial int // of an alert; 0: it is a result
	Raised bool
}

// Parse returns what a message of a View says, and the trigger that it is an alert of; empty: it is
// a result.
func Parse(data []byte) (p Present, trigger string, err error) {
	var is struct {
		Trigger, State string
		Serial         int
		Key            []string
		From, To       time.Time
		Values         Sum
		Offsets        map[uint32]uint64
	}
	if err := json.Unmarshal(data, &is); err != nil {
		return p, "", err
	}
	if len(is.Key) != 1 {
		return p, "", fmt.Errorf("%s has no room", data)
	}
	p.Written = Written{Room: is.Key[0], Start: is.From.UnixNano(), End: is.To.UnixNano(), Sum: is.Values, Serial: is.Serial, Raised: is.State == "raised"}
	p.Offsets = is.Offsets
	return p, is.Trigger, nil
}

// Windows are those of a View: of a size, every so often, or sessions that end after a time without
// readings.
type Windows struct {
	Size     time.Duration
	Every    time.Duration // 0: windows follow each other
	Session  time.Duration // 0: they are no sessions
	Lateness time.Duration
}

// mostAhead is how much later than a record was stored the time may be that it names.
const mostAhead = int64(time.Hour)

// Counted is what a View of whole logs has to have, by the definitions of docs/api.md. Results are
// in the order of rooms and ends.
type Counted struct {
	Closed  []Written // by all shards: those that are written
	Open    []Written // the others
	Late    int       // readings that came too late, counted once for each window
	Untimed int       // readings that have no time
}

// span is a window of a room, in ns.
type span struct {
	room       string
	start, end int64
}

// sums are results by window.
type sums map[span]*Sum

func (all sums) add(at span, r *Reading) {
	if all[at] == nil {
		all[at] = &Sum{}
	}
	all[at].add(r)
}

// Count counts what windows have: first which readings are late, shard by shard, and then all
// windows of the others.
func Count(shards [][]Reading, w Windows) (c Counted) {
	all, inSessions, closed := sums{}, []Reading{}, int64(math.MaxInt64)
	size, every, gap := int64(w.Size), int64(w.Size), int64(w.Session)
	if w.Every > 0 {
		every = int64(w.Every)
	}
	for _, log := range shards {
		watermark, here := int64(math.MinInt64), []Reading{}
		for _, r := range log {
			if r.At > r.Stored+mostAhead {
				c.Untimed++
				continue
			}
			if gap > 0 {
				if r.At < watermark && !openSession(here, &r, gap, watermark) {
					c.Late++
				} else {
					here = append(here, r)
				}
			} else {
				for start := r.At - r.At%every; start > r.At-size; start -= every {
					if start+size <= watermark {
						c.Late++
					} else {
						all.add(span{r.Room, start, start + size}, &r)
					}
				}
			}
			watermark = max(watermark, r.At-int64(w.Lateness))
		}
		closed = min(closed, watermark)
		inSessions = append(inSessions, here...)
	}
	addSessions(all, inSessions, gap)
	for at, sum := range all {
		is := Written{Room: at.room, Start: at.start, End: at.end, Sum: *sum}
		if at.end <= closed {
			c.Closed = append(c.Closed, is)
		} else {
			c.Open = append(c.Open, is)
		}
	}
	for _, list := range [][]Written{c.Closed, c.Open} {
		slices.SortFunc(list, func(a, b Written) int { return cmp.Or(cmp.Compare(a.Room, b.Room), cmp.Compare(a.End, b.End)) })
	}
	return c
}

// addSessions adds the sessions of readings.
func addSessions(all sums, of []Reading, gap int64) {
	of = slices.Clone(of)
	slices.SortStableFunc(of, func(a, b Reading) int { return cmp.Or(cmp.Compare(a.Room, b.Room), cmp.Compare(a.At, b.At)) })
	for len(of) > 0 {
		n := 1
		for n < len(of) && of[n].Room == of[0].Room && of[n].At < of[n-1].At+gap {
			n++
		}
		for i := range of[:n] {
			all.add(span{of[0].Room, of[0].At, of[n-1].At + gap}, &of[i])
		}
		of = of[n:]
	}
}

// openSession reports whether a session of readings that is open holds the time of another one.
func openSession(of []Reading, r *Reading, gap, watermark int64) bool {
	mine, all := []Reading{}, sums{}
	for i := range of {
		if of[i].Room == r.Room {
			mine = append(mine, of[i])
		}
	}
	addSessions(all, mine, gap)
	for at := range all {
		if at.end > watermark && at.start <= r.At && r.At < at.end {
			return true
		}
	}
	return false
}

// Trigger is a trigger of a View: its conditions, as the judge computes them.
type Trigger struct {
	Name        string
	When, Until func(Sum) bool
}

// changes reports whether a result changes the state.
func (t *Trigger) changes(raised bool, s Sum) bool {
	if raised {
		return t.Until(s)
	}
	return t.When(s)
}

// Alerts returns the alerts that results raise and clear, which are in the order of Counted.
func (t *Trigger) Alerts(results []Written) (alerts []Written) {
	room, serial := "", 0
	for _, is := range results {
		if is.Room != room {
			room, serial = is.Room, 0
		}
		if raised := serial%2 == 1; t.changes(raised, is.Sum) {
			serial++
			is.Serial, is.Raised = serial, !raised
			alerts = append(alerts, is)
		}
	}
	return alerts
}

// Compare compares what a View has written, in the order of the output's log, with what it
// has to write. The order of different rooms is open.
func Compare(what string, got, want []Written) error {
	got = slices.Clone(got)
	slices.SortStableFunc(got, func(a, b Written) int { return cmp.Compare(a.Room, b.Room) })
	for i := range max(len(got), len(want)) {
		if i >= min(len(got), len(want)) || got[i] != want[i] {
			return fmt.Errorf("views disagree with a recount: there are %d %s, want %d; from number %d of those by room on they are %+v, want %+v",
				len(got), what, len(want), i, got[i:min(i+3, max(i, len(got)))], want[i:min(i+3, max(i, len(want)))])
		}
	}
	return nil
}

// Present is an alert of a View without windows. Its result is of the readings of each shard before
// an offset.
type Present struct {
	Written
	Offsets map[uint32]uint64
}

// Totals returns the results of all readings before these offsets, by room. Without offsets it is
// all readings.
func Totals(shards [][]Reading, before map[uint32]uint64) map[string]Sum {
	totals := map[string]Sum{}
	for shard, log := range shards {
		for i := range log {
			if r := &log[i]; before == nil || r.Offset < before[uint32(shard)] {
				sum := totals[r.Room]
				sum.add(r)
				totals[r.Room] = sum
			}
		}
	}
	return totals
}

// Judge judges the alerts of a View without windows, which are in the order of their log.
// Which results are judged depends on time, so a recount says of each alert:
//
//  1. The serial numbers of a room are 1, 2, 3 …, and alerts raise and clear in turn.
//  2. Its result is that of the readings before its offsets, which are not before those of the
//     alert before. It meets the condition.
//  3. After the last one, the result of all readings changes nothing.
func (t *Trigger) Judge(shards [][]Reading, alerts []Present) error {
	last := map[string]*Present{}
	wrong := func(a *Present, format string, args ...any) error {
		return fmt.Errorf("views disagree with a recount: alert %d of %s and %s %s", a.Serial, t.Name, a.Room, fmt.Sprintf(format, args...))
	}
	for i := range alerts {
		a := &alerts[i]
		serial, before := 1, map[uint32]uint64{}
		if l := last[a.Room]; l != nil {
			serial, before = l.Serial+1, l.Offsets
		}
		last[a.Room] = a
		if a.Serial != serial || a.Raised != (serial%2 == 1) {
			return wrong(a, "(raised: %v) is where number %d is due", a.Raised, serial)
		}
		if len(a.Offsets) != len(shards) {
			return wrong(a, "has offsets of %d shards of %d", len(a.Offsets), len(shards))
		}
		for shard, offset := range a.Offsets {
			if offset < before[shard] {
				return wrong(a, "is of readings before %d of shard %d, and the one before it of those before %d", offset, shard, before[shard])
			}
		}
		is := Totals(shards, a.Offsets)[a.Room]
		if is != a.Sum {
			return wrong(a, "has %+v, and the readings before %v have %+v", a.Sum, a.Offsets, is)
		}
		if !t.changes(!a.Raised, is) {
			return wrong(a, "(raised: %v) was made of %+v", a.Raised, is)
		}
	}
	for room, sum := range Totals(shards, nil) {
		raised := last[room] != nil && last[room].Raised
		if t.changes(raised, sum) {
			return fmt.Errorf("views disagree with a recount: %s of %s is raised: %v, and the readings have %+v", t.Name, room, raised, sum)
		}
	}
	return nil
}
