package bench

import (
	"fmt"
	"sync"
)

// A requeryAccount knows which notice is to come for each event, and counts those that come. A
// publisher has one event at a time whose notices are awaited. Any goroutine may use it.
type requeryAccount struct {
	plan *requeryPlan
	over *timeline

	mu      sync.Mutex
	current []requeryEvent // by publisher
	latency *recorder
	found   Deliveries
	last    int64 // when the last expected notice came
	begun   int
	first   error // the first notice that was wrong
	closed  bool  // what still comes does not count
}

// A requeryEvent is the newest one of a publisher.
type requeryEvent struct {
	generation int // -1: it has not arrived
	due        int64
	left       int
	told       []uint64 // a bit for each query's New, and one for its Del
}

func newRequeryAccount(plan *requeryPlan) *requeryAccount {
	a := &requeryAccount{plan: plan, latency: newRecorder(), current: make([]requeryEvent,
		plan.publishers)}
	for i := range a.current {
		a.current[i] = requeryEvent{generation: -1, told: make([]uint64, wordsFor(2*plan.queries))}
	}
	return a
}

// settled tells whether all notices of a publisher's last event have come.
func (a *requeryAccount) settled(publisher int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.current[publisher].left == 0
}

// begin enters an event. What has not come of the publisher's last one is lost.
func (a *requeryAccount) begin(publisher, generation int, due int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := &a.current[publisher]
	a.found.Lost += int64(e.left)
	e.generation, e.due, e.left = generation, due, a.plan.expected(publisher, generation)
	clear(e.told)
	a.found.Expected += int64(e.left)
	a.begun++
}

// joined enters the notice that a publisher is a member of a query.
func (a *requeryAccount) joined(query, publisher, generation int, at int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return
	}
	e := a.event(publisher)
	if e == nil || e.generation != generation || !a.plan.joins(query, publisher, generation) {
		a.wrong(fmt.Errorf("query %d was told of publisher %d with its change %d, which does not match", query, publisher, generation))
		return
	}
	a.take(e, 2*query, at)
}

// left enters the notice that a publisher is a member of a query no more.
func (a *requeryAccount) left(query, publisher int, at int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return
	}
	e := a.event(publisher)
	if e == nil || !a.plan.leaves(query, publisher, e.generation) {
		a.wrong(fmt.Errorf("query %d was told that publisher %d has left, which was no member or still is one", query, publisher))
		return
	}
	a.take(e, 2*query+1, at)
}

func (a *requeryAccount) event(publisher int) *requeryEvent {
	if publisher < 0 || publisher >= len(a.current) || a.current[publisher].generation < 0 {
		return nil
	}
	return &a.current[publisher]
}

func (a *requeryAccount) wrong(err error) {
	a.found.Unexpected++
	if a.first == nil {
		a.first = err
	}
}

func (a *requeryAccount) take(e *requeryEvent, bit int, at int64) {
	word, mask := bit/64, uint64(1)<<(bit%64)
	if e.told[word]&mask != 0 {
		a.found.Duplicated++
		return
	}
	e.told[word] |= mask
	e.left--
	a.found.Received++
	a.last = at
	a.latency.record(at - e.due)
	a.over.record(e.due, at-e.due)
}

// outstanding is how many notices have not come.
func (a *requeryAccount) outstanding() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.current {
		n += a.current[i].left
	}
	return n
}

// events is how many have begun.
func (a *requeryAccount) events() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.begun
}

// close ends the account: what has not come is lost. It returns what was found, and the first wrong
// notice.
func (a *requeryAccount) close() (found Deliveries, first error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.current {
		a.found.Lost += int64(a.current[i].left)
		a.current[i].left = 0
	}
	a.closed = true
	return a.found, a.first
}
