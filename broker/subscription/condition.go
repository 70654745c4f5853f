package subscription

import (
	"slices"

	"github.com/carillon-mq/carillon/broker/filter"
	"github.com/carillon-mq/carillon/broker/log"
)

// verdicts are what a condition says of the records behind a cursor. They are judged ahead of
// delivery, each once, without the Subscription's mu: a slow condition must not hold up acks. What
// is known is lost with the leader.
//
// A few matching records are remembered. If there are more, the rest is only counted, for Info, and
// judged again before it is delivered.
type verdicts struct {
	to      uint64   // records from the cursor up to, not including, here were judged
	list    []uint64 // from head on the matching ones of them, ascending; at most mostMatches
	head    int
	counted uint64 // records from to up to here were judged and only counted
	more    uint64 // the matching ones of those
	version uint64 // of the set of removed records then
	spent   int    // bytes read since a match was found
	cursor  *log.Cursor

	stuck bool // the log has no record where the next one should be
	// Of the tail: its failures up to tailAt, and a record that could not be judged.
	tailAt, tailFailed, failedAt uint64

	tailed *watched // what the tail judges for it; nil: nothing
	// waitsFor is whose match the tail wakes it for, from an offset on; guarded by mu of the tail.
	waitsFor  *watched
	waitsFrom uint64

	failed  uint64 // records that could not be judged
	why     string // why the newest one could not that was looked at
	whyNext int64  // when the next one is looked at
}

// newVerdicts returns the verdicts of a Subscription with these settings, or nil.
func newVerdicts(settings *settings) *verdicts {
	if settings.where == nil {
		return nil
	}
	return &verdicts{}
}

// restart forgets what was judged. The count of failures stays.
func (v *verdicts) restart() {
	if v != nil {
		v.list, v.head, v.to, v.counted, v.more, v.spent, v.cursor = nil, 0, 0, 0, 0, 0, nil
		v.stuck, v.tailAt, v.failedAt = false, 0, 0
	}
}

// pass moves to base, the first record behind the cursor.
func (v *verdicts) pass(base uint64) {
	for v.head < len(v.list) && v.list[v.head] < base {
		v.head++
	}
	if v.head > 0 && v.head == len(v.list) {
		if v.list, v.head = v.list[:0], 0; cap(v.list) > fewMatches {
			v.list = nil // an idle Subscription needs little memory
		}
	}
	if v.to < base {
		v.to = base
	}
	if v.counted <= v.to {
		v.counted, v.more = v.to, 0
	}
}

// matches are the matching records that are remembered.
func (v *verdicts) matches() []uint64 { return v.list[v.head:] }

// recount forgets what was only counted if records were removed since.
func (v *verdicts) recount(version uint64) {
	if v.counted > v.to && v.version != version {
		v.counted, v.more = v.to, 0
	}
}

// judged are the verdicts about some records in a row.
type judged struct {
	from, to uint64
	matches  []uint64
	n        uint64 // of those that match
	bytes    int
	failed   uint64
	why      string
	err      error // why the next record can't be read; nil: it can
}

// merge adds verdicts, unless others came first. listed says that the matches are to be delivered
// next, and not only counted.
func (v *verdicts) merge(j *judged, listed bool) {
	switch {
	case listed && j.from == v.to:
		if v.head > 0 && len(v.list)+len(j.matches) > cap(v.list) {
			v.list, v.head = append(v.list[:0], v.matches()...), 0
		}
		v.list = append(v.list, j.matches...)
		v.to = j.to
		if v.counted < v.to {
			v.counted, v.more = v.to, 0
		} else {
			v.more -= min(j.n, v.more) // they were counted
		}
		v.failed += j.failed
	case !listed && j.from == v.counted:
		v.counted, v.more = j.to, v.more+j.n
	}
}

// matchingLag is lag of a Subscription with a condition. What is not judged yet counts as matching.
// mu is held.
func (s *Subscription) matchingLag(base, end uint64) (n uint64, exact bool) {
	v, set := s.verdicts, s.removed()
	v.pass(base)
	v.recount(s.store.shard.Removed().Version())
	n = uint64(len(v.matches())) + v.more
	if set != nil || len(s.cursor.ahead) > 0 {
		for _, offset := range v.matches() {
			if s.isRemoved(offset) || s.cursor.isAhead(offset) {
				n--
			}
		}
	}
	at := min(max(v.counted, v.to), end)
	uncounted := end - at
	if set != nil {
		uncounted -= set.Count(at, end)
	}
	return n + uncounted, s.search.done && at >= end
}

