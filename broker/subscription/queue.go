package subscription

import (
	"sync"
	"sync/atomic"

	"github.com/carillon-mq/carillon/broker/log"
)

// task is something with work to do now and then: a Subscription, or a cursorStore. It costs no goroutine and
// no place in the queue while it has none.
type task interface {
	turns() *turn
	// step does a bounded part of the work, and says whether there is more.
	step(w *worker) (more bool)
}

// turn is the state of a task: it is stepped by one worker at a time, and a wake during a step leads to
// another one.
type turn struct{ state atomic.Uint32 }

const (
	atRest uint32 = iota
	inQueue
	running
	runAgain
)

// ready is the queue of tasks with work to do, and the workers.
type ready struct {
	mu     sync.Mutex
	some   sync.Cond
	first  ring // cursor stores: somebody waits for their disk
	rest   ring
	closed bool
	wg     sync.WaitGroup
}

// worker is what one goroutine of the queue lends to the tasks that it steps, so that these need no
// memory of their own while they are idle.
type worker struct {
	readMemory  []byte // of files, for what is delivered first
	otherMemory []byte // and for everything else

	// What the Subscription that is stepped reads for the first time: while open, view is held, and
	// have says that record is one of it that was not delivered yet. saved is its reader before view.
	view     log.View
	records  log.RecordIter
	batchEnd uint64
	record   log.Record
	open     bool
	have     bool
	saved    log.Cursor

	// What it reads to deliver it again.
	otherView    log.View
	otherRecords log.RecordIter
	otherEnd     uint64 // of the batch that they are of
	other        log.Record
	otherOpen    bool

	delivery Delivery
}

func newReady(workers int) *ready {
	r := &ready{}
	r.some.L = &r.mu
	for range workers {
		r.wg.Go(r.work)
	}
	return r
}

// wake makes a worker step the task soon. Any goroutine may call it, with whatever locks.
func (r *ready) wake(t task) {
	turn := t.turns()
	for {
		switch state := turn.state.Load(); state {
		case atRest:
			if turn.state.CompareAndSwap(atRest, inQueue) {
				r.push(t)
				return
			}
		case running:
			if turn.state.CompareAndSwap(running, runAgain) {
				return
			}
		default:
			return
		}
	}
}

func (r *ready) push(t task) {
	r.mu.Lock()
	if _, urgent := t.(*cursorStore); urgent {
		r.first.push(t)
	} else {
		r.rest.push(t)
	}
	r.mu.Unlock()
	r.some.Signal()
}

func (r *ready) work() {
	w := &worker{}
	for {
		r.mu.Lock()
		for r.first.n+r.rest.n == 0 && !r.closed {
			r.some.Wait()
		}
		if r.closed {
			r.mu.Unlock()
			return
		}
		from := &r.first
		if from.n == 0 {
			from = &r.rest
		}
		t := from.pop()
		r.mu.Unlock()
		turn := t.turns()
		turn.state.Store(running)
		if more := t.step(w); more || !turn.state.CompareAndSwap(running, atRest) {
			turn.state.Store(inQueue)
			r.push(t)
		}
	}
}

// close ends the workers, after the step that each is at.
func (r *ready) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.some.Broadcast()
	r.wg.Wait()
}

// ring is a queue.
type ring struct {
	tasks   []task
	head, n int
}

func (q *ring) push(t task) {
	if q.n == len(q.tasks) {
		tasks := make([]task, max(2*q.n, 16))
		for i := range q.n {
			tasks[i] = q.tasks[(q.head+i)%len(q.tasks)]
		}
		q.tasks, q.head = tasks, 0
	}
	q.tasks[(q.head+q.n)%len(q.tasks)] = t
	q.n++
}

func (q *ring) pop() task {
	t := q.tasks[q.head]
	q.tasks[q.head] = nil
	q.head = (q.head + 1) % len(q.tasks)
	q.n--
	return t
}
