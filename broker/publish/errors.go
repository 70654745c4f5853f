package publish

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// NotServedReason is one of the reasons below.
type NotServedReason string

// The reasons for which a Topic is not served here.
const (
	// Unplaced: the shard has no replica yet.
	Unplaced NotServedReason = "Unplaced"
	// LedElsewhere: another broker leads, and is a member.
	LedElsewhere NotServedReason = "LedElsewhere"
	// LeaderAway: the broker that leads is not a member.
	LeaderAway NotServedReason = "LeaderAway"
	// NotConfirmed: the shard names an earlier incarnation of this broker as its leader.
	NotConfirmed NotServedReason = "NotConfirmed"
	// Opening: the log is being opened.
	Opening NotServedReason = "Opening"
	// CatchingUp: the new leader waits until the in-sync replicas have all its records.
	CatchingUp NotServedReason = "CatchingUp"
	// NotEnoughInSync: fewer replicas are in sync than the Topic requires.
	NotEnoughInSync NotServedReason = "NotEnoughInSync"
	// Troubled: the log can't be opened, or failed.
	Troubled NotServedReason = "Troubled"
	// Unsupported: the Topic asks for something that brokers can't serve.
	Unsupported NotServedReason = "Unsupported"
	// BeingDeleted: the Topic is being deleted, or does not exist any more.
	BeingDeleted NotServedReason = "BeingDeleted"
	// ServiceIsClosing: this broker is stopping.
	ServiceIsClosing NotServedReason = "ServiceIsClosing"
)

// NotServedError reports why a Topic is not served by this broker, or by any.
type NotServedError struct {
	Topic  string
	Reason NotServedReason
	Leader string // id of the broker that leads it; empty: none
	Why    string // for people, with the way out
	Err    error  // what led to it, or nil
}

func (e *NotServedError) Error() string { return fmt.Sprintf("topic %s: %s", e.Topic, e.Why) }

func (e *NotServedError) Unwrap() error { return e.Err }

// LeadershipLostError reports that the leadership of a shard ended before a message was committed.
// The next leader may have the message or not.
type LeadershipLostError struct{ Topic, Why string }

func (e *LeadershipLostError) Error() string {
	return fmt.Sprintf("topic %s: %s, and it isn't known whether the message was kept; publish it again, with a message id if it must not be kept twice", e.Topic, e.Why)
}

// OutboxFullError reports a message that was not forwarded to the leader of its shard, because too
// many messages wait for an answer.
type OutboxFullError struct{ Topic, Why string }

func (e *OutboxFullError) Error() string {
	return fmt.Sprintf("topic %s: not forwarded: %s; publish more slowly, or try again when it is answered", e.Topic, e.Why)
}

// ForgottenError reports a message that was sent again to a leader that can't know whether an
// earlier leader kept it.
type ForgottenError struct{ Topic string }

func (e *ForgottenError) Error() string {
	return fmt.Sprintf("topic %s: it isn't known any more whether the message was kept; publish it again, with a message id if it must not be kept twice", e.Topic)
}

// TooLargeError reports a message that is larger than its Topic, or the broker, accepts.
type TooLargeError struct {
	Topic     string
	Size, Max int
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("topic %s: a message of %d bytes; it takes %d with headers (spec.maxMessage)", e.Topic, e.Size, e.Max)
}

// ErrTooLarge is in the chain of errors of a message that is larger than its Topic, or the broker,
// accepts.
var ErrTooLarge = errors.New("it is too large")

// Unwrap returns ErrTooLarge.
func (e *TooLargeError) Unwrap() error { return ErrTooLarge }

// Bound bounds what a Topic takes: beyond it messages are refused, and none is deleted. The zero
// value is no bound.
type Bound struct {
	Messages uint64 // per shard; 0: any number
	Bytes    int64  // per shard, as stored; 0: any number
	Sealed   bool   // it takes nothing
}

// Check returns the refusal of a message with which a shard would have that many records and bytes,
// or nil.
func (b Bound) Check(topic string, records uint64, bytes int64) error {
	switch {
	case b.Sealed:
		return &SealedError{topic}
	case b.Messages > 0 && records > b.Messages:
		return &FullError{Topic: topic, Of: "messages", Max: b.Messages}
	case b.Bytes > 0 && bytes > b.Bytes:
		return &FullError{Topic: topic, Of: "bytes", Max: uint64(b.Bytes)}
	}
	return nil
}

