package sourcing

import (
	"errors"
	"fmt"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/removal"
)

// Info is how far a source has come.
type Info struct {
	Source   coordination.StreamSource
	Sequence uint64        // the last one that was copied, of the present stream; 0: none
	Lag      uint64        // records that are left: at most, if there are filters
	Active   time.Duration // since the origin was last heard of; -1: never
	Err      error         // why it goes no further now
}

// heardOf notes what a step has brought.
func (r *run[S]) heardOf(f *fetcher, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err, r.failing = err, err != nil; err == nil {
		r.err = f.loss()
	}
	if err == nil && f.skipped > 0 {
		r.err = errors.Join(r.err, fmt.Errorf("%d messages were passed over, which are too large for a link between brokers", f.skipped))
	}
	if err == nil {
		r.lag, r.heard = f.lag, time.Now()
	}
}

// Infos returns how far the sources of a shard have come that is led here.
func (s *Sourcing[S]) Infos(shard S) []Info {
	sources, _, keeper := shard.Sources()
	if len(sources) == 0 {
		return nil
	}
	progress := keeper.Progress()
	infos := make([]Info, 0, len(sources))
	for _, source := range sources {
		info := Info{Source: source, Active: -1}
		index := source.Index()
		if come, ok := progress.Of(removal.KeyOf(index)); ok {
			if identity, _, err := s.Find(source.Name); err != nil || identity == come.Origin {
				info.Sequence = come.Sequence
			}
		}
		s.mu.Lock()
		r, full := s.runs[place[S]{shard, index}], len(s.runs) >= maxSources
		s.mu.Unlock()
		if r != nil {
			r.mu.Lock()
			info.Lag, info.Err = r.lag, r.err
			if !r.heard.IsZero() {
				info.Active = time.Since(r.heard)
			}
			r.mu.Unlock()
		} else if full {
			info.Err = errors.New("this broker copies as many sources as it can; spread the streams, or have fewer sources")
		}
		infos = append(infos, info)
	}
	return infos
}
