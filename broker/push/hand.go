package push

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// item is a record in a hand.
type item struct {
	offset    uint64
	time      int64 // of the record, in nanoseconds since 1970
	delivered uint64
	subject   string
	header    int
	data      []byte

	sending bool
	failed  bool  // an attempt failed that counted
	counted bool  // its next attempt, or the one under way, was counted (Source.Attempt)
	at      int64 // it is not sent before
	since   int64 // when it was taken
	line    *line
}

func (i *item) size() int { return len(i.subject) + len(i.data) }

// line is the items of one subject, in the order of offsets. Only the first is sent, or several
// from the first on in one batch.
type line struct{ items []*item }

// rules are the settings of a hand.
type rules struct {
	concurrency int
	most        int // records in the hand
	records     int // in one request
	batchBytes  int // in one request
	wait        time.Duration
	backoff     []time.Duration
	retryLast   time.Duration // of the pauses without backoff
	maxDeliver  int           // 0: no bound
}

// rulesOf returns the rules of a spec with Push.
func rulesOf(spec *coordination.SubscriptionSpec) rules {
	r := rules{
		concurrency: cmp.Or(spec.Push.Concurrency, defaultConcurrency), records: 1, batchBytes: math.MaxInt,
		backoff: spec.Ack.Backoff, retryLast: cmp.Or(spec.Ack.Wait, retryLast), maxDeliver: spec.Ack.MaxDeliver,
	}
	if b := spec.Push.Batch; b != nil {
		r.records, r.batchBytes, r.wait = b.MaxRecords, cmp.Or(b.MaxBytes, defaultBatchBytes), b.MaxWait
	}
	r.most = min(max(4*r.concurrency, 2*r.records, fewRecords), handRecords)
	return r
}

// pause returns the pause after an attempt.
func (r *rules) pause(attempt uint64) time.Duration {
	if n := len(r.backoff); n > 0 {
		return r.backoff[min(max(attempt, 1), uint64(n))-1]
	}
	return min(retryFirst<<min(max(attempt, 1)-1, 20), r.retryLast)
}

// hand is the records that a Subscription handed to its endpoint, and what is under way. It is
// pure: its owner tells it the time and what happened, and does what it says.
//
//  1. A subject has one request under way at most. A record is not sent before each earlier one of
//     its subject in the hand was settled: acknowledged, given up, or not pending any more.
//  2. A record that failed stays in the hand and waits there. So the records of its subject wait
//     behind it, and others don't.
//  3. A record with an attempt behind it is sent alone, so that one record does not spoil the others
//     of a batch for ever.
type hand struct {
	rules
	circuit circuit
	items   []*item // in the order in which they were taken
	lines   map[string]*line
	bytes   int // of items
	sending int // requests
	paused  bool
	refused int // refusals in a row
}

func newHand(r rules, jitter func(time.Duration) time.Duration) *hand {
	return &hand{rules: r, circuit: circuit{jitter: jitter}, lines: map[string]*line{}}
}

// open reports whether it takes another record. room is the bytes that it may have.
func (h *hand) open(room int) bool {
	most := h.most
	if h.circuit.open {
		most = openRecords
	}
	return len(h.items) < most && h.bytes < min(handBytes, room)
}

// take adds a record. A later record of the subject may be there already.
func (h *hand) take(i *item, now int64) {
	l := h.lines[i.subject]
	if l == nil {
		l = &line{}
		h.lines[i.subject] = l
	}
	at := len(l.items)
	for at > 0 && l.items[at-1].offset > i.offset && !l.items[at-1].sending {
		at--
	}
	l.items = slices.Insert(l.items, at, i)
	i.line, i.since = l, now
	h.items = append(h.items, i)
	h.bytes += i.size()
}

// drop removes a record.
func (h *hand) drop(i *item) {
	if i.line == nil {
		return
	}
	i.line.items = slices.DeleteFunc(i.line.items, func(o *item) bool { return o == i })
	if len(i.line.items) == 0 {
		delete(h.lines, i.subject)
	}
	i.line = nil
	h.items = slices.DeleteFunc(h.items, func(o *item) bool { return o == i })
	h.bytes -= i.size()
}

