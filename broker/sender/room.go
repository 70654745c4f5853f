package sender

import (
	"sync"
	"sync/atomic"
)

// room bounds what some outboxes hold together. While it is full, whoever publishes to them waits;
// at twice as much messages are refused, unless another room does that.
type room struct {
	bytes, messages         atomic.Int64 // that are held
	mostBytes, mostMessages int64
	waiting                 atomic.Int32 // publishers
	closed                  *atomic.Bool // nobody waits any more

	mu    sync.Mutex
	eased *sync.Cond
}

func newRoom(bytes, messages int64, closed *atomic.Bool) *room {
	r := &room{mostBytes: bytes, mostMessages: messages, closed: closed}
	r.eased = sync.NewCond(&r.mu)
	return r
}

func (r *room) full() bool {
	return r.bytes.Load() > r.mostBytes || r.messages.Load() > r.mostMessages
}

func (r *room) overfull() bool {
	return r.bytes.Load() > 2*r.mostBytes || r.messages.Load() > 2*r.mostMessages
}

// add counts what an outbox has got, or has no more.
func (r *room) add(bytes, messages int64) {
	r.bytes.Add(bytes)
	r.messages.Add(messages)
	if (bytes < 0 || messages < 0) && r.waiting.Load() > 0 && !r.full() {
		r.wake()
	}
}

// wake wakes the publishers that wait. Each checks again whether the room is full.
func (r *room) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.eased.Broadcast()
}

// wait blocks while the room is full.
func (r *room) wait() {
	if !r.full() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting.Add(1)
	defer r.waiting.Add(-1)
	for r.full() && !r.closed.Load() {
		r.eased.Wait()
	}
}
