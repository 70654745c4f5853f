package bench

import (
	"bytes"
	"fmt"
	"strconv"
	"sync"
)

// A filterAccount knows which Subscription has to get which message, and counts. Any goroutine may
// use it.
type filterAccount struct {
	plan *filterPlan
	run  string
	over *timeline

	mu      sync.Mutex
	seen    account
	highest []int // the highest number that each Subscription has got, or -1
	heard   []bool
	silent  int // Subscriptions that have not got their probe
	latency *recorder
	found   Deliveries
	last    int64
	first   error // the first message that was wrong
}

func newFilterAccount(plan *filterPlan, run uint64, span int64) *filterAccount {
	a := &filterAccount{
		plan: plan, run: fmt.Sprintf("%016x", run), over: newTimeline(span), latency: newRecorder(),
		seen: account{bits: make([]uint64, wordsFor(plan.messages)),
			highest: -1}, silent: plan.filters,
		highest: make([]int, plan.filters), heard: make([]bool, plan.filters),
	}
	for i := range a.highest {
		a.highest[i] = -1
	}
	return a
}

// filterProbe is the number of a message that shows that a Subscription works.
const filterProbe = -1

// payload writes a message for a Subscription, as JSON of the size given, behind what is there.
func (a *filterAccount) payload(to []byte, size, filter, number int, due int64) []byte {
	to = strconv.AppendInt(append(to, `{"k":`...), int64(filter), 10)
	to = strconv.AppendInt(append(to, `,"n":`...), int64(number), 10)
	to = strconv.AppendInt(append(to, `,"due":`...), due, 10)
	to = append(append(append(to, `,"run":"`...), a.run...), `","pad":"`...)
	for len(to) < size-2 {
		to = append(to, 'x')
	}
	return append(to, `"}`...)
}

// read returns what a message says of itself.
func (a *filterAccount) read(data []byte) (filter, number int, due int64, ok bool) {
	var values [3]int64
	for i, name := range []string{`{"k":`, `,"n":`, `,"due":`} {
		rest, found := bytes.CutPrefix(data, []byte(name))
		end := bytes.IndexByte(rest, ',')
		if !found || end < 0 {
			return 0, 0, 0, false
		}
		v, err := strconv.ParseInt(string(rest[:end]), 10, 64)
		if err != nil {
			return 0, 0, 0, false
		}
		values[i], data = v, rest[end:]
	}
	ours := bytes.HasPrefix(data, []byte(`,"run":"`+a.run+`"`)) && bytes.HasSuffix(data,
		[]byte(`"}`))
	return int(values[0]), int(values[1]), values[2], ours
}

// deliver enters a message that a Subscription got.
func (a *filterAccount) deliver(to int, data []byte, at int64) {
	filter, number, due, ok := a.read(data)
	a.mu.Lock()
	defer a.mu.Unlock()
	if !ok || filter != to || to < 0 || to >= a.plan.filters || number >= a.plan.messages {
		a.wrong(fmt.Errorf("a message came to Subscription %d that does not match it: %.80q", to, data))
		return
	}
	if number == filterProbe {
		if a.heard[to] {
			a.found.Duplicated++
			return
		}
		a.heard[to] = true
		a.silent--
		return
	}
	switch a.seen.observe(uint32(number)) {
	case verdictUnexpected:
		a.wrong(fmt.Errorf("a message has the number %d", number))
		return
	case verdictDuplicate:
		a.found.Duplicated++
		return
	}
	if number < a.highest[to] {
		a.found.OutOfOrder++
	}
	a.highest[to] = max(a.highest[to], number)
	a.found.Received++
	a.last = at
	if number >= a.plan.warm {
		a.latency.record(at - due)
		a.over.record(due, at-due)
	}
}

func (a *filterAccount) wrong(err error) {
	a.found.Unexpected++
	if a.first == nil {
		a.first = err
	}
}

// missing is how many Subscriptions have not got their probe.
func (a *filterAccount) missing() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.silent
}

func (a *filterAccount) received() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.found.Received
}

// close returns what became of so many messages, and the first wrong one.
func (a *filterAccount) close(published int) (found Deliveries, first error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	found = a.found
	found.Expected = int64(published)
	found.Lost = max(0, found.Expected-found.Received)
	return found, a.first
}
