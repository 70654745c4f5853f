package topic

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/replica"
	"github.com/carillon-mq/carillon/broker/scrub"
)

const (
	// scrubPace is how many bytes of sealed segments are read per second to find damage: a hundredth
	// of what a usual disk reads, and 20 GB take half an hour.
	scrubPace = 12 << 20
	// scrubFirst is when the scrubber begins after a start: a broker that starts has done by then what
	// others wait for, and one that restarts every few minutes scrubs, too.
	scrubFirst = time.Minute
	// scrubPlan is how often due segments are looked for: logs are opened, segments sealed and
	// compacted meanwhile.
	scrubPlan = time.Minute
	// scrubSave is how often progress is saved while segments are scrubbed. A crash costs no more, and
	// two syncs are little in that time.
	scrubSave = 30 * time.Second
	// compressFirst is when the first round of compression begins, when a broker that starts has done
	// what others wait for, and compressRest the pause between two rounds.
	compressFirst = time.Minute
	compressRest  = time.Hour
)

// shardLog is one log of a shard's copy here, and sealedSegment one of its segments at rest.
type (
	shardLog struct {
		shard *Shard
		log   *log.Log
	}
	sealedSegment = scrub.Segment[shardLog]
)

// ScrubStats counts upkeep of segments at rest: bytes scrubbed, damages found, bytes saved by
// compression, and damaged copies that were set aside to be fetched again.
type ScrubStats struct{ Scrubbed, Damages, Saved, Copies uint64 }

type scrubCounts struct{ scrubbed, damages, saved, copies atomic.Uint64 }

// ScrubStats returns the counters.
func (s *Service) ScrubStats() ScrubStats {
	return ScrubStats{s.scrubs.scrubbed.Load(), s.scrubs.damages.Load(), s.scrubs.saved.Load(), s.scrubs.copies.Load()}
}

// scrubber reads the sealed segments of all open logs, in the order of scrub.Plan, to find damage
// while another replica has what is damaged.
func (s *Service) scrubber() {
	pace := log.NewPace(scrubPace)
	began := time.Time{}
	if s.config.Disk.Mark() == nil {
		began = time.Now()
	}
	timer := time.NewTimer(scrubFirst)
	defer timer.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-timer.C:
		}
		planned := time.Now()
		saved, more := planned, false
		plan := scrub.Plan(s.sealedSegments(), planned, began)
		for i := range plan {
			if s.ctx.Err() != nil {
				return
			}
			if more = time.Since(planned) >= scrubPlan; more {
				break
			}
			s.scrub(s.ctx, plan[i].Of.shard, plan[i].Of.log, log.ScrubOptions{From: plan[i].Base, Most: 1, Pace: pace})
			if time.Since(saved) >= scrubSave {
				s.saveChecks()
				saved = time.Now()
			}
		}
		if len(plan) > 0 {
			s.saveChecks()
		}
		if more {
			timer.Reset(0)
		} else {
			timer.Reset(scrubPlan)
		}
	}
}

func (s *Service) saveChecks() {
	if err := s.config.Disk.SaveChecks(); err != nil && s.ctx.Err() == nil {
		s.log.Warn("The progress of scrubbing can't be saved; after a restart segments are scrubbed earlier than they are due", "error", err)
	}
}

// sealedSegments are those of all logs that are open.
func (s *Service) sealedSegments() (all []sealedSegment) {
	for _, p := range s.Shards() {
		all = p.appendSealed(all)
	}
	return all
}

func (p *Shard) appendSealed(to []sealedSegment) []sealedSegment {
	if open := p.opened.Load(); open != nil {
		for _, l := range open.parts {
			for _, check := range l.Checks() {
				to = append(to, sealedSegment{SegmentCheck: check, Of: shardLog{p, l}})
			}
		}
	}
	return to
}

// Unscrubbed is for how long the sealed segment of this broker has not been scrubbed that has waited
// longest. What was never scrubbed counts from when it was written.
func (s *Service) Unscrubbed() time.Duration {
	return scrub.Oldest(s.sealedSegments(), time.Now())
}

// Unscrubbed is the same of this broker's copy of the shard.
func (p *Shard) Unscrubbed() time.Duration {
	return scrub.Oldest(p.appendSealed(nil), time.Now())
}

// compressor compresses the sealed segments of all open logs, in rounds.
func (s *Service) compressor() { s.rounds(compressFirst, compressRest, s.compress) }

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

// scrub reads segments of one log of a shard and reports what is damaged. The log may be closed
// meanwhile.
func (s *Service) scrub(ctx context.Context, p *Shard, l *log.Log, o log.ScrubOptions) {
	report, err := l.ScrubFrom(ctx, o)
	s.scrubs.scrubbed.Add(uint64(report.Bytes))
	if err != nil {
		s.upkeepFailed(p, "scrub", err)
		return
	}
	if len(report.Damaged) > 0 {
		s.scrubs.damages.Add(uint64(len(report.Damaged)))
		first := report.Damaged[0]
		s.log.Error("a Topic's log is damaged", "topic", p.Name(), "log", l.Name(), "damages", len(report.Damaged), "first", first.Error())
		s.harmed(p, damageFound+first.Error())
	}
}

// compress compresses the sealed segments of one shard. The log may be closed meanwhile.
func (s *Service) compress(p *Shard) {
	open := p.opened.Load()
	if open == nil {
		return
	}
	saved, err := open.parts[replica.Data].Compress(s.ctx, 0)
	if err != nil {
		s.upkeepFailed(p, "compress", err)
		return
	}
	s.scrubs.saved.Add(uint64(max(saved, 0)))
}

func (s *Service) upkeepFailed(p *Shard, doing string, err error) {
	if s.ctx.Err() == nil && !errors.Is(err, log.ErrClosed) {
		s.log.Warn("The upkeep of a Topic's sealed segments failed; the next round tries again", "topic", p.Name(), "doing", doing, "error", err)
	}
}
