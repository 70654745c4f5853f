package route

import (
	"context"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// barrier lets goroutines wait until a peer has handled what was queued for it before. A ping is
// queued behind that, and its pong says that the peer's reader has come so far: interest has been
// set, notices were taken, and messages are in the queues of their receivers.
type barrier struct {
	mu    sync.Mutex
	ended bool
	waits []await
}

// await is one waiting goroutine. over is closed when a ping of that time or later was answered, or
// the link has ended.
type await struct {
	since time.Duration // Mesh.now before the ping was queued
	over  chan struct{}
}

// open returns a channel that is closed when the barrier is passed that begins at that time.
func (b *barrier) open(since time.Duration) <-chan struct{} {
	over := make(chan struct{})
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		close(over)
	} else {
		b.waits = append(b.waits, await{since, over})
	}
	return over
}

// passed ends the waits that began at that time or before: the ping that is answered was queued
// later than what they wait for.
func (b *barrier) passed(sent time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := b.waits[:0]
	for _, w := range b.waits {
		if w.since <= sent {
			close(w.over)
		} else {
			left = append(left, w)
		}
	}
	clear(b.waits[len(left):])
	b.waits = left
}

// end ends all waits.
func (b *barrier) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	for _, w := range b.waits {
		close(w.over)
	}
	b.waits = nil
}

// Sync waits until each linked broker has handled what was queued for it before the call, or its
// link has ended. It returns the error of ctx if that ends first.
func (m *Mesh) Sync(ctx context.Context) error {
	var all []<-chan struct{}
	for _, l := range m.links() {
		if !l.up.Load() {
			continue
		}
		since := m.now()
		all = append(all, l.barrier.open(since))
		l.sendControl(func(f *frames) { f.token(framePing, uint64(since)) })
	}
	for _, over := range all {
		select {
		case <-over:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Notify queues a notice of at most 64 KiB for each linked broker that has the feature. It never
// waits. Peers take it in order with messages and interest.
func (m *Mesh) Notify(feature coordination.Feature, notice []byte) {
	for _, l := range m.links() {
		if l.up.Load() && l.peer.Features.Has(feature) {
			l.sendControl(func(f *frames) { f.notice(notice) })
		}
	}
}
