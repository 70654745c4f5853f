package topic

import (
	"encoding/binary"
	"fmt"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
)

// A message may carry many records, length-prefixed, which are appended as one batch, so that they
// are there together or not at all, and acknowledged once. What the batch is has the form in which they came:
// nothing is done per record but to look, once, whether the lengths add up.

// maxRecords is how many records one message carries: four times what is usual for small ones. It
// bounds what a reader does between two looks at anything else.
const maxRecords = 1 << 16

// messageID is the type of the extension in which a batch of such records carries the id of their message.
const messageID = 1

// RecordsError is a message that doesn't carry the records that it announces.
type RecordsError struct {
	Topic string
	Why   string // with the way out
}

func (e *RecordsError) Error() string { return fmt.Sprintf("topic %s: %s", e.Topic, e.Why) }

// span is how far behind its first record a message's last one stands.
func (c *Conditions) span() uint64 { return uint64(max(c.Records, 1)) - 1 }

// checkRecords holds a payload to what it announces: so many records, none longer than most (0: any), and nothing else.
// It returns what is wrong, or nothing.
func checkRecords(payload []byte, count, most int) (why string) {
	if count > maxRecords {
		return fmt.Sprintf("a message announces %d records; it may carry %d", count, maxRecords)
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

// judgeAfter says why a message can't be kept behind the one with that id, or nothing. mu is held.
func (s *ShardLeader) judgeAfter(v *view, id []byte) error {
	if v.window <= 0 {
		return &UnsupportedConditionError{Topic: s.shard.name, Condition: "publishing after a message id", Why: "the topic has no deduplication window, so ids are not remembered"}
	}
	if _, ok := s.ids.find(hashID(id)); !ok {
		return &NotAfterError{Topic: s.shard.name, ID: string(id)}
	}
	return nil
}

// judgeRecords says whether a message can be taken as the records that it announces. If others were gathered
// before it, those are to be appended first, which in.alone says. mu is held.
func (s *ShardLeader) judgeRecords(in *intake, v *view, m *protocol.Message, c *Conditions) bool {
	if in.alone = len(in.records) > 0; in.alone {
		return false
	}
	if why := checkRecords(m.Data[m.Header:], c.Records, v.maxMessage); why != "" {
		in.refuse(s.shard, v, m.Reply, &RecordsError{Topic: s.shard.name, Why: why})
		return false
	}
	return true
}

// gatherRecords adds the records of a message, which becomes a batch of its own. mu is held.
func (in *intake) gatherRecords(m *protocol.Message, c *Conditions, now int64) {
	if len(c.ID) > 0 {
		in.extensions = append(in.extensions, log.Extension{Type: messageID, Data: c.ID})
	}
	in.append.Packed = log.Packed{Subject: m.Subject, Time: now, Count: c.Records, Records: m.Data[m.Header:]}
	in.alone = true
}

// batchID is the id of the message that brought all records of a batch, or nothing.
func batchID(b log.Batch) (id []byte) {
	for it := b.Extensions(); ; {
		e, ok := it.Next()
		if !ok {
			return nil
		}
		if e.Type == messageID {
			return e.Data
		}
	}
}

// eachID calls f for the message ids of a batch's records from an offset on: with the offset that a second message is
// answered with, the last one's where a message brought many.
func eachID(codec PublishCodec, b log.Batch, from uint64, f func(id []byte, offset uint64, time int64)) error {
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
