package subscription

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
)

// startSearch is the search for the start position, or for the newest record of each subject. It
// reads the log in bounded parts. Nothing is delivered before it is done.
type startSearch struct {
	done   bool
	begun  bool
	newest bool // search only for the newest of each subject: the start position is known
	cursor *log.Cursor
	at     uint64 // where the search continues
	end    uint64 // where it ends
	low    uint64 // start of the part being searched, for the last record
	found  uint64
	bySubj map[string]uint64
	// failed is why no start position can be found, ever.
	failed string
}

// started is the search of all Subscriptions whose start is known. It never changes.
var started = &startSearch{done: true}

// seek continues the search for the start position. After an error it is to be called again. mu is
// held.
func (s *Subscription) seek(w *worker, start, end uint64, bytes int) (more bool, err error) {
	k := s.search
	if k.failed != "" {
		return false, nil
	}
	from := s.begin.From
	if !k.begun {
		if next, known := s.startWithoutLooking(start, end); known && !k.newest {
			s.startAt(next, 0)
			return false, nil
		}
		k.begun = true
		k.end = end
		k.at = start
		switch {
		case k.newest:
			k.end, k.bySubj = s.cursor.until, map[string]uint64{}
		case from == coordination.FromLastBySubject:
			k.bySubj = map[string]uint64{}
		case from == coordination.FromTime:
			k.at = max(start, timeSegment(s.store.shard.Data().SegmentInfos(), s.begin.Time, end))
		default: // the last record that matches
			k.low = end
			s.searchBelow(start)
		}
	}
	if k.cursor == nil {
		k.cursor = s.store.shard.NewCursor(k.at)
	}
	cursor := k.cursor // the end of the search clears k.cursor
	cursor.Lend(w.otherMemory)
	defer func() { w.otherMemory = cursor.Lend(nil) }()
	for bytes > 0 && k.at < k.end && !(from == coordination.FromTime && k.found > 0 && !k.newest) {
		if k.cursor.Next() != k.at {
			k.cursor.Seek(k.at)
		}
		v, err := k.cursor.Read(readLargest)
		if err != nil {
			if err := s.seekPast(err); err != nil {
				return false, err
			}
			continue
		}
		s.readError = ""
		if v.End == v.From {
			break
		}
		bytes -= s.searchView(&v)
		v.Release()
		if len(k.bySubj) > s.service.mostSubjects {
			k.failed, k.bySubj = fmt.Sprintf("it starts with the newest record of each subject, and there are more than %d of them; start elsewhere, or filter", s.service.mostSubjects), nil
			s.store.writeStart(s)
			return false, nil
		}
	}
	if bytes <= 0 && k.at < k.end {
		return true, nil
	}
	return s.endSearch(start), nil
}

// endSearch evaluates a finished search and reports whether another part is to be searched. mu is
// held.
func (s *Subscription) endSearch(start uint64) (more bool) {
	k := s.search
	switch {
	case k.bySubj != nil:
		newest := make([]uint64, 0, len(k.bySubj))
		for _, offset := range k.bySubj {
			newest = append(newest, offset)
		}
		slices.Sort(newest)
		if k.newest {
			s.newest, s.removals.newest, s.removals.newestNext = newest, 0, 0
			s.search = started
			return false
		}
		s.startAt(start, k.end)
		s.newest, s.removals.newest, s.removals.newestNext = newest, 0, 0
	case s.begin.From == coordination.FromTime:
		if k.found == 0 {
			k.found = k.end
		}
		s.startAt(k.found, 0)
	case k.found > 0:
		s.startAt(k.found, 0)
	case k.low > start:
		s.searchBelow(start)
		return true
	default:
		s.startAt(s.endOfSearch(), 0)
	}
	return false
}

func (s *Subscription) endOfSearch() uint64 {
	_, end := s.store.shard.Offsets()
	return end
}