// begin returns the records of the next request, which is under way then, or nothing. room is how
// many requests it may have under way.
func (h *hand) begin(now int64, room int) (batch []*item, probe bool) {
	ok, probe := h.circuit.allows(now, h.sending)
	if !ok || h.paused || h.sending >= min(h.concurrency, room) {
		return nil, false
	}
	batch, at := h.gather(now)
	if len(batch) == 0 || at > now {
		return nil, false
	}
	for _, i := range batch {
		i.sending = true
	}
	h.sending++
	if probe {
		// The next probe begins with another record, if there is one.
		h.items = append(slices.DeleteFunc(h.items, func(o *item) bool { return o == batch[0] }), batch[0])
	}
	return batch, probe
}

// gather returns the records of a next request, and when it is due.
func (h *hand) gather(now int64) (batch []*item, at int64) {
	var first map[*line]int // of lines with records in the batch: how many
	size, at := 0, int64(math.MaxInt64)
	for _, i := range h.items {
		if n := first[i.line]; i.line.items[n] != i || i.sending || i.line.items[0].sending {
			continue
		}
		if i.at > now {
			at = min(at, i.at)
			continue
		}
		if len(batch) > 0 && size+i.size() > h.batchBytes {
			return batch, now
		}
		alone := i.failed || i.delivered > 1 || h.records <= 1
		if alone && len(batch) > 0 {
			continue
		}
		batch, size = append(batch, i), size+i.size()
		if alone || len(batch) >= h.records {
			return batch, now
		}
		if first == nil {
			first = map[*line]int{}
		}
		first[i.line]++
	}
	if len(batch) > 0 {
		at = batch[0].since + int64(h.wait)
		if h.circuit.open || size >= h.batchBytes {
			at = now
		}
	}
	return batch, at
}

// due returns when something is to be begun without anything else happening; math.MaxInt64: never.
func (h *hand) due(now int64) int64 {
	if h.paused || len(h.items) == 0 || h.sending >= h.concurrency || h.circuit.open && h.sending > 0 {
		return math.MaxInt64
	}
	_, at := h.gather(now)
	if h.circuit.open {
		at = max(at, h.circuit.until)
	}
	return at
}

// verdict is what is to be done about a record.
type verdict uint8

const (
	retried      verdict = iota // nothing: it stays in the hand
	acknowledged                // acknowledge it
	givenUp                     // give it up, with the answer
)

// ended notes the end of a request. The verdicts are those of its records, which are out of the
// hand unless they are retried. Records that were dropped meanwhile have none that matters.
func (h *hand) ended(batch []*item, probe bool, a answer, now int64) []verdict {
	h.sending--
	verdicts := make([]verdict, len(batch))
	counts := true
	switch a.kind {
	case accepted:
		h.circuit.worked()
		h.refused = 0
	case refusedIt:
		h.circuit.worked()
		h.refused++
	case unavailable:
		// A failure with the circuit open says nothing of the record.
		counts = !h.circuit.failed(now, probe, a.gone, a.after) && a.after == 0 && !a.gone
	case unsent:
		counts = false
		if a.after > 0 {
			h.circuit.failed(now, probe, false, a.after)
		}
	}
	for n, i := range batch {
		i.sending = false
		switch {
		case a.kind == accepted:
			verdicts[n] = acknowledged
			h.drop(i)
		case !counts:
			i.at = 0
		case h.maxDeliver > 0 && i.delivered >= uint64(h.maxDeliver):
			verdicts[n] = givenUp
			h.drop(i)
		default:
			i.failed, i.counted = true, false
			i.at = now + int64(h.circuit.jitter(h.pause(i.delivered)))
		}
	}
	return verdicts
}

// clear drops everything. What is under way stays counted.
func (h *hand) clear() {
	for _, i := range h.items {
		i.line = nil
	}
	h.items, h.lines, h.bytes = nil, map[string]*line{}, 0
}
