package scrub

import (
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/log"
)

// Every is after what time a segment is scrubbed again: until then damage may stay unnoticed while
// other replicas are damaged, too.
const Every = time.Hour

// Segment is one segment at rest. Of is the caller's: whose segment it is.
type Segment[T any] struct {
	log.SegmentCheck
	Of T
}

// Plan returns the segments that are due to be scrubbed, in order.
//
//  1. A segment is due Every after its last scrub, or at once if none is known or if its time is
//     in the future, since the clock was wrong then or is now.
//  2. After a start that was not orderly, at began, each segment is due that was not scrubbed
//     since. began is zero after an orderly start.
//  3. Those that rule 2 makes due come newest first, as what was written last is what a crash harms
//     most. All that are due come longest waiting first. The two orders take turns, so that a
//     broker that crashes every few minutes comes to its oldest segments as well.
func Plan[T any](segments []Segment[T], now, began time.Time) []Segment[T] {
	// Times of scrubs are in whole seconds.
	began = began.Truncate(time.Second)
	known := func(s *Segment[T]) time.Time {
		if s.Since.After(now) {
			return time.Time{}
		}
		return s.Since
	}
	var waiting, newest []*Segment[T]
	for i := range segments {
		s := &segments[i]
		unsure := !began.IsZero() && known(s).Before(began)
		if unsure {
			newest = append(newest, s)
		}
		if unsure || now.Sub(known(s)) >= Every {
			waiting = append(waiting, s)
		}
	}
	slices.SortStableFunc(newest, func(a, b *Segment[T]) int { return b.Last.Compare(a.Last) })
	slices.SortStableFunc(waiting, func(a, b *Segment[T]) int { return known(a).Compare(known(b)) })
	plan := make([]Segment[T], 0, len(waiting))
	taken := make(map[*Segment[T]]bool, len(waiting))
	take := func(from []*Segment[T]) []*Segment[T] {
		for len(from) > 0 && taken[from[0]] {
			from = from[1:]
		}
		if len(from) == 0 {
			return nil
		}
		taken[from[0]] = true
		plan = append(plan, *from[0])
		return from[1:]
	}
	for len(newest) > 0 || len(waiting) > 0 {
		newest, waiting = take(newest), take(waiting)
	}
	return plan
}

// Oldest is for how long the segment has not been scrubbed that has waited longest; zero if
// there is none. A segment that was never scrubbed counts from when it was written.
func Oldest(segments []log.SegmentCheck, now time.Time) (age time.Duration) {
	for i := range segments {
		since := segments[i].Since
		if since.IsZero() {
			since = segments[i].Last
		}
		age = max(age, now.Sub(since))
	}
	return age
}
