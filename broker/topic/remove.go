package topic

import (
	"math"
	"slices"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/removal"
)

// Remove removes records one by one: those of spans between the start and the high watermark, at
// most removal.ItemSpans. done is called, perhaps before Remove returns, when the removal is as
// durable on all in-sync replicas as the Topic asks, and readers don't see the records any more. An
// error says that this is unknown; removing them again is harmless. If Remove returns an error,
// done is not called, and nothing was removed.
func (s *ShardLeader) Remove(spans []removal.Span, done func(error)) error {
	start, end := s.Offsets()
	r := &stateRemoval{shard: s, done: done}
	for _, span := range spans {
		span.From, span.Next = max(span.From, start), min(span.Next, end)
		if part, ok := span.Within(s.data); ok {
			r.Spans = append(r.Spans, part)
		}
	}
	if len(r.Spans) == 0 {
		done(nil)
		return nil
	}
	now, _ := s.service.config.Clock.Read()
	item := removal.AppendItem(nil, r.Spans...)
	a := log.Append{
		Records:    []log.Record{{Time: now, Subject: []byte(removal.Subject), Data: item}},
		Durability: s.shard.view.Load().durability, Done: r,
	}
	s.stateMu.Lock()
	defer s.stateMu.Unlock()
	s.removing.Add(&r.Removal)
	if _, err := s.appendState(&a); err != nil {
		s.removing.Done(&r.Removal)
		return &publish.StoreError{Topic: s.shard.name, Err: err}
	}
	s.removalBytes.Add(uint64(len(item)))
	return nil
}

// Committed is called by the acker. Records are in removed before they are out of removing, so that
// RemovalItems misses none.
func (r *stateRemoval) Committed(_, _ uint64, err error) {
	s := r.shard
	if err == nil {
		for _, span := range r.Spans {
			s.removed.Add(span.From, span.Next)
		}
	}
	s.stateMu.Lock()
	s.removing.Done(&r.Removal)
	s.stateMu.Unlock()
	if err != nil {
		r.done(&publish.StoreError{Topic: s.shard.name, Err: err})
		return
	}
	s.moved()
	r.done(nil)
}

// RemovalItems yields Items with all removals that the state log has when it is called. So the
// state log may lose its records up to there once the Items are in it.
func (s *ShardLeader) RemovalItems(yield func(item []byte) bool) {
	s.stateMu.Lock()
	pending := s.removing.Spans()
	s.stateMu.Unlock()
	s.removed.Trim(s.data.Start())
	removal.Items(func(yield func(removal.Span) bool) {
		for _, span := range pending {
			if !yield(span) {
				return
			}
		}
		for from, next := range s.removed.Ranges(0, math.MaxUint64) {
			for span := range removal.Split(from, next, s.data.EpochAt) {
				if !yield(span) {
					return
				}
			}
		}
	})(yield)
}

// RemovalBytes returns the size of the removals that were appended to the state log.
func (s *ShardLeader) RemovalBytes() uint64 { return s.removalBytes.Load() }

// Spans returns offsets as spans of records, by epoch. Neighbours share a span.
func (s *ShardLeader) Spans(offsets []uint64) (spans []removal.Span) {
	for len(offsets) > 0 {
		n := 1
		for n < len(offsets) && offsets[n] == offsets[0]+uint64(n) {
			n++
		}
		spans = slices.AppendSeq(spans, removal.Split(offsets[0], offsets[0]+uint64(n), s.data.EpochAt))
		offsets = offsets[n:]
	}
	return spans
}
