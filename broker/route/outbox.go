package route

import (
	"errors"
	"sync"

	"github.com/carillon-mq/carillon/broker/session"
)

var errOverflow = errors.New("more is pending than a link may hold")

// outbox is the queue of one link. Callers append encoded frames and never wait; the link's writer
// takes everything that has gathered. While the outbox is held, changes of interest are kept aside.
// It is held from before the hub knows the link until the complete interest is queued, so that
// changes follow the snapshot.
type outbox struct {
	maxPayload int
	wake       chan struct{} // holds one token while the writer may have something to take

	mu      sync.Mutex
	eased   sync.Cond // pending fell to maxPending, or the link is down
	queued  frames
	written int // the part of queued.bytes that the writer has written
	hard    int // bound of pending bytes; see maxPendingHard
	held    bool
	early   []session.Interest
	closed  bool
	lost    uint64 // messages that were queued and never written
}

func newOutbox(maxPayload int) *outbox {
	o := &outbox{maxPayload: maxPayload, wake: make(chan struct{}, 1), hard: maxPendingHard, held: true}
	o.eased.L = &o.mu
	return o
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// verdict is the result of queueing a message.
type verdict struct {
	behind   bool // more is pending than maxPending: publishers should wait
	overflow bool // more is pending than hard: the link must be closed
	oversize bool // the message fits no frame and was dropped
}

func (o *outbox) forward(m *session.Message, reach session.Reach) (v verdict) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		o.lost++
		return verdict{}
	}
	idle := o.queued.head == nil // otherwise the writer has its token already
	v.oversize = o.queued.message(m, reach, o.maxPayload) == 0
	v.behind, v.overflow = o.pendingLocked() > maxPending, o.pendingLocked() > o.hard
	if idle {
		o.signal()
	}
	return v
}

// carry queues one Topics frame, the concatenation of parts.
func (o *outbox) carry(parts [][]byte) (v verdict) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return verdict{}
	}
	idle := o.queued.head == nil
	v.oversize = !o.queued.topics(parts, o.maxPayload+frameOverhead)
	v.behind, v.overflow = o.pendingLocked() > maxPending, o.pendingLocked() > o.hard
	if idle {
		o.signal()
	}
	return v
}

// wait blocks while the link is behind.
func (o *outbox) wait() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.closed && o.pendingLocked() > maxPending {
		o.eased.Wait()
	}
}

func (o *outbox) announce(change session.Interest) (ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed:
	case o.held:
		o.early = append(o.early, change)
	default:
		o.queued.interest(change)
		o.signal()
	}
	return o.pendingLocked() <= o.hard
}

// control queues a small frame that put builds.
func (o *outbox) control(put func(*frames)) (ok bool) {
	o.mu.Lock()
	if !o.closed {
		put(&o.queued)
	}
	ok = o.pendingLocked() <= o.hard
	o.mu.Unlock()
	o.signal()
	return ok
}

// release queues the complete interest, then the changes since it was read. The snapshot raises the
// hard bound by its size, since it is as large as this broker's interest.
func (o *outbox) release(interest []session.Interest) {
	var snapshot frames
	for _, i := range interest {
		snapshot.interest(i)
	}
	snapshot.empty(frameInterestEnd)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		discard(snapshot.take())
		return
	}
	o.hard += snapshot.bytes
	o.queued.splice(&snapshot)
	for _, change := range o.early {
		o.queued.interest(change)
	}
	o.early, o.held = nil, false
	o.signal()
}

func (o *outbox) take() *chunk {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.queued.take()
}

// wrote counts bytes that were written to the connection.
func (o *outbox) wrote(n int) {
	o.mu.Lock()
	was := o.pendingLocked()
	o.written += n
	if was > maxPending && o.pendingLocked() <= maxPending {
		o.eased.Broadcast()
	}
	o.mu.Unlock()
}

func (o *outbox) pendingLocked() int { return o.queued.bytes - o.written }

// pending returns the bytes that are queued or being written.
func (o *outbox) pending() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.pendingLocked()
}

// close drops what is queued, and rest, which the writer had taken.
func (o *outbox) close(rest *chunk) {
	o.mu.Lock()
	o.closed = true
	o.lost += uint64(discard(rest) + discard(o.queued.take()))
	o.queued.bytes, o.written, o.early = 0, 0, nil
	o.eased.Broadcast()
	o.mu.Unlock()
}

func (o *outbox) lostMessages() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lost
}

// discard frees a list of chunks and returns how many messages begin in it.
func discard(c *chunk) (messages int) {
	for c != nil {
		next := c.next
		messages += c.messages
		c.free()
		c = next
	}
	return messages
}
