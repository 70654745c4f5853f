package removal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
)

// Span is a range of removed records of one epoch: the offsets from From up to and without Next.
type Span struct {
	Epoch, From, Next uint64
}

// Subject is the subject of a state log's record whose payload is an Item. Other records of a state
// log have no subject.
const Subject = "removed"

// itemVersion is the first byte of an encoded Item. Another one is of a later version.
const itemVersion = 1

// ErrMalformed is the error of bytes that are no Item.
var ErrMalformed = errors.New("a malformed removal")

// AppendItem appends spans to dst as one Item: a byte with the version, and for each span the
// difference of its epoch to the one before as a varint, that of From to the Next before as a
// varint, and its length as a uvarint. Spans that are in order take few bytes.
func AppendItem(dst []byte, spans ...Span) []byte {
	dst = append(dst, itemVersion)
	var before Span
	for _, s := range spans {
		dst = binary.AppendVarint(dst, int64(s.Epoch-before.Epoch))
		dst = binary.AppendVarint(dst, int64(s.From-before.Next))
		dst = binary.AppendUvarint(dst, s.Next-s.From)
		before = s
	}
	return dst
}

// ItemSpans is how many spans one Item has at most, so that it is far smaller than the largest
// batch of a log.
const ItemSpans = 4096

// Items yields spans as encoded Items. Each is valid until the next one.
func Items(spans iter.Seq[Span]) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		var some []Span
		var item []byte
		for s := range spans {
			if some = append(some, s); len(some) < ItemSpans {
				continue
			}
			item = AppendItem(item[:0], some...)
			if some = some[:0]; !yield(item) {
				return
			}
		}
		if len(some) > 0 {
			yield(AppendItem(item[:0], some...))
		}
	}
}

// Split yields the offsets from from up to and without next as spans of one epoch each. epochAt
// returns the epoch of an offset and up to where it goes; epoch 0: there is no such record, nor one
// before that.
func Split(from, next uint64, epochAt func(offset uint64) (epoch, until uint64)) iter.Seq[Span] {
	return func(yield func(Span) bool) {
		for from < next {
			epoch, until := epochAt(from)
			if until <= from || epoch > 0 && !yield(Span{epoch, from, min(until, next)}) {
				return
			}
			from = until
		}
	}
}

// EachSpan calls f for each span of an encoded Item. It returns an error that wraps ErrMalformed
// for bytes that are no Item; f may have been called before.
func EachSpan(item []byte, f func(Span)) error {
	if len(item) == 0 || item[0] != itemVersion {
		return fmt.Errorf("%w: it is of an unknown version", ErrMalformed)
	}
	item = item[1:]
	for before := (Span{}); len(item) > 0; {
		epoch, n := binary.Varint(item)
		from, m := binary.Varint(item[max(n, 0):])
		if n <= 0 || m <= 0 {
			return fmt.Errorf("%w: it is too short", ErrMalformed)
		}
		length, k := binary.Uvarint(item[n+m:])
		if k <= 0 {
			return fmt.Errorf("%w: it is too short", ErrMalformed)
		}
		s := Span{Epoch: before.Epoch + uint64(epoch), From: before.Next + uint64(from)}
		if s.From == 0 || length == 0 || length > math.MaxUint64-s.From {
			return fmt.Errorf("%w: offsets %d and %d more", ErrMalformed, s.From, length)
		}
		s.Next = s.From + length
		f(s)
		before, item = s, item[n+m+k:]
	}
	return nil
}

// Epochs says of which epoch the records of a log are.
type Epochs interface {
	// Extent returns the offsets that the log has of an epoch; from == next: none.
	Extent(epoch uint64) (from, next uint64)
}

// Within returns the part of a span whose records the log has: by M1, offsets whose records are of
// another epoch are not removed. ok is false if there is none.
func (s Span) Within(log Epochs) (part Span, ok bool) {
	from, next := log.Extent(s.Epoch)
	part = Span{s.Epoch, max(s.From, from), min(s.Next, next)}
	return part, part.From < part.Next
}

// Mark says of a data log that the Items in front of it in the state log have what the batches
// before Below have removed. Epoch is that of the record before Below; 0: there was none. By it a
// log is known that lost its end since, and whose batches before Below are others. Limit is how
// many records a subject had at most; 0: that is not known.
type Mark struct{ Epoch, Below, Limit uint64 }

// markVersion is the first byte of an encoded Mark.
const markVersion = 1

// AppendMark appends a Mark to dst: a byte with the version, and its numbers as uvarints.
func AppendMark(dst []byte, m Mark) []byte {
	dst = append(dst, markVersion)
	dst = binary.AppendUvarint(dst, m.Epoch)
	dst = binary.AppendUvarint(dst, m.Below)
	return binary.AppendUvarint(dst, m.Limit)
}

// ParseMark parses an encoded Mark. Its error wraps ErrMalformed.
func ParseMark(data []byte) (m Mark, err error) {
	if len(data) == 0 || data[0] != markVersion {
		return m, fmt.Errorf("%w: a mark of an unknown version", ErrMalformed)
	}
	data = data[1:]
	for _, to := range []*uint64{&m.Epoch, &m.Below, &m.Limit} {
		v, n := binary.Uvarint(data)
		if n <= 0 {
			return Mark{}, fmt.Errorf("%w: a mark that is too short", ErrMalformed)
		}
		*to, data = v, data[n:]
	}
	return m, nil
}
