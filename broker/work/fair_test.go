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
	client   uint64 // a user, with one connection
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
			taken := pool.Submit(Client{client, 1}, &testJob{client, number, release, &mu, &ran, &out}, 1)
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
			if pool.Submit(Client{client, 1}, &testJob{client, 0, release, &mu, &ran, &out}, 1) {
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
			taken := pool.Submit(Client{client, 1}, &testJob{client, 0, release, &mu, &ran, &out}, size)
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
			of := Client{random.Uint64N(1 + random.Uint64N(30)), random.Uint64N(4)}
			if pool.Submit(of, &testJob{0, n, release, &mu, &ran, &out}, random.IntN(40)) {
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
		if q := pool.queue; q.n != 0 || q.bytes != 0 || q.running != 0 || len(q.clients) != 0 || len(q.users) != 0 || q.kept > keptItems {
			t.Errorf("the empty pool holds %d jobs of %d bytes of %d clients, and %d run", q.n, q.bytes, len(q.clients), q.running)
		}
	})
}

type emptyJob struct{}

func (*emptyJob) Run()  {}
func (*emptyJob) Drop() {}

// TestOneClientLeavesPlacesToOthers: jobs that hang take most goroutines of a pool. There is one
// for another connection of the same user, and for each of several other users.
func TestOneClientLeavesPlacesToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var ran, out []*testJob
		hang, run := make(chan struct{}), make(chan struct{})
		close(run)
		pool := NewFairJobs(64, 256, 0)
		submit := func(of Client, release <-chan struct{}) *testJob {
			job := &testJob{of.User, 0, release, &mu, &ran, &out}
			if !pool.Submit(of, job, 1) {
				t.Errorf("a job of %v was refused", of)
			}
			synctest.Wait()
			return job
		}
		has := func(job *testJob) bool {
			mu.Lock()
			defer mu.Unlock()
			return slices.Contains(ran, job)
		}
		for range 100 {
			submit(Client{1, 1}, hang)
		}
		if n := pool.Waiting(); n != 100-49 {
			t.Errorf("of one connection %d jobs wait", n)
		}
		if !has(submit(Client{1, 2}, run)) {
			t.Error("another connection of the user has to wait")
		}
		for connection := uint64(2); connection < 20; connection++ {
			submit(Client{1, connection}, hang)
		}
		if n := pool.Waiting(); n != 118-56 {
			t.Errorf("of one user %d jobs wait", n)
		}
		for user := uint64(2); user < 20; user++ {
			if !has(submit(Client{user, 1}, run)) {
				t.Errorf("user %d has to wait", user)
			}
		}
		for range 20 {
			submit(Client{2, 1}, hang)
		}
		if !has(submit(Client{3, 1}, run)) {
			t.Error("two users have all places")
		}
		close(hang)
		pool.Finish()
		if len(ran) != 158 || len(out) != 0 {
			t.Errorf("%d jobs ran, and %d were dropped", len(ran), len(out))
		}
	})
}

// TestSmallPoolsLeaveAPlace: for each size of a pool, how many jobs of one user run at a time, and
// how many of a connection.
func TestSmallPoolsLeaveAPlace(t *testing.T) {
	for all, want := range map[int]places{
		0: {0, 0, 0}, 1: {1, 1, 1}, 2: {2, 2, 2}, 3: {3, 3, 3}, 4: {4, 3, 3}, 5: {5, 4, 3}, 8: {8, 7, 6}, 16: {16, 14, 13}, 64: {64, 56, 49}, 128: {128, 112, 98},
	} {
		if got := newPlaces(all); got != want {
			t.Errorf("of %d: %+v, want %+v", all, got, want)
		}
	}
}

// TestFairQueuesAllocateNothing: once a queue has grown, items of any client allocate nothing.
func TestFairQueuesAllocateNothing(t *testing.T) {
	cycle := queueCycle()
	if n := testing.AllocsPerRun(1000, cycle); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// queueCycle returns a function that pushes an item to a queue in which a thousand of 100 users
// wait, and takes one.
func queueCycle() func() {
	q := NewFairQueue[Job](2, 4096, 1<<20)
	running, _ := q.Start(Client{})
	job, n := new(emptyJob), uint64(0)
	push := func() {
		n++
		q.Push(Client{n * 7 % 100, n * 31 % 2000}, job, int(n%100))
	}
	for range 1000 {
		push()
	}
	cycle := func() {
		push()
		_, running, _ = q.Next(running)
	}
	for range 10_000 {
		cycle()
	}
	return cycle
}

func BenchmarkFairQueue(b *testing.B) {
	cycle := queueCycle()
	b.ReportAllocs()
	for b.Loop() {
		cycle()
	}
}
