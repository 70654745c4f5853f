package coordination

import (
	"context"
	"slices"
	"sync"
)

// gather lets calls share transactions. Like the syncs of a disk they go together: while one transaction is under way,
// the next ones wait in the queue. There is no goroutine: whoever has the turn carries out what waits, also for others.
type gather[T any] struct {
	turn chan struct{} // holds one token

	mu    sync.Mutex
	queue []*T
}

func newGather[T any]() *gather[T] {
	g := &gather[T]{turn: make(chan struct{}, 1)}
	g.turn <- struct{}{}
	return g
}

// do has one carried out by carryOut, which is called with the turn, and returns when done is closed. On an error, that of
// ctx, nobody will carry it out any more, but somebody may have.
func (g *gather[T]) do(ctx context.Context, one *T, done <-chan struct{}, carryOut func(context.Context)) error {
	g.mu.Lock()
	g.queue = append(g.queue, one)
	g.mu.Unlock()
	for {
		select {
		case <-done:
			return nil
		case <-g.turn:
			select {
			case <-done:
			default:
				carryOut(ctx)
			}
			g.turn <- struct{}{}
		case <-ctx.Done():
			g.mu.Lock()
			g.queue = slices.DeleteFunc(g.queue, func(other *T) bool { return other == one })
			g.mu.Unlock()
			return ctx.Err()
		}
	}
}

// take moves those that are wanted out of the queue, in order, until stop is said; the others keep their places.
func (g *gather[T]) take(judge func(*T) (want, stop bool)) (taken []*T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	stopped := false
	g.queue = slices.DeleteFunc(g.queue, func(one *T) bool {
		want := false
		if !stopped {
			if want, stopped = judge(one); want {
				taken = append(taken, one)
			}
		}
		return want
	})
	return taken
}

// putBack is for those that are to be tried again: they come first.
func (g *gather[T]) putBack(these []*T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.queue = slices.Insert(g.queue, 0, these...)
}