// judgeAhead judges records before they are delivered, until it knows one that matches and whether
// another one follows, so that the lag that a delivery tells is not 0 by mistake. After countBytes,
// or some steps of the tail, the first one is delivered. It reports whether the next step goes on.
// mu is held, and released meanwhile.
func (s *Subscription) judgeAhead(w *worker, start, end uint64) (more bool, err error) {
	v := s.verdicts
	v.stuck = false
	v.pass(s.base(start))
	limit, byTail, more := s.takeFromTail(w, end)
	if s.explainFailure(w); w.stale {
		return true, nil
	}
	if v.to >= end || len(v.matches()) > 1 || len(v.matches()) == 1 && v.spent >= s.service.countBytes {
		s.passJudged()
		v.spent = 0
		return false, nil
	}
	if byTail && more {
		s.passJudged()
		v.spent += s.service.countBytes / 8 // no chase after the end while records come
		return true, nil
	}
	if v.counted > v.to {
		limit = min(limit, v.counted)
	}
	j := s.judge(w, v.to, limit, mostMatches-len(v.matches()), true)
	if w.stale {
		return true, nil
	}
	s.passJudged()
	v.stuck = j.to == j.from && j.err == nil
	if j.err != nil && j.to == j.from && len(v.matches()) == 0 {
		s.reader.Seek(v.to)
		err = s.unreadable(v.to, j.err)
		return err == nil, err
	}
	v.spent += j.bytes
	return v.to < end && len(v.matches()) < 2 && j.err == nil && !v.stuck, nil
}

// passJudged moves the cursor over what was judged, if nothing there matches. mu is held.
func (s *Subscription) passJudged() {
	if v := s.verdicts; len(v.matches()) == 0 && v.to > s.cursor.offset+1 {
		s.skip(v.to - 1)
	}
}

// explainFailure finds out why a record can't be judged that the tail could not judge, from time to
// time. mu is held, and released meanwhile.
func (s *Subscription) explainFailure(w *worker) {
	v := s.verdicts
	if at := v.failedAt; at > 0 && s.service.now() >= v.whyNext {
		v.failedAt = 0
		s.judge(w, at, at+1, 1, false)
	}
}

// judge has the condition judge records from from on, below limit: until it has found room matches,
// or has worked for some time, or has read stepBytes. If listed is not set, it only counts matches.
// It merges what it found with the verdicts, unless the Subscription was changed meanwhile: then
// w.stale is set. sinkMu and mu are held, and mu is released meanwhile.
func (s *Subscription) judge(w *worker, from, limit uint64, room int, listed bool) (j judged) {
	s.noteSkips()
	v := s.verdicts
	settings, changes, version := s.settings, s.changes, s.store.shard.Removed().Version()
	v.recount(version)
	reads, now := v.cursor, s.service.now()
	explain := now >= v.whyNext
	if reads == nil {
		reads = s.store.shard.NewCursor(from)
	}
	s.mu.Unlock()
	j = s.judgeUnlocked(w, &settings, reads, from, limit, room, listed, explain)
	s.mu.Lock()
	w.unlocked = true
	if w.stale = s.changes != changes || s.closed != 0; w.stale {
		return j
	}
	v.cursor = reads
	if len(s.cursor.ahead) > 0 {
		j.matches = slices.DeleteFunc(j.matches, s.cursor.isAhead)
		j.n -= min(j.n, s.aheadIn(j.from, j.to)) // of what is only counted, perhaps too many
	}
	v.merge(&j, listed)
	w.found = j.matches[:0]
	v.version = version
	if j.why != "" {
		v.why, v.whyNext = j.why, now+int64(whyRest)
	}
	if listed {
		s.service.unjudged.Add(j.failed)
	}
	return j
}

// aheadIn returns how many records of a range were acknowledged ahead of the cursor. mu is held.
func (s *Subscription) aheadIn(from, to uint64) uint64 {
	i, _ := slices.BinarySearch(s.cursor.ahead, from)
	n, _ := slices.BinarySearch(s.cursor.ahead, to)
	return uint64(n - i)
}

// judgeUnlocked is judge without mu.
func (s *Subscription) judgeUnlocked(w *worker, by *settings, reads *log.Cursor, from, limit uint64, room int, listed, explain bool) (j judged) {
	reads.Lend(w.otherMemory)
	defer func() { w.otherMemory = reads.Lend(nil) }()
	j.from, j.to, j.matches = from, from, w.found[:0]
	watch := stopwatch{service: s.service, begun: s.service.now()}
	for j.to < limit && j.bytes < stepBytes && !watch.over && (!listed || len(j.matches) < room) {
		if reads.Next() != j.to {
			reads.Seek(j.to)
		}
		view, err := reads.Read(readLargest)
		if err != nil {
			j.err = err
			break
		}
		if view.End == view.From {
			break
		}
		err = s.judgeView(w, &j, by, &view, limit, room, listed, explain, &watch)
		view.Release()
		if err != nil {
			j.err = err
			break
		}
	}
	return j
}