// SealedError reports a message for a Topic that takes nothing any more.
type SealedError struct{ Topic string }

func (e *SealedError) Error() string {
	return fmt.Sprintf("topic %s is sealed: it takes no messages", e.Topic)
}

// TTLError reports a message with a TTL for a Topic whose messages may not have any.
type TTLError struct{ Topic string }

func (e *TTLError) Error() string {
	return fmt.Sprintf("topic %s: its messages may not have a TTL", e.Topic)
}

// BatchFault is why an atomic batch, or a message of one, is refused.
type BatchFault uint8

// The faults of batches.
const (
	BatchesDisabled    BatchFault = iota // the Topic takes none
	BatchIncomplete                      // messages before are missing
	BatchInvalidID                       // the id is too long
	BatchNoSequence                      // the message has no number
	BatchTooLarge                        // it has too many messages, or bytes
	BatchInvalidCommit                   // the end of the batch can't be understood
	BatchUnserved                        // a message requires what this version does not have
	BatchDuplicate                       // a message has the id of one that is kept, or in the batch
	BatchUnsupported                     // a message asks for what none in a batch may ask for
	BatchRewritten                       // a message expects what the batch itself changes
	BatchesOpen                          // too many batches are open
	FastDisabled                         // the Topic takes no fast batches
	FastInvalid                          // how a message belongs to its fast batch can't be understood
	FastInvalidID                        // the id of a fast batch is too long
	FastUnknown                          // a fast batch is not open on this broker
	FastsOpen                            // too many fast batches are open
	FastBehind                           // the message before in its fast batch was not kept
)

var batchFaults = [...]string{"it takes no batches", "messages of the batch are missing", "the id of the batch is too long",
	"the number of the message in its batch is missing", "the batch is too large", "the end of the batch is invalid",
	"the batch requires a newer version", "a message id in the batch is known", "a message of the batch asks for",
	"a message of the batch expects what the batch changes", "too many batches are open",
	"it takes no fast batches", "the reply names no message of a fast batch", "the id of the fast batch is too long",
	"the fast batch is not open on this broker (begin another one)", "too many fast batches are open",
	"the message before it in its fast batch was not kept"}

// BatchError reports an atomic batch, or a message of one, that is not kept.
type BatchError struct {
	Topic string
	Fault BatchFault
	What  string // the limit, or what is not supported; may be empty
}

func (e *BatchError) Error() string {
	return strings.TrimSpace(fmt.Sprintf("topic %s: %s %s", e.Topic, batchFaults[e.Fault], e.What))
}

// CounterFault is why an increment of a counter is refused.
type CounterFault uint8

// The faults of increments.
const (
	CountersDisabled CounterFault = iota // the Topic has no counters
	IncrementMissing                     // it has nothing else
	IncrementInvalid                     // it is no number, too long, or comes with a condition
	CounterPayload                       // an increment has no payload
	CounterBroken                        // the last record of the subject has no total
)

var counterFaults = [...]string{"it has no counters", "it has counters only, and the message has no increment",
	"the increment is invalid", "an increment has no payload", "the last message of the subject has no total (delete it)"}

// CounterError reports an increment of a counter that is not kept.
type CounterError struct {
	Topic string
	Fault CounterFault
}

func (e *CounterError) Error() string {
	return fmt.Sprintf("topic %s: %s", e.Topic, counterFaults[e.Fault])
}

// FullError reports a message for which a Topic that keeps its old messages has no room.
type FullError struct {
	Topic string
	Of    string // messages, bytes, messages per subject, or messages with a TTL
	Max   uint64
}

func (e *FullError) Error() string {
	return fmt.Sprintf("topic %s has %d %s, as many as it takes, and keeps the old ones (purge it, or raise its limit)", e.Topic, e.Max, e.Of)
}

// WrongTopicError reports a message for another Topic than that of its subject.
type WrongTopicError struct{ Topic, Expected string }

func (e *WrongTopicError) Error() string {
	return fmt.Sprintf("topic %s keeps this subject, not %s", e.Topic, e.Expected)
}

