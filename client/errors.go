package client

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrClosed is what a Publisher, Reader, Snapshot or LiveQuery answers that was closed.
var ErrClosed = errors.New("it was closed")

// ErrSlowConsumer is why a LiveQuery has ended whose program takes less than comes.
var ErrSlowConsumer = errors.New("the live query has ended, because what came was not taken in time: call Next more often, raise MaxPending and MaxPendingBytes, or ask for fewer subjects")

// RecordTooLargeError is a record that fits no message, or an option that asks for more than one
// can have. Nothing was published.
type RecordTooLargeError struct {
	Size, Max int // bytes
}

func (e *RecordTooLargeError) Error() string {
	return fmt.Sprintf("a record of %d bytes: one message carries %d of them (publish it by itself, or raise MaxBytes up to the server's max_payload)", e.Size, e.Max)
}

// RefusedError is what a broker will not keep, however often it is asked. Nothing of that message
// was kept, and the Publisher has stopped, since what comes behind must not overtake it.
type RefusedError struct {
	Subject string
	Records int    // in the message
	Code    int    // as in HTTP
	ErrCode int    // as in JetStream; 40001: the records are malformed
	Text    string // the broker's
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("publish %d records on %s: refused: %s (error %d)", e.Records, e.Subject, e.Text, e.ErrCode)
}

// UnknownError is records of which it isn't known whether they were kept: no broker said so in
// time. The Publisher has stopped.
type UnknownError struct {
	Subject string
	Records int           // not acknowledged
	After   time.Duration // since the first of them was sent
	Err     error         // what the last answer was, if there was one
}

func (e *UnknownError) Error() string {
	text := fmt.Sprintf("publish on %s: %d records were not acknowledged within %s, and may or may not be kept", e.Subject, e.Records, e.After.Round(time.Millisecond))
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (e *UnknownError) Unwrap() error { return e.Err }

// NotKeptError reports that no Topic that knows of batches of records keeps a subject.
type NotKeptError struct {
	Subject string
	Why     string
}

func (e *NotKeptError) Error() string {
	return fmt.Sprintf("publish on %s: %s", e.Subject, e.Why)
}

// ReadCode says why records can't be read; it is one of docs/protocol.md's.
type ReadCode string

// The codes that a Reader returns. What may go by itself (NotServed, NotReady, Busy, Failed) it
// asks again, until its context ends.
const (
	BadRequest ReadCode = "BadRequest" // an option is wrong
	NotFound   ReadCode = "NotFound"   // there is no such Topic or shard
	// OutOfRange: the offset is below Start or above High. Seek to one between them.
	OutOfRange ReadCode = "OutOfRange"
	// TooLarge: the record at Offset fits no message in the full form. Read it in the plain one.
	TooLarge ReadCode = "TooLarge"
	// Damaged: some records on the disk are damaged. Seek to Next continues after them.
	Damaged   ReadCode = "Damaged"
	Malformed ReadCode = "Malformed" // the answer is not what docs/protocol.md says
	Expired   ReadCode = "Expired"   // a snapshot was not renewed in time
	// Forbidden: the user may subscribe to none of the subjects that are asked for.
	Forbidden ReadCode = "Forbidden"
)

// ReadError reports why records can't be read.
type ReadError struct {
	Code   ReadCode `json:"code"`
	Text   string   `json:"text"`   // the broker's, with the way out
	Reason string   `json:"reason"` // why the Topic is not served, in one word
	Offset uint64   `json:"offset"`
	Start  uint64   `json:"start"` // the first offset that is kept
	High   uint64   `json:"high"`  // the high watermark
	Next   uint64   `json:"next"`  // where to go on
	// Shard is the shard because of which there is no Snapshot; nil: it is not due to one shard.
	Shard *int `json:"shard"`
}

func (e *ReadError) Error() string { return fmt.Sprintf("%s (%s)", e.Text, e.Code) }

// passes reports whether asking again helps.
func (e *ReadError) passes() bool {
	switch e.Code {
	case "NotServed", "NotReady", "Busy", "Failed":
		return true
	}
	return false
}

// QueryError is why a broker does not open a live query, or has ended it.
type QueryError struct {
	// Code is one of docs/queries.md's, such as BadRequest for a condition that is none, and TooLarge
	// for one with too many members.
	Code string `json:"code"`
	Text string `json:"text"` // the broker's, with the way out
}

func (e *QueryError) Error() string { return fmt.Sprintf("%s (%s)", e.Text, e.Code) }

// unknown reports whether the broker is of a version that has no live queries. All such versions
// answer so.
func (e *QueryError) unknown() bool {
	return e.Code == "BadRequest" && strings.HasPrefix(e.Text, `there is no request "QUERY.OPEN"`)
}

// passes reports whether opening the query again helps.
func (e *QueryError) passes() bool { return e.Code == "NotReady" || e.Code == "Busy" }
