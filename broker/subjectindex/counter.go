package subjectindex

import (
	"context"
	"slices"
)

// changes are the ranges of offsets that have other records than before.
type changes struct {
	version uint64
	last    []Range // of the last versions, the newest last
}

func (c *changes) note(in Range) {
	c.version++
	if len(c.last) == mostChanges {
		c.last = slices.Delete(c.last, 0, 1)
	}
	c.last = append(c.last, in)
}

// since returns the ranges that have changed since a version. ok is false if that isn't known.
func (c *changes) since(version uint64) (in []Range, ok bool) {
	n := c.version - version
	if n > uint64(len(c.last)) {
		return nil, false
	}
	return slices.Clone(c.last[uint64(len(c.last))-n:]), true
}

// Counter keeps the number of records within a range that match a filter: that of a consumer's
// position and the high watermark. The first count reads all index files of the range. After that
// it reads what is new: of the part, in the time of the new records; and each run once.
//
// It remembers the counts of ranges that follow each other, each within a layer. They stay true
// whatever becomes of the layers, unless records change or are removed: a range is counted anew if
// more of it is removed than when it was counted.
//
// One goroutine uses it at a time. It holds nothing of the shard.
type Counter struct {
	shard   *Shard
	filter  *Filter
	version uint64
	known   []counted
}

// counted is how many records within a range match.
type counted struct {
	Range
	n       uint64
	removed uint64 // how many records of the range were removed then
}

// NewCounter returns a counter that has counted nothing yet.
func (s *Shard) NewCounter(f *Filter) *Counter { return &Counter{shard: s, filter: f} }

// Count returns the number of matching records within a range.
func (c *Counter) Count(ctx context.Context, in Range) (n uint64, err error) {
	q, err := c.shard.snapshot(in)
	if err != nil {
		return 0, err
	}
	defer q.release()
	c.shard.mu.Lock()
	c.forget()
	stale := c.version != q.version // a change came between
	c.shard.mu.Unlock()
	c.known = slices.DeleteFunc(c.known, func(k counted) bool {
		return stale || !q.in.contains(k.Range) || k.removed != removedIn(q.removed, k.Range)
	})
	var known []counted
	add := func(part counted, extend bool) {
		n += part.n
		if k := len(known); extend && k > 0 && known[k-1].To == part.From {
			known[k-1].To = part.To
			known[k-1].n += part.n
			known[k-1].removed += part.removed
			return
		}
		known = append(known, part)
	}
	at := 0
	for i, l := range q.layers {
		r := l.within(q.in)
		for first := true; r.From < r.To; first = false {
			for at < len(c.known) && c.known[at].From < r.From {
				at++ // of another layer, or a part of it is below the range
			}
			if at < len(c.known) && c.known[at].From == r.From && c.known[at].To <= r.To {
				add(c.known[at], !first)
				r.From = c.known[at].To
				at++
				continue
			}
			next := r
			if at < len(c.known) && c.known[at].From < r.To && c.known[at].To <= r.To {
				next.To = c.known[at].From
			}
			gone := removedIn(q.removed, next) // what is removed from now on has it counted anew
			part, err := q.count(ctx, i, c.filter, next)
			if err != nil {
				return 0, err
			}
			add(counted{next, part, gone}, !first)
			r.From = next.To
		}
	}
	c.known, c.version = known, q.version
	return n, nil
}

// forget drops the counts of ranges that have changed since, and notes the version. The shard's
// lock is held.
func (c *Counter) forget() {
	changed := &c.shard.changed
	ranges, ok := changed.since(c.version)
	if !ok {
		c.known = nil
	}
	c.version = changed.version
	c.known = slices.DeleteFunc(c.known, func(k counted) bool {
		return slices.ContainsFunc(ranges, func(r Range) bool { return !r.within(k.Range).empty() })
	})
}

// Passed notes that n records of a range match that the next Count leaves behind: those that a
// consumer took. It saves counting them. The range begins where that of the last Count began.
func (c *Counter) Passed(in Range, n uint64) {
	c.shard.mu.Lock()
	c.forget() // n may be of the records before a change, or behind
	c.shard.mu.Unlock()
	removed := c.shard.removed()
	c.known = slices.DeleteFunc(c.known, func(k counted) bool { return k.removed != removedIn(removed, k.Range) })
	at := in.From
	for len(c.known) > 0 && c.known[0].From == at && c.known[0].To <= in.To && c.known[0].n <= n {
		n -= c.known[0].n
		at = c.known[0].To
		c.known = c.known[1:]
	}
	if len(c.known) > 0 && c.known[0].From == at && at < in.To && c.known[0].n >= n && c.known[0].To > in.To {
		gone := removedIn(removed, Range{at, in.To})
		c.known[0].From = in.To
		c.known[0].n -= n
		c.known[0].removed -= min(gone, c.known[0].removed)
		return
	}
	// Behind a range that isn't known, it is not known how many of n are where. The next Count counts
	// what is left there.
	c.known = slices.DeleteFunc(c.known, func(k counted) bool { return k.From < in.To })
}
