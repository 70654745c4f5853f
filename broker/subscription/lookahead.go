package subscription

import (
	"context"
	"slices"

	"github.com/carillon-mq/carillon/broker/log"
)

// lookahead counts the records that match a filter and are not delivered yet. It reads the log
// ahead of delivery, each record once, and only when a delivery or Info needs the number. So a
// filter costs one more read of new records.
type lookahead struct {
	at     uint64 // records below are counted
	n      uint64
	start  uint64 // start of the log when counting began
	from   uint64 // where counting began
	gone   uint64 // how many records from there to at were removed when they were counted
	unsure bool   // some were removed while they were counted
	spent  int    // bytes read since the count last reached the end
	cursor *log.Cursor
}

// restart begins to count anew.
func (l *lookahead) restart(at, start uint64) {
	l.at, l.n, l.start, l.from, l.gone, l.unsure = at, 0, start, at, 0, false
}

// passed removes a delivered record from the count. Records below until are never in it.
func (l *lookahead) passed(offset, until uint64) {
	if offset < l.at && offset >= until && l.n > 0 {
		l.n--
	}
}

// base returns the offset where counting begins. mu is held.
func (s *Subscription) base(start uint64) uint64 {
	return max(s.cursor.offset+1, start, s.cursor.until)
}

// lag returns the number of records to deliver, or an upper bound if it is not exact. Without a
// filter it counts offsets that are not removed, including those that compaction left without a
// record. mu is held.
func (s *Subscription) lag(start, end uint64) (n uint64, exact bool) {
	base := s.base(start)
	exact = s.search.done
	if next := max(s.cursor.offset+1, start); s.cursor.until > next {
		if s.newest == nil {
			n, exact = s.cursor.until-next, false
		}
		s.dropNewest(next)
		n += s.newestLeft()
	}
	if base >= end {
		return n, exact
	}
	if s.settings.where != nil {
		matching, judged := s.matchingLag(base, end)
		return n + matching, exact && judged
	}
	if len(s.settings.filters) == 0 {
		gone := s.aheadLeft()
		if set := s.removed(); set != nil {
			gone += s.removals.known.of(set, base, end)
		}
		return n + max(end-base, gone) - gone, exact
	}
	at := max(s.ahead.at, base)
	uncounted := max(end, at) - at
	if set := s.removed(); set != nil {
		uncounted -= set.Count(at, end)
		exact = exact && set.Version() == s.removals.counted
	}
	if s.ahead.at > base {
		n += s.ahead.n
	}
	return n + uncounted, exact && at >= end
}

// newestLeft returns how many of the newest records of their subjects are not removed. While many
// are left and records are removed all the time, it is an upper bound, and not 0 by mistake: as
// long as one is left to be delivered, the next call may be exact. mu is held.
func (s *Subscription) newestLeft() uint64 {
	set := s.removed()
	if set == nil || len(s.newest) == 0 || set.Version() == s.removals.newest {
		return uint64(len(s.newest))
	}
	now := s.store.service.now()
	if len(s.newest) > newestFew && now < s.removals.newestNext && slices.ContainsFunc(s.newest, func(o uint64) bool { return !set.Has(o) }) {
		return uint64(len(s.newest))
	}
	s.removals.newest, s.removals.newestNext = set.Version(), now+newestRest
	s.newest = slices.DeleteFunc(s.newest, set.Has)
	return uint64(len(s.newest))
}

// passedOver returns the number of offsets that lag counts between the cursor and the record
// delivered next. They have no record, so that after the last record nothing remains. mu is held.
func (s *Subscription) passedOver(offset, start uint64) uint64 {
	base := s.base(start)
	if len(s.settings.filters) > 0 || s.settings.where != nil || len(s.cursor.ahead) > 0 || offset < base {
		return 0 // lag counts records here, or offset is not ahead
	}
	n := offset - base
	if set := s.removed(); set != nil {
		n -= set.Count(base, offset) // lag counts none of them
	}
	return n
}

// restartCount begins to count anew if retention deleted counted records before their delivery. If
// compaction did, the count is too high until everything that was there is delivered. mu is held.
func (s *Subscription) restartCount(start uint64) {
	l := &s.ahead
	if base := s.base(start); l.at <= base || start > max(l.start, s.cursor.offset+1) {
		l.restart(base, start)
	}
}

// Uncounted reports whether Count has so much to count that it asks the index.
func (s *Subscription) Uncounted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	from, end, ok := s.toCount()
	return ok && s.many(from, end)
}

