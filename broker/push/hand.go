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
	gone    bool  // it was dropped while it was sent: it only keeps its line
	spared  int   // answers of a working endpoint when it was spared, and one; 0: it was not
	probed  int64 // of its first probe that failed; 0: none
	strict  bool  // its probes count
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
//  3. A record with an attempt behind it is sent alone, so that one record does not spoil the
//     others of a batch for ever.
//  4. A request that finds the endpoint unavailable gives no record up, unless the endpoint has
//     worked since the same happened to the record before. It opens the circuit instead.
//  5. If no other subject is there to probe with, the probes of a record count after probeTime,
//     except those without a connection.
type hand struct {
	rules
	circuit circuit
	items   []*item // in the order in which they were taken
	lines   map[string]*line
	bytes   int // of items
	sending int // requests
	paused  bool
	refused int // refusals in a row
	works   int // answers of a working endpoint
}

func newHand(r rules, jitter func(time.Duration) time.Duration) *hand {
	return &hand{rules: r, circuit: circuit{jitter: jitter}, lines: map[string]*line{}}
}

// open reports whether it takes another record. room is the bytes that it may have.
func (h *hand) open(room int) bool {
	if h.circuit.open && (len(h.lines) >= openLines || h.bytes >= openBytes) {
		return false
	}
	return len(h.items) < h.most && h.bytes < min(handBytes, room)
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
	i.leave(h)
	if !i.gone {
		h.items = slices.DeleteFunc(h.items, func(o *item) bool { return o == i })
		h.bytes -= i.size()
	}
}

// forget drops a record that may be in a request under way: then it keeps its line.
func (h *hand) forget(i *item) {
	if i.line == nil || i.gone {
		return
	}
	if i.gone = i.sending; !i.gone {
		h.drop(i)
		return
	}
	h.items = slices.DeleteFunc(h.items, func(o *item) bool { return o == i })
	h.bytes -= i.size()
}

// leave takes a record out of its line.
func (i *item) leave(h *hand) {
	i.line.items = slices.DeleteFunc(i.line.items, func(o *item) bool { return o == i })
	if len(i.line.items) == 0 {
		delete(h.lines, i.subject)
	}
	i.line = nil
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
	spared                      // it stays, and its attempt was none: it is not sent before release
)

// ended notes the end of a request. The verdicts are those of its records, which are out of the
// hand unless they are retried. Records that were dropped meanwhile have none that matters.
func (h *hand) ended(batch []*item, probe bool, a answer, now int64) []verdict {
	h.sending--
	verdicts := make([]verdict, len(batch))
	counts := true
	switch a.kind {
	case accepted:
		h.circuit.worked(probe)
		h.refused, h.works = 0, h.works+1
	case refusedIt:
		h.circuit.worked(probe)
		h.refused, h.works = h.refused+1, h.works+1
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
		case i.gone:
			h.drop(i)
		case a.kind == accepted:
			verdicts[n] = acknowledged
			h.drop(i)
		case !counts && !(probe && h.ends(i, a, now)):
			verdicts[n], i.at = h.spare(i), 0
		case h.spares(i, a, probe):
			h.circuit.trip(now)
			verdicts[n], i.failed, i.at, i.spared = h.spare(i), true, 0, h.works+1
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

// ends notes a probe that failed, and reports whether it counts as an attempt of its record.
func (h *hand) ends(i *item, a answer, now int64) bool {
	if a.kind != unavailable || a.after > 0 || a.gone {
		return false
	}
	counted := i.strict && a.took
	if i.probed == 0 {
		i.probed = now
	}
	i.strict = len(h.lines) == 1 && now-i.probed >= int64(probeTime)
	return counted
}

// spares reports whether a record is kept whose last attempt failed, since the endpoint failed and
// not the record.
func (h *hand) spares(i *item, a answer, probe bool) bool {
	last := h.maxDeliver > 0 && i.delivered >= uint64(h.maxDeliver)
	return last && a.kind == unavailable && !probe && (i.spared == 0 || i.spared == h.works+1)
}

// spare returns the verdict of a record whose attempt does not count.
func (h *hand) spare(i *item) verdict {
	if !i.counted {
		return retried
	}
	i.sending = true
	return spared
}

// release lets a spared record be sent again.
func (h *hand) release(i *item) {
	i.sending, i.counted = false, false
	if i.gone {
		h.drop(i)
	}
}

// clear drops everything. What is under way stays counted, and keeps its line until it ends.
func (h *hand) clear() {
	for _, i := range h.items {
		if i.gone = i.sending; !i.gone {
			i.leave(h)
		}
	}
	h.items, h.bytes = nil, 0
}
