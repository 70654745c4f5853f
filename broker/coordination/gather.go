package coordination

import (
	"context"
	"slices"
	"sync"
)

// txnQueue lets concurrent calls share transactions, as a group commit does: while one transaction
// is under way, the next calls gather in the queue. It has no goroutine: the holder of the turn
// carries out queued calls, its own and others'.
type txnQueue[T any] struct {
	turn chan struct{} // holds one token

	mu    sync.Mutex
	queue []*T
}

func newGather[T any]() *txnQueue[T] {
	g := &txnQueue[T]{turn: make(chan struct{}, 1)}
	g.turn <- struct{}{}
	return g
}

// do queues one and returns when done is closed. While it waits it may get the turn and call
// carryOut. It returns ctx's error if ctx ends first; then one will not be carried out later, but
// may have been.
func (g *txnQueue[T]) do(ctx context.Context, one *T, done <-chan struct{}, carryOut func(context.Context)) error {
	return g.doAll(ctx, []*T{one}, done, carryOut)
}

// doAll is do for several, in order. done is closed when all are done.
func (g *txnQueue[T]) doAll(ctx context.Context, all []*T, done <-chan struct{}, carryOut func(context.Context)) error {
	g.mu.Lock()
	g.queue = append(g.queue, all...)
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
			g.queue = slices.DeleteFunc(g.queue, func(other *T) bool { return slices.Contains(all, other) })
			g.mu.Unlock()
			return ctx.Err()
		}
	}
}

// dequeue removes the items for which judge returns want from the queue, in order, until it returns
// stop.
func (g *txnQueue[T]) dequeue(judge func(*T) (want, stop bool)) (taken []*T) {
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

// putBack puts items that are to be tried again at the front of the queue.
func (g *txnQueue[T]) putBack(these []*T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.queue = slices.Insert(g.queue, 0, these...)
}
