package topic

import (
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/publish"
)

// ahead is how much the leader of a shard has appended beyond the high watermark. It is bounded, since a
// leader that its followers can't reach would otherwise append, and keep in memory what it is to answer,
// for as long as it is cut off. Rules:
//
//  1. Beyond the bound, connections that publish to the shard are not read until the watermark has moved,
//     whether their messages ask for an answer or not. What they have published stands in their broker's outbox, which
//     is bounded as well and mostly full before.
//  2. When the watermark has not moved for aheadBound.Time, they are read again, and messages are refused
//     with a *publish.StalledError, which is true: nothing of them is kept. So a connection that publishes to other
//     shards, too, is not held up for longer.
//  3. The leader takes messages up to twice the bound; beyond it they wait in the outboxes of their senders.
//
// A shard without followers has no part in it: its watermark waits for the disk only, which is bounded
// by itself (log.ErrOverloaded).
type ahead struct {
	bytes   atomic.Int64
	records atomic.Int64
	moved   atomic.Int64 // on forward.Mono's clock: when the watermark last took some of it, or it last began to be more than nothing
}

// aheadBound is how much may stand beyond the watermark of one shard, and for how long publishers wait.
type aheadBound struct {
	Bytes, Records int64
	Time           time.Duration
}

// add notes an append. The shard's mu is held.
func (a *ahead) add(bytes, records int) {
	if a.records.Load() == 0 {
		a.moved.Store(forward.Mono())
	}
	a.bytes.Add(int64(bytes))
	a.records.Add(int64(records))
}

// take notes that the fate of an append is known: it is safe everywhere, or never will be.
func (a *ahead) take(bytes, records int) {
	a.moved.Store(forward.Mono())
	a.bytes.Add(-int64(bytes))
	a.records.Add(-int64(records))
}

// beyond says whether more than so many times the bound stands beyond the watermark.
func (a *ahead) beyond(bound *aheadBound, times int64) bool {
	return a.bytes.Load() > times*bound.Bytes || a.records.Load() > times*bound.Records
}

// stalled says for how long the watermark has not moved, if that is so long that nobody is to wait for it.
func (a *ahead) stalled(bound *aheadBound) (since time.Duration, ok bool) {
	since = time.Duration(forward.Mono() - a.moved.Load())
	return since, since > bound.Time && a.beyond(bound, 1)
}

// pushesBack says whether publishers are to wait for the shard (rule 1).
func (s *ShardLeader) pushesBack() bool {
	bound := &s.service.aheadBound
	if !s.ahead.beyond(bound, 1) {
		return false
	}
	_, stalled := s.ahead.stalled(bound)
	return !stalled
}

// stall is why nothing more is appended for now (rule 2), or nil.
func (s *ShardLeader) stall() error {
	bound := &s.service.aheadBound
	if !s.ahead.beyond(bound, 1) {
		return nil
	}
	if since, stalled := s.ahead.stalled(bound); stalled {
		return &publish.StalledError{Topic: s.shard.name, Bytes: s.ahead.bytes.Load(), Records: s.ahead.records.Load(), Since: since}
	}
	return nil
}
