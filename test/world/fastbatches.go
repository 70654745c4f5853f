package world

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-mq/carillon/broker/protocol"
)

// fastBatch is a fast batch of messages, all of which go to one process. Its fields belong to the
// world's goroutine once its first message is on its way.
type fastBatch struct {
	client *client
	id     string
	gapOK  bool
	flow   int
	ops    []*operation // by sequence, from 1 on; nil: the message is lost before it is published
	acked  bool         // its end was answered
	closed bool         // that, or it was refused
	over   chan struct{}
}

const (
	// mostFast is how many messages a fast batch has at most.
	mostFast = 24
	// mostFlow is how many messages a publisher of a fast batch allows between two answers at most.
	mostFlow = 8
	// noOffset is an offset that no record of a world has.
	noOffset = 1 << 40
)

// replyOf returns the reply subject of a message of the batch with a sequence: how the codec learns
// of the batch, as JetStream does.
func (b *fastBatch) replyOf(sequence, operation int) string {
	gaps := "fail"
	if b.gapOK {
		gaps = "ok"
	}
	return fmt.Sprintf("%s%s.%d.%s.%d.%d.$FI", fastPrefix, b.id, b.flow, gaps, sequence, operation)
}

// The operations of a message of a fast batch, and how its reply begins.
const (
	fastStart, fastAppend, fastCommit, fastEnd, fastPing = 0, 1, 2, 3, 4

	fastPrefix = "_F."
)

// boxOf returns the key of the box for an answer: a fast batch has one.
func boxOf(reply string) string {
	if rest, fast := strings.CutPrefix(reply, fastPrefix); fast {
		id, _, _ := strings.Cut(rest, ".")
		return fastPrefix + id
	}
	return reply
}

// publishFast publishes a fast batch in several writes. Some messages are left out, as if they had
// been lost on their way, and some expect a last message that does not exist. Of eight batches four
// end with their last message, three behind it, and one never.
func (c *client) publishFast() {
	w, l := c.w, c.life
	c.count++
	b := &fastBatch{client: c, id: fmt.Sprintf("%s-%d", c.name, c.count), gapOK: c.rng.IntN(2) == 0, flow: 1 + c.rng.IntN(mostFlow), over: make(chan struct{})}
	l.hub.mu.Lock()
	l.hub.boxes[fastPrefix+b.id] = &box{client: c, fast: b}
	l.hub.mu.Unlock()
	size, ending := 2+c.rng.IntN(mostFast-1), c.rng.IntN(8)
	for len(b.ops) < size {
		var messages []protocol.Message
		for range 1 + c.rng.IntN(6) {
			if len(b.ops) == size {
				break
			}
			messages = append(messages, b.message(len(b.ops)+1 == size && ending < 4)...)
		}
		switch {
		case len(b.ops) == size && ending >= 4 && ending < 7:
			messages = append(messages, message(b.client.topic.name+".end", b.replyOf(size+1, fastEnd), ""))
		case c.rng.IntN(8) == 0:
			messages = append(messages, message(b.client.topic.name+".ping", b.replyOf(len(b.ops), fastPing), ""))
		}
		w.io(w.delay(wireMin, wireMax), fmt.Sprintf("%s publishes %d of the fast batch %s to %s", c.name, len(b.ops), b.id, l))
		if l.dead.Load() || !l.ready.Load() || !l.hub.publish(c, messages) {
			c.life = nil
			return
		}
		if b.closed {
			return
		}
		if c.rng.IntN(3) == 0 {
			c.pause(0, 300*time.Millisecond)
		}
	}
	if ending == 7 { // what is on its way arrives before a world counts what was delivered
		c.pause(time.Second, 2*time.Second)
		return
	}
	late := time.NewTimer(answerTime)
	defer late.Stop()
	select {
	case <-b.over:
	case <-l.gone:
		c.life = nil
	case <-late.C:
		c.life = nil
	}
}

// message returns the next message of the batch, or none if it is left out.
func (b *fastBatch) message(last bool) []protocol.Message {
	c := b.client
	if len(b.ops) > 0 && !last && c.rng.IntN(40) == 0 {
		b.ops = append(b.ops, nil)
		return nil
	}
	c.count++
	op := &operation{client: c, life: c.life, subject: fmt.Sprintf("%s.%s.%d", c.topic.name, c.name, c.rng.IntN(ownSubjects)), value: fmt.Sprintf("%s#%d", c.name, c.count),
		expects: fasting, fast: b, part: len(b.ops)}
	switch {
	case c.topic.counts():
		c.increment(op)
	case c.rng.IntN(40) == 0 && !c.topic.removes():
		op.expects, op.expected = swapping, noOffset
	}
	op.shard = c.topic.shard(0)
	b.ops = append(b.ops, op)
	c.w.judge.called(op)
	does := fastAppend
	switch {
	case last:
		does = fastCommit
	case op.part == 0:
		does = fastStart
	}
	return op.messages(b.replyOf(op.part+1, does), strings.Repeat(".", c.rng.IntN(200)))
}

