package client

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// Record is one record of a shard. Its slices are valid until the next call of what returned it.
type Record struct {
	Offset uint64
	Data   []byte
	// Only with ReaderOptions.Full:
	Subject string
	Time    time.Time
	Header  []byte // the header block as it was published, or nil; nats.DecodeHeadersMsg reads it
	// Attributes are those of the subject when the record was stored, as a JSON object; nil: it had
	// none. Only with ReaderOptions.Attributes.
	Attributes []byte
}

// View is a Record as it is in its Batch, of which its slices are parts. They stay valid as long as
// something holds them, and keep all of the answer in memory that brought the batch.
type View struct {
	Offset uint64
	Data   []byte
	// Only with ReaderOptions.Full:
	Time    int64 // ns since 1970
	Subject []byte
	Header  []byte // as Record.Header
	// Attributes are Record.Attributes.
	Attributes []byte
}

// Batch is many records of a shard, with dense offsets, unless compaction has left out some. It is
// valid until the next call of what returned it; a copy stays valid, and goroutines may share it.
type Batch struct {
	First uint64 // offset of the first record
	Count int
	High  uint64 // the high watermark when it was read: offsets below could be read

	// With Where or Subjects, a Batch may have no records. These are about all records from the end
	// of the Batch before up to Next:
	Examined int    // how many the broker looked at
	Unjudged int    // how many it could not judge; they do not match
	Why      string // why the first one of these could not be judged
	Latest   int64  // time of the newest one, in ns since 1970; 0: none was looked at

	judged  bool
	next    uint64 // if judged: where reading goes on
	data    []byte
	full    bool
	stamped bool // records have the attributes of their subjects
	time    int64
	gapped  bool   // before each record stands how many offsets are left out before it
	missing uint64 // how many are, in all
}

// Next is the offset behind the last record, or behind the last one that was looked at.
func (b *Batch) Next() uint64 {
	if b.judged {
		return b.next
	}
	return b.end()
}

// end is the offset behind the last record.
func (b *Batch) end() uint64 { return b.First + uint64(b.Count) + b.missing }

// Size is how many bytes the records have, with their lengths.
func (b *Batch) Size() int { return len(b.data) }

// Data yields offset and bytes of each record. It allocates nothing.
func (b *Batch) Data() iter.Seq2[uint64, []byte] {
	return func(yield func(uint64, []byte) bool) {
		rest, full, stamped := b.data, b.full, b.stamped
		for offset := b.First; len(rest) > 0; offset++ {
			var data []byte
			if b.gapped {
				gap, n := binary.Uvarint(rest)
				offset, rest = offset+gap, rest[n:]
			}
			if size := int(rest[0]); size < 0x80 {
				data, rest = rest[1:1+size:1+size], rest[1+size:]
			} else {
				data, rest, _ = cut(rest)
			}
			if full {
				data = data[fullEntry(data, stamped):]
			}
			if !yield(offset, data) {
				return
			}
		}
	}
}

// Records yields each record with all that is known of it.
func (b *Batch) Records() iter.Seq[Record] {
	return func(yield func(Record) bool) {
		it := b.iterator()
		for r := (Record{}); it.next(&r); {
			if !yield(r) {
				return
			}
		}
	}
}

// Views yields each record, and allocates nothing.
func (b *Batch) Views() iter.Seq[View] {
	return func(yield func(View) bool) {
		v := View{}
		rest, offset, stamp := b.data, b.First, []byte(nil)
		for ; len(rest) > 0; offset++ {
			if b.gapped {
				gap, n := binary.Uvarint(rest)
				offset, rest = offset+gap, rest[n:]
			}
			v.Offset = offset
			if v.Data, rest = part(rest); b.full {
				after, n := binary.Varint(v.Data)
				subject, fields := part(v.Data[n:])
				if v.Time = b.time + after; len(subject) > 0 {
					v.Subject = subject
				}
				if v.Header, v.Data = part(fields); len(v.Header) == 0 {
					v.Header = nil
				}
				if b.stamped {
					v.Attributes, v.Data, stamp = stampOf(v.Data, stamp)
				}
			}
			if !yield(v) {
				return
			}
		}
	}
}

// stampOf returns the attributes that an entry goes on with, what follows them, and those of the
// last record that had some. The entry was checked.
func stampOf(entry, last []byte) (of, rest, latest []byte) {
	n, width := binary.Uvarint(entry)
	rest = entry[width:]
	switch n {
	case 0:
		return nil, rest, last
	case 1:
		return last, rest, last
	}
	return rest[:n:n], rest[n:], rest[:n:n]
}

// part is cut for what was checked.
func part(data []byte) (piece, rest []byte) {
	if size := int(data[0]); size < 0x80 {
		return data[1 : 1+size : 1+size], data[1+size:]
	}
	piece, rest, _ = cut(data)
	return piece, rest
}

func (b *Batch) iterator() iterator {
	return iterator{b: b, rest: b.data, left: b.Count, offset: b.First}
}

