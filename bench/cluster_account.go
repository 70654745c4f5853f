package bench

import (
	"fmt"
	"sync"
	"time"
)

// A clusterAccount knows which messages a subscriber has to get, by what their publisher's
// attributes were, and counts those that come. Any goroutine may use it.
type clusterAccount struct {
	plan *clusterPlan
	run  uint64
	over *timeline

	mu          sync.Mutex
	ready       []bool // subscribers that have been told that all follows from now on
	publishers  []clusterPublisher
	latency     *recorder
	found       Deliveries
	notices     int64
	changes     int64
	outstanding int
	last        int64
	closed      bool
	first       error // the first that was wrong
}

// A clusterPublisher is what became of a publisher's messages.
type clusterPublisher struct {
	published   int
	must        []uint64 // messages that its subscriber has to get
	got         []uint64
	highest     int // that came, or -1
	outstanding int
	member      bool // as its subscriber was told
}

func newClusterAccount(plan *clusterPlan, run uint64, span int64) *clusterAccount {
	a := &clusterAccount{
		plan: plan, run: run, over: newTimeline(span), latency: newRecorder(),
		ready: make([]bool, plan.subscribers), publishers: make([]clusterPublisher,
			plan.publishers),
	}
	words := wordsFor(plan.schedule.ticks)
	for i := range a.publishers {
		a.publishers[i] = clusterPublisher{
			must: make([]uint64, words), got: make([]uint64, words), highest: -1,
		}
	}
	return a
}

func bitOf(sequence int) (word int, mask uint64) {
	return sequence / 64,
		uint64(1) << (sequence % 64)
}

// told enters that a subscriber's query is open, and has all its members.
func (a *clusterAccount) told(subscriber int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ready[subscriber] = true
}

// publish enters a message that is about to be published. A subscriber whose query is not open yet
// may get it.
func (a *clusterAccount) publish(publisher, sequence int) {
	member := a.plan.member(publisher, sequence)
	_, changed := a.plan.generation(publisher, sequence)
	a.mu.Lock()
	defer a.mu.Unlock()
	p := &a.publishers[publisher]
	p.published = sequence + 1
	if changed {
		a.changes++
	}
	if member && a.ready[publisher/clusterRooms] {
		word, mask := bitOf(sequence)
		p.must[word] |= mask
		p.outstanding++
		a.outstanding++
	}
}

// joined enters the notice that a publisher is a member.
func (a *clusterAccount) joined(subscriber, publisher, generation int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return
	}
	if publisher < 0 || publisher >= a.plan.publishers || publisher/clusterRooms != subscriber ||
		!a.plan.chosen(subscriber, a.plan.room(publisher, generation)) {
		a.wrong(fmt.Errorf("subscriber %d was told of publisher %d with its change %d, which does not match",
			subscriber, publisher, generation))
		return
	}
	a.notices++
	a.publishers[publisher].member = true
}

// left enters the notice that a publisher is a member no more.
func (a *clusterAccount) left(subscriber, publisher int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return
	}
	if publisher < 0 || publisher >= a.plan.publishers || publisher/clusterRooms != subscriber ||
		!a.publishers[publisher].member {
		a.wrong(fmt.Errorf("subscriber %d was told that publisher %d has left, which was no member",
			subscriber, publisher))
		return
	}
	a.notices++
	a.publishers[publisher].member = false
}

// deliver enters a message that a subscriber got.
func (a *clusterAccount) deliver(subscriber int, payload []byte, at int64) {
	s, whole := readStamp(payload)
	a.mu.Lock()
	defer a.mu.Unlock()
	publisher, sequence := int(s.publisher), int(s.sequence)
	if !whole || s.run != a.run || publisher >= a.plan.publishers ||
		sequence >= a.plan.schedule.ticks {
		a.wrong(fmt.Errorf("subscriber %d got a message that is damaged or foreign", subscriber))
		return
	}
	p := &a.publishers[publisher]
	if publisher/clusterRooms != subscriber || sequence >= p.published || !a.plan.member(publisher,
		sequence) {
		a.wrong(fmt.Errorf("subscriber %d got message %d of publisher %d, whose attributes do not match",
			subscriber, sequence, publisher))
		return
	}
	if !p.member {
		a.wrong(fmt.Errorf("subscriber %d got message %d of publisher %d before it was told that this is a member",
			subscriber, sequence, publisher))
		return
	}
	word, mask := bitOf(sequence)
	if p.got[word]&mask != 0 {
		a.found.Duplicated++
		return
	}
	p.got[word] |= mask
	if sequence < p.highest {
		a.found.OutOfOrder++
	}
	p.highest = max(p.highest, sequence)
	if p.must[word]&mask != 0 {
		p.outstanding--
		a.outstanding--
	} else {
		a.found.Expected++ // it came although its subscriber had not been told that it would
	}
	a.found.Received++
	a.last = at
	a.latency.record(at - s.due)
	a.over.record(s.due, at-s.due)
}

func (a *clusterAccount) wrong(err error) {
	a.found.Unexpected++
	if a.first == nil {
		a.first = err
	}
}

// settled tells whether a publisher's messages have come. They come in their order, so none comes
// behind the last one.
func (a *clusterAccount) settled(publisher int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := &a.publishers[publisher]
	return p.outstanding == 0 || p.highest == p.published-1
}

// entering tells whether no message of a publisher has come since it became a member: all may be
// missed.
func (a *clusterAccount) entering(publisher int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := &a.publishers[publisher]
	entered := p.published - 1
	for entered > 0 && a.plan.member(publisher, entered-1) {
		entered--
	}
	return p.highest < entered
}

// complete tells whether everything has come, and every subscriber knows its members.
func (a *clusterAccount) complete() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.outstanding == 0 && a.strangers() == 0
}

// strangers is how many publishers' memberships their subscribers have wrong. mu is held.
func (a *clusterAccount) strangers() (n int) {
	for i := range a.publishers {
		p := &a.publishers[i]
		if p.published > 0 && p.member != a.plan.member(i, p.published-1) {
			n++
		}
	}
	return n
}

// close ends the account: what has not come is lost, unless it is at the begin of a membership.
func (a *clusterAccount) close() (found Deliveries, figures ClusterFigures, published int,
	first error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := a.strangers(); n > 0 && !a.closed {
		a.wrong(fmt.Errorf("%d publishers are not known as what they are: members, or none", n))
	}
	a.closed = true
	found = a.found
	for i := range a.publishers {
		lost, missed, must := a.missing(i)
		found.Lost, found.Expected = found.Lost+lost, found.Expected+must-missed
		figures.Missed += missed
		published += a.publishers[i].published
	}
	figures.Notices, figures.Changes = a.notices, a.changes
	return found, figures, published, a.first
}

// missing returns how many messages of a publisher were lost, how many were missed at the begin of
// a membership, and how many there had to be. mu is held.
func (a *clusterAccount) missing(publisher int) (lost, missed, must int64) {
	p := &a.publishers[publisher]
	entered, entering := 0, false
	for s := range p.published {
		if s == 0 || a.plan.member(publisher, s) && !a.plan.member(publisher, s-1) {
			entered, entering = s, true
		}
		word, mask := bitOf(s)
		got := p.got[word]&mask != 0
		if got {
			entering = false
		}
		if p.must[word]&mask == 0 {
			continue
		}
		must++
		switch late := a.plan.schedule.period * time.Duration(s-entered); {
		case got:
		case entering && late < lateEntry:
			missed++
		default:
			lost++
		}
	}
	return lost, missed, must
}
