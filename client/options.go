package client

import (
	"errors"
	"fmt"
	"time"
)

// Bounds of options, as docs/protocol.md has them.
const (
	// MaxRecords is how many records one message carries.
	MaxRecords = 1 << 16
	// MaxBytes is how many bytes of them one answer brings.
	MaxBytes = 8<<20 - 4<<10
	// MaxWait is how long a broker keeps a request for records that are not there yet.
	MaxWait = 30 * time.Second

	// headerBytes is more than the header of a message takes.
	headerBytes = 1 << 10
)

// PublisherOptions are how a Publisher gathers records and how long it tries. The zero value is
// good.
type PublisherOptions struct {
	// MaxRecords and MaxBytes are where a message is full: so many records, or so many bytes of
	// them with their lengths. 0: 16,384 and 2 MiB. At most 65,536, and what the server's
	// max_payload leaves.
	MaxRecords, MaxBytes int
	// Linger is how long a record waits for others. 0: 2 ms. While Window messages are under way it
	// may wait longer.
	Linger time.Duration
	// Window is how many messages are under way at once. 0: 4. Publish blocks while there are more.
	// At most 64.
	Window int
	// AckWait is how long an acknowledgement is waited for before the message is sent again, with
	// its id. 0: 2 s.
	AckWait time.Duration
	// GiveUp is how long that is repeated before the Publisher stops with a [*UnknownError]. It
	// must be shorter than the Topic's deduplication window, which is two minutes if nobody said
	// otherwise. 0: 1 minute.
	GiveUp time.Duration
}

func (o *PublisherOptions) complete(payload int64) error {
	most := int(payload) - headerBytes
	switch {
	case o.MaxRecords < 0 || o.MaxRecords > MaxRecords:
		return fmt.Errorf("MaxRecords of %d (use 1 to %d)", o.MaxRecords, MaxRecords)
	case o.MaxBytes < 0 || o.MaxBytes > most:
		return fmt.Errorf("MaxBytes of %d (use 1 to %d, which the server's max_payload leaves)", o.MaxBytes, most)
	case o.Window < 0 || o.Window > 64:
		return fmt.Errorf("a Window of %d (use 1 to 64)", o.Window)
	case o.Linger < 0 || o.AckWait < 0 || o.GiveUp < 0:
		return fmt.Errorf("a time below zero (use 0 for what is usual)")
	}
	usual(&o.MaxRecords, 16<<10)
	usual(&o.MaxBytes, min(2<<20, most))
	usual(&o.Linger, 2*time.Millisecond)
	usual(&o.Window, 4)
	usual(&o.AckWait, 2*time.Second)
	usual(&o.GiveUp, time.Minute)
	return nil
}

// ReaderOptions are how a Reader fetches. The zero value is good.
type ReaderOptions struct {
	// MaxRecords and MaxBytes bound one answer. 0: 65,536 and 1 MiB. At most 65,536 and 8 MiB less
	// 4 KiB.
	MaxRecords, MaxBytes int
	// Ahead is how many answers are fetched before they are asked for. 0: 2. At most 16.
	Ahead int
	// Wait is how long a broker keeps a request for records that are not there yet, before it is
	// asked again. 0: 1 s. At most 30 s. It is also how late a Reader notices that a broker has
	// gone without a word.
	Wait time.Duration
	// Full has the answers bring each record's subject, time and header, too.
	Full bool
	// Attributes has them bring the attributes that each record's subject had when it was stored,
	// too. It needs Full. A broker of an earlier version refuses it with a [*ReadError] with
	// [BadRequest].
	Attributes bool

	// Where is a condition on the content, and Subjects are patterns: the broker returns only records
	// that match both. Empty: all match. A broker of an earlier version refuses them with a
	// [*ReadError] with [BadRequest], as it does an expression that is no condition.
	Where    string
	Subjects []string
	// End is where the broker ends to look for them: Next and Batch return io.EOF then. 0: without
	// an end.
	End uint64
	// Limit ends reading after so many records, with io.EOF. 0: without a limit.
	Limit int
}

// judged reports whether the broker chooses among the records.
func (o *ReaderOptions) judged() bool { return o.Where != "" || len(o.Subjects) > 0 }

func (o *ReaderOptions) complete() error {
	switch {
	case o.MaxRecords < 0 || o.MaxRecords > MaxRecords:
		return fmt.Errorf("MaxRecords of %d (use 1 to %d)", o.MaxRecords, MaxRecords)
	case o.MaxBytes < 0 || o.MaxBytes > MaxBytes:
		return fmt.Errorf("MaxBytes of %d (use 1 to %d)", o.MaxBytes, MaxBytes)
	case o.Ahead < 0 || o.Ahead > 16:
		return fmt.Errorf("an Ahead of %d (use 1 to 16)", o.Ahead)
	case o.Limit < 0:
		return fmt.Errorf("a Limit of %d (use 1 or more, or 0 for none)", o.Limit)
	case o.Attributes && !o.Full:
		return errors.New("attributes without Full (set both)")
	case o.End > 0 && !o.judged():
		return fmt.Errorf("an End of %d without Where and Subjects (use a Limit)", o.End)
	case o.Wait < 0 || o.Wait > MaxWait:
		return fmt.Errorf("a Wait of %s (use up to %s)", o.Wait, MaxWait)
	}
	usual(&o.MaxRecords, MaxRecords)
	usual(&o.MaxBytes, 1<<20)
	usual(&o.Ahead, 2)
	usual(&o.Wait, time.Second)
	return nil
}

func usual[T comparable](option *T, value T) {
	var zero T
	if *option == zero {
		*option = value
	}
}
