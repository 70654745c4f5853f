package bench

import (
	"fmt"
	"sync"
	"time"
)

// A takenAccount compares what consumers take with what was published: every message has to come
// once, or again with a mark and after the ack wait. Safe for concurrent use.
type takenAccount struct {
	run     uint64
	size    int
	ackWait time.Duration
	probes  uint64 // messages of the run's own that may be in the stream

	mu          sync.Mutex
	taken       account
	began       int64 // when consumers could first take anything
	expected    int   // messages, numbered from 0, of the phases so far
	measureFrom int   // the first message whose latency is recorded
	latency     *recorder
	over        *timeline // may be nil
	highest     []int     // by consumer: the highest number taken of first deliveries
	found       Deliveries
	redelivered int64
	progress    int64         // takes of any kind
	complete    chan struct{} // closed when all expected messages were taken
	first       error         // the first fault
}

func newTakenAccount(run uint64, size, consumers int, ackWait time.Duration) *takenAccount {
	a := &takenAccount{run: run, size: size, ackWait: ackWait, latency: newRecorder(), highest: make([]int, consumers)}
	a.taken.highest = -1
	for i := range a.highest {
		a.highest[i] = -1
	}
	return a
}

// expect begins a phase of so many more messages. Latency is recorded from the given one on. The
// channel is closed when all were taken.
func (a *takenAccount) expect(messages, measureFrom int) <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.began == 0 {
		a.began = now()
	}
	a.expected += messages
	a.measureFrom = measureFrom
	a.taken.bits = append(a.taken.bits, make([]uint64, wordsFor(a.expected)-len(a.taken.bits))...)
	a.complete = make(chan struct{})
	a.check()
	return a.complete
}

// take enters a message that a consumer took. attempt is the server's count of deliveries.
func (a *takenAccount) take(consumer int, attempt uint64, payload []byte, at int64) {
	a.mu.Lock()
	a.takeLocked(consumer, attempt, payload, at)
	a.mu.Unlock()
}

func (a *takenAccount) takeLocked(consumer int, attempt uint64, payload []byte, at int64) {
	a.progress++
	again := attempt > 1
	if again {
		a.redelivered++
		if since := time.Duration(at - a.began); since < a.ackWait {
			a.unexpected("a message was delivered again %v after the start, before the ack wait of %v", since, a.ackWait)
		}
	}
	m, whole := readStamp(payload)
	switch {
	case !whole || m.run != a.run || len(payload) != a.size && m.kind != kindProbe:
		a.unexpected("a message is damaged, or not one that was published")
		return
	case m.kind == kindProbe:
		if a.probes == 0 && !again {
			a.unexpected("a probe was delivered twice")
		} else if !again {
			a.probes--
		}
		return
	case int(m.sequence) >= a.expected:
		a.unexpected("message %d was never published", m.sequence)
		return
	}
	switch a.taken.observe(m.sequence) {
	case verdictDuplicate:
		if !again {
			a.found.Duplicated++
			a.fault("message %d was delivered twice, without a mark", m.sequence)
		}
		return
	case verdictReordered, verdictNew:
		if !again && int(m.sequence) < a.highest[consumer] {
			a.found.OutOfOrder++
			a.fault("consumer %d took message %d after %d", consumer+1, m.sequence, a.highest[consumer])
		}
		a.highest[consumer] = max(a.highest[consumer], int(m.sequence))
	}
	if int(m.sequence) >= a.measureFrom {
		a.latency.record(at - m.due)
		a.over.record(m.due, at-m.due)
	}
	a.check()
}

func (a *takenAccount) check() {
	if a.taken.distinct == a.expected {
		select {
		case <-a.complete:
		default:
			close(a.complete)
		}
	}
}

func (a *takenAccount) unexpected(format string, arguments ...any) {
	a.found.Unexpected++
	a.fault(format, arguments...)
}

func (a *takenAccount) fault(format string, arguments ...any) {
	if a.first == nil {
		a.first = fmt.Errorf(format, arguments...)
	}
}

// state returns the number of takes so far, and of messages that are still expected.
func (a *takenAccount) state() (progress int64, missing int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.progress, a.expected - a.taken.distinct
}

// close returns the result. Expected are the published messages.
func (a *takenAccount) close(published int) (Deliveries, int64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	d := a.found
	d.Expected, d.Received = int64(published), int64(a.taken.distinct)
	d.Lost = max(0, d.Expected-d.Received)
	return d, a.redelivered, a.first
}
