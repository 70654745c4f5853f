package log

import "slices"

// Holes returns the number of offsets at or above from whose record compaction has removed. It is
// exact if a segment begins at from or CountHoles was called with from, and an upper bound
// otherwise.
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

// holesBefore is the number of a segment's holes below an offset.
type holesBefore struct{ offset, holes uint64 }

// holesFrom returns the number of a segment's holes at or above an offset: an upper bound, unless
// CountHoles has counted them. mu is held.
func (s *segment) holesFrom(offset uint64) uint64 {
	holes := s.holes
	if s.before.offset <= offset {
		holes -= s.before.holes
	}
	return min(holes, s.end-max(s.base, offset))
}

// CountHoles makes Holes exact for an offset within a segment. It reads the rest of the segment,
// once. On a read error nothing changes.
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

// countRecords returns the number of records from an offset up to, not including, end.
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
