package batching

import (
	"strconv"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
)

// Reason is why an open batch ended without a commit.
type Reason string

// The reasons, as nats-server's advisories name them.
const (
	Timeout    Reason = "timeout"
	Large      Reason = "large"
	Incomplete Reason = "incomplete"
	Unserved   Reason = "unsupported"
)

// Config is what a Staging works with.
type Config struct {
	Codec   publish.Codec
	Payload int // the most bytes of a batch, as one message on its way to the leader
	// Send sends the answers to publishers. It copies them, and never blocks.
	Send    func([]protocol.Message)
	Refused *publish.Refusals
	// Abandoned is called when an open batch has ended without a commit, with no lock held. It never
	// blocks, and may be nil.
	Abandoned func(topic, id string, why Reason)
}

// Topic is what this package needs to know of a Topic that takes batches.
type Topic struct {
	ID, Name   string
	Atomic     bool // it takes atomic batches
	Fast       bool // it takes fast batches
	Sealed     bool
	Silent     bool // no message is answered
	MaxMessage int  // bytes; 0: any number
	Subjects   *publish.Subjects
}

// Staging has the open batches of the clients of this broker. Its methods may be called by several
// goroutines. The messages of one batch come from one connection, one after the other.
type Staging struct {
	config Config

	mu     sync.Mutex
	open   map[key]*open
	topics map[string]*usage // with open batches, by id
	bytes  int
	closed bool
}

// usage is what the open batches of a Topic take.
type usage struct{ batches, bytes int }

// New returns a Staging. Close ends it.
func New(config Config) *Staging {
	return &Staging{config: config, open: map[key]*open{}, topics: map[string]*usage{}}
}

// Close ends all batches.
func (s *Staging) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, o := range s.open {
		s.end(o)
	}
}

// Take stages the messages that belong to batches, and returns the others, with a committed batch
// in the place of the message that committed it. It does not change the slice.
func (s *Staging) Take(t *Topic, messages []protocol.Message) []protocol.Message {
	if !t.Atomic {
		return messages
	}
	var left []protocol.Message
	var out publish.Replies
	staged := false
	for i := range messages {
		m := &messages[i]
		if m.Header > 0 && t.Subjects.Keep(m.Subject) {
			if part, ok := s.config.Codec.Part(m.Data[:m.Header]); ok {
				if !staged {
					staged, left = true, append(left, messages[:i]...)
				}
				batch, committed, refusal := s.stage(t, m, &part)
				switch {
				case committed:
					left = append(left, batch)
				case refusal != nil:
					s.config.Refused.Note(refusal)
					if len(m.Reply) > 0 && !t.Silent {
						out.Refusal(s.config.Codec, m.Reply, t.Name, refusal)
					}
				case len(m.Reply) > 0 && !t.Silent:
					out.Encoded(m.Reply, nil)
				}
				continue
			}
		}
		if staged {
			left = append(left, *m)
		}
	}
	if !staged {
		return messages
	}
	if len(out.Messages) > 0 {
		s.config.Send(out.Messages)
	}
	return left
}

// stage stages a message. committed reports that it commits its batch, which is returned as one
// message.
func (s *Staging) stage(t *Topic, m *protocol.Message, part *publish.Part) (batch protocol.Message, committed bool, _ error) {
	switch {
	case t.Sealed:
		return batch, false, &publish.SealedError{Topic: t.Name}
	case t.MaxMessage > 0 && len(m.Data) > t.MaxMessage:
		return batch, false, &publish.TooLargeError{Topic: t.Name, Size: len(m.Data), Max: t.MaxMessage}
	case len(part.Batch) > maxID:
		return batch, false, fault(t, publish.BatchInvalidID, "")
	case !part.Sequenced:
		return batch, false, fault(t, publish.BatchNoSequence, "")
	}
	s.mu.Lock()
	o := s.open[key{t.ID, string(part.Batch)}]
	if o == nil {
		var refusal error
		if o, refusal = s.begin(t, part); refusal != nil {
			s.mu.Unlock()
			return batch, false, refusal
		}
	}
	why, refusal := s.add(t, o, m, part)
	if refusal == nil && part.Commit == publish.NoCommit {
		o.until = time.Now().Add(maxAge)
		s.mu.Unlock()
		return batch, false, nil
	}
	s.end(o)
	s.mu.Unlock()
	if refusal != nil {
		if why != "" && s.config.Abandoned != nil {
			s.config.Abandoned(t.Name, o.key.id, why)
		}
		return batch, false, refusal
	}
	return o.message(m.Reply), true, nil
}

