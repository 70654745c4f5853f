package publish

import (
	"encoding/binary"
	"fmt"

	"github.com/carillon-mq/carillon/broker/log"
)

// A message may carry many records, length-prefixed, which are appended as one batch, so that they
// are there together or not at all, and acknowledged once. What the batch is has the form in which
// they came: nothing is done per record but to look, once, whether the lengths add up.

// MaxRecords is how many records one message carries: four times what is usual for small ones. It
// bounds what a reader does between two looks at anything else.
const MaxRecords = 1 << 16

// MessageID is the type of the extension in which a batch of such records carries the id of their
// message.
const MessageID = 1

// RecordsError is a message that doesn't carry the records that it announces.
type RecordsError struct {
	Topic string
	Why   string // with the way out
}

func (e *RecordsError) Error() string { return fmt.Sprintf("topic %s: %s", e.Topic, e.Why) }

// CheckRecords holds a payload to what it announces: so many records, none longer than most (0:
// any), and nothing else. It returns what is wrong, or nothing.
func CheckRecords(payload []byte, count, most int) (why string) {
	if count > MaxRecords {
		return fmt.Sprintf("a message announces %d records; it may carry %d", count, MaxRecords)
	}
	if most <= 0 {
		most = len(payload)
	}
	at := 0
	for i := range count {
		if at >= len(payload) {
			return fmt.Sprintf("a message announces %d records, and its payload ends after %d", count, i)
		}
		size := int(payload[at])
		at++
		if size >= 0x80 {
			length, n := binary.Uvarint(payload[at-1:])
			if n < 2 || payload[at-2+n] == 0 {
				return fmt.Sprintf("record %d of %d in a message has no length (write it as an unsigned varint in its shortest form)", i+1, count)
			}
			size = int(min(length, uint64(len(payload))+1))
			at += n - 1
		}
		if size > len(payload)-at {
			return fmt.Sprintf("record %d of %d in a message is longer than what is left of its payload", i+1, count)
		}
		if size > most {
			return fmt.Sprintf("record %d of %d in a message has %d bytes; the topic takes %d (spec.maxMessage)", i+1, count, size, most)
		}
		at += size
	}
	if at < len(payload) {
		return fmt.Sprintf("%d bytes follow the %d records that a message announces", len(payload)-at, count)
	}
	return ""
}

// NotAfterError is a message that was to be kept behind another one, which is not there.
type NotAfterError struct{ Topic, ID string }

func (e *NotAfterError) Error() string {
	return fmt.Sprintf("topic %s: no message with id %q was kept within the deduplication window (publish that one first)", e.Topic, e.ID)
}

// batchID is the id of the message that brought all records of a batch, or nothing.
func batchID(b log.Batch) (id []byte) {
	for it := b.Extensions(); ; {
		e, ok := it.Next()
		if !ok {
			return nil
		}
		if e.Type == MessageID {
			return e.Data
		}
	}
}

// EachID calls f for the message ids of a batch's records from an offset on: with the offset that a
// second message is answered with, the last one's where a message brought many.
func EachID(codec Codec, b log.Batch, from uint64, f func(id []byte, offset uint64, time int64)) error {
	if id := batchID(b); len(id) > 0 {
		f(id, b.End()-1, b.LastTime())
		return nil
	}
	if _, _, packed := b.Packed(); packed {
		return nil
	}
	it := b.Records()
	for r := (log.Record{}); it.Next(&r); {
		if r.Header == 0 || r.Offset < from {
			continue
		}
		if c, err := codec.Conditions(r.Data[:r.Header]); err == nil && len(c.ID) > 0 {
			f(c.ID, r.Offset, r.Time)
		}
	}
	return it.Err()
}
