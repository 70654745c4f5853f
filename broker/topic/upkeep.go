package topic

import (
	"errors"
	"iter"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/removal"
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
func (s *Service) Compacted() upkeep.Rewrites { return s.upkeep.Compacted() }

// Expunged returns the counters of removed records that left the files of this broker.
func (s *Service) Expunged() upkeep.Rewrites { return s.upkeep.Expunged() }

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

// Removals returns the removed records of this broker's copy, if it isn't in doubt. A leader has
// them in memory, and a follower reads them.
func (p *upkeepShard) Removals() (removed upkeep.Removals, ok bool, err error) {
	v := p.view.Load()
	if v == nil || v.gone || p.own.doubted.Load() {
		return removed, false, nil
	}
	removed.Window = v.window
	if shard := p.leading.Load(); shard != nil {
		removed.Set, removed.Taken = shard.Removed(), shard.removing.Taken()
		return removed, shard.readable.Load() && removed.Set.Len() > 0, nil
	}
	open := p.opened.Load()
	if open == nil || p.copying.Load() == nil || !p.unremoved.Any(open.parts[replica.State]) {
		return removed, false, nil
	}
	removed.Set, removed.Taken, err = (*Shard)(p).removals()
	_, damaged := errors.AsType[*log.CorruptError](err)
	if err != nil && !damaged && !errors.Is(err, removal.ErrMalformed) {
		return removed, false, err
	}
	return removed, removed.Set.Len() > 0, nil // damage is reported by those that look for it
}

// Damaged queues damage for the worker of the shard.
func (p *upkeepShard) Damaged(damage *log.CorruptError) {
	p.topic.service.queueDamage((*Shard)(p), damageFound+damage.Error())
}
