package topic

import (
	"errors"

	"github.com/carillon-mq/carillon/broker/expiring"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/removal"
	"github.com/carillon-mq/carillon/broker/removing"
	"github.com/carillon-mq/carillon/broker/replica"
)

// Remove removes records one by one: those of spans between the start and the high watermark, at
// most removal.ItemSpans. done is called, perhaps before Remove returns, when the removal is as
// durable on all in-sync replicas as the Topic asks, and readers don't see the records any more. An
// error says that this is unknown; removing them again is harmless. If Remove returns an error,
// done is not called, and nothing was removed.
func (s *ShardLeader) Remove(spans []removal.Span, done func(error)) error {
	start, end := s.Offsets()
	store := func(err error) error {
		if err == nil {
			return nil
		}
		return &publish.StoreError{Topic: s.shard.name, Err: err}
	}
	return store(s.removing.Remove(spans, start, end, s.shard.view.Load().durability, func(err error) { done(store(err)) }))
}

// RemovalItems yields records with all removals that the state log has when it is called. So the
// state log may lose its records up to there once these are in it.
func (s *ShardLeader) RemovalItems(yield func(log.Record) bool) { s.removing.Snapshot()(yield) }

// RemovalBytes returns the size of the removals that were appended to the state log.
func (s *ShardLeader) RemovalBytes() uint64 { return s.removing.Bytes() }

// Spans returns offsets as spans of records, by epoch. Neighbours share a span.
func (s *ShardLeader) Spans(offsets []uint64) []removal.Span { return s.removing.Spans(offsets) }

// removedSome is called when records were removed by others than publishes.
func (s *ShardLeader) removedSome() {
	s.mu.Lock()
	if s.subjects != nil {
		s.subjects.Purged()
	}
	s.mu.Unlock()
	s.watchers.Call()
}

// Limit returns how many records a subject may have, the Topic's durability, and the removed
// records; 0: any number, or nothing is readable yet.
func (s *ShardLeader) Limit() (perSubject uint64, durability log.Durability, removed *removing.Keeper) {
	v := s.shard.view.Load()
	if s.readable.Load() {
		perSubject = v.limits.PerSubject
	}
	return perSubject, v.durability, &s.removing
}

// Expiry returns by which rules records expire, and the removed records. Nothing expires while
// nothing is readable, and of a sealed Topic.
func (s *ShardLeader) Expiry() (rules expiring.Rules, removed *removing.Keeper) {
	if v := s.shard.view.Load(); s.readable.Load() && !v.bound.Sealed {
		rules = v.expiry
	}
	return rules, &s.removing
}

// removals returns the removed records of a copy that this broker has, from its open logs: what is
// known to be committed, but for what batches carry that the state log doesn't have yet. A leader
// has them in ShardLeader.Removed.
func (p *Shard) removals() (set *removal.Set, taken uint64, err error) {
	set, open := new(removal.Set), p.opened.Load()
	if open == nil {
		return set, 0, log.ErrClosed
	}
	data, state := open.parts[replica.Data], open.parts[replica.State]
	loaded, err := removing.Load(state, data, state.Watermark(), data.Watermark(), false, set)
	return set, loaded.Taken, err
}

// knowRemovals loads the removed records for a new leader. They include removals that are not yet
// on all in-sync replicas: the leader becomes readable when all of its logs is.
func (s *ShardLeader) knowRemovals(v *view) error {
	err := s.removing.Init(removing.Config{
		State: s.state, Data: s.data, Append: s.AppendState, Changed: s.removedSome,
		Now: func() int64 { now, _ := s.service.config.Clock.Read(); return now },
	})
	_, damaged := errors.AsType[*log.CorruptError](err)
	switch {
	case damaged && s.service.othersCanLead(v):
		return err
	case damaged, errors.Is(err, removal.ErrMalformed):
		s.service.log.Error("some removals of single records can't be read; those records are visible again", "topic", s.shard.name, "error", err)
		return nil
	}
	return err
}
