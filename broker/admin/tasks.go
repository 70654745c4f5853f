package admin

import (
	"context"
	"sync"
	"time"
)

// tasks are goroutines that wait for etcd or for other brokers: a bounded number, each for a bounded time. Without requests there
// are none.
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

// submit says whether there was room.
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

// close takes nothing any more, and cuts short what it took.
func (t *tasks) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.stop()
	t.running.Wait()
}
