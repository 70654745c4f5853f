package log

import "slices"

// Holes is how many offsets from one on have no record, because there is a newer one of its
// subject. It is exact if a segment begins there, or CountHoles was asked, and no fewer than there
// are otherwise.
func (l *Log) Holes(from uint64) (n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.segments {
		if s.holes > 0 && s.end > from {
			n += s.holesFrom(from)
		}
	}
	return n
}

// holesBefore is what was counted: how many of a segment's holes are below an offset.
type holesBefore struct{ offset, holes uint64 }

// holesFrom is how many holes a segment has from an offset on, as far as that was counted. mu is
// held.
func (s *segment) holesFrom(offset uint64) uint64 {
	holes := s.holes
	if s.before.offset <= offset {
		holes -= s.before.holes
	}
	return min(holes, s.end-max(s.base, offset))
}

// CountHoles makes Holes exact for an offset within a segment, by reading the rest of the segment,
// once. If that can't be read, nothing changes.
func (l *Log) CountHoles(from uint64) {
	l.mu.Lock()
	i := slices.IndexFunc(l.segments, func(s *segment) bool { return s.base < from && from < s.end })
	if i < 0 || l.segments[i].holes == 0 || l.segments[i].before.offset == from {
		l.mu.Unlock()
		return
	}
	s := l.segments[i]
	end, before := s.end, s.holes-(s.end-from)
	l.mu.Unlock()
	records, err := l.countRecords(from, end)
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if slices.Contains(l.segments, s) && l.start <= from {
		s.before = holesBefore{from, before + records}
	}
}

// countRecords is how many records there are from one offset up to, not including, another one.
func (l *Log) countRecords(from, end uint64) (n uint64, err error) {
	for c := l.NewCursor(from); c.Next() < end; {
		v, err := c.Read(scanWindow)
		if err != nil {
			return 0, err
		}
		for b, ok := v.Next(); ok; b, ok = v.Next() {
			it := b.Records()
			for r := (Record{}); it.Next(&r); {
				if r.Offset >= from && r.Offset < end {
					n++
				}
			}
			if err = it.Err(); err != nil {
				break
			}
		}
		v.Release()
		if err != nil {
			return 0, err
		}
	}
	return n, nil
}