// Count counts the matching records for Info by the index of the shard's subjects, if they are more
// than Info should read. If the index isn't ready, or ctx ends, nothing is counted, and Info's
// number may be an upper bound. It reports whether the index was asked, and has counted.
func (s *Subscription) Count(ctx context.Context) bool {
	for range countTries {
		version := s.store.shard.Removed().Version()
		s.mu.Lock()
		from, end, ok := s.toCount()
		filters := s.settings.filters
		s.mu.Unlock()
		if !ok || !s.many(from, end) || ctx.Err() != nil {
			return false
		}
		patterns := make([]string, len(filters))
		for i, f := range filters {
			patterns[i] = string(f)
		}
		n, err := s.store.shard.Count(ctx, countPatience, patterns, from, end)
		if err != nil {
			return false
		}
		s.mu.Lock()
		is, _, ok := s.toCount()
		// Otherwise records were delivered, or counted, meanwhile, or the filters were changed.
		counted := ok && is == from && len(filters) == len(s.settings.filters) && &filters[0] == &s.settings.filters[0]
		if counted {
			s.ahead.at, s.ahead.n, s.ahead.spent = end, s.ahead.n+n, 0
			s.extended(from, version)
		}
		s.mu.Unlock()
		if counted {
			return true
		}
	}
	return false
}

// countByIndex has the index count the matching records, if they are many, and reports whether it
// does. Nothing is delivered meanwhile. mu is held.
func (s *Subscription) countByIndex(now int64) bool {
	from, end, ok := s.toCount()
	if !ok || !s.many(from, end) || now < s.countNext {
		return false
	}
	s.counting = s.service.counts.Submit(func() {
		ctx, cancel := context.WithTimeout(s.service.ctx, deliveryCount)
		counted := s.Count(ctx)
		cancel()
		s.mu.Lock()
		if s.counting = false; !counted {
			s.countNext = s.service.now() + int64(countRest)
		}
		s.mu.Unlock()
		s.service.tasks.wake(s)
	}, 0)
	return s.counting
}

// many reports whether the index is to count a range, and the log is not to be read for it.
func (s *Subscription) many(from, end uint64) bool {
	n := end - from
	return n >= indexedCount || n >= fewOffsets && s.store.shard.Data().BytesBetween(from, end) >= infoBytes
}

// toCount returns the records that are not counted yet. ok is false if the index can't count them:
// it doesn't know which were acknowledged ahead of the cursor. mu is held.
func (s *Subscription) toCount() (from, end uint64, ok bool) {
	start, end := s.store.shard.Offsets()
	if !s.settings.countsSubjects() || !s.search.done || s.closed != 0 || len(s.cursor.ahead) > 0 {
		return 0, end, false
	}
	s.restartCount(start)
	return s.ahead.at, end, s.ahead.at < end
}

// countAhead counts further records and reads about the given number of bytes. It reports whether
// there is more to count. mu is held.
func (s *Subscription) countAhead(w *worker, start, end uint64, bytes int) (more bool) {
	l := &s.ahead
	if !s.settings.countsSubjects() || !s.search.done {
		return false
	}
	s.restartCount(start)
	if l.at >= end {
		l.spent = 0
		return false
	}
	if l.cursor == nil {
		l.cursor = s.store.shard.NewCursor(l.at)
	}
	if l.cursor.Next() != l.at {
		l.cursor.Seek(l.at)
	}
	l.cursor.Lend(w.otherMemory)
	defer func() { w.otherMemory = l.cursor.Lend(nil) }()
	for l.at < end {
		if bytes <= 0 {
			return true
		}
		from, version := l.at, s.store.shard.Removed().Version()
		v, err := l.cursor.Read(readLargest)
		if err != nil {
			return false // delivery hits the same error and reports it
		}
		if v.End == v.From {
			return false
		}
		n := s.countView(&v, end)
		v.Release()
		s.extended(from, version)
		bytes -= n
		l.spent += n
	}
	l.spent = 0
	return false
}

// countView counts the matching records of a view, from ahead.at to end. mu is held.
func (s *Subscription) countView(v *log.View, end uint64) (bytes int) {
	l := &s.ahead
	var r log.Record
	for b, ok := v.Next(); ok; b, ok = v.Next() {
		bytes += len(b)
		for it := b.Records(); it.Next(&r); {
			if r.Offset >= end {
				return bytes
			}
			if r.Offset < l.at {
				continue
			}
			l.at = r.Offset + 1
			if s.settings.matches(r.Subject) && !s.cursor.isAhead(r.Offset) && !s.isRemoved(r.Offset) {
				l.n++
			}
		}
		l.at = max(l.at, min(b.End(), end))
	}
	return bytes
}
