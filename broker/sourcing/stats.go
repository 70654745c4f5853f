package sourcing

import (
	"sync/atomic"
	"time"
)

// Stats is what a broker's sources have done, and how far they have come. Mirrors are sources, too.
type Stats struct {
	Sources int           // that are copied here, of the shards that this broker leads
	Waiting int           // of these shards too, and not copied: there are more than maxSources
	Failing int           // of Sources that can't be copied for now
	Lag     uint64        // records that are left: at most, where there are filters
	Most    uint64        // of Lag, those of one source
	Silent  time.Duration // the longest time since an origin was heard of

	Copied  uint64 // records that were appended, or that were duplicates
	Skipped uint64 // records that were passed over, because no link carries them
	Lost    uint64 // times that an origin was found to have lost records that were copied
}

// counters are those of Stats.
type counters struct {
	waiting               atomic.Int64
	copied, skipped, lost atomic.Uint64
}

// Stats returns the present Stats.
func (s *Sourcing[S]) Stats() Stats {
	is := Stats{Waiting: int(s.counts.waiting.Load()), Copied: s.counts.copied.Load(), Skipped: s.counts.skipped.Load(), Lost: s.counts.lost.Load()}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.runs {
		if r.ctx.Err() != nil {
			continue // it is ending
		}
		is.Sources++
		r.mu.Lock()
		is.Lag, is.Most = is.Lag+r.lag, max(is.Most, r.lag)
		if r.failing {
			is.Failing++
		}
		heard := r.heard
		if heard.IsZero() {
			heard = r.begun
		}
		is.Silent = max(is.Silent, time.Since(heard))
		r.mu.Unlock()
	}
	return is
}
