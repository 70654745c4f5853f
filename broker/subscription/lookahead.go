package subscription

import (
	"github.com/carillon-mq/carillon/broker/log"
)

// lookahead counts the records that match a filter and are still to be delivered. It reads the log ahead
// of what delivers, each record once, and only when somebody asks or is delivered to; so what a filter costs
// is one more read of what is new.
type lookahead struct {
	at     uint64 // all below are counted
	n      uint64
	start  uint64 // of the log, when counting began
	spent  int    // bytes read since it was at the end
	cursor *log.Cursor
}

// passed notes that a record that matches is delivered. Below until none are counted.
func (l *lookahead) passed(offset, until uint64) {
	if offset < l.at && offset >= until && l.n > 0 {
		l.n--
	}
}

// base is where counting begins. mu is held.
func (s *Subscription) base(start uint64) uint64 {
	return max(s.cursor.offset+1, start, s.cursor.until)
}

// lag is how many records are still to be delivered; if it isn't exact, at most. Without a filter it counts offsets, also
// those without a record in a log that was compacted. mu is held.
func (s *Subscription) lag(start, end uint64) (n uint64, exact bool) {
	base := s.base(start)
	exact = s.seeking.done
	if next := max(s.cursor.offset+1, start); s.cursor.until > next {
		if s.newest == nil {
			n, exact = s.cursor.until-next, false
		}
		s.dropNewest(next)
		n += uint64(len(s.newest))
	}
	if base >= end {
		return n, exact
	}
	if len(s.settings.filters) == 0 {
		ahead := uint64(len(s.cursor.ahead))
		return n + max(end-base, ahead) - ahead, exact
	}
	at := max(s.ahead.at, base)
	if s.ahead.at > base {
		n += s.ahead.n
	}
	return n + max(end, at) - at, exact && at >= end
}

// passedOver is how many offsets without a record, which lag counts, are passed by whoever delivers the one at an offset next, so that
// nothing is said to be left behind the last one. mu is held.
func (s *Subscription) passedOver(offset, start uint64) uint64 {
	base := s.base(start)
	if len(s.settings.filters) > 0 || len(s.cursor.ahead) > 0 || offset < base {
		return 0 // counted by records, or not between here and there
	}
	return offset - base
}

// look counts on, reading about as many bytes, and says whether there is more to count. mu is held.
func (s *Subscription) look(w *worker, start, end uint64, bytes int) (more bool) {
	l := &s.ahead
	if len(s.settings.filters) == 0 || !s.seeking.done {
		return false
	}
	// Where retention took records before they were delivered, some of the counted are gone. So are they where compaction did: then
	// more are counted than come, until all are delivered that there were.
	if base := s.base(start); l.at <= base || start > max(l.start, s.cursor.offset+1) {
		l.at, l.n, l.start = base, 0, start
	}
	if l.at >= end {
		l.spent = 0
		return false
	}
	if l.cursor == nil {
		l.cursor = s.store.place.NewCursor(l.at)
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
		v, err := l.cursor.Read(readLargest)
		if err != nil {
			return false // whoever delivers meets it, too, and says so
		}
		if v.End == v.From {
			return false
		}
		n := s.count(&v, end)
		v.Release()
		bytes -= n
		l.spent += n
	}
	l.spent = 0
	return false
}

// count counts what matches in a view, from ahead.at to end. mu is held.
func (s *Subscription) count(v *log.View, end uint64) (bytes int) {
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
			if s.settings.matches(r.Subject) && !s.cursor.isAhead(r.Offset) {
				l.n++
			}
		}
		l.at = max(l.at, min(b.End(), end))
	}
	return bytes
}
