package work

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/carillon-mq/carillon/internal/testutil"
)

func TestMain(m *testing.M) { testutil.RunWithoutLeaks(m) }

// counter is a task with a number of steps to do.
type counter struct {
	State
	name    string
	todo    atomic.Int64
	done    atomic.Int64
	stepped atomic.Int32 // goroutines in its step
}

// TestNoWakeIsLost: each wake is followed by a step, and no two goroutines step one task (W1).
func TestNoWakeIsLost(t *testing.T) {
	tasks := make([]*counter, 8)
	for i := range tasks {
		tasks[i] = &counter{}
	}
	var all sync.WaitGroup
	const wakes = 2000
	all.Add(len(tasks) * wakes)
	q := NewTasks(4, func(_ *struct{}, c *counter, _ Lane) bool {
		if c.stepped.Add(1) != 1 {
			t.Error("two goroutines step one task")
		}
		defer c.stepped.Add(-1)
		if c.todo.Load() == 0 {
			return false
		}
		c.todo.Add(-1)
		c.done.Add(1)
		all.Done()
		return c.todo.Load() > 0
	})
	defer q.Close()
	var wakers sync.WaitGroup
	for i := range 4 {
		wakers.Go(func() {
			for n := range wakes / 4 * len(tasks) {
				c := tasks[n%len(tasks)]
				c.todo.Add(1)
				q.Wake(c, Lane((n+i)%int(lanes)))
			}
		})
	}
	wakers.Wait()
	all.Wait() // hangs if a wake was lost
	for _, c := range tasks {
		if c.done.Load() != wakes {
			t.Errorf("%d steps", c.done.Load())
		}
	}
}

// TestLanesAndOrder: urgent tasks come first, then those of each lane in the order of their wakes.
// A task with more work is queued behind the others of its lane (W2).
func TestLanesAndOrder(t *testing.T) {
	var order []string
	q := NewTasks(0, func(_ *struct{}, c *counter, lane Lane) bool {
		order = append(order, fmt.Sprintf("%s%d", c.name, lane))
		return c.todo.Add(-1) > 0
	})
	task := func(name string, todo int64) *counter {
		c := &counter{name: name}
		c.todo.Store(todo)
		return c
	}
	greedy, modest, urgent, upkeep := task("greedy", 3), task("modest", 1), task("urgent", 2), task("upkeep", 2)
	q.Wake(upkeep, Later)
	q.Wake(greedy, Normal)
	q.Wake(modest, Normal)
	q.Wake(modest, Normal) // queued already
	q.Wake(upkeep, Normal) // the other lane keeps its place
	q.Wake(urgent, Urgent)
	var w struct{}
	for n := 0; q.RunOne(&w) && n < 20; n++ {
	}
	want := []string{"urgent0", "urgent0", "greedy1", "modest1", "upkeep1", "greedy1", "upkeep1", "greedy1", "upkeep2"}
	if !slices.Equal(order, want) {
		t.Errorf("stepped %s\nwant    %s", strings.Join(order, " "), strings.Join(want, " "))
	}
}

// TestAWakeDuringAStep: a wake during a step leads to another step, also in another lane, and Close
// waits for the running step (W1, W4).
func TestAWakeDuringAStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var steps []Lane
		q := NewTasks(3, func(_ *struct{}, _ *counter, lane Lane) bool {
			steps = append(steps, lane)
			<-release
			return false
		})
		c := &counter{}
		q.Wake(c, Normal)
		synctest.Wait()
		q.Wake(c, Later)
		q.Wake(c, Normal)
		synctest.Wait()
		if len(steps) != 1 {
			t.Fatalf("steps at the same time: %v", steps)
		}
		release <- struct{}{}
		synctest.Wait()
		release <- struct{}{}
		synctest.Wait()
		if !slices.Equal(steps, []Lane{Normal, Normal, Later}) {
			t.Errorf("steps: %v", steps)
		}
		closed := make(chan struct{})
		go func() { q.Close(); close(closed) }()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("closed while a step runs")
		default:
		}
		q.Wake(&counter{}, Urgent)
		close(release)
		<-closed
		if len(steps) != 3 {
			t.Errorf("a step began after Close: %v", steps)
		}
	})
}