// begin begins a batch with its first message. mu is held.
func (s *Staging) begin(t *Topic, part *publish.Part) (*open, error) {
	if part.Sequence != 1 {
		if size(part) > MaxMessages {
			return nil, tooLarge(t)
		}
		return nil, fault(t, publish.BatchIncomplete, "")
	}
	used := s.topics[t.ID]
	if s.closed || len(s.open) >= maxOpenTotal || used != nil && used.batches >= maxOpen {
		return nil, fault(t, publish.BatchesOpen, "")
	}
	if used == nil {
		used = &usage{}
		s.topics[t.ID] = used
	}
	used.batches++
	o := &open{key: key{t.ID, string(part.Batch)}, name: t.Name, until: time.Now().Add(maxAge)}
	s.open[o.key] = o
	o.timer = time.AfterFunc(maxAge, func() { s.expire(o) })
	return o, nil
}

// add adds a message to a batch, or says why the batch ends. An empty reason is not reported. mu is
// held.
func (s *Staging) add(t *Topic, o *open, m *protocol.Message, part *publish.Part) (why Reason, refusal error) {
	switch {
	case part.Commit == publish.CommitInvalid:
		return "", fault(t, publish.BatchInvalidCommit, "")
	case part.Unserved:
		return Unserved, fault(t, publish.BatchUnserved, "")
	case part.Sequence != o.last+1, part.Sequence == 1 && part.Commit == publish.CommitBefore:
		return Incomplete, fault(t, publish.BatchIncomplete, "")
	case size(part) > MaxMessages:
		return Large, tooLarge(t)
	}
	o.last++
	if part.Commit == publish.CommitBefore {
		o.mark(s.config.Codec)
	} else {
		grown := forward.EntrySize(m) - len(m.Reply)
		switch used := s.topics[t.ID]; {
		case s.config.Payload > 0 && len(o.data)+grown > s.config.Payload-reserved:
			return Large, fault(t, publish.BatchTooLarge, strconv.Itoa(s.config.Payload)+" bytes")
		case s.bytes+grown > maxBytes || used.bytes+grown > maxTopicBytes:
			return Large, fault(t, publish.BatchesOpen, "")
		default:
			used.bytes += grown
			s.bytes += grown
			o.counted += grown
		}
		kept := *m
		strip(&kept, part.Strip)
		o.add(&kept)
	}
	return "", nil
}

// size is how many messages a batch has with one of them.
func size(part *publish.Part) uint64 {
	if part.Commit == publish.CommitBefore {
		return max(part.Sequence, 1) - 1
	}
	return part.Sequence
}

// end ends a batch, whether it is committed or not. mu is held.
func (s *Staging) end(o *open) {
	if s.open[o.key] != o {
		return
	}
	delete(s.open, o.key)
	o.timer.Stop()
	used := s.topics[o.key.topic]
	used.batches--
	used.bytes -= o.counted
	s.bytes -= o.counted
	if used.batches == 0 {
		delete(s.topics, o.key.topic)
	}
}

// expire ends a batch whose next message has not come in time.
func (s *Staging) expire(o *open) {
	s.mu.Lock()
	if s.open[o.key] != o {
		s.mu.Unlock()
		return
	}
	if rest := time.Until(o.until); rest > 0 {
		o.timer.Reset(rest)
		s.mu.Unlock()
		return
	}
	s.end(o)
	s.mu.Unlock()
	if s.config.Abandoned != nil {
		s.config.Abandoned(o.name, o.key.id, Timeout)
	}
}

func fault(t *Topic, of publish.BatchFault, what string) error {
	return &publish.BatchError{Topic: t.Name, Fault: of, What: what}
}

func tooLarge(t *Topic) error {
	return fault(t, publish.BatchTooLarge, strconv.Itoa(MaxMessages))
}
