package work

import "sync/atomic"

// Jobs runs functions on a bounded number of goroutines, in the order of submission. Without jobs
// it has no goroutine.
type Jobs struct {
	queue   queue[job, struct{}]
	waiting int
	bytes   int64
	held    atomic.Int64 // bytes of waiting jobs
}

type job struct {
	do   func()
	size int
}

// NewJobs returns Jobs on up to workers goroutines. At most waiting jobs of at most bytes in total
// wait for one; bytes 0: no bound.
func NewJobs(workers, waiting, bytes int) *Jobs {
	j := &Jobs{waiting: waiting, bytes: int64(bytes)}
	j.queue.init(workers, 0, j.run)
	return j
}

func (j *Jobs) run(_ *struct{}, one job, _ Lane) {
	j.held.Add(-int64(one.size))
	one.do()
}

// Submit queues a function that holds about size bytes. It returns false, and do will not run, if
// too much is waiting or after Close.
func (j *Jobs) Submit(do func(), size int) bool {
	j.queue.mu.Lock()
	defer j.queue.mu.Unlock()
	if j.queue.closed {
		return false
	}
	if waits := j.queue.queued[Normal].n - j.queue.free(); waits >= 0 {
		if j.waiting > 0 && waits >= j.waiting || j.bytes > 0 && j.held.Load()+int64(size) > j.bytes {
			return false
		}
	}
	j.held.Add(int64(size))
	j.queue.push(job{do, size}, Normal) // no goroutine waits to be signalled
	return true
}

// Waiting returns how many jobs wait for a goroutine.
func (j *Jobs) Waiting() int {
	j.queue.mu.Lock()
	defer j.queue.mu.Unlock()
	return j.queue.queued[Normal].n
}

// Finish accepts no more jobs and waits until the accepted ones have run.
func (j *Jobs) Finish() { j.queue.close(true) }

// Close drops waiting jobs and returns when the running ones have ended.
func (j *Jobs) Close() { j.queue.close(false) }
