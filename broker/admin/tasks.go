package admin

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/work"
)

// tasksWaiting and tasksBytes bound the requests of one kind that wait until others have ended, by
// number and in bytes of requests. People and programs wait some seconds for an answer, so more
// would be answered too late.
const (
	tasksWaiting = 256
	tasksBytes   = 16 << 20
)

// tasks runs functions that wait for etcd, for the disk or for other brokers: a bounded number,
// each for a bounded time from its request on. Users take turns, and their connections. Without
// requests it has no goroutine.
type tasks struct {
	pool    *work.FairJobs
	within  time.Duration
	paused  atomic.Int64   // requests in a pause
	refused *atomic.Uint64 // counts the refused requests

	ctx  context.Context // ends with close
	stop context.CancelFunc
}

// task is a function that waits for its turn, or runs.
type task struct {
	of       *tasks
	deadline time.Time
	do       func(context.Context)
	drop     func()
}

func newTasks(most int, within time.Duration, refused *atomic.Uint64) *tasks {
	t := &tasks{pool: work.NewFairJobs(most, tasksWaiting, tasksBytes), within: within, refused: refused}
	t.ctx, t.stop = context.WithCancel(context.Background())
	return t
}

// submit runs do on a goroutine, or calls drop if there is none in time, or if another client needs
// the place. It reports false, and calls neither, if too many wait. size is what the request takes
// in bytes.
func (t *tasks) submit(by origin, size int, do func(context.Context), drop func()) bool {
	if t.pool.Submit(by.by, &task{t, time.Now().Add(t.within), do, drop}, size) {
		return true
	}
	t.refused.Add(1)
	return false
}

// submitIn is submit after a pause. The requests in a pause have the same bound as those that wait.
func (t *tasks) submitIn(pause time.Duration, by origin, size int, do func(context.Context), drop func()) bool {
	if pause == 0 {
		return t.submit(by, size, do, drop)
	}
	if t.paused.Add(1) > tasksWaiting || t.ctx.Err() != nil {
		t.paused.Add(-1)
		t.refused.Add(1)
		return false
	}
	time.AfterFunc(pause, func() {
		t.paused.Add(-1)
		if t.ctx.Err() != nil {
			return // as requests that come while a broker ends
		}
		if !t.submit(by, size, do, drop) {
			drop()
		}
	})
	return true
}

// Run implements work.Job.
func (t *task) Run() {
	if t.of.ctx.Err() != nil || !time.Now().Before(t.deadline) {
		t.Drop()
		return
	}
	ctx, stop := context.WithDeadline(t.of.ctx, t.deadline)
	defer stop()
	t.do(ctx)
}

// Drop implements work.Job.
func (t *task) Drop() {
	t.of.refused.Add(1)
	t.drop()
}

// close accepts no more functions, drops the waiting ones and cancels the running ones.
func (t *tasks) close() {
	t.stop()
	t.pool.Finish()
}
