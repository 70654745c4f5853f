package subscription

import (
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/removal"
)

// recountRest is how long deliveries go on with a count of matching records that may include
// removed ones. Info counts again at once.
const recountRest = int64(time.Second)

// newestFew is how many newest records are looked at whenever one was removed, and newestRest the
// pause before more are.
const (
	newestFew  = 256
	newestRest = int64(50 * time.Millisecond)
)

// removals is what a Subscription knows of its shard's set of removed records.
type removals struct {
	pending uint64 // version up to which pending records were looked at
	counted uint64 // version as of the last count of matching records
	next    int64  // when deliveries count again at the earliest
	known   removedCount
	// newest is the version as of which Subscription.newest has no removed records, and newestNext
	// when many of them are looked at again at the earliest.
	newest     uint64
	newestNext int64
}

// removedCount remembers how many offsets of a range are removed, since backlogs are long and move
// a little with each delivery.
type removedCount struct {
	version, from, to, n uint64
}

// of returns how many offsets of a range are removed.
func (c *removedCount) of(set *removal.Set, from, to uint64) uint64 {
	version := set.Version()
	if c.version == version && c.from <= from && from <= c.to && c.to <= to {
		c.n += set.Count(c.to, to)
		c.n -= min(set.Count(c.from, from), c.n)
	} else {
		c.n = set.Count(from, to)
	}
	c.version, c.from, c.to = version, from, to
	return c.n
}

// removed returns the set of removed records, or nil if there are none.
func (s *Subscription) removed() *removal.Set {
	if set := s.store.shard.Removed(); set.Len() > 0 {
		return set
	}
	return nil
}

// isRemoved reports whether a record was removed.
func (s *Subscription) isRemoved(offset uint64) bool {
	set := s.removed()
	return set != nil && set.Has(offset)
}

// dropRemoved acknowledges pending records that were removed, and reports whether there were some.
// mu is held.
func (s *Subscription) dropRemoved() (some bool) {
	set := s.removed()
	if set == nil {
		return false
	}
	version := set.Version()
	first := s.cursor.pending.first()
	if version == s.removals.pending || first == nil {
		s.removals.pending = version
		return false
	}
	s.removals.pending = version
	list := s.cursor.pending.list
	if set.Count(first.offset, list[len(list)-1].offset+1) == 0 {
		return false
	}
	var gone []uint64 // acknowledging one moves the list
	for i := s.cursor.pending.head; i < len(list); i++ {
		if d := &list[i]; !d.removed && set.Has(d.offset) {
			gone = append(gone, d.offset)
		}
	}
	for _, offset := range gone {
		s.change(op{kind: opTerm, offset: offset})
	}
	return len(gone) > 0
}

// forgetKept forgets kept records that were removed, or that the log lacks now. mu is held.
func (s *Subscription) forgetKept() {
	if len(s.cursor.kept) == 0 {
		return
	}
	start, _ := s.store.shard.Offsets()
	set := s.store.shard.Removed()
	s.cursor.kept = slices.DeleteFunc(s.cursor.kept, func(offset uint64) bool {
		return offset < start || set.Has(offset)
	})
}

// aheadLeft returns how many of the records that were acknowledged ahead of the cursor are not
// removed. mu is held.
func (s *Subscription) aheadLeft() (n uint64) {
	n = uint64(len(s.cursor.ahead))
	if set := s.removed(); set != nil {
		for _, offset := range s.cursor.ahead {
			if set.Has(offset) {
				n--
			}
		}
	}
	return n
}

// recount has matching records counted anew that are removed since they were counted: at once, or
// no more often than every recountRest. mu is held.
func (s *Subscription) recount(start uint64, now int64, atOnce bool) {
	l, set := &s.ahead, s.removed()
	if set == nil || !s.settings.countsSubjects() {
		return
	}
	version := set.Version()
	if version == s.removals.counted || !atOnce && now < s.removals.next {
		return
	}
	s.removals.counted, s.removals.next = version, now+recountRest
	if base := s.base(start); l.at > base && (l.unsure || set.Count(l.from, l.at) != l.gone) {
		l.restart(base, start)
	}
}

// extended notes that records from from on are counted. version is that of the set before. mu is
// held.
func (s *Subscription) extended(from, version uint64) {
	set := s.store.shard.Removed()
	s.ahead.gone += set.Count(from, s.ahead.at)
	s.ahead.unsure = s.ahead.unsure || set.Version() != version
}
