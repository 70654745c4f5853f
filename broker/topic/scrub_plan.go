package topic

import (
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/log"
)

// sealedSegment is one segment at rest on this broker.
type sealedSegment struct {
	log.SegmentCheck
	shard *Shard
	log   *log.Log
}

// since is from when on the segment is not known to be whole: from its last scrub, or else from when
// it was written.
func (s *sealedSegment) since() time.Time {
	if s.Since.IsZero() {
		return s.Last
	}
	return s.Since
}

// planScrub returns the segments that are due to be scrubbed, in order.
//
//  1. A segment is due scrubEvery after its last scrub, or at once if none is known or if its time is
//     in the future, since the clock was wrong then or is now.
//  2. After a start that was not orderly, at began, each segment is due that was not scrubbed since.
//     began is zero after an orderly start.
//  3. Those that rule 2 makes due come newest first, as what was written last is what a crash harms
//     most. All that are due come longest waiting first. The two orders take turns, so that a broker
//     that crashes every few minutes comes to its oldest segments as well.
func planScrub(segments []sealedSegment, now, began time.Time) []sealedSegment {
	// Times of scrubs are in whole seconds.
	began = began.Truncate(time.Second)
	known := func(s *sealedSegment) time.Time {
		if s.Since.After(now) {
			return time.Time{}
		}
		return s.Since
	}
	var waiting, newest []*sealedSegment
	for i := range segments {
		s := &segments[i]
		unsure := !began.IsZero() && known(s).Before(began)
		if unsure {
			newest = append(newest, s)
		}
		if unsure || now.Sub(known(s)) >= scrubEvery {
			waiting = append(waiting, s)
		}
	}
	slices.SortStableFunc(newest, func(a, b *sealedSegment) int { return b.Last.Compare(a.Last) })
	slices.SortStableFunc(waiting, func(a, b *sealedSegment) int { return known(a).Compare(known(b)) })
	plan := make([]sealedSegment, 0, len(waiting))
	taken := make(map[*sealedSegment]bool, len(waiting))
	take := func(from []*sealedSegment) []*sealedSegment {
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

// oldestUnscrubbed is for how long the segment has not been scrubbed that has waited longest; zero if
// there is none.
func oldestUnscrubbed(segments []sealedSegment, now time.Time) (age time.Duration) {
	for i := range segments {
		age = max(age, now.Sub(segments[i].since()))
	}
	return age
}
