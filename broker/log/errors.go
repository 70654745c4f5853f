package log

import (
	"errors"
	"fmt"
)

// ErrClosed is returned by a log or disk that was closed.
var ErrClosed = errors.New("the log is closed")

// ErrOverloaded is returned by Append when the backlog of the disk is twice Options.Backlog.
// WaitRoom waits until the backlog has shrunk.
var ErrOverloaded = errors.New("the disk is behind: too much waits to be written; publish more slowly")

// CorruptError is damaged data. Records from From up to, not including, Next can't be read from
// this broker; earlier and later ones can.
type CorruptError struct {
	File       string
	Pos        int64
	From, Next uint64
	// Epoch is the epoch of these records, by the damaged batch itself; 0: that does not show it.
	Epoch  uint64
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s is damaged at byte %d: %s; records from %d up to %d can't be read here, and are to be fetched from a replica",
		e.File, e.Pos, e.Reason, e.From, e.Next)
}

// RangeError is an offset that the log doesn't hold.
type RangeError struct {
	Log               string
	Asked, Start, End uint64
}

func (e *RangeError) Error() string {
	return fmt.Sprintf("log %s holds offsets from %d up to %d, not %d", e.Log, e.Start, e.End, e.Asked)
}

// FailedError is a disk or a log that refuses appends from now on. Its records can still be read.
type FailedError struct {
	What string // "disk /data", "log orders-0"
	Err  error
}

func (e *FailedError) Error() string {
	return fmt.Sprintf("%s takes no appends since %v; see to the disk and restart the broker", e.What, e.Err)
}

func (e *FailedError) Unwrap() error { return e.Err }

// EpochError is an append under an epoch older than the log's newest one.
type EpochError struct {
	Log         string
	Epoch, Last uint64
}

func (e *EpochError) Error() string {
	return fmt.Sprintf("log %s: epoch %d is over; %d is known here", e.Log, e.Epoch, e.Last)
}

// OffsetError is a leader's batch that does not begin at the log's end.
type OffsetError struct {
	Log       string
	Base, End uint64
}

func (e *OffsetError) Error() string {
	return fmt.Sprintf("log %s ends at %d; a batch from offset %d doesn't follow", e.Log, e.End, e.Base)
}
