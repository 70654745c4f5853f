package session

import (
	"context"
	"sync"
)

// Asks are questions that this broker has asked others by Forward, and that are answered by a T each, in the same way.
type Asks[T any] struct {
	mu   sync.Mutex
	next uint64
	open map[uint64]chan T
}

// Begin opens a question to which so many answers come. Later ones are dropped.
func (a *Asks[T]) Begin(answers int) (number uint64, answered <-chan T) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open == nil {
		a.open = map[uint64]chan T{}
	}
	a.next++
	ch := make(chan T, answers)
	a.open[a.next] = ch
	return a.next, ch
}

// End closes a question.
func (a *Asks[T]) End(number uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.open, number)
}

// Ask has a question sent, and takes the answers that come before ctx is done. send says how many are to come, of so many at
// the most.
func (a *Asks[T]) Ask(ctx context.Context, most int, send func(number uint64) (expected int), take func(T)) {
	number, answered := a.Begin(most)
	defer a.End(number)
	for range send(number) {
		select {
		case answer := <-answered:
			take(answer)
		case <-ctx.Done():
			return
		}
	}
}

// Tell brings an answer to who asked. It doesn't wait.
func (a *Asks[T]) Tell(number uint64, answer T) {
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case a.open[number] <- answer:
	default: // it came too late, or once more; a closed question is nil, which takes nothing
	}
}
