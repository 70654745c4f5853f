package work

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// testJob notes what became of it.
type testJob struct {
	client   uint64
	number   int
	release  <-chan struct{}
	mu       *sync.Mutex
	ran, out *[]*testJob
}

func (j *testJob) Run() {
	<-j.release
	j.mu.Lock()
	defer j.mu.Unlock()
	*j.ran = append(*j.ran, j)
}

func (j *testJob) Drop() {
	j.mu.Lock()
	defer j.mu.Unlock()
	*j.out = append(*j.out, j)
}

// TestAFloodingClientLosesItsOwnJobs: one client fills the pool. Others with a job each get in at
// its cost, take turns with it, and its oldest jobs stay.
func TestAFloodingClientLosesItsOwnJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var ran, out []*testJob
		release := make(chan struct{})
		pool := NewFairJobs(1, 8, 0)
		submit := func(client uint64, number int) bool {
			taken := pool.Submit(client, &testJob{client, number, release, &mu, &ran, &out}, 1)
			synctest.Wait()
			return taken
		}
		for n := range 9 { // one runs
			if !submit(1, n) {
				t.Fatalf("job %d of the only client was refused", n)
			}
		}
		if submit(1, 9) {
			t.Error("the flood exceeded the bound")
		}
		for client := uint64(2); client <= 6; client++ {
			if !submit(client, 0) {
				t.Errorf("client %d was refused for the flood", client)
			}
		}
		if submit(2, 1) && len(out) == 5 {
			t.Error("the bound was exceeded")
		}
		if pool.Waiting() != 8 || pool.Dropped() != uint64(len(out)) {
			t.Errorf("%d wait, %d were dropped", pool.Waiting(), pool.Dropped())
		}
		for i, dropped := range out {
			if dropped.client != 1 || dropped.number != 8-i {
				t.Errorf("job %d of client %d was dropped", dropped.number, dropped.client)
			}
		}
		close(release)
		pool.Finish()
		var order []uint64
		for _, job := range ran {
			order = append(order, job.client)
		}
		if !slices.Equal(order[:7], []uint64{1, 1, 2, 3, 4, 5, 6}) {
			t.Errorf("the clients' turns: %v", order)
		}
		if submit(1, 0) {
			t.Error("a job was taken after the end")
		}
	})
}

// TestEveryClientHasOneJob: a full pool refuses a newcomer if nobody has more than it.
func TestEveryClientHasOneJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var ran, out []*testJob
		release := make(chan struct{})
		pool := NewFairJobs(1, 4, 0)
		taken := 0
		for client := range uint64(10) {
			if pool.Submit(client, &testJob{client, 0, release, &mu, &ran, &out}, 1) {
				taken++
			}
			synctest.Wait()
		}
		close(release)
		pool.Finish()
		if taken != 5 || len(out) != 0 {
			t.Errorf("%d were taken, %d dropped", taken, len(out))
		}
	})
}

// TestTheHeaviestClientPaysForBytes: if the bytes are exceeded, the client with the most of them
// loses jobs, and not the one with the most jobs.
func TestTheHeaviestClientPaysForBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var ran, out []*testJob
		release := make(chan struct{})
		pool := NewFairJobs(1, 0, 1000)
		submit := func(client uint64, size int) bool {
			taken := pool.Submit(client, &testJob{client, 0, release, &mu, &ran, &out}, size)
			synctest.Wait()
			return taken
		}
		submit(1, 1)
		for range 20 {
			submit(1, 1)
		}
		for range 3 {
			submit(2, 300)
		}
		if !submit(3, 100) {
			t.Error("a small client was refused")
		}
		if submit(4, 2000) {
			t.Error("a job beyond the bound was taken")
		}
		for _, dropped := range out {
			if dropped.client != 2 {
				t.Errorf("a job of client %d was dropped", dropped.client)
			}
		}
		if len(out) != 1 {
			t.Errorf("%d jobs were dropped", len(out))
		}
		close(release)
		pool.Finish()
	})
}

// TestFairJobsLoseNone: every job that was taken runs or is dropped, once, and a client's jobs run
// in order.
func TestFairJobsLoseNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 2))
		var mu sync.Mutex
		var ran, out []*testJob
		release := make(chan struct{})
		pool := NewFairJobs(1, 50, 500)
		taken := 0
		for n := range 20_000 {
			if pool.Submit(random.Uint64N(1+random.Uint64N(100)), &testJob{random.Uint64N(9), n, release, &mu, &ran, &out}, random.IntN(40)) {
				taken++
			}
			for range random.IntN(3) {
				select {
				case release <- struct{}{}:
				default:
				}
			}
			synctest.Wait()
			if pool.Waiting() > 50 {
				t.Fatalf("%d wait", pool.Waiting())
			}
		}
		close(release)
		pool.Finish()
		if len(ran)+len(out) != taken || len(ran) < 1000 || len(out) < 1000 {
			t.Errorf("of %d, %d ran and %d were dropped", taken, len(ran), len(out))
		}
		if q := pool.queue; q.n != 0 || q.bytes != 0 || len(q.clients) != 0 || q.kept > keptItems {
			t.Errorf("the empty pool holds %d jobs of %d bytes of %d clients", q.n, q.bytes, len(q.clients))
		}
		for i, list := range pool.queue.lists {
			if list != nil {
				t.Errorf("list %d isn't empty", i)
			}
		}
	})
}

type emptyJob struct{}

func (*emptyJob) Run()  {}
func (*emptyJob) Drop() {}

// TestFairJobsAllocateNothing: once there was a job, the next ones of any client allocate nothing.
func TestFairJobsAllocateNothing(t *testing.T) {
	pool := NewFairJobs(1, 8, 0)
	pool.started = 1 // as if a goroutine ran
	pool.busy = 1
	job, key := new(emptyJob), uint64(0)
	if n := testing.AllocsPerRun(100, func() {
		key++
		pool.Submit(key, job, 1)
		pool.mu.Lock()
		pool.queue.Pop()
		pool.mu.Unlock()
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
