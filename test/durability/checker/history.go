package checker

import (
	"fmt"
	"sync"
)

// History is what publishers and consumers of one stream did and were told. It is safe for
// concurrent use.
type History struct {
	Stream  string
	subject func(publisher int) string

	mu         sync.Mutex
	publishers []*published
	consumers  map[string]*consumed
	seen       Progress
	last       uint64 // the highest sequence that was acknowledged
	unplugged  bool
	findings   findings // what could be judged when it happened
}

// published is what one publisher did.
type published struct {
	intended uint64            // counters up to this one
	acked    map[uint64]uint64 // counter -> sequence
	refused  map[uint64]string // counter -> reason
	loose    map[uint64]bool   // counters of which nobody knows on which connection they went
}

// consumed is what one consumer did.
type consumed struct {
	got      map[uint64]Value
	answered map[uint64]struct{}
}

// Progress counts what happened so far.
type Progress struct{ Acked, Refused, Delivered, Answered int }

// NewHistory is that of a stream on which nothing has happened.
func NewHistory(stream string) *History {
	return &History{
		Stream: stream, subject: func(publisher int) string { return fmt.Sprintf("%s.p%d", stream, publisher) },
		consumers: map[string]*consumed{}, findings: newFindings(),
	}
}

// Progress says how much has happened.
func (h *History) Progress() Progress {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.seen
}

// Unplug says that the power is off, or on again. What a server says while it is off reaches
// nobody, so it is not noted; what is sent may be there all the same.
func (h *History) Unplug(off bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unplugged = off
}

// NewPublisher is a publisher's number, which nobody else has.
func (h *History) NewPublisher() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.publishers = append(h.publishers, &published{acked: map[uint64]uint64{}, refused: map[uint64]string{}, loose: map[uint64]bool{}})
	return len(h.publishers) - 1
}

// Intend is the publisher's next value; from now on it may be in the stream.
func (h *History) Intend(publisher int) Value {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.publishers[publisher]
	p.intended++
	return Value{publisher, p.intended}
}

// Acked notes that the server acknowledged a value at a sequence.
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

// LastAcked is the highest sequence that was acknowledged; 0: none was.
func (h *History) LastAcked() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

// Unordered notes that a value may have been sent on a later connection than those of its publisher
// before it.
func (h *History) Unordered(v Value) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.publishers[v.Publisher].loose[v.Counter] = true
}

// Refused notes that the server refused a value for good: it has no right to be in the stream.
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

// Delivered notes what a consumer got, and reports whether it was noted. It must have been sent
// after all answers that were noted before. A consumer must not acknowledge what was not noted:
// while the power is being cut the server may still keep the acknowledgement, and would then never
// deliver the message again.
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

// astray notes that a consumer got something that is said to be of a stream that nobody knows.
func (h *History) astray(consumer, stream string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.findings.add(Unexpected, "consumer %s of %s got a message of stream %q", consumer, h.Stream, stream)
}

// expect notes that a consumer is to get all that is there, though it may have got nothing yet.
func (h *History) expect(consumer string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.consumer(consumer)
}

// Answered notes that the server answered a consumer's acknowledgement.
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
