package subjectindex

import "github.com/carillon-mq/carillon/broker/removal"

// removed returns the set of removed records, or nil if there are none.
func (s *Shard) removed() *removal.Set {
	if set := s.config.Removed; set != nil && set.Len() > 0 {
		return set
	}
	return nil
}

// live returns what is left of what a layer has of a subject within a range, once removed records
// are taken away. Only if there are some between its first and its last record, each is looked at:
// offsets calls f with the consecutive ones. removed may be nil.
func (info Info) live(removed *removal.Set, offsets func(f func(from, to uint64) error) error) (Info, error) {
	if removed == nil || info.Count == 0 || removed.Count(info.First, info.Last+1) == 0 {
		return info, nil
	}
	var left Info
	err := offsets(func(from, to uint64) error {
		left.add(liveRun(removed, from, to))
		return nil
	})
	return left, err
}

// liveRun returns what is left of consecutive offsets. removed may be nil.
func liveRun(removed *removal.Set, from, to uint64) Info {
	if removed == nil {
		return Info{Count: to - from, First: from, Last: to - 1}
	}
	first, last := removed.Next(from), removed.Previous(to-1)
	gone := removed.Count(from, to)
	if first >= to || last < first || gone >= to-from {
		return Info{}
	}
	return Info{Count: to - from - gone, First: first, Last: last}
}

// removedIn returns how many offsets of a range are removed.
func removedIn(removed *removal.Set, in Range) uint64 {
	if removed == nil {
		return 0
	}
	return removed.Count(in.From, in.To)
}

// infoOf returns what an entry of a run has within a range.
func (q *snapshot) infoOf(e *entry, r *run, in Range, read readBlock) (Info, error) {
	info, err := e.info(r, in, read)
	if err != nil {
		return info, err
	}
	return info.live(q.removed, func(f func(from, to uint64) error) error { return e.offsets(r, in, read, f) })
}

// infoAt returns what the subject at a cursor has within a range.
func (q *snapshot) infoAt(c cursor, in Range) (Info, error) {
	info, err := c.info(in)
	if err != nil {
		return info, err
	}
	return info.live(q.removed, func(f func(from, to uint64) error) error { return c.offsets(in, f) })
}
