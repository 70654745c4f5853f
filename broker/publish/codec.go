package publish

import (
	"time"

	"github.com/carillon-mq/carillon/broker/scheduling"
)

// Codec decodes what publishers ask for and encodes the answers to them. Its methods may be called
// by several goroutines.
type Codec interface {
	// Conditions reads what a message's header asks for. A refusal is for AppendRefusal.
	Conditions(header []byte) (c Conditions, refusal error)
	// Part reads how a message belongs to an atomic batch. ok is false if it belongs to none.
	Part(header []byte) (p Part, ok bool)
	// AppendCommit appends a message's header with the mark of the message that commits its batch.
	AppendCommit(dst, header []byte) []byte
	// Counter reads the total of a counter from a record, and what its header says of other streams.
	// ok is false if it is no counter.
	Counter(header, payload []byte) (total, sources []byte, ok bool)
	// CounterSource returns what a record says of other streams with another total of one's subject,
	// and which total it said before; empty: none. ok is false if sources can't be read.
	CounterSource(sources []byte, stream, subject, total string) (updated []byte, before string, ok bool)
	// AppendCounter appends a record of a counter: the header of its increment, and the total.
	// increment is the one that the header of a copy gets; empty: it keeps its own. headerSize is the
	// size of the header with what it says of other streams.
	AppendCounter(dst, header []byte, total, increment string, sources []byte) (record []byte, headerSize int)
	// AppendAck appends the answer to a message that is kept, or had been kept before.
	AppendAck(dst []byte, topic string, a Ack) []byte
	// AppendRefusal appends the answer to a message that is not kept. err is one of this package's,
	// of broker/log's, or a refusal from Conditions.
	AppendRefusal(dst []byte, topic string, err error) []byte
	// AppendMarker appends the header of a marker: a message that takes the place of the one record
	// that its subject has, the one at offset last, because that has expired. The marker expires
	// itself after ttl.
	AppendMarker(dst []byte, ttl time.Duration, last uint64) []byte
}

// Ack says where a message is kept.
type Ack struct {
	Offset    uint64 // the last record's, if there are several
	Records   int    // how many records the message carried, or its batch has; 0: it is one record itself
	Duplicate bool
	Total     []byte // of the counter that the message has incremented; empty: none
	Batch     []byte // the id of the atomic batch that the message committed; empty: none
}

// Part says how a message belongs to an atomic batch. Its slice points into the header.
type Part struct {
	Batch     []byte // id
	Sequence  uint64 // from 1, if Sequenced
	Sequenced bool
	Commit    Commit
	Unserved  bool // the message requires what this version does not have
	// Strip names a header that is not kept; empty: none.
	Strip string
}

// Commit is what a message says about the end of its batch.
type Commit uint8

// The kinds of Commit.
const (
	NoCommit      Commit = iota
	CommitWith           // the message is the last one
	CommitBefore         // the message is not part of the batch, which ended before it
	CommitInvalid        // it can't be understood
)

// Conditions is what a publisher asks for beyond being kept. Its slices point into the header.
type Conditions struct {
	ID             []byte // one message per id and deduplication window; empty: none
	ExpectedTopic  []byte // empty: any
	ExpectedLastID []byte // of the last message; empty: any
	// After is the id of a message that must have been kept within the deduplication window; empty:
	// none. A publisher with several messages under way names the one before, and what has to come
	// again comes in its order.
	After []byte
	// ExpectedLast is the offset that the last message must have, if ExpectsLast; 0: none was ever
	// kept.
	ExpectedLast uint64
	ExpectsLast  bool
	// ExpectedLastBySubject is the offset that the last message of ExpectedSubject, or of the
	// message's own subject if that is empty, must have, if ExpectsLastBySubject; 0: there is none.
	ExpectedLastBySubject uint64
	ExpectsLastBySubject  bool
	ExpectedSubject       []byte
	// Records is how many records the message carries, each behind its length; 0: it is one itself.
	Records int
	// Rollup is which older messages are removed once this one is kept.
	Rollup Rollup
	// Increment is what the message adds to the counter of its subject, a decimal number; empty: it is
	// not about a counter.
	Increment []byte
	// TTL is after how long the message expires; 0: as the Topic says, Never: it doesn't.
	TTL time.Duration
	// Part reports whether the message belongs to an atomic batch.
	Part bool
	// Copied reports whether the message says that it is a copy of another stream's.
	Copied bool
	// Schedule is what the message says of schedules; nil: nothing.
	Schedule *scheduling.Request
	// Fires is the value of scheduling.Header; empty: the message is published by no schedule.
	Fires []byte
	// Marks reports whether the message says that its subject has no other one: nothing takes its
	// place when it expires.
	Marks bool
}

// Never is the TTL of a message that never expires.
const Never time.Duration = -1

// Any reports whether anything is asked for that is to be judged.
func (c *Conditions) Any() bool {
	return c.ExpectsLast || c.ExpectsLastBySubject || len(c.ID) > 0 || len(c.After) > 0 || len(c.ExpectedTopic) > 0 || len(c.ExpectedLastID) > 0
}

// LastOf returns the subject whose last message is expected, if ExpectsLastBySubject, of a message
// on a subject.
func (c *Conditions) LastOf(subject []byte) []byte {
	if len(c.ExpectedSubject) > 0 {
		return c.ExpectedSubject
	}
	return subject
}

// Span returns how far behind its first record the last record of the message stands.
func (c *Conditions) Span() uint64 { return uint64(max(c.Records, 1)) - 1 }
