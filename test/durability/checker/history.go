package checker

import (
	"fmt"
	"sync"
)

// History is what the publishers and consumers of one stream did, and the answers that they got. It
// is safe for concurrent use.
type History struct {
	Stream  string
	subject func(publisher int) string

	mu         sync.Mutex
	publishers []*published
	consumers  map[string]*consumed
	seen       Progress
	last       uint64 // the highest sequence that was acknowledged
	unplugged  bool
	findings   findings // of events that were judged at once
}

// published is what one publisher did.
type published struct {
	intended uint64            // counters up to this one
	acked    map[uint64]uint64 // counter -> sequence
	refused  map[uint64]string // counter -> reason
	loose    map[uint64]bool   // counters of values whose connection is unknown
}

// consumed is what one consumer did.
type consumed struct {
	got      map[uint64]Value
	answered map[uint64]struct{}
}

// Progress counts what happened so far.
type Progress struct{ Acked, Refused, Delivered, Answered int }

// NewHistory returns the empty history of a stream.
func NewHistory(stream string) *History {
	return &History{
		Stream: stream, subject: func(publisher int) string { return fmt.Sprintf("%s.p%d", stream, publisher) },
		consumers: map[string]*consumed{}, findings: newFindings(),
	}
}

// Progress returns the counts so far.
func (h *History) Progress() Progress {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.seen
}

// Unplug says that the power is off, or on again. Answers that a server sends meanwhile are not
// recorded, since they count as not received. Their values may be in the stream all the same.
func (h *History) Unplug(off bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unplugged = off
}

// NewPublisher returns a new, unique publisher number.
func (h *History) NewPublisher() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.publishers = append(h.publishers, &published{acked: map[uint64]uint64{}, refused: map[uint64]string{}, loose: map[uint64]bool{}})
	return len(h.publishers) - 1
}

// Intend returns the publisher's next value. From now on it may be in the stream.
func (h *History) Intend(publisher int) Value {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.publishers[publisher]
	p.intended++
	return Value{publisher, p.intended}
}

// Acked records that the server acknowledged a value at a sequence.
func (h *History) Acked(v Value, seq uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unplugged {
		return
	}
	h.seen.Acked++
	h.publishers[v.Publisher].acked[v.Counter] = seq
	h.last = max(h.last, seq)
}

// LastAcked returns the highest acknowledged sequence; 0: none.
func (h *History) LastAcked() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

// Unordered records that a value may have been sent on a later connection than the publisher's
// earlier values.
func (h *History) Unordered(v Value) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.publishers[v.Publisher].loose[v.Counter] = true
}

// Refused records that the server refused a value for good: it must not be in the stream.
func (h *History) Refused(v Value, reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unplugged {
		return
	}
	h.seen.Refused++
	h.publishers[v.Publisher].refused[v.Counter] = reason
}

func (h *History) consumer(name string) *consumed {
	c := h.consumers[name]
	if c == nil {
		c = &consumed{got: map[uint64]Value{}, answered: map[uint64]struct{}{}}
		h.consumers[name] = c
	}
	return c
}

// Delivered records a delivery to a consumer, and reports whether it was recorded. The server must
// have sent it after all answers that were recorded before. A consumer must not acknowledge a
// delivery that was not recorded: during a power cut the server may keep that acknowledgement, and
// would never deliver the message again.
func (h *History) Delivered(consumer string, seq uint64, payload []byte) (noted bool) {
	v, err := Decode(h.Stream, payload)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unplugged {
		return false
	}
	h.seen.Delivered++
	if err != nil {
		h.findings.add(Garbled, "consumer %s got at %d: %v", consumer, seq, err)
		return true
	}
	c := h.consumer(consumer)
	if _, ok := c.answered[seq]; ok {
		h.findings.add(Redelivered, "consumer %s got %d (%s) again after its acknowledgement was answered", consumer, seq, v)
	}
	if before, ok := c.got[seq]; ok && before != v {
		h.findings.add(Changed, "consumer %s got %s at %d, and later %s", consumer, before, seq, v)
	}
	c.got[seq] = v
	return true
}

// astray records a delivery from an unknown stream.
func (h *History) astray(consumer, stream string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.findings.add(Unexpected, "consumer %s of %s got a message of stream %q", consumer, h.Stream, stream)
}

// expect records that a consumer must get every message, though it may have got none yet.
func (h *History) expect(consumer string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.consumer(consumer)
}

// Answered records that the server answered a consumer's acknowledgement.
func (h *History) Answered(consumer string, seq uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unplugged {
		return
	}
	h.seen.Answered++
	h.consumer(consumer).answered[seq] = struct{}{}
}

func (h *History) String() string {
	p := h.Progress()
	return fmt.Sprintf("%s: %d acknowledged, %d refused, %d delivered, %d acknowledgements answered", h.Stream, p.Acked, p.Refused, p.Delivered, p.Answered)
}
