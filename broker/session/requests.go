package session

import (
	"context"
	"sync"
)

// Requests matches answers of other brokers to this broker's open requests. Each broker answers
// with one T. Requests are sent by Hub.Forward. The zero value is ready for use; the methods are
// safe for concurrent use.
type Requests[T any] struct {
	mu   sync.Mutex
	next uint64
	open map[uint64]chan T
}

// Begin opens a request with room for the given number of answers. Further ones are dropped. End
// closes it.
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

// End closes a request. Later answers to it are dropped.
func (r *Requests[T]) End(number uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, number)
}

// Do opens a request, calls send, and passes answers to take until all expected ones have arrived
// or ctx is done. send returns how many answers to expect, at most the given number.
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

// Answer passes an answer to its request. It never blocks. Late and repeated answers are dropped.
func (r *Requests[T]) Answer(number uint64, answer T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case r.open[number] <- answer:
	default: // also for a closed request, whose channel is nil
	}
}
