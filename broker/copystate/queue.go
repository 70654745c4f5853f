package copystate

import (
	"slices"
	"sync"
)

// Queue holds events of a copy until its owner comes to them. The zero value is empty. Its methods
// may be called concurrently.
type Queue struct {
	mu     sync.Mutex
	queued []Event
}

// Add queues an event, unless an equal one is queued. Each read of damaged records reports the
// damage, so one such event is enough.
func (q *Queue) Add(e Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, damage := e.(DamageFound)
	if slices.ContainsFunc(q.queued, func(other Event) bool {
		_, too := other.(DamageFound)
		return damage && too || other == e
	}) {
		return
	}
	q.queued = append(q.queued, e)
}

// Take returns and removes all events.
func (q *Queue) Take() (all []Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	all, q.queued = q.queued, nil
	return all
}
