package world

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/carillon-mq/carillon/broker/protocol"
)

// batch is an atomic batch of messages.
type batch struct {
	id  string
	ops []*operation
	// behind has a message behind the last one commit the batch; abandoned has none commit it.
	behind, abandoned bool
}

// mostParts is how many messages a batch has at most.
const mostParts = 6

// publishBatch publishes an atomic batch, in one or two writes. One in eight is not committed. If
// the client connects to another broker in between, it goes on there, and the batch is refused.
func (c *client) publishBatch() {
	c.count++
	b := &batch{id: fmt.Sprintf("%s-%d", c.name, c.count), behind: c.rng.IntN(4) == 0, abandoned: c.rng.IntN(8) == 0}
	for i := range 2 + c.rng.IntN(mostParts-1) {
		c.count++
		op := &operation{client: c, subject: fmt.Sprintf("%s.%s.%d", c.topic.name, c.name, c.rng.IntN(ownSubjects)), value: fmt.Sprintf("%s#%d", c.name, c.count),
			expects: batching, batch: b, part: i, done: make(chan struct{})}
		if c.rng.IntN(4) == 0 {
			op.subject = c.sharedSubject()
		}
		op.shard = c.topic.shard(0)
		b.ops = append(b.ops, op)
	}
	first := len(b.ops)
	if c.rng.IntN(2) == 0 {
		first = 1 + c.rng.IntN(len(b.ops)-1)
	}
	c.send(b.ops[:first])
	if first == len(b.ops) || c.stopping.Load() {
		return
	}
	if c.life == nil || c.rng.IntN(8) == 0 {
		if c.life = c.connect(); c.life == nil {
			return
		}
	}
	c.send(b.ops[first:])
}

// wantsAnswer reports whether the message asks for an answer: of a batch, the one that commits it.
func (op *operation) wantsAnswer() bool {
	return op.batch == nil || op.part == len(op.batch.ops)-1 && !op.batch.abandoned
}

// messages are what is sent to publish a message of the batch.
func (b *batch) messages(op *operation, reply, padding string) []protocol.Message {
	headers := func(n int, more ...string) []string {
		return append([]string{headerBatch + ": " + b.id, headerSequence + ": " + strconv.Itoa(n)}, more...)
	}
	part := func(reply string, more ...string) protocol.Message {
		return message(op.subject, reply, op.value+padding, headers(op.part+1, more...)...)
	}
	switch {
	case !op.wantsAnswer():
		return []protocol.Message{part("")}
	case b.behind:
		return []protocol.Message{part(""), message(op.subject, reply, "", headers(op.part+2, headerCommit+": "+commitBefore)...)}
	}
	return []protocol.Message{part(reply, headerCommit+": "+commitWith)}
}

// answered notes what the answer to the commit says of the messages before the last one.
func (b *batch) answered(last *operation) {
	if last.outcome != kept {
		return
	}
	for _, op := range b.ops[:len(b.ops)-1] {
		op.outcome, op.offset, op.back = kept, last.offset-uint64(last.part-op.part), last.back
		op.client.w.judge.answered(op)
	}
}

// batches judges that each atomic batch stands in a log as a whole and without gaps, or not at all,
// and that none stands there that was not committed. log has all records that it ever had, as far
// as they are known.
func (j *judge) batches(h *history, log copied) {
	at := func(offset uint64) string {
		if offset == 0 || offset > uint64(len(log.records)) {
			return "nothing"
		}
		return log.records[offset-1].value
	}
	for _, r := range log.records {
		op := h.parts[r.value]
		if op == nil {
			continue
		}
		if op.batch.abandoned {
			j.w.fail("%s: %s stands at %d, and its batch was not committed", h.id, r.value, r.offset)
			return
		}
		if op.part == 0 {
			j.batched++
		}
		for _, other := range op.batch.ops {
			offset := r.offset + uint64(other.part) - uint64(op.part)
			if value := at(offset); value != other.value && value != "" {
				j.w.fail("%s: of an atomic batch %s stands at %d, and %q at %d instead of %s", h.id, r.value, r.offset, value, offset, other.value)
				return
			}
		}
	}
}

// halved judges that a reader up to an end sees all of an atomic batch, or nothing of it.
func (h *history) halved(w *world, end uint64, records []record) {
	for _, r := range slices.Backward(records) {
		if op := h.parts[r.value]; op != nil && r.offset+uint64(len(op.batch.ops)-1-op.part) >= end {
			w.fail("%s: a reader up to %d sees %s at %d, and not the rest of its batch", h.id, end, r.value, r.offset)
		}
		if r.offset+mostParts < end {
			return
		}
	}
}
