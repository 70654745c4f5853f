package log

import "slices"

// Holes returns how many offsets from an offset on have no record, since compaction has removed it.
// It is exact if a segment begins at from or CountHoles was called with it, and an upper bound
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

// holesBefore is how many of a segment's holes are below an offset.
type holesBefore struct{ offset, holes uint64 }

// holesFrom returns how many holes a segment has from an offset on: an upper bound if that wasn't
// counted. mu is held.
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

// countRecords returns how many records there are from an offset up to, not including, end.
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
