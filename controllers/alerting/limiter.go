package alerting

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// bucket allows a burst, and then one each so often. The zero value is full.
type bucket struct {
	burst int
	every time.Duration
	// full is when the bucket is full again. The later that is, the more was taken.
	full time.Time
}

// take takes one if there is one.
func (b *bucket) take(now time.Time) bool {
	if b.full.Before(now) {
		b.full = now
	}
	after := b.full.Add(b.every)
	if after.Sub(now) > time.Duration(b.burst)*b.every {
		return false
	}
	b.full = after
	return true
}

// giveBack undoes a take.
func (b *bucket) giveBack() { b.full = b.full.Add(-b.every) }

// Budget bounds the events of all Views, or of those of one Broker.
type Budget struct {
	mu  sync.Mutex
	all bucket
	of  *Budget // what is taken is a part of; nil: none
}

// NewBudget returns a full one.
func NewBudget() *Budget { return &Budget{all: bucket{burst: allBurst, every: allEvery}} }

// part returns that of one Broker.
func (b *Budget) part() *Budget {
	return &Budget{all: bucket{burst: brokerBurst, every: brokerEvery}, of: b}
}

func (b *Budget) take(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.all.take(now) {
		return false
	}
	if b.of != nil && !b.of.take(now) {
		b.all.giveBack()
		return false
	}
	return true
}

// Event is what an event says.
type Event struct {
	Warning bool
	Reason  string
	Note    string
}

// Reasons of events.
const (
	AlertRaised  = "AlertRaised"
	AlertCleared = "AlertCleared"
	MoreAlerts   = "MoreAlerts" // these have no event of their own
)

// limiter decides what of a View's alerts is told.
type limiter struct {
	own    bucket
	budget *Budget

	raised, cleared int    // since the last event, not told
	last            string // the note of the last one of these; an Alert may be large
	passed          uint64 // messages that were not read, not told
}

func newLimiter(budget *Budget) *limiter {
	return &limiter{own: bucket{burst: viewBurst, every: viewEvery}, budget: budget}
}

func (l *limiter) take(now time.Time) bool {
	if !l.own.take(now) {
		return false
	}
	if !l.budget.take(now) {
		l.own.giveBack()
		return false
	}
	return true
}

// spent reports whether fewer events than the burst are left of the View's own bound.
func (l *limiter) spent(now time.Time) bool { return l.own.full.After(now) }

// tell returns the event of an alert. ok is false if it is only counted. While there is a count,
// all that follows is in it, so that events are in the order of the alerts.
func (l *limiter) tell(a Alert, now time.Time) (e Event, ok bool) {
	if l.raised+l.cleared > 0 || !l.take(now) {
		l.count(a)
		return Event{}, false
	}
	e = Event{Reason: AlertCleared, Note: a.Note()}
	if a.Raised() {
		e = Event{Warning: true, Reason: AlertRaised, Note: a.Note()}
	}
	return e, true
}

// count adds an alert to those without an event of their own.
func (l *limiter) count(a Alert) {
	if l.last = a.Note(); a.Raised() {
		l.raised++
	} else {
		l.cleared++
	}
}

// rest returns the event about what was only counted. ok is false if there is nothing, or the bound
// does not allow it yet.
func (l *limiter) rest(now time.Time) (e Event, ok bool) {
	n := l.raised + l.cleared
	if n == 0 && l.passed == 0 || !l.take(now) {
		return Event{}, false
	}
	e = Event{Warning: l.raised > 0 || l.passed > 0, Reason: MoreAlerts}
	if l.passed > 0 {
		e.Note = fmt.Sprintf("%d messages of the Topics of alerts were passed over unread: they were too many or too large, or are not kept any more", l.passed)
	}
	if n > 0 && l.passed > 0 {
		e.Note += "; "
	}
	if n > 0 {
		e.Note += fmt.Sprintf("%d more alerts without an event of their own: %d raised, %d cleared; at last %s", n, l.raised, l.cleared, l.last)
	}
	if len(e.Note) > maxNote {
		e.Note = strings.ToValidUTF8(e.Note[:maxNote], "")
	}
	l.raised, l.cleared, l.passed, l.last = 0, 0, 0, ""
	return e, true
}

// restore takes back the counts of a former state, whose event could not be written.
func (l *limiter) restore(before *limiter) {
	l.raised, l.cleared, l.passed, l.last = before.raised, before.cleared, before.passed, before.last
}
