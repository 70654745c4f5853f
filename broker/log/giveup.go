package log

import (
	"errors"
	"math"
)

// GiveUp begins to replace the damaged records of one segment by batches without records, which
// span the same offsets in the same epochs. Other replicas can then copy the records behind them.
// from is a damaged offset in that segment, or in the gap where a segment is missing. The caller
// knows that no replica has any record of the segment from there on.
//
// gone are the offsets to give up. Finish of the result replaces the segment, and sets the damaged
// one aside. If the segment is damaged before from, too, another replica may have those records:
// then the new segment begins at from, and the earlier part of the segment stays as it is. Abandon
// changes nothing. r is nil if the segment has no damage from there on.
func (l *Log) GiveUp(from uint64) (r *Repair, gone []Span, err error) {
	l.mu.Lock()
	active := l.active != nil && l.active.base <= from && from < l.active.end
	l.mu.Unlock()
	if active {
		l.Roll()
		if err := l.Flush(); err != nil {
			return nil, nil, err
		}
	}
	for _, whole := range []bool{true, false} {
		var last int64
		if r, last, err = l.giveUp(from, whole); err != nil {
			return nil, nil, err
		}
		if gone, err = r.fill(from, last); err == nil && len(gone) > 0 {
			return r, gone, nil
		}
		r.Abandon()
		if err != errElsewhere {
			break
		}
	}
	return nil, nil, err
}

// errElsewhere means that the segment has earlier damage, and another replica may have those
// records.
var errElsewhere = errors.New("other records of the segment are damaged, too")

// fill adds the readable batches of the segment, and batches without records for the damage.
func (r *Repair) fill(from uint64, last int64) (gone []Span, err error) {
	for c := r.log.NewCursor(r.next); c.Next() < r.span.Next; {
		at := c.Next()
		v, err := c.Read(scanWindow)
		if damage, ok := errors.AsType[*CorruptError](err); ok && damage.Next > at {
			lost := Span{at, min(damage.Next, r.span.Next)}
			if lost.From < from {
				return nil, errElsewhere
			}
			r.log.noteBad(lost.From)
			if err := r.addNothing(lost, last); err != nil {
				return nil, err
			}
			gone = append(gone, lost)
			c.Seek(lost.Next)
			continue
		}
		if err != nil {
			return nil, err
		}
		for b, ok := v.Next(); ok && b.Base() < r.span.Next && err == nil; b, ok = v.Next() {
			err = r.Add(b)
		}
		v.Release()
		if err != nil {
			return nil, err
		}
	}
	return gone, nil
}

// noteBad marks the segment that contains an offset as damaged, if there is such a segment.
func (l *Log) noteBad(offset uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s, _, _ := l.segmentOf(offset); s != nil {
		s.bad = true
	}
}

// giveUp begins to replace the segment that contains an offset, or the gap between two segments:
// all of it, or from the offset on. last is the time of the last record before it.
func (l *Log) giveUp(from uint64, whole bool) (r *Repair, last int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return nil, 0, err
	}
	if from < l.start || from >= l.end {
		return nil, 0, &RangeError{Log: l.name, Asked: from, Start: l.start, End: l.end}
	}
	r = &Repair{log: l, span: Span{l.start, l.end}, cuts: l.cuts, why: "damaged on all replicas"}
	for _, s := range l.segments {
		if s.base > from {
			r.span.Next = s.base
			break
		}
		if s.end > from {
			if s == l.active {
				return nil, 0, errMeanwhile
			}
			r.span = Span{max(s.base, l.start), s.end}
			if !whole {
				r.of = s
			}
			last = max(last, s.first)
			break
		}
		r.low, last = s.end, s.last
		r.span.From = max(s.end, l.start)
	}
	if !whole {
		r.span.From, r.low = from, from
	}
	r.next = r.span.From
	return r, last, nil
}

// addNothing adds batches without records for damaged offsets. last is the time of the last record
// before the segment.
func (r *Repair) addNothing(lost Span, last int64) error {
	if r.Begun() {
		last = r.w.s.last
	}
	return r.log.nothing(lost, last, r.Add)
}

// Nothing returns batches without records for damaged offsets that another replica gives up. Before
// it gets them, this log disowns the offsets (DisownLost), so that no replica has them again. They
// span lost in the epochs of this log, and have the time of the last record before lost.
func (l *Log) Nothing(lost Span) (batches []byte, err error) {
	err = l.nothing(lost, l.timeBefore(lost.From), func(b Batch) error {
		batches = append(batches, b...)
		return nil
	})
	return batches, err
}

// nothing passes batches without records, which span lost in the epochs of this log, to add. A
// batch is valid until add returns. last is their time.
func (l *Log) nothing(lost Span, last int64, add func(Batch) error) error {
	epochs := l.Epochs()
	for at := lost.From; at < lost.Next; {
		t := thinner{buf: make([]byte, thinnerHeader), base: at, next: at, end: min(lost.Next, at+math.MaxUint32), first: last, last: last}
		for i, e := range epochs {
			switch {
			case e.Start <= at || i == 0:
				t.epoch = e.Epoch
			case e.Start < t.end:
				t.end = e.Start
			}
		}
		at = t.end
		if err := add(t.take()); err != nil {
			return err
		}
	}
	return nil
}

// timeBefore returns the time of the last record before an offset. If that can't be read, it
// returns the time of an earlier record, or of the first one of the offset's segment.
func (l *Log) timeBefore(offset uint64) (last int64) {
	if v, err := l.NewCursor(offset - 1).Read(1); err == nil {
		b, ok := v.Next()
		if ok {
			last = b.LastTime()
		}
		v.Release()
		if ok {
			return last
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.segments {
		if s.base > offset {
			break
		}
		if last = max(last, s.first); s.end <= offset {
			last = max(last, s.last)
		}
	}
	return last
}
