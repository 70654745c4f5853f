package log

import "encoding/binary"

// SubjectIter walks the subjects of a batch's records, and decodes nothing else of them. It takes a
// packed batch as a whole.
type SubjectIter struct {
	records RecordIter
	offset  uint64 // of n consecutive records of a subject, which Next has not returned yet
	n       int
	subject []byte
}

// Subjects returns an iterator over the subjects of the batch's records.
func (b Batch) Subjects() SubjectIter { return SubjectIter{records: b.Records()} }

// Next returns the next consecutive records of a subject: the first one's offset, and how many. At
// the end, or after an error, n is 0. The subject is valid as long as the batch.
func (s *SubjectIter) Next() (offset uint64, n int, subject []byte) {
	it := &s.records
	for it.left > 0 && it.err == nil {
		if it.packed {
			offset, n = it.next, it.left
			it.rest, it.left = nil, 0
			return offset, n, it.subject
		}
		at, changed := it.nextSubject()
		switch {
		case it.err != nil:
		case s.n > 0 && !changed && at == s.offset+uint64(s.n):
			s.n++
		default:
			offset, n, subject = s.offset, s.n, s.subject
			if s.offset, s.n, s.subject = at, 1, it.subject; n > 0 {
				return offset, n, subject
			}
		}
	}
	offset, n, subject = s.offset, s.n, s.subject
	s.n = 0
	return offset, n, subject
}

// Err is why Next stopped early, or nil.
func (s *SubjectIter) Err() error { return s.records.err }

// nextSubject moves to the next record, of a batch that isn't packed, and returns its offset, and
// whether its subject may be another one than that of the record before.
func (it *RecordIter) nextSubject() (offset uint64, changed bool) {
	body, rest, ok := cutLength(it.rest)
	if !ok || len(body) < 2 || body[0]&^it.known != 0 {
		it.bad()
		return 0, false
	}
	flags := body[0]
	if flags&(recordGap|recordSubject) != 0 {
		_, n := binary.Varint(body[1:])
		if n <= 0 {
			it.bad()
			return 0, false
		}
		body = body[1+n:]
	}
	if flags&recordGap != 0 {
		gap, n := binary.Uvarint(body)
		if n <= 0 || gap >= it.end-it.next {
			it.bad()
			return 0, false
		}
		it.next += gap
		body = body[n:]
	}
	if changed = flags&recordSubject != 0; changed {
		if it.subject, _, ok = cutLength(body); !ok {
			it.bad()
			return 0, false
		}
	}
	if it.next >= it.end {
		it.bad()
		return 0, false
	}
	offset = it.next
	it.rest = rest
	it.next++
	it.left--
	return offset, changed
}
