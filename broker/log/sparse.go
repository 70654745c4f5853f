package log

import (
	"fmt"
	"math"

	"github.com/carillon-mq/carillon/broker/limits"
)

// extensionJudged is the type of the extension of a sparse batch that says up to which offset was
// looked for newer records of the subjects of those that it lacks. It is the log's own; whoever
// appends takes small numbers.
const extensionJudged = 0xffff

// judged is the offset up to which the log has to be what it was when the batch was made: a record
// that is not there any more has a newer one of its subject below. It is 0 of a batch that lacks
// nothing.
func (b Batch) judged() uint64 {
	if !b.Sparse() {
		return 0
	}
	for it := b.Extensions(); ; {
		e, ok := it.Next()
		if !ok {
			return b.End()
		}
		if e.Type == extensionJudged && len(e.Data) == 8 {
			return max(le.Uint64(e.Data), b.End())
		}
	}
}

// From is what the batch covers from an offset on, as a batch of its own: what is sent to a
// follower that ends within one that was made of several. Records, epoch and times are what they
// were.
func (b Batch) From(offset uint64) (Batch, error) {
	if offset <= b.Base() {
		return b, nil
	}
	if offset >= b.End() {
		return nil, fmt.Errorf("a batch from offset %d to %d has nothing from %d on", b.Base(), b.End(), offset)
	}
	var t thinner
	if err := t.add(b, offset, func(r *Record) bool { return r.Offset >= offset }); err != nil {
		return nil, err
	}
	return t.take(), nil
}

// Until is what a batch covers before an offset, as a batch of its own: what is left of one where
// another replica has a border.
func (b Batch) Until(offset uint64) (Batch, error) {
	if offset >= b.End() {
		return b, nil
	}
	if offset <= b.Base() {
		return nil, fmt.Errorf("a batch from offset %d to %d has nothing before %d", b.Base(), b.End(), offset)
	}
	var t thinner
	if err := t.add(b, b.Base(), func(r *Record) bool { return r.Offset < offset }); err != nil {
		return nil, err
	}
	t.end = offset
	return t.take(), nil
}

// thinner makes one batch of those that stand side by side, with the records that are to stay.
type thinner struct {
	buf         []byte // the batch, from its first byte on
	open        bool
	epoch       uint64
	base, end   uint64
	next        uint64 // offset after the last record
	first, last int64
	judged      uint64
	count       int
	subject     []byte // of the last record
}

const thinnerHeader = batchHeader + extensionHeader + 8

// fits says whether what stays of a batch can be added to what there is.
func (t *thinner) fits(b Batch) bool {
	return t.epoch == b.Epoch() && t.end == b.Base() && len(t.buf)+len(b) <= limits.IndexInterval && b.End()-t.base <= math.MaxUint32
}

// add adds what is to stay of the batch's records, from an offset of its own on.
func (t *thinner) add(b Batch, from uint64, keep func(r *Record) bool) error {
	if !t.open {
		t.open = true
		t.buf = append(t.buf[:0], make([]byte, thinnerHeader)...)
		t.epoch, t.base, t.next, t.first, t.last, t.judged, t.count = b.Epoch(), from, from, b.Time(), b.LastTime(), 0, 0
		t.subject = t.subject[:0]
	}
	it := b.Records()
	for r := (Record{}); it.Next(&r); {
		if !keep(&r) {
			continue
		}
		same := t.count > 0 && string(t.subject) == string(r.Subject)
		t.buf = appendRecord(t.buf, &r, t.first, same, r.Offset-t.next)
		if !same {
			t.subject = append(t.subject[:0], r.Subject...)
		}
		t.next = r.Offset + 1
		t.count++
	}
	t.end, t.last, t.judged = b.End(), max(t.last, b.LastTime()), max(t.judged, b.judged())
	return it.Err()
}

// take ends the batch, which is valid until the next one begins.
func (t *thinner) take() Batch {
	t.open = false
	ext := t.buf[batchHeader:]
	le.PutUint16(ext, extensionJudged)
	le.PutUint32(ext[2:], 8)
	le.PutUint64(ext[extensionHeader:], t.judged)
	h := head{flags: flagSparse, count: t.count, span: t.end - t.base, epoch: t.epoch, base: t.base, first: t.first, last: t.last, extended: thinnerHeader - batchHeader}
	if uint64(t.count) == h.span {
		h.flags = 0
	}
	sealBatch(t.buf, h)
	return Batch(t.buf)
}
