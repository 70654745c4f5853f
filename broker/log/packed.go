package log

import (
	"encoding/binary"
	"fmt"

	"github.com/carillon-mq/carillon/broker/limits"
)

// Packed is many small records of one subject and one time, without headers and attributes, as
// their publisher encoded them. They are stored unchanged, so an append costs a check of each
// length, one copy and one checksum. Encoding each record would cost several times as much.
type Packed struct {
	Subject []byte
	Time    int64
	// Count is the number of records. Records has each as a uvarint length and its bytes.
	Count   int
	Records []byte
}

// PackedError is packed records that don't match their announced number, or are malformed.
type PackedError struct {
	Count  int // announced
	Record int // index of the wrong record
	Reason string
}

func (e *PackedError) Error() string {
	return fmt.Sprintf("%d packed records: at record %d: %s; each is a uvarint length and as many bytes, and nothing stands between or behind them", e.Count, e.Record, e.Reason)
}

// checkPacked reports whether records has count records and nothing else.
func checkPacked(records []byte, count int) error {
	if count < 1 {
		return &PackedError{Count: count, Reason: "there is none"}
	}
	at, n := 0, 0
	for ; at < len(records); n++ {
		if size := records[at]; size < 0x80 {
			at += 1 + int(size)
			continue
		}
		size, used := binary.Uvarint(records[at:])
		if used <= 0 {
			return &PackedError{Count: count, Record: n, Reason: "its length is no uvarint"}
		}
		if size > uint64(len(records)) {
			return &PackedError{Count: count, Record: n, Reason: fmt.Sprintf("it announces %d bytes in %d", size, len(records))}
		}
		at += used + int(size)
	}
	switch {
	case at > len(records):
		return &PackedError{Count: count, Record: n - 1, Reason: fmt.Sprintf("it lacks %d bytes", at-len(records))}
	case n != count:
		return &PackedError{Count: count, Record: n, Reason: fmt.Sprintf("there are %d", n)}
	}
	return nil
}

// packedSize returns the length of a batch of p, or an error if there can't be one.
func packedSize(p *Packed, extensions []Extension) (int, error) {
	size := batchHeader + uvarintLen(uint64(len(p.Subject))) + len(p.Subject) + len(p.Records)
	for _, e := range extensions {
		size += extensionHeader + len(e.Data)
	}
	if size > limits.BatchBytes {
		return 0, fmt.Errorf("a batch may have %d bytes; append fewer records at once", limits.BatchBytes)
	}
	return size, checkPacked(p.Records, p.Count)
}

// appendPacked appends a batch of p to dst, which has the capacity.
func appendPacked(dst []byte, epoch, base uint64, p *Packed, extensions []Extension) []byte {
	start := len(dst)
	dst = appendExtensions(dst[:start+batchHeader], extensions)
	extended := len(dst) - start - batchHeader
	dst = binary.AppendUvarint(dst, uint64(len(p.Subject)))
	dst = append(dst, p.Subject...)
	dst = append(dst, p.Records...)
	sealBatch(dst[start:], head{flags: flagPacked, count: p.Count, epoch: epoch, base: base, first: p.Time, last: p.Time, extended: extended})
	return dst
}

// Packed returns the common subject and the encoded records of a batch that was appended as Packed.
// Their time is the batch's Time.
func (b Batch) Packed() (subject, records []byte, ok bool) {
	if b.check() != nil || b.Flags() != flagPacked {
		return nil, nil, false
	}
	return cutLength(b.body())
}