// WrongLastError is a message that expected another one before it.
type WrongLastError struct {
	Topic   string
	Subject string // whose last message was expected; empty: the Topic's
	Last    uint64 // its offset; 0: there is none
}

func (e *WrongLastError) Error() string {
	if e.Subject != "" {
		return fmt.Sprintf("topic %s: the last message of subject %s is at offset %d", e.Topic, e.Subject, e.Last)
	}
	return fmt.Sprintf("topic %s: the last message is at offset %d", e.Topic, e.Last)
}

// WrongLastIDError is a message that expected one with another id before it.
type WrongLastIDError struct{ Topic, ID string }

func (e *WrongLastIDError) Error() string {
	return fmt.Sprintf("topic %s: the last message has id %q", e.Topic, e.ID)
}

// WindowFullError is a message with an id for which the deduplication window has no room: to
// forget an older id would break what was promised for that one.
type WindowFullError struct {
	Topic  string
	IDs    int
	Window time.Duration
}

func (e *WindowFullError) Error() string {
	return fmt.Sprintf("topic %s: %d message ids within the deduplication window of %s are all that this broker keeps of this topic, beside those of others; shorten spec.deduplication or publish more slowly",
		e.Topic, e.IDs, e.Window)
}

// UnsupportedConditionError is a condition that brokers can't judge.
type UnsupportedConditionError struct{ Topic, Condition, Why string }

func (e *UnsupportedConditionError) Error() string {
	return fmt.Sprintf("topic %s: %s is not possible: %s", e.Topic, e.Condition, e.Why)
}

// NoLastOf returns the refusal of a message that depends on what its subject has.
func NoLastOf(topic, why string) error {
	return &UnsupportedConditionError{Topic: topic, Condition: "expecting the last message of a subject", Why: why}
}

// NoLastOfAll returns the refusal of a condition that one of several shards can't judge. stream
// names that shard.
func NoLastOfAll(topic string, shards int, stream string) error {
	return &UnsupportedConditionError{
		Topic: topic, Condition: "expecting the last message of more than one shard",
		Why: fmt.Sprintf("it has %d shards, which have no order among them (expect the last of the message's own subject, or name the shard's stream, %s, in Nats-Expected-Stream)", shards, stream),
	}
}

// StalledError is a message that its leader did not append, since too much waits there for the
// other replicas.
type StalledError struct {
	Topic          string
	Bytes, Records int64         // that wait
	Since          time.Duration // for how long nothing of it was confirmed
}

func (e *StalledError) Error() string {
	return fmt.Sprintf("topic %s: not kept: %d bytes in %d messages wait for its other replicas, which have confirmed none of it for %v; publish it again when they do (see which replica is away: carillon topic show %s)",
		e.Topic, e.Bytes, e.Records, e.Since.Round(100*time.Millisecond), e.Topic)
}

// UnconfirmedError is an answer that its leader did not give, since it could not prove that it
// still leads. Of the message of a publisher nothing is kept.
type UnconfirmedError struct{ Topic, Why string }

func (e *UnconfirmedError) Error() string {
	return fmt.Sprintf("topic %s: %s, so what is the last message isn't known for sure; nothing was kept, try again", e.Topic, e.Why)
}

// StoreError is a message that could not be kept.
type StoreError struct {
	Topic string
	Err   error
	// Unknown says that a follower may have it, which may lead next.
	Unknown bool
}

func (e *StoreError) Error() string {
	if e.Unknown {
		return fmt.Sprintf("topic %s: its leader's log failed, and it isn't known whether the message was kept; publish it again, with a message id if it must not be kept twice: %v", e.Topic, e.Err)
	}
	return fmt.Sprintf("topic %s: not kept: %v", e.Topic, e.Err)
}

func (e *StoreError) Unwrap() error { return e.Err }

// Falsifiable reports whether a refusal rests on what the last record is, or on the lack of one.
func Falsifiable(err error) bool {
	switch err.(type) {
	case *WrongLastError, *WrongLastIDError, *NotAfterError:
		return true
	}
	return false
}

// CopyError reports a message of a client that says that it is a copy of another stream's.
type CopyError struct{ Topic string }

func (e *CopyError) Error() string {
	return fmt.Sprintf("topic %s: only the broker says that a message is a copy of another stream's (leave the header out)", e.Topic)
}
