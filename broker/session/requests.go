package session

import (
	"context"
	"sync"
)

// Requests are this broker's open requests to other brokers, each answered by one T per broker. They
// travel by Hub.Forward; Requests only matches answers to them. The zero value is ready for use.
type Requests[T any] struct {
	mu   sync.Mutex
	next uint64
	open map[uint64]chan T
}

// Begin opens a request that takes at most that many answers; later ones are dropped.
func (r *Requests[T]) Begin(answers int) (number uint64, answered <-chan T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open == nil {
		r.open = map[uint64]chan T{}
	}
	r.next++
	ch := make(chan T, answers)
	r.open[r.next] = ch
	return r.next, ch
}

// End closes a request.
func (r *Requests[T]) End(number uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, number)
}

// Do opens a request, calls send, and passes answers to take until all expected ones have come or ctx is
// done. send returns how many answers to expect, at most the given number.
func (r *Requests[T]) Do(ctx context.Context, most int, send func(number uint64) (expected int), take func(T)) {
	number, answered := r.Begin(most)
	defer r.End(number)
	for range send(number) {
		select {
		case answer := <-answered:
			take(answer)
		case <-ctx.Done():
			return
		}
	}
}

// Answer passes an answer to an open request. It never blocks; an answer that comes late or twice is
// dropped.
func (r *Requests[T]) Answer(number uint64, answer T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case r.open[number] <- answer:
	default: // also if it is closed: the channel is nil then
	}
}