// answered handles an answer. It runs on the world's goroutine.
func (b *fastBatch) answered(text string) {
	w := b.client.w
	verb, rest, _ := strings.Cut(text, " ")
	number, more, _ := strings.Cut(rest, " ")
	n, _ := strconv.Atoi(number)
	switch verb {
	case "flow":
		b.settle(n)
	case "gap":
	case "err":
		b.failed(n, more)
	case "ack":
		if b.acked {
			w.fail("the fast batch %s was answered for good twice, then with %q", b.id, text)
		}
		b.acked = true
		offset, of, _ := strings.Cut(more, " ")
		at, _ := strconv.ParseUint(offset, 10, 64)
		count, _ := strconv.Atoi(strings.TrimPrefix(of, countMark))
		b.settle(count)
		b.acknowledged(at, count)
		b.end()
	default: // its first message was refused, or one that comes behind its end
		b.end()
	}
}

func (b *fastBatch) end() {
	if !b.closed {
		b.closed = true
		close(b.over)
	}
}

// settle notes that the first messages are settled: all of them are kept, or, where gaps are ok,
// those that are neither missing nor refused.
func (b *fastBatch) settle(count int) {
	w := b.client.w
	if count > len(b.ops) {
		w.fail("of the fast batch %s %d messages are said to be settled, and %d were published", b.id, count, len(b.ops))
		return
	}
	j := w.judge
	j.mu.Lock()
	defer j.mu.Unlock()
	for i, op := range b.ops[:count] {
		switch {
		case op == nil && !b.gapOK:
			w.fail("of the fast batch %s %d messages are said to be kept, and %d was never published", b.id, count, i+1)
		case op == nil || op.back > 0:
		case b.gapOK:
			op.back = w.stamp()
		case op.outcome != unknown || op.expected == noOffset:
			w.fail("%s, which is %d of the fast batch %s, is said to be kept, after %s", op.value, i+1, b.id, outcomeNames[op.outcome])
		default:
			op.outcome, op.back = kept, w.stamp()
			j.of(op.shard).lately, j.of(op.shard).ever = w.now(), true
		}
	}
	if count > 0 {
		b.client.progressed()
	}
}

// acknowledged notes the offset of the last kept message: where gaps are not ok, it is the last
// one of those that are settled.
func (b *fastBatch) acknowledged(offset uint64, count int) {
	j := b.client.w.judge
	if b.gapOK || count == 0 || b.ops[count-1] == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	op := b.ops[count-1]
	op.offset = offset
	j.of(op.shard).learn(j.w, op.call, offset, op.value, "acknowledged at the end of a fast batch")
}

// failed notes that a message was refused.
func (b *fastBatch) failed(sequence int, refusal string) {
	w := b.client.w
	if sequence < 1 || sequence > len(b.ops) || b.ops[sequence-1] == nil {
		w.fail("of the fast batch %s message %d was refused, and it was never published: %q", b.id, sequence, refusal)
		return
	}
	op := b.ops[sequence-1]
	if op.outcome != unknown {
		w.fail("%s, which is %d of the fast batch %s, was refused, after %s: %q", op.value, sequence, b.id, outcomeNames[op.outcome], refusal)
		return
	}
	op.outcome, op.reason, op.back = refused, refusal, w.stamp()
	if rest, condition := strings.CutPrefix(refusal, "last "); condition {
		_, offset, _ := strings.Cut(rest, " ")
		op.outcome = wrongLast
		op.offset, _ = strconv.ParseUint(offset, 10, 64)
		if op.expected != noOffset {
			w.fail("%s was refused by a condition that it does not have: %q", op.value, refusal)
		}
	}
}

// fastBatches judges the fast batches of a shard: their messages stand in their order; all that
// were answered as kept stand; and where gaps are not ok, none stands behind a missing one. log has
// all records that it ever had, as far as they are known. What an unknown one was is not judged.
func (j *judge) fastBatches(h *history, log copied) {
	type place struct{ next, offset uint64 }
	places, blank := map[*fastBatch]*place{}, uint64(0)
	stands := map[*operation]bool{}
	for _, r := range log.records {
		if r.value == "" {
			blank = r.offset
			continue
		}
		op := h.fast[r.value]
		if op == nil {
			continue
		}
		b, sequence := op.fast, uint64(op.part)+1
		p := places[b]
		if p == nil {
			p = &place{next: 1}
			places[b] = p
		}
		switch {
		case op.expected == noOffset:
			j.w.fail("%s: %s of the fast batch %s stands at %d, and expected a last message that never was", h.id, r.value, b.id, r.offset)
			return
		case sequence < p.next && !j.w.jumps: // while the time is in doubt, a message may stand twice
			j.w.fail("%s: %s, which is %d of the fast batch %s, stands at %d behind %d of it at %d", h.id, r.value, sequence, b.id, r.offset, p.next-1, p.offset)
			return
		case sequence > p.next && !b.gapOK && b.ops[0].call > h.since && blank <= p.offset:
			j.w.fail("%s: %s, which is %d of the fast batch %s, stands at %d, and %d of it is missing before it", h.id, r.value, sequence, b.id, r.offset, p.next)
			return
		}
		p.next, p.offset, stands[op] = sequence+1, r.offset, true
	}
	j.fasts += len(places)
	if blank > 0 {
		return
	}
	for _, op := range h.ops {
		if op.fast != nil && op.back > 0 && (op.outcome == kept || op.outcome == unknown) && op.call > h.since && !stands[op] {
			j.w.fail("%s: %s, which is %d of the fast batch %s, was answered as kept, and is lost", h.id, op.value, op.part+1, op.fast.id)
			return
		}
	}
}

// hasFast reports whether the Topic takes fast batches.
func (d *declared) hasFast() bool { return d.spec.Stream.AllowBatched && d.shards() == 1 }
