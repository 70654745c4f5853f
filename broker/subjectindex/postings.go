package subjectindex

import "encoding/binary"

// tokenWriter encodes ascending offsets behind a first one. See the package's comment for tokens.
type tokenWriter struct {
	buf  []byte
	next uint64 // offset after the last
	skip uint64 // of the token that is not written yet
	more uint64 // offsets behind its first
	open bool
}

// begin begins behind the first offset.
func (t *tokenWriter) begin(first uint64) {
	*t = tokenWriter{buf: t.buf[:0], next: first + 1}
}

// add adds the offsets from from up to, not including, to.
func (t *tokenWriter) add(from, to uint64) {
	switch {
	case from >= to:
	case t.open && from == t.next:
		t.more += to - from
		t.next = to
	default:
		t.flush()
		t.skip, t.more, t.open, t.next = from-t.next, to-from-1, true, to
	}
}

// flush writes the last token.
func (t *tokenWriter) flush() {
	if !t.open {
		return
	}
	t.open = false
	if t.more == 0 {
		t.buf = binary.AppendUvarint(t.buf, t.skip<<1)
		return
	}
	t.buf = binary.AppendUvarint(t.buf, t.skip<<1|1)
	t.buf = binary.AppendUvarint(t.buf, t.more-1)
}

// tokenReader decodes what tokenWriter wrote, as runs of consecutive offsets.
type tokenReader struct {
	buf  []byte
	next uint64
	end  uint64 // what no offset reaches
}

// read returns the next consecutive offsets. ok is false at the end; bad says that the bytes can't
// be what was written.
func (t *tokenReader) read() (from, to uint64, ok, bad bool) {
	if len(t.buf) == 0 {
		return 0, 0, false, false
	}
	token, n := binary.Uvarint(t.buf)
	if n <= 0 {
		return 0, 0, false, true
	}
	t.buf = t.buf[n:]
	more := uint64(0)
	if token&1 == 1 {
		if more, n = binary.Uvarint(t.buf); n <= 0 {
			return 0, 0, false, true
		}
		t.buf = t.buf[n:]
		more++
	}
	skip := token >> 1
	if t.next >= t.end || skip >= t.end-t.next || more >= t.end-t.next-skip {
		return 0, 0, false, true
	}
	from = t.next + skip
	t.next = from + more + 1
	return from, t.next, true, false
}

// Info is what a range of offsets has of a subject.
type Info struct {
	Count       uint64
	First, Last uint64 // offsets; 0 if Count is 0
}

// add adds records of another part of the range.
func (i *Info) add(other Info) {
	switch {
	case other.Count == 0:
		return
	case i.Count == 0:
		*i = other
		return
	}
	i.Count += other.Count
	i.First, i.Last = min(i.First, other.First), max(i.Last, other.Last)
}

// addRun adds consecutive offsets as far as they are within a range.
func (i *Info) addRun(from, to uint64, r Range) {
	from, to = max(from, r.From), min(to, r.To)
	if from < to {
		i.add(Info{Count: to - from, First: from, Last: to - 1})
	}
}

// Range is the offsets From ≤ offset < To.
type Range struct{ From, To uint64 }

func (r Range) empty() bool { return r.From >= r.To }

// within returns the offsets that are in both ranges.
func (r Range) within(other Range) Range {
	return Range{max(r.From, other.From), min(r.To, other.To)}
}

// contains reports whether all offsets of other are in r.
func (r Range) contains(other Range) bool { return r.From <= other.From && other.To <= r.To }
