package log

import (
	"context"
	"sync"
)

// upkeep tracks background work on a log's sealed segments. Closing the log stops the work and
// waits for it.
type upkeep struct {
	working     sync.WaitGroup
	compressing sync.Mutex // one at a time

	// Guarded by the log's mu.
	over    bool
	running map[context.Context]context.CancelFunc
}

// beginUpkeep registers background work on sealed segments, until end is called. The returned
// context ends with ctx, and when the log is closed.
func (l *Log) beginUpkeep(ctx context.Context) (_ context.Context, end func(), err error) {
	u := &l.upkeep
	l.mu.Lock()
	defer l.mu.Unlock()
	if u.over || l.closed {
		return nil, nil, ErrClosed
	}
	u.working.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	if u.running == nil {
		u.running = map[context.Context]context.CancelFunc{}
	}
	u.running[ctx] = cancel
	return ctx, func() {
		cancel()
		l.mu.Lock()
		delete(u.running, ctx)
		l.mu.Unlock()
		u.working.Done()
	}, nil
}

// endUpkeep stops background work, waits for it, and refuses further work.
func (l *Log) endUpkeep() {
	u := &l.upkeep
	l.mu.Lock()
	u.over = true
	for _, cancel := range u.running {
		cancel()
	}
	l.mu.Unlock()
	u.working.Wait()
}
