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
	Source   coordination.StreamSource // of one of several shards that are a mirror: what that one mirrors
	Sequence uint64                    // the last one that was copied, of the present stream; 0: none
	Lag      uint64                    // records that are left: at most, if there are filters
	Active   time.Duration             // since the origin was last heard of; -1: never
	Err      error                     // why it goes no further now
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
	streams := s.Streams.of(sources, shard.Place())
	for _, source := range sources {
		info, some := Info{Source: source, Active: -1}, 0
		for _, stream := range streams {
			if stream.source.Index() == source.Index() {
				if source.Mirrored {
					info.Source = stream.named
				}
				s.add(&info, shard, stream, &progress)
				some++
			}
		}
		if some < len(s.Streams.names(source, shard.Place())) && info.Err == nil {
			info.Err = fmt.Errorf("the sources of the stream have more than %d shards together, or name the same ones twice", maxStreams)
		}
		infos = append(infos, info)
	}
	return infos
}

// add adds how far a stream has come to the Info of its source: what is left of all, and what is
// the largest of all otherwise. An origin that was never heard of does not count there.
func (s *Sourcing[S]) add(info *Info, shard S, stream streamOf, progress *removal.Progress) {
	index := stream.named.Index()
	if come, ok := progress.Of(removal.KeyOf(index)); ok {
		if identity, _, err := s.Find(stream.named.Name); err != nil || identity == come.Origin {
			info.Sequence = max(info.Sequence, come.Sequence)
		}
	}
	s.mu.Lock()
	r, full := s.runs[place[S]{shard, index}], len(s.runs) >= maxSources
	s.mu.Unlock()
	if r == nil && full && info.Err == nil {
		info.Err = errors.New("this broker copies as many sources as it can; spread the streams, or have fewer sources")
	}
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if info.Lag += r.lag; info.Err == nil {
		info.Err = r.err
	}
	if !r.heard.IsZero() {
		info.Active = max(info.Active, time.Since(r.heard))
	}
}
