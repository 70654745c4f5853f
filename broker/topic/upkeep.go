package topic

import (
	"iter"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/replica"
	"github.com/carillon-mq/carillon/broker/upkeep"
)

// ScrubStats counts the upkeep of segments at rest, and damaged copies that were set aside to be
// fetched again.
type ScrubStats struct {
	upkeep.Stats
	Copies uint64
}

// ScrubStats returns the counters.
func (s *Service) ScrubStats() ScrubStats {
	return ScrubStats{s.upkeep.Stats(), s.counts.refetched.Load()}
}

// Compacted returns the counters of compaction.
func (s *Service) Compacted() upkeep.Compacted { return s.upkeep.Compacted() }

// Unscrubbed returns for how long the sealed segment on this broker has not been scrubbed that has
// waited longest. A segment that was never scrubbed counts from when it was written.
func (s *Service) Unscrubbed() time.Duration { return upkeep.Unscrubbed(shardsOf(s.unsorted())) }

// Unscrubbed returns the same of this broker's copy of the shard.
func (p *Shard) Unscrubbed() time.Duration {
	return upkeep.Unscrubbed(func(yield func(upkeep.Shard) bool) { yield((*upkeepShard)(p)) })
}

// upkeepShards iterates over all shards of the cluster, sorted by Topic.
func (s *Service) upkeepShards() iter.Seq[upkeep.Shard] { return shardsOf(s.Topics()) }

func shardsOf(topics []*Topic) iter.Seq[upkeep.Shard] {
	return func(yield func(upkeep.Shard) bool) {
		for _, t := range topics {
			for _, p := range t.shards {
				if !yield((*upkeepShard)(p)) {
					return
				}
			}
		}
	}
}

// upkeepShard is a Shard as package upkeep sees it.
type upkeepShard Shard

// Name returns the name of the shard.
func (p *upkeepShard) Name() string { return p.name }

// Logs returns the open logs of this broker's copy, or nil.
func (p *upkeepShard) Logs() []*log.Log {
	if open := p.opened.Load(); open != nil {
		return open.parts[:]
	}
	return nil
}

// Compaction reports whether the shard is compacted, and below which offset.
func (p *upkeepShard) Compaction() (below uint64, window time.Duration, ok bool) {
	v := p.view.Load()
	if v == nil || v.gone || v.desired.Spec.Compaction != coordination.LatestOnly {
		return 0, 0, false
	}
	if shard := p.leading.Load(); shard != nil {
		below = shard.high.Load()
	} else if f := p.copying.Load(); f != nil {
		below = f.High(replica.Data)
	}
	return below, v.window, true
}

// Damaged queues damage for the worker of the shard.
func (p *upkeepShard) Damaged(damage *log.CorruptError) {
	p.topic.service.queueDamage((*Shard)(p), damageFound+damage.Error())
}
