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

// open returns a channel that is closed when the barrier is passed that begins at that time. It
// returns nil if the peer has not passed one yet that began at the earlier time or before.
func (b *barrier) open(since, earlier time.Duration) <-chan struct{} {
	over := make(chan struct{})
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waits) > 0 && b.waits[0].since <= earlier {
		return nil
	}
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

// Sync waits until each linked broker that has the feature has handled what was queued for it
// before the call, or its link has ended. What that broker had queued for this one before the call
// has been handled then, too: its answer comes behind that. Sync returns when ctx ends, with how
// many brokers have not.
// A broker that has been late for lateAfter is not waited for until it has answered: one that hangs
// delays one call, and not all.
func (m *Mesh) Sync(ctx context.Context, feature coordination.Feature) (late int) {
	var all []<-chan struct{}
	for _, l := range m.links() {
		if !l.up.Load() || !l.peer.Features.Has(feature) {
			continue
		}
		since := m.now()
		over := l.barrier.open(since, since-lateAfter)
		if over == nil {
			late++
			continue
		}
		all = append(all, over)
		l.sendControl(func(f *frames) { f.token(framePing, uint64(since)) })
	}
	for _, over := range all {
		select {
		case <-over:
			continue
		default:
		}
		select {
		case <-over:
		case <-ctx.Done():
			late++
		}
	}
	return late
}

// Notify queues a notice of at most 64 KiB for each linked broker that has the feature. It never
// waits, and leaves out brokers for which so much is queued that publishers wait: it returns how
// many. Peers take it in order with messages and interest.
func (m *Mesh) Notify(feature coordination.Feature, notice []byte) (left int) {
	return m.tell(feature, frameNotice, notice)
}

// Report queues a report of what the users of this broker demand, of at most quota.MaxReport bytes,
// for each linked broker that understands it. It never waits, and leaves out brokers for which so
// much is queued that publishers wait: those then don't hear this one.
func (m *Mesh) Report(report []byte) {
	m.tell(coordination.FeatureDividedLimits, frameDemands, report)
}

func (m *Mesh) tell(feature coordination.Feature, t frameType, body []byte) (left int) {
	for _, l := range m.links() {
		switch {
		case !l.up.Load() || !l.peer.Features.Has(feature):
		case l.Pending() >= maxPending:
			left++
		default:
			l.sendControl(func(f *frames) { f.opaque(t, body) })
		}
	}
	return left
}
