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
// users take turns, and their connections, and nobody has all goroutines. Without jobs there is no
// goroutine. It is safe for concurrent use.
type FairJobs struct {
	mu      sync.Mutex
	queue   *FairQueue[Job]
	ready   ring[startedJob] // each has a goroutine that has not begun
	dropped uint64
	closed  bool
	running sync.WaitGroup
	start   func()
}

// startedJob is a job with a place.
type startedJob struct {
	job Job
	of  *Share[Job]
}

// NewFairJobs returns FairJobs on up to workers goroutines. At most waiting jobs of at most bytes
// in total wait for one; bytes 0: no bound.
func NewFairJobs(workers, waiting, bytes int) *FairJobs {
	j := &FairJobs{queue: NewFairQueue[Job](workers, waiting, bytes)}
	j.start = j.work
	return j
}

// Submit queues a job of a client that holds about size bytes. It returns false, and none of the
// job's methods is called, if too much is waiting or after Finish. It may call Drop of others.
func (j *FairJobs) Submit(of Client, job Job, size int) bool {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return false
	}
	if share, ok := j.queue.Start(of); ok {
		j.ready.push(startedJob{job, share})
		j.running.Go(j.start)
		j.mu.Unlock()
		return true
	}
	queued, dropped := j.queue.Push(of, job, size)
	j.dropped += uint64(len(dropped))
	j.mu.Unlock()
	for _, other := range dropped {
		other.Drop()
	}
	return queued != nil
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
	next := j.ready.pop()
	for ok := true; ok; {
		of := next.of
		j.mu.Unlock()
		next.job.Run()
		j.mu.Lock()
		if next.job, next.of, ok = j.queue.Next(of); !ok {
			j.queue.Leave(of)
		}
	}
}
