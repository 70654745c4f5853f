package admin

import (
	"context"
	"sync"
	"time"
)

// tasks runs functions that wait for etcd or for other brokers: a bounded number, each for a
// bounded time. Without requests it has no goroutine.
type tasks struct {
	most   int
	within time.Duration

	ctx  context.Context // ends with close
	stop context.CancelFunc

	mu      sync.Mutex
	busy    int
	closed  bool
	running sync.WaitGroup
}

func newTasks(most int, within time.Duration) *tasks {
	t := &tasks{most: most, within: within}
	t.ctx, t.stop = context.WithCancel(context.Background())
	return t
}

// submit runs do on a goroutine. It reports false if too many are running.
func (t *tasks) submit(do func(context.Context)) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.busy >= t.most {
		return false
	}
	t.busy++
	t.running.Go(func() {
		ctx, stop := context.WithTimeout(t.ctx, t.within)
		defer stop()
		do(ctx)
		t.mu.Lock()
		defer t.mu.Unlock()
		t.busy--
	})
	return true
}

// close accepts no more functions and cancels the running ones.
func (t *tasks) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.stop()
	t.running.Wait()
}
