package ahead

import (
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/publish"
)

// Ahead is how much the leader of a shard has appended beyond the high watermark. It is bounded:
// otherwise a leader that is cut off from its followers would append, and keep pending answers in
// memory, without end. Rules:
//
//  1. Beyond the bound, connections that publish to the shard are not read until the watermark has
//     moved. Their messages wait in their broker's outbox, which is bounded as well.
//  2. When the watermark has not moved for Bound.Time, connections are read again, so that
//     they can publish to other shards. Messages are refused with a *publish.StalledError and not
//     kept.
//  3. The leader accepts messages up to twice the bound. Beyond that they wait in the outboxes.
//
// A shard without followers is not counted: its watermark waits for the disk only, and the disk has
// a bound of its own (log.ErrOverloaded).
type Ahead struct {
	bytes   atomic.Int64
	records atomic.Int64
	// moved is when the watermark last took some of it, or it last became more than zero, on
	// forward.Mono's clock.
	moved atomic.Int64
}

// Bound bounds the records of one shard beyond its watermark, and for how long publishers
// wait.
type Bound struct {
	Bytes, Records int64
	Time           time.Duration
}

// Add notes an append. The shard's mu is held.
func (a *Ahead) Add(bytes, records int) {
	if a.records.Load() == 0 {
		a.moved.Store(forward.Mono())
	}
	a.bytes.Add(int64(bytes))
	a.records.Add(int64(records))
}

// Remove notes that an append is durable on all in-sync replicas, or has failed.
func (a *Ahead) Remove(bytes, records int) {
	a.moved.Store(forward.Mono())
	a.bytes.Add(-int64(bytes))
	a.records.Add(-int64(records))
}

// Beyond reports whether more than so many times the bound stands beyond the watermark.
func (a *Ahead) Beyond(bound *Bound, times int64) bool {
	return a.bytes.Load() > times*bound.Bytes || a.records.Load() > times*bound.Records
}

// Stalled returns for how long the watermark has not moved, and whether rule 2 applies.
func (a *Ahead) Stalled(bound *Bound) (since time.Duration, ok bool) {
	since = time.Duration(forward.Mono() - a.moved.Load())
	return since, since > bound.Time && a.Beyond(bound, 1)
}

// PushesBack reports whether publishers have to wait (rule 1).
func (a *Ahead) PushesBack(bound *Bound) bool {
	if !a.Beyond(bound, 1) {
		return false
	}
	_, stalled := a.Stalled(bound)
	return !stalled
}

// Refusal returns why messages are refused (rule 2), or nil. name is the shard's.
func (a *Ahead) Refusal(bound *Bound, name string) error {
	if !a.Beyond(bound, 1) {
		return nil
	}
	if since, stalled := a.Stalled(bound); stalled {
		return &publish.StalledError{Topic: name, Bytes: a.bytes.Load(), Records: a.records.Load(), Since: since}
	}
	return nil
}

// Bytes returns the bytes beyond the watermark.
func (a *Ahead) Bytes() int64 { return a.bytes.Load() }