// judgeView judges the records of a view.
func (s *Subscription) judgeView(w *worker, j *judged, by *settings, view *log.View, limit uint64, room int, listed, explain bool, watch *stopwatch) error {
	var r log.Record
	for b, ok := view.Next(); ok; b, ok = view.Next() {
		it := b.Records()
		for it.Next(&r) {
			if r.Offset >= limit {
				j.to = limit
				return nil
			}
			if r.Offset < j.to {
				continue
			}
			j.bytes += len(r.Data) + 64
			j.to = r.Offset + 1
			if !s.isRemoved(r.Offset) && by.matches(r.Subject) {
				setJudged(&w.judging, &w.stamp, &r)
				switch verdict, why := judgeRecord(by.where, &w.judging, explain); verdict {
				case filter.Yes:
					j.n++
					if listed {
						j.matches = append(j.matches, r.Offset)
					}
				case filter.Failed:
					j.failed++
					if why != nil {
						j.why, explain = text(why), false
					}
				}
			}
			if listed && len(j.matches) == room || watch.ends(&r, by.where.IsQuick()) {
				return nil
			}
		}
		if err := it.Err(); err != nil {
			return &log.CorruptError{From: j.to, Next: max(b.End(), j.to+1), Reason: err.Error()}
		}
		j.to = max(j.to, min(b.End(), limit)) // compaction left a gap
	}
	return nil
}

// setJudged sets what a condition judges to a record of a log. stamp is for its attributes.
func setJudged(to *filter.Record, stamp *filter.Stamp, r *log.Record) {
	to.SetAttributes(stamp, r.Stamp)
	to.Subject, to.Header, to.Data, to.Time = r.Subject, r.Data[:r.Header], r.Data[r.Header:], r.Time
}

// judgeRecord returns the verdict about a record and, if it can't be judged and explain is set,
// why.
func judgeRecord(f *filter.Filter, r *filter.Record, explain bool) (filter.Verdict, error) {
	verdict := f.Judge(r)
	if verdict == filter.Failed && explain {
		return verdict, f.Why(r)
	}
	return verdict, nil
}

// text shortens the text of an error that is kept.
func text(err error) string {
	why := err.Error()
	if len(why) > whyBytes {
		why = why[:whyBytes]
	}
	return why
}

// stopwatch ends judging after some time.
type stopwatch struct {
	service *Service
	begun   int64
	n       int
	over    bool
}

// ends reports whether the time is over, after a record. It looks at the clock after records that
// may take long, and else seldom.
func (t *stopwatch) ends(r *log.Record, quick bool) bool {
	if t.n++; t.n%judgedBetween == 0 || len(r.Data) > judgedLarge || !quick && t.n%8 == 0 {
		t.over = t.service.now()-t.begun > int64(judgeFor)
	}
	return t.over
}

// judgeForInfo judges some records for Info, if a condition says which ones match.
func (s *Subscription) judgeForInfo() {
	s.mu.Lock()
	judges := s.settings.where != nil
	s.mu.Unlock()
	if !judges {
		return
	}
	w := spareWorkers.Get().(*worker)
	defer spareWorkers.Put(w)
	s.sinkMu.Lock()
	defer s.sinkMu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.verdicts
	for range infoJudges {
		start, end := s.store.shard.Offsets()
		if s.settings.where == nil || s.closed != 0 || !s.search.done {
			return
		}
		v.pass(s.base(start))
		v.recount(s.store.shard.Removed().Version())
		limit, byTail, more := s.takeFromTail(w, end)
		if w.stale = false; byTail && more {
			continue
		}
		if s.explainFailure(w); w.stale {
			return
		}
		from, listed := v.to, true
		if v.counted > v.to || len(v.matches()) == mostMatches {
			from, listed, limit = max(v.counted, v.to), false, end
		}
		if from >= end {
			return
		}
		if j := s.judge(w, from, limit, mostMatches-len(v.matches()), listed); w.stale || j.err != nil || j.to == j.from {
			return
		}
	}
}

// judgedTo returns the first record behind the cursor that matches or is not judged, or 0 if there
// is no condition.
func (s *Subscription) judgedTo() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.settings.where == nil {
		return 0
	}
	s.verdicts.pass(s.cursor.offset + 1)
	if matches := s.verdicts.matches(); len(matches) > 0 {
		return matches[0]
	}
	return s.verdicts.to
}

// passUnmatched moves the cursor over records that were judged and don't match. It reports whether
// it moved, and whether the next record is to be judged first. mu is held.
func (s *Subscription) passUnmatched(next, end uint64) (moved, unjudged bool) {
	v := s.verdicts
	v.pass(next)
	to := v.to
	if len(v.matches()) > 0 {
		to = v.matches()[0]
	}
	if to = min(to, end); to > next {
		s.skip(to - 1)
		return true, false
	}
	return false, len(v.matches()) == 0 // perhaps there is none (stuck)
}

// isMatch reports whether a record was judged, and matches. mu is held.
func (s *Subscription) isMatch(offset uint64) bool {
	v := s.verdicts
	v.pass(offset)
	return len(v.matches()) > 0 && v.matches()[0] == offset
}
