package chaos

import (
	"cmp"
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
	Room string
	End  int64 // of the window, in ns
	Sum
	Serial int // of an alert; 0: it is a result
	Raised bool
}

// Windows are those of a View.
type Windows struct{ Size, Lateness time.Duration }

// mostAhead is how much later than a record was stored the time may be that it names.
const mostAhead = int64(time.Hour)

// Recount returns the results that a View of whole logs has to have, by the definitions of
// docs/api.md: those of the windows that all shards have closed, in the order of rooms and ends.
// late is how many readings came too late for their window, and untimed how many have no time.
func Recount(shards [][]Reading, w Windows) (results []Written, late, untimed int) {
	type window struct {
		room string
		end  int64
	}
	sums, closed, size := map[window]*Written{}, int64(math.MaxInt64), int64(w.Size)
	for _, log := range shards {
		watermark := int64(math.MinInt64)
		for i := range log {
			r := &log[i]
			if r.At > r.Stored+mostAhead {
				untimed++
				continue
			}
			if at := (window{r.Room, r.At - r.At%size + size}); at.end <= watermark {
				late++
			} else {
				if sums[at] == nil {
					sums[at] = &Written{Room: at.room, End: at.end}
				}
				sums[at].add(r)
			}
			watermark = max(watermark, r.At-int64(w.Lateness))
		}
		closed = min(closed, watermark)
	}
	for _, sum := range sums {
		if sum.End <= closed {
			results = append(results, *sum)
		}
	}
	slices.SortFunc(results, func(a, b Written) int { return cmp.Or(cmp.Compare(a.Room, b.Room), cmp.Compare(a.End, b.End)) })
	return results, late, untimed
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

// Alerts returns the alerts that results raise and clear, which are in the order of Recount.
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

// CompareWritten compares what a View has written, in the order of the output's log, with what it
// has to write. The order of different rooms is open.
func CompareWritten(what string, got, want []Written) error {
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

// JudgePresent judges the alerts of a View without windows, which are in the order of their log.
// Which results are judged depends on time, so a recount says of each alert:
//
//  1. The serial numbers of a room are 1, 2, 3 …, and alerts raise and clear in turn.
//  2. Its result is that of the readings before its offsets, which are not before those of the
//     alert before. It meets the condition.
//  3. After the last one, the result of all readings changes nothing.
func (t *Trigger) JudgePresent(shards [][]Reading, alerts []Present) error {
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
