package work

import "sync"

// Lane is a priority.
type Lane uint8

// The lanes, in the order in which they are served.
const (
	Urgent Lane = iota // a caller waits for it
	Normal
	Later // upkeep: runs while nothing else is queued
	lanes
)

// queue runs items on a bounded number of goroutines. Each goroutine has a W of its own.
type queue[T, W any] struct {
	run     func(w *W, item T, lane Lane)
	workers int // goroutines at the same time
	keep    int // goroutines that wait for more when nothing is queued; the others end

	mu      sync.Mutex
	some    sync.Cond
	queued  [lanes]ring[T]
	started int // goroutines
	idle    int // goroutines that wait and were not signalled
	busy    int // goroutines that run an item
	closed  bool
	running sync.WaitGroup
	start   func() // work, bound once
}

func (q *queue[T, W]) init(workers, keep int, run func(w *W, item T, lane Lane)) {
	q.workers, q.keep, q.run = workers, keep, run
	q.some.L, q.start = &q.mu, q.work
}

// push queues an item, or drops it after close. mu is held. If signal is true, the caller signals
// some once it has released mu.
func (q *queue[T, W]) push(item T, lane Lane) (signal bool) {
	if q.closed {
		return false
	}
	q.queued[lane].push(item)
	switch {
	case q.idle > 0:
		q.idle--
		return true
	case q.started < q.workers:
		q.started++
		q.running.Go(q.start)
	}
	return false
}

// free returns the number of goroutines that run no item, including those not started. mu is held.
func (q *queue[T, W]) free() int { return q.workers - q.busy }

// pop removes and returns the next item. mu is held.
func (q *queue[T, W]) pop() (item T, lane Lane, ok bool) {
	for lane := range lanes {
		if q.queued[lane].n > 0 {
			return q.queued[lane].pop(), lane, true
		}
	}
	return item, 0, false
}

func (q *queue[T, W]) work() {
	var w W
	q.mu.Lock()
	for {
		item, lane, ok := q.pop()
		switch {
		case ok:
			q.busy++
			q.mu.Unlock()
			q.run(&w, item, lane)
			q.mu.Lock()
			q.busy--
		case q.closed || q.idle >= q.keep:
			q.started--
			q.mu.Unlock()
			return
		default:
			q.idle++
			q.some.Wait()
		}
	}
}

// close accepts no more items and waits for the running ones. Queued items are dropped, or run if
// finish.
func (q *queue[T, W]) close(finish bool) {
	q.mu.Lock()
	q.closed, q.idle = true, 0
	if !finish {
		q.queued = [lanes]ring[T]{}
	}
	q.mu.Unlock()
	q.some.Broadcast()
	q.running.Wait()
}

// ring is a FIFO queue that reuses its memory, up to keptItems of it.
type ring[T any] struct {
	items   []T
	head, n int
}

// keptItems bounds the memory that an empty ring keeps after a burst.
const keptItems = 1024

func (r *ring[T]) push(item T) {
	if r.n == len(r.items) {
		items := make([]T, max(2*r.n, 16))
		for i := range r.n {
			items[i] = r.items[(r.head+i)%len(r.items)]
		}
		r.items, r.head = items, 0
	}
	r.items[(r.head+r.n)%len(r.items)] = item
	r.n++
}

func (r *ring[T]) pop() T {
	var none T
	item := r.items[r.head]
	r.items[r.head] = none
	r.head = (r.head + 1) % len(r.items)
	r.n--
	if r.n == 0 && len(r.items) > keptItems {
		*r = ring[T]{}
	}
	return item
}
