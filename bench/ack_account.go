package bench

import (
	"errors"
	"fmt"
)

// Acks says how the messages of a durable run were answered, warm-up included.
type Acks struct {
	Published  int64 `json:"published"`
	Acked      int64 `json:"acked"`        // each message once
	Unanswered int64 `json:"unanswered"`   // at the end of the drain
	Refused    int64 `json:"refused"`      // answered with an error
	Duplicated int64 `json:"duplicated"`   // answered again
	OutOfOrder int64 `json:"out_of_order"` // answered after a later message of its publisher
	// Wrong acks name another stream, an impossible sequence, or nothing that was sent.
	Wrong int64 `json:"wrong"`
}

func (a Acks) faulty() bool {
	return a.Unanswered+a.Refused+a.Duplicated+a.OutOfOrder+a.Wrong > 0
}

func (a Acks) plus(o Acks) Acks {
	return Acks{
		Published: a.Published + o.Published, Acked: a.Acked + o.Acked, Unanswered: a.Unanswered + o.Unanswered,
		Refused: a.Refused + o.Refused, Duplicated: a.Duplicated + o.Duplicated, OutOfOrder: a.OutOfOrder + o.OutOfOrder,
		Wrong: a.Wrong + o.Wrong,
	}
}

// bad is how many messages were not answered as they should have been.
func (a Acks) bad() int64 { return a.Unanswered + a.Refused + a.Duplicated + a.OutOfOrder + a.Wrong }

// maxDurableMessages bounds what one durable run publishes, and with it the memory of the
// account (16 bytes each) and what the server stores.
const maxDurableMessages = 8 << 20

// An ackAccount follows each message of a durable run from the moment it is sent to its
// answer. It is pure: the caller brings times and answers. One goroutine at a time.
type ackAccount struct {
	stream    string
	limit     int   // of messages
	from, to  int64 // when acks count for the figures
	tracks    []ackTrack
	taken     bitmap // stream sequences that were acknowledged
	probes    uint64 // messages in the stream that are not of the account
	handedOn  bool   // while leaders change brokers may send one another a message twice
	published int
	open      int // messages without an answer
	last      int64
	acks      Acks
	latency   *recorder
	over      *timeline
	refusal   error // the first
}

// An ackTrack is one publisher.
type ackTrack struct {
	sent    int
	chunks  [][]sentMessage // so that growing moves nothing
	newest  int             // the latest message that was acknowledged, or -1
	highest uint64          // the highest sequence that it was given
}

const chunkMessages = 256

// A sentMessage is when it was sent and, once known, its sequence in the stream.
type sentMessage struct {
	at       int64
	sequence uint64
}

// refusedSequence marks a message that was answered with an error.
const refusedSequence = ^uint64(0)

func newAckAccount(stream string, publishers, limit int, from, to int64) *ackAccount {
	a := &ackAccount{
		stream: stream, limit: limit, from: from, to: to, tracks: make([]ackTrack, publishers), latency: newRecorder(),
		over: newTimeline(to - from).begin(from),
	}
	for i := range a.tracks {
		a.tracks[i].newest = -1
	}
	return a
}

func (t *ackTrack) message(n int) *sentMessage { return &t.chunks[n/chunkMessages][n%chunkMessages] }

// send enters a message of a publisher and returns its number, or false if no more may be sent.
func (a *ackAccount) send(publisher int, at int64) (number int, ok bool) {
	if a.published >= a.limit {
		return 0, false
	}
	t := &a.tracks[publisher]
	if t.sent%chunkMessages == 0 {
		t.chunks = append(t.chunks, make([]sentMessage, chunkMessages))
	}
	number = t.sent
	t.message(number).at = at
	t.sent++
	a.published++
	a.open++
	return number, true
}

// answer enters what came back for a message, and tells whether it is the message's first
// answer: then its publisher has one less in flight.
func (a *ackAccount) answer(publisher, number int, payload []byte, at int64) (first bool) {
	ack, err := readPubAck(payload)
	return a.settle(publisher, number, ack, err, at)
}

func (a *ackAccount) settle(publisher, number int, ack pubAck, err error, at int64) (first bool) {
	if publisher < 0 || publisher >= len(a.tracks) || number < 0 || number >= a.tracks[publisher].sent {
		a.acks.Wrong++
		return false
	}
	t := &a.tracks[publisher]
	m := t.message(number)
	if m.sequence != 0 {
		a.acks.Duplicated++
		return false
	}
	a.open--
	a.last = at
	if err != nil {
		m.sequence = refusedSequence
		a.acks.Refused++
		if a.refusal == nil {
			a.refusal = err
		}
		return true
	}
	m.sequence = ack.sequence
	a.acks.Acked++
	if wrong := a.wrong(t, number, ack); wrong == nil {
		t.highest = max(t.highest, ack.sequence)
	} else {
		a.acks.Wrong++
		if a.refusal == nil {
			a.refusal = wrong
		}
		if ack.sequence == 0 {
			m.sequence = refusedSequence
		}
	}
	if number < t.newest {
		a.acks.OutOfOrder++
	} else {
		t.newest = number
	}
	if at >= a.from && at < a.to {
		a.latency.record(at - m.at)
		a.over.record(m.at, at-m.at)
	}
	return true
}

// wrong says what can't be about an ack, if anything. In a stream that is ours alone sequences
// begin at 1 and are not far beyond what was published (those that are off by less show when it
// is read back), none is given twice, and the messages of one publisher on one connection stand
// in the order in which they were sent.
func (a *ackAccount) wrong(t *ackTrack, number int, ack pubAck) error {
	switch {
	case string(ack.stream) != a.stream:
		return fmt.Errorf("an ack is from the stream %.64q instead of %q", ack.stream, a.stream)
	case ack.duplicate && !a.handedOn:
		return errors.New("a message that was sent once was taken for a duplicate")
	case ack.sequence == 0 || ack.sequence > 2*(uint64(a.limit)+a.probes):
		return fmt.Errorf("an ack has the sequence %d after %d messages", ack.sequence, uint64(a.published)+a.probes)
	case !a.taken.add(ack.sequence):
		return fmt.Errorf("the sequence %d was given to two messages", ack.sequence)
	case number > t.newest && ack.sequence < t.highest:
		return fmt.Errorf("the sequence %d was given to a message that was sent after that of %d", ack.sequence, t.highest)
	}
	return nil
}

// close ends the account: what is open now stays so.
func (a *ackAccount) close() Acks {
	a.acks.Published, a.acks.Unanswered = int64(a.published), int64(a.open)
	return a.acks
}

// acknowledged is the sequence that a message was acknowledged with, if it was.
func (a *ackAccount) acknowledged(publisher, number int) (uint64, bool) {
	m := a.tracks[publisher].message(number)
	return m.sequence, m.sequence != 0 && m.sequence != refusedSequence
}

// A bitmap is a set of numbers that grows with them.
type bitmap []uint64

// add reports whether n was not there yet. The caller bounds n.
func (b *bitmap) add(n uint64) bool {
	word, bit := n/64, uint64(1)<<(n%64)
	for word >= uint64(len(*b)) {
		*b = append(*b, 0)
	}
	if (*b)[word]&bit != 0 {
		return false
	}
	(*b)[word] |= bit
	return true
}
