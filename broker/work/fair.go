package work

import "sync"

// Job is work of a client. Exactly one of its methods is called if Submit returned true.
type Job interface {
	Run()
	// Drop refuses the job: it was evicted for another client's. It is called on the goroutine of
	// the other client's Submit, so it must not block.
	Drop()
}

// FairJobs runs jobs of clients on a bounded number of goroutines. They wait in a FairQueue, so
// clients take turns. Without jobs there is no goroutine. It is safe for concurrent use.
type FairJobs struct {
	workers int

	mu      sync.Mutex
	queue   *FairQueue[Job]
	started int // goroutines
	busy    int // goroutines that run a job
	dropped uint64
	closed  bool
	running sync.WaitGroup
	start   func()
}

// NewFairJobs returns FairJobs on up to workers goroutines. At most waiting jobs of at most bytes
// in total wait for one; bytes 0: no bound.
func NewFairJobs(workers, waiting, bytes int) *FairJobs {
	j := &FairJobs{workers: workers, queue: NewFairQueue[Job](waiting, bytes)}
	j.start = j.work
	return j
}

// Submit queues a job of a client that holds about size bytes. It returns false, and none of the
// job's methods is called, if too much is waiting or after Finish. It may call Drop of others.
func (j *FairJobs) Submit(key uint64, job Job, size int) bool {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return false
	}
	queued, dropped := j.queue.push(key, job, size, j.workers-j.busy)
	taken := queued != nil
	j.dropped += uint64(len(dropped))
	if taken && j.started < j.workers {
		j.started++
		j.running.Go(j.start)
	}
	j.mu.Unlock()
	for _, other := range dropped {
		other.Drop()
	}
	return taken
}

// Waiting returns how many jobs wait for a goroutine.
func (j *FairJobs) Waiting() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.queue.Len()
}

// Dropped returns how many jobs were dropped for those of other clients.
func (j *FairJobs) Dropped() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.dropped
}

// Finish accepts no more jobs and waits until the accepted ones have run.
func (j *FairJobs) Finish() {
	j.mu.Lock()
	j.closed = true
	j.mu.Unlock()
	j.running.Wait()
}

func (j *FairJobs) work() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for {
		job, ok := j.queue.Pop()
		if !ok {
			j.started--
			return
		}
		j.busy++
		j.mu.Unlock()
		job.Run()
		j.mu.Lock()
		j.busy--
	}
}
