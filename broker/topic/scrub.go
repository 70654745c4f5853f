package topic

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/replica"
)

const (
	// scrubPace is how many bytes of sealed segments are read per second to look for damage: a hundredth of
	// what a usual disk reads, and 20 GB are through in half an hour.
	scrubPace = 12 << 20
	// scrubRest is how long a round of care is followed by none. Damage of a disk at rest is counted in years.
	scrubRest = time.Hour
	// scrubFirst is when the first round begins, when a broker that starts has done what others wait for.
	scrubFirst = time.Minute
)

// ScrubStats counts upkeep of segments at rest: bytes scrubbed, damages found, bytes saved by
// compression, and damaged copies that were set aside to be fetched again.
type ScrubStats struct{ Scrubbed, Damages, Saved, Copies uint64 }

type scrubCounts struct{ scrubbed, damages, saved, copies atomic.Uint64 }

// ScrubStats returns the counters.
func (s *Service) ScrubStats() ScrubStats {
	return ScrubStats{s.scrubs.scrubbed.Load(), s.scrubs.damages.Load(), s.scrubs.saved.Load(), s.scrubs.copies.Load()}
}

// scrubber goes round all logs that are open, again and again: it compresses segments that are sealed, and reads them to find
// damage before anybody needs what is damaged, while another replica has it.
func (s *Service) scrubber() {
	pace := log.NewPace(scrubPace)
	s.rounds(scrubFirst, scrubRest, func(p *Shard) { s.scrubShard(s.ctx, p, pace) })
}

// rounds does something for each shard, one after the other, again and again, until the service closes.
func (s *Service) rounds(first, rest time.Duration, do func(*Shard)) {
	timer := time.NewTimer(first)
	defer timer.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-timer.C:
		}
		for _, t := range s.Topics() {
			for _, p := range t.shards {
				if s.ctx.Err() != nil {
					return
				}
				do(p)
			}
		}
		timer.Reset(rest)
	}
}

// scrubShard sees to the logs of one shard. They may be closed meanwhile.
func (s *Service) scrubShard(ctx context.Context, p *Shard, pace *log.Pace) {
	open := p.opened.Load()
	if open == nil {
		return
	}
	for _, l := range open.parts {
		report, err := l.ScrubFrom(ctx, log.ScrubOptions{Pace: pace})
		s.scrubs.scrubbed.Add(uint64(report.Bytes))
		if err != nil {
			s.careFailed(p, "scrub", err)
			return
		}
		if len(report.Damaged) > 0 {
			s.scrubs.damages.Add(uint64(len(report.Damaged)))
			first := report.Damaged[0]
			s.log.Error("a Topic's log is damaged", "topic", p.Name(), "log", l.Name(), "damages", len(report.Damaged), "first", first.Error())
			s.harmed(p, damageFound+first.Error())
			return
		}
	}
	saved, err := open.parts[replica.Data].Compress(ctx, 0)
	if err != nil {
		s.careFailed(p, "compress", err)
		return
	}
	s.scrubs.saved.Add(uint64(max(saved, 0)))
}

func (s *Service) careFailed(p *Shard, doing string, err error) {
	if s.ctx.Err() == nil && !errors.Is(err, log.ErrClosed) {
		s.log.Warn("a Topic's log at rest can't be cared for; it is tried again in the next round", "topic", p.Name(), "doing", doing, "error", err)
	}
}