// startWithoutLooking returns the start position if it does not depend on the records.
func (s *Subscription) startWithoutLooking(start, end uint64) (next uint64, known bool) {
	switch s.begin.From {
	case coordination.FromEarliest:
		return start, true
	case coordination.FromOffset:
		return max(s.begin.Offset, start), true
	case coordination.FromTime, coordination.FromLastBySubject:
		return end, start == end
	case coordination.FromLast:
		return max(end, start+1) - 1, len(s.settings.filters) == 0 || start == end
	}
	return end, true
}

// searchBelow moves the search to the part below, twice as long. mu is held.
func (s *Subscription) searchBelow(start uint64) {
	k := s.search
	const first = 256
	size := max(2*(k.end-k.low), first)
	k.end = k.low
	k.low = max(start, k.end-min(k.end, size))
	k.at = k.low
}

// searchView examines the records of a view and moves behind it. mu is held.
func (s *Subscription) searchView(v *log.View) (bytes int) {
	k := s.search
	from, since := s.begin.From, s.begin.Time.UnixNano()
	var r log.Record
	for b, ok := v.Next(); ok; b, ok = v.Next() {
		bytes += len(b)
		if k.bySubj == nil && from == coordination.FromTime && b.LastTime() < since {
			k.at = b.End()
			continue
		}
		for it := b.Records(); it.Next(&r); {
			if r.Offset >= k.end {
				k.at = k.end
				return bytes
			}
			if r.Offset < k.at {
				continue
			}
			k.at = r.Offset + 1
			if s.isRemoved(r.Offset) {
				continue
			}
			switch {
			case k.bySubj != nil:
				if s.settings.matches(r.Subject) {
					k.bySubj[string(r.Subject)] = r.Offset
				}
			case from == coordination.FromTime:
				if r.Time >= since {
					k.found = r.Offset
					return bytes
				}
			case s.settings.matches(r.Subject):
				k.found = r.Offset
			}
		}
		k.at = max(k.at, min(b.End(), k.end))
	}
	return bytes
}

// seekPast skips what the search cannot read. mu is held.
func (s *Subscription) seekPast(err error) error {
	k := s.search
	var gone *log.RangeError
	var damaged *log.CorruptError
	err = s.store.shard.Unreadable(err)
	switch {
	case errors.As(err, &gone) && gone.Start > k.at:
		k.at = gone.Start
	case errors.As(err, &damaged) && damaged.Next > k.at:
		// Delivery hits the same error and reports it.
		k.at = damaged.Next
	default:
		return s.fail(err)
	}
	return nil
}

// startAt ends the search. next is the first record to deliver. Below until, only the newest record
// of each subject is delivered. mu is held.
func (s *Subscription) startAt(next, until uint64) {
	s.search = started
	kept := s.cursor.givenUp(next) // before a reset
	s.cursor.apply(op{kind: opReset, offset: next})
	s.cursor.kept = kept
	s.store.lookAgain(0, next)
	if until > next {
		s.cursor.until = until
	}
	s.reader = *s.store.shard.NewCursor(next)
	s.ahead = lookahead{}
	s.verdicts.restart()
	s.store.writeStart(s)
}

// seekNewest searches for the newest record of each subject again. mu is held.
func (s *Subscription) seekNewest() {
	s.search = &startSearch{newest: true}
}

// dropNewest removes delivered records, those below next. mu is held.
func (s *Subscription) dropNewest(next uint64) {
	for len(s.newest) > 0 && s.newest[0] < next {
		s.newest = s.newest[1:]
	}
}

// toNewest skips to the next record that is the newest of its subject. It reports whether it moved.
// mu is held.
func (s *Subscription) toNewest(next uint64) bool {
	s.dropNewest(next)
	if len(s.newest) == 0 {
		s.skip(s.cursor.until - 1)
		return true
	}
	if s.newest[0] > next {
		s.skip(s.newest[0] - 1)
		return true
	}
	return false
}

// timeSegment returns the base of the first segment with a record not older than since.
func timeSegment(segments []log.SegmentInfo, since time.Time, end uint64) uint64 {
	for _, s := range segments {
		if s.End > s.Base && !s.Last.Before(since) {
			return s.Base
		}
	}
	return end
}
