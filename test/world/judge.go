package world

import (
	"fmt"
	"sync"
	"time"
)

// judge knows what clients did and were told, and holds the brokers to it: while it happens as far as that is possible, and against
// the logs at the end.
type judge struct {
	w  *world
	mu sync.Mutex
	// histories are by Topic; each has one shard.
	histories map[string]*history
}

// history is what is known of one log from outside.
type history struct {
	topic string
	loose bool // what only one disk had may be lost, as the Topic's durability allows
	ops   []*operation
	sure  map[uint64]string // by offset: acknowledged, or read
	made  map[string]bool   // values that were published
	looks []look

	lately time.Duration // when somebody was told last that something is kept, or was, or why not
	ever   bool
}

// longestGap is how long a Topic may go without an answer in a world in which nothing strikes but one hanging disk after the other: the
// ten seconds in which another broker leads, and what clients take to ask it.
const longestGap = 15 * time.Second

// look is an answer about the end of a log: at some time between the question and the answer, last was the last offset.
type look struct {
	call, back uint64
	last       uint64
	what       string
}

func newJudge(w *world) *judge { return &judge{w: w, histories: map[string]*history{}} }

func (j *judge) of(topic string) *history {
	h := j.histories[topic]
	if h == nil {
		h = &history{topic: topic, sure: map[uint64]string{}, made: map[string]bool{}}
		j.histories[topic] = h
	}
	return h
}

func (j *judge) called(op *operation) {
	op.call, op.at = j.w.stamp(), j.w.now()
	j.mu.Lock()
	defer j.mu.Unlock()
	h := j.of(op.topic)
	h.ops = append(h.ops, op)
	h.made[op.value] = true
}

func (j *judge) answered(op *operation) {
	j.mu.Lock()
	defer j.mu.Unlock()
	h := j.of(op.topic)
	if op.outcome != refused {
		j.gap(h)
		h.lately, h.ever = j.w.now(), true
	}
	switch op.outcome {
	case kept:
		if (op.expects == expecting) && op.offset != op.expected+1 {
			j.w.fail("%s is kept at %d, and expected %d to be the last message of %s", op.value, op.offset, op.expected, op.topic)
		}
		h.learn(j.w, op.offset, op.value, "acknowledged")
	case duplicate:
		h.learn(j.w, op.offset, op.value, "acknowledged as a duplicate")
	case wrongLast:
		if op.offset == op.expected {
			j.w.fail("%s was refused, since %d is the last message, which it expected", op.value, op.offset)
		}
	}
}

// gap judges how long nobody was told anything.
func (j *judge) gap(h *history) {
	if gap := j.w.now() - h.lately; j.w.patient && h.ever && gap > longestGap {
		j.w.fail("%s: nobody was answered for %v, and nothing was wrong but one disk", h.topic, gap)
	}
}

// learn notes what stands at an offset.
func (h *history) learn(w *world, offset uint64, value, how string) {
	if h.loose {
		return
	}
	if was, ok := h.sure[offset]; ok && was != value {
		w.fail("%s: %s is %s at %d, where %s was acknowledged or read before", h.topic, value, how, offset, was)
	}
	if !h.made[value] {
		w.fail("%s: %s is %s at %d, and nobody published it", h.topic, value, how, offset)
	}
	h.sure[offset] = value
}

func (j *judge) read(c *client, records []record) {
	j.mu.Lock()
	defer j.mu.Unlock()
	h := j.of(c.topic)
	for _, r := range records {
		h.learn(j.w, r.offset, r.value, "read")
	}
}

func (j *judge) saw(topic string, call, back, last uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	h := j.of(topic)
	h.looks = append(h.looks, look{call, back, last, "the last message is asked for"})
}

// copied is a replica's log at the end.
type copied struct {
	machine string
	start   uint64
	end     uint64
	records []record
}

// final compares the replicas of a Topic with each other, and with what clients were told.
func (j *judge) final(topic string, copies []copied) {
	h := j.of(topic)
	if len(copies) == 0 {
		j.w.fail("%s: there is no copy at the end", topic)
		return
	}
	first := copies[0]
	for _, other := range copies[1:] {
		if err := differ(first, other); err != nil {
			j.w.fail("%s: %w", topic, err)
			return
		}
	}
	if h.loose {
		return
	}
	if first.start != 1 {
		j.w.fail("%s: the log begins at %d, and nothing is so old that it may go", topic, first.start)
	}
	at := map[uint64]record{}
	where := map[string]uint64{}
	for i, r := range first.records {
		if i > 0 && (r.offset != first.records[i-1].offset+1 || r.epoch < first.records[i-1].epoch) {
			j.w.fail("%s: record %d of epoch %d stands behind %d of epoch %d", topic, r.offset, r.epoch, first.records[i-1].offset, first.records[i-1].epoch)
		}
		if !h.made[r.value] {
			j.w.fail("%s: %q stands at %d, and nobody published it", topic, r.value, r.offset)
		}
		if other, ok := where[r.value]; ok && !j.w.jumps { // while the time is in doubt, ids that were read from a log may be forgotten
			j.w.fail("%s: %s stands at %d and at %d", topic, r.value, other, r.offset)
		}
		at[r.offset], where[r.value] = r, r.offset
	}
	for offset, value := range h.sure {
		if offset < first.start {
			continue
		}
		if r, ok := at[offset]; !ok {
			j.w.fail("%s: %s was acknowledged or read at %d, and is lost; the log goes from %d to %d", topic, value, offset, first.start, first.end)
		} else if r.value != value {
			j.w.fail("%s: %s was acknowledged or read at %d, where %s is", topic, value, offset, r.value)
		}
	}
	j.answers(h, first, where)
}

// differ compares two copies where both retain records.
func differ(a, b copied) error {
	if a.end != b.end {
		return fmt.Errorf("replicas differ: the copy on %s ends at %d, that on %s at %d", a.machine, a.end, b.machine, b.end)
	}
	from := max(a.start, b.start)
	x, y := tail(a.records, from), tail(b.records, from)
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return fmt.Errorf("replicas differ: on %s %d is %+v, on %s %+v", a.machine, x[i].offset, x[i], b.machine, y[i])
		}
	}
	if len(x) != len(y) {
		return fmt.Errorf("replicas differ: %s has %d records from %d on, %s has %d", a.machine, len(x), from, b.machine, len(y))
	}
	return nil
}

func tail(records []record, from uint64) []record {
	for i, r := range records {
		if r.offset >= from {
			return records[i:]
		}
	}
	return nil
}

// mending bounds how long a world may take to be whole when nothing strikes any more.
const mending = 90 * time.Second