// iterator walks a batch that was checked.
type iterator struct {
	b       *Batch
	rest    []byte
	left    int // records in rest
	offset  uint64
	subject string
	stamp   []byte // of the last record that had attributes
}

func (it *iterator) next(r *Record) bool {
	if len(it.rest) == 0 {
		return false
	}
	if it.b.gapped {
		gap, n := binary.Uvarint(it.rest)
		it.offset, it.rest = it.offset+gap, it.rest[n:]
	}
	*r = Record{Offset: it.offset}
	r.Data, it.rest, _ = cut(it.rest)
	it.left--
	it.offset++
	if !it.b.full {
		return true
	}
	after, n := binary.Varint(r.Data)
	subject, rest, _ := cut(r.Data[n:])
	if len(subject) > 0 && string(subject) != it.subject {
		it.subject = string(subject)
	}
	header, rest, _ := cut(rest)
	if len(header) > 0 {
		r.Header = header
	}
	if it.b.stamped {
		r.Attributes, rest, it.stamp = stampOf(rest, it.stamp)
	}
	r.Data, r.Subject, r.Time = rest, it.subject, time.Unix(0, it.b.time+after)
	return true
}

// cut takes a uvarint and as many bytes from data.
func cut(data []byte) (piece, rest []byte, ok bool) {
	size, n := binary.Uvarint(data)
	if n <= 0 || size > uint64(len(data)-n) {
		return nil, nil, false
	}
	return data[n : n+int(size) : n+int(size)], data[n+int(size):], true
}

// fullEntry is how many bytes stand before a record in the full form; below zero: it is malformed.
func fullEntry(entry []byte, stamped bool) int {
	_, at := binary.Varint(entry)
	if at <= 0 {
		return -1
	}
	for range 2 { // the subject and the header
		size, n := uint64(0), 1
		if at < len(entry) && entry[at] < 0x80 {
			size = uint64(entry[at])
		} else if size, n = binary.Uvarint(entry[at:]); n <= 0 {
			return -1
		}
		if at += n; size > uint64(len(entry)-at) {
			return -1
		}
		at += int(size)
	}
	if stamped {
		size, n := binary.Uvarint(entry[at:])
		if at += n; n <= 0 || size > 1 && size > uint64(len(entry)-at) {
			return -1
		}
		if size > 1 {
			at += int(size)
		}
	}
	return at
}

// check holds the data to the count.
func (b *Batch) check() error {
	rest, n := b.data, 0
	for ; len(rest) > 0; n++ {
		if b.gapped {
			gap, width := binary.Uvarint(rest)
			if width <= 0 || width == len(rest) || gap > math.MaxInt64/MaxRecords || n == 0 && gap > 0 {
				return fmt.Errorf("record %d of %d is malformed", n+1, b.Count)
			}
			rest = rest[width:]
			b.missing += gap
		}
		if size := int(rest[0]); !b.full && size < 0x80 && size < len(rest) {
			rest = rest[1+size:]
			continue
		}
		entry, after, ok := cut(rest)
		if !ok || b.full && fullEntry(entry, b.stamped) < 0 {
			return fmt.Errorf("record %d of %d is malformed", n+1, b.Count)
		}
		rest = after
	}
	if n != b.Count {
		return fmt.Errorf("%d records came where %d were announced", n, b.Count)
	}
	return nil
}

// parseBatch reads an answer. ok is false if it isn't one with records.
func parseBatch(answer *nats.Msg, options *ReaderOptions) (b Batch, next uint64, ok bool, err error) {
	count := answer.Header.Get("Carillon-Records")
	if count == "" {
		return b, 0, false, nil
	}
	number := func(key string) (n uint64) {
		n, e := strconv.ParseUint(answer.Header.Get(key), 10, 64)
		if e != nil && err == nil {
			err = fmt.Errorf("the answer has %s: %q", key, answer.Header.Get(key))
		}
		return n
	}
	b = Batch{First: number("Carillon-Offset"), High: number("Carillon-High"), data: answer.Data, full: options.Full, stamped: options.Attributes}
	next = number("Carillon-Next")
	b.gapped = answer.Header.Get("Carillon-Gaps") != ""
	n := number("Carillon-Records")
	if n > MaxRecords {
		return b, 0, true, fmt.Errorf("%d records in one answer", n)
	}
	b.Count = int(n)
	if options.Full {
		b.time = int64(number("Carillon-Time"))
	}
	if options.judged() {
		b.judged, b.next, b.Why = true, next, answer.Header.Get("Carillon-Unjudged-Why")
		b.Examined, b.Unjudged = int(number("Carillon-Examined")), int(number("Carillon-Unjudged"))
		if b.Examined > 0 {
			b.Latest = int64(number("Carillon-Latest"))
		}
	}
	if err == nil {
		err = b.check()
	}
	if err == nil && next < b.end() {
		err = fmt.Errorf("the answer goes on at %d, behind records up to %d", next, b.end())
	}
	return b, next, true, err
}
