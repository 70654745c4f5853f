package log

import (
	"fmt"
	"math"
	"slices"

	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/stamping"
)

// extensionJudged is the type of an extension of sparse batches: the offset up to which compaction
// looked for newer records. The type is reserved for package log; appenders use small numbers.
const extensionJudged = 0xffff

// ExtensionRemovals is the type of an extension with an encoded removal.Item: records that the
// records of the batch have removed. A batch may have several.
const ExtensionRemovals = 3

// judged returns the offset below which the log must not be truncated: below it are the newer
// records because of which compaction has removed records of the batch, and the removals because of
// which Expunge has. It is 0 for a batch without removed records, and for one of Gap, or what a
// rewrite has made of such: their offsets never had records.
func (b Batch) judged() uint64 {
	if !b.Sparse() {
		return 0
	}
	for it := b.Extensions(); ; {
		e, ok := it.Next()
		if !ok && b.Count() == 0 {
			return 0
		}
		if !ok {
			return b.End()
		}
		if e.Type == extensionJudged && len(e.Data) == 8 {
			at := le.Uint64(e.Data)
			if b.Count() == 0 && at > 0 && at <= b.Base() {
				return 0 // a rewrite that removes records has looked at what is behind them
			}
			return max(at, b.End())
		}
	}
}

// Lost reports whether the batch replaces damaged records that no replica had (see Log.GiveUp). It
// has no records. A batch that a rewrite has emptied has an offset in the extension
// extensionJudged, so it is not one.
func (b Batch) Lost() bool {
	if !b.Sparse() || b.Count() > 0 {
		return false
	}
	for it := b.Extensions(); ; {
		e, ok := it.Next()
		if !ok || e.Type == extensionJudged {
			return ok && len(e.Data) == 8 && le.Uint64(e.Data) == 0
		}
	}
}

// From returns the part of the batch from an offset on, as a batch. It is sent to a follower whose
// log ends within a batch that compaction has merged. Records, epoch and times stay the same.
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

// Until returns the part of the batch before an offset, as a batch. It is used where a batch of
// another replica begins.
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

// thinner merges neighbouring batches into one, with the records that are kept.
type thinner struct {
	buf         []byte // the batch, from its first byte on
	open        bool
	epoch       uint64
	base, end   uint64
	next        uint64 // offset after the last record
	first, last int64
	judged      uint64
	count       int
	lost        bool   // it has the offsets of a batch that replaces lost records
	subject     []byte // of the last record
	removals    []byte // the encoded extensions of type ExtensionRemovals
	stamps      stamping.Writer
	taken       uint64 // batches that end there or before lose these extensions
}

const thinnerHeader = batchHeader + extensionHeader + 8

// fits reports whether b can be added to the batch, of which size bytes remain at most.
func (t *thinner) fits(b Batch, size int) bool {
	return t.epoch == b.Epoch() && t.end == b.Base() && t.size()+size <= limits.IndexInterval && b.End()-t.base <= math.MaxUint32
}

// size returns the length of the batch.
func (t *thinner) size() int {
	size := len(t.buf) + len(t.removals)
	if n := t.stamps.Size(); n > 0 {
		size += extensionHeader + n
	}
	return size
}

// add adds the records of b for which keep returns true. from is the first offset of b that the
// result covers.
func (t *thinner) add(b Batch, from uint64, keep func(r *Record) bool) error {
	if !t.open {
		t.open = true
		t.buf = append(t.buf[:0], make([]byte, thinnerHeader)...)
		t.epoch, t.base, t.next, t.first, t.last, t.judged, t.count = b.Epoch(), from, from, b.Time(), b.LastTime(), 0, 0
		t.lost = false
		t.subject, t.removals = t.subject[:0], t.removals[:0]
		t.stamps.Begin(from)
	}
	if b.End() > t.taken {
		t.removals = appendRemovals(t.removals, b)
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
		t.stamps.AddBytes(r.Offset, r.Stamp)
		t.next = r.Offset + 1
		t.count++
	}
	if t.end, t.last = b.End(), max(t.last, b.LastTime()); !b.Lost() {
		t.judged = max(t.judged, b.judged())
	}
	t.lost = t.lost || b.Lost()
	if b.Sparse() && b.Count() == 0 && !b.Lost() {
		t.judged = max(t.judged, t.base) // what remains of a gap must not look like lost records
	}
	return it.Err()
}

// take returns the batch. It is valid until the next add.
func (t *thinner) take() Batch {
	t.open = false
	if t.lost && t.judged > 0 {
		t.judged = max(t.judged, t.end) // beside lost records, it is none of Gap
	}
	ext := t.buf[batchHeader:]
	le.PutUint16(ext, extensionJudged)
	le.PutUint32(ext[2:], 8)
	le.PutUint64(ext[extensionHeader:], t.judged)
	added := t.removals
	if stamps := t.stamps.Data(); len(stamps) > 0 {
		added = appendExtensions(added, []Extension{{Type: stamping.ExtensionType, Data: stamps}})
	}
	h := head{flags: flagSparse, count: t.count, span: t.end - t.base, epoch: t.epoch, base: t.base, first: t.first, last: t.last,
		extended: thinnerHeader - batchHeader + len(added)}
	t.buf = slices.Insert(t.buf, thinnerHeader, added...)
	if uint64(t.count) == h.span {
		h.flags = 0
	}
	sealBatch(t.buf, h)
	return Batch(t.buf)
}

// appendRemovals appends the extensions of a batch that name removed records.
func appendRemovals(dst []byte, b Batch) []byte {
	for it := b.Extensions(); ; {
		e, ok := it.Next()
		if !ok {
			return dst
		}
		if e.Type == ExtensionRemovals {
			dst = appendExtensions(dst, []Extension{e})
		}
	}
}
