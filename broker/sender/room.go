package sender

import (
	"slices"
	"sync"
	"sync/atomic"
)

// tally counts what is held. Its two parts are read one after the other.
type tally struct{ bytes, messages atomic.Int64 }

func (t *tally) add(a amount) {
	t.bytes.Add(a.bytes)
	t.messages.Add(a.messages)
}

func (t *tally) load() amount { return amount{t.bytes.Load(), t.messages.Load()} }

// room bounds what the outboxes of some senders hold together, and shares it out among them. While
// a sender holds more than its share, whoever publishes to it waits, and nobody else. If all hold
// twice as much as the room has, messages are refused.
//
// A sender that is waited for holds something, so its share can exceed that again in two ways: its
// own messages are answered, which is looked at in any case, or those of others, which is looked
// at only if that may matter to some sender (wake).
type room struct {
	share  share
	held   tally
	wake   tally        // above these no sender that is waited for is within its share
	closed *atomic.Bool // nobody waits any more

	mu      sync.Mutex
	waiters []*Sender // that publishers wait for
}

func newRoom(of share, closed *atomic.Bool) *room {
	r := &room{share: of, closed: closed}
	r.sleep()
	return r
}

// full reports whether publishers to a sender have to wait.
func (r *room) full(f *Sender) bool {
	mine := f.own.load()
	return !mine.within(f.most) || r.share.exceeded(mine, r.held.load())
}

func (r *room) overfull() bool { return r.share.overfull(r.held.load()) }

// add counts what a sender's outbox has got, or has no more, and wakes publishers that may go on.
func (r *room) add(f *Sender, change amount) {
	f.own.add(change)
	r.held.add(change)
	if change.bytes >= 0 && change.messages >= 0 {
		return
	}
	mine, others := f.waiting.Load() > 0, r.held.load().within(r.wake.load())
	if !mine && !others {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !others {
		r.look(f)
		return
	}
	r.sleep()
	for _, w := range r.waiters {
		r.look(w)
	}
}

// sleep has no sender looked at for what others hold. mu is held.
func (r *room) sleep() {
	r.wake.bytes.Store(-1)
	r.wake.messages.Store(-1)
}

// look wakes the publishers that wait for a sender if they need not any more. Each checks that
// again. Otherwise it has the sender looked at when others hold little enough. mu is held.
func (r *room) look(f *Sender) {
	r.watch(f)
	if !r.full(f) {
		f.eased.Broadcast()
	}
}

// watch has a sender looked at when all hold little enough. It precedes the check whether a sender
// is full: who counts down meanwhile either is seen by that check, or sees wake. mu is held.
func (r *room) watch(f *Sender) {
	until := r.share.until(f.own.load())
	r.wake.bytes.Store(max(r.wake.bytes.Load(), until.bytes))
	r.wake.messages.Store(max(r.wake.messages.Load(), until.messages))
}

// wait blocks while a sender is full.
func (r *room) wait(f *Sender) {
	if !r.full(f) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.waiting.Add(1) == 1 {
		r.waiters = append(r.waiters, f)
	}
	for r.watch(f); r.full(f) && !r.closed.Load(); r.watch(f) {
		f.eased.Wait()
	}
	if f.waiting.Add(-1) == 0 {
		r.waiters = slices.DeleteFunc(r.waiters, func(w *Sender) bool { return w == f })
	}
}

// letGo wakes all publishers, once closed is set.
func (r *room) letGo() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.waiters {
		w.eased.Broadcast()
	}
}
