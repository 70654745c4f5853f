package confirm

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/replica"
)

// Time is how long an answer waits for a barrier round. It is longer than a follower that died
// stays in the set (replica.DisconnectTime and a swap), and with a tick of package topic shorter
// than the 5 s for which JetStream's clients wait.
const Time = replica.DisconnectTime + 1500*time.Millisecond

// Readers are the readers that wait until the in-sync replicas have confirmed that this broker
// leads the shard. All methods may be called concurrently. leading returns the present leadership.
// It is called under the lock of Readers, as is the function of Again, so rounds are of one epoch.
type Readers struct {
	mu      sync.Mutex
	ended   bool
	waiting []reader
	pending atomic.Int32 // the number of waiting, and of refusals that wait for a round
}

// reader is one waiting reader.
type reader struct {
	round uint64
	asked int64 // on forward.Mono's clock
	done  func(error)
}

// Waiting reports whether a reader or a refusal waits.
func (r *Readers) Waiting() bool { return r.pending.Load() > 0 }

// Count adds n to the refusals that wait for a round.
func (r *Readers) Count(n int32) { r.pending.Add(n) }

// Wait calls done when a round is confirmed that begins now, or with an error. If that is confirmed
// already, now is true, and done isn't called. After End it returns ended, and doesn't call done
// either.
func (r *Readers) Wait(leading func() *replica.Leading, done func(error)) (now, ended bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return false, true
	}
	l := leading()
	round := l.RequestRound()
	if l.Confirmed() >= round {
		return true, false
	}
	r.waiting = append(r.waiting, reader{round, forward.Mono(), done})
	r.pending.Add(1)
	return false, false
}

// Settle calls back readers whose round is confirmed, and with late's error those that have waited
// for more than Time. The caller holds no lock.
func (r *Readers) Settle(leading func() *replica.Leading, late func() error) {
	if !r.Waiting() {
		return
	}
	var ready, over []reader
	r.mu.Lock()
	round, before := leading().Confirmed(), forward.Mono()-int64(Time)
	left := r.waiting[:0]
	for _, w := range r.waiting {
		switch {
		case w.round <= round:
			ready = append(ready, w)
		case w.asked < before:
			over = append(over, w)
		default:
			left = append(left, w)
		}
	}
	clear(r.waiting[len(left):])
	r.waiting = left
	r.mu.Unlock()
	r.pending.Add(-int32(len(ready) + len(over)))
	for _, w := range ready {
		w.done(nil)
	}
	for _, w := range over {
		w.done(late())
	}
}

// Again asks for new rounds in the epoch of leading. begin is called first, and makes it the
// present leadership.
func (r *Readers) Again(leading *replica.Leading, begin func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	begin()
	for i := range r.waiting {
		r.waiting[i].round = leading.RequestRound()
	}
}

// End fails all waiting readers, and Wait from then on.
func (r *Readers) End(why error) {
	r.mu.Lock()
	r.ended = true
	waiting := r.waiting
	r.waiting = nil
	r.mu.Unlock()
	r.pending.Add(-int32(len(waiting)))
	for _, w := range waiting {
		w.done(why)
	}
}