// TestWorkersHaveMemory: each goroutine has a W of its own.
func TestWorkersHaveMemory(t *testing.T) {
	type memory struct{ used atomic.Int32 }
	var all sync.WaitGroup
	q := NewTasks(4, func(w *memory, _ *counter, _ Lane) bool {
		defer all.Done()
		if w.used.Add(1) != 1 {
			t.Error("two steps share memory at the same time")
		}
		defer w.used.Add(-1)
		return false
	})
	defer q.Close()
	all.Add(1000)
	for range 1000 {
		q.Wake(&counter{}, Normal)
	}
	all.Wait()
}

func TestWakingAllocatesNothing(t *testing.T) {
	q := NewTasks(0, func(*struct{}, *counter, Lane) bool { return false })
	c := &counter{}
	var w struct{}
	if n := testing.AllocsPerRun(100, func() { q.Wake(c, Normal); q.RunOne(&w) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestJobsAreBounded: a bounded number of jobs runs at a time, in order. Jobs beyond the bounds of
// number or bytes are refused.
func TestJobsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var mu sync.Mutex
		var ran []int
		j := NewJobs(2, 3, 100)
		submit := func(n, size int) bool {
			return j.Submit(func() {
				<-release
				mu.Lock()
				defer mu.Unlock()
				ran = append(ran, n)
			}, size)
		}
		for n := range 5 { // two run, three wait
			if !submit(n, 20) {
				t.Fatalf("job %d was refused", n)
			}
			synctest.Wait()
		}
		if submit(5, 1) {
			t.Error("a fourth waits")
		}
		release <- struct{}{}
		synctest.Wait()
		if submit(6, 61) {
			t.Error("101 bytes wait")
		}
		if !submit(7, 60) {
			t.Error("100 bytes don't fit")
		}
		close(release)
		j.Finish()
		slices.Sort(ran) // two at a time
		if !slices.Equal(ran, []int{0, 1, 2, 3, 4, 7}) || submit(8, 0) {
			t.Errorf("ran %v", ran)
		}
	})
}

// TestABurstOfJobs: goroutines that have not started yet count as free, so a burst is not refused
// early.
func TestABurstOfJobs(t *testing.T) {
	release := make(chan struct{})
	j := NewJobs(64, 8, 0)
	taken := 0
	for range 100 {
		if j.Submit(func() { <-release }, 0) {
			taken++
		}
	}
	close(release)
	j.Finish()
	if taken != 64+8 {
		t.Errorf("%d of a burst were taken", taken)
	}
}

// TestCloseDropsJobs: Close drops waiting jobs.
func TestCloseDropsJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, ran := make(chan struct{}), atomic.Int32{}
		j := NewJobs(1, 0, 0)
		for range 5 {
			j.Submit(func() { <-release; ran.Add(1) }, 0)
		}
		synctest.Wait()
		closed := make(chan struct{})
		go func() { j.Close(); close(closed) }()
		synctest.Wait()
		close(release)
		<-closed
		if n := ran.Load(); n != 1 {
			t.Errorf("%d ran", n)
		}
		if j.queue.started != 0 {
			t.Errorf("%d goroutines are left", j.queue.started)
		}
	})
}

func BenchmarkWake(b *testing.B) {
	for _, workers := range []int{1, 4} {
		b.Run(fmt.Sprintf("%d workers", workers), func(b *testing.B) {
			q := NewTasks(workers, func(*struct{}, *counter, Lane) bool { return false })
			defer q.Close()
			tasks := make([]counter, 1000)
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				q.Wake(&tasks[n%len(tasks)], Normal)
				n++
			}
		})
	}
}
