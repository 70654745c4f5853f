package bench

import (
	"context"
	"sync"
	"time"
)

// usage reads what CPU this process and the server used between the end of the warm-up and
// the last delivery.
type usage struct {
	began, finished        int64 // 0 until then
	client, server         time.Duration
	rss                    int64
	pids                   []int
	clientAtStart, atStart time.Duration
	readable               bool
	once                   sync.Once
	mu                     sync.Mutex
}

// watch takes the first reading at the time given, in a goroutine that the returned function ends.
func (u *usage) watch(ctx context.Context, at int64, pids []int) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	u.pids = pids
	go func() {
		defer close(done)
		if sleep(ctx, time.Duration(at-now())) != nil {
			return
		}
		u.mu.Lock()
		defer u.mu.Unlock()
		u.clientAtStart = ownCPU()
		if len(pids) > 0 {
			used, _, err := processesUsage(pids)
			u.atStart, u.readable = used, err == nil
		}
		u.began = now()
	}()
	return func() {
		cancel()
		<-done
	}
}

// finish takes the last reading; only the first call counts.
func (u *usage) finish() {
	u.once.Do(func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.server = -1
		u.finished = now()
		if u.began == 0 {
			return
		}
		u.client = ownCPU() - u.clientAtStart
		if u.readable {
			if used, rss, err := processesUsage(u.pids); err == nil {
				u.server, u.rss = used-u.atStart, rss
			}
		}
	})
}

// processesUsage adds up what the processes of one server or cluster use.
func processesUsage(pids []int) (used time.Duration, rss int64, err error) {
	for _, pid := range pids {
		u, r, err := processUsage(pid)
		if err != nil {
			return 0, 0, err
		}
		used, rss = used+u, rss+r
	}
	return used, rss, nil
}
