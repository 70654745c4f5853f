package subscription

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/filter"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/work"
)

// tail judges the newest records of a shard once for all Subscriptions with a condition that read
// there, and wakes only those that have a match. So a record costs the same for one of them and
// for 10,000 that compare the same thing with different constants.
//
// A waiting Subscription's cursor stays behind meanwhile. It follows when it has a match, when it
// is asked, or after lazySkips offsets, so that the next leader does not judge much again. Where
// acks remove, it follows soon, so that what nobody needs goes. What a tail knows is in memory
// only: a new one begins lazySkips before the end, where such cursors are.
//
// A Subscription that is further behind judges for itself, as does one whose condition could slow
// down the others (filter.Set).
type tail struct {
	work.State
	store *cursorStore
	// waiting is the number of Subscriptions that wait for a match. It is changed under mu.
	waiting atomic.Int32

	// mu is locked after mu of a Subscription.
	mu    sync.Mutex
	begun bool
	to    uint64 // records below were judged
	swept uint64 // where cursors that are far behind were woken last
	// followed is what was judged when all that wait were woken last to follow, and followNext when
	// they are again at the earliest.
	followed   uint64
	followNext int64
	cursor     *log.Cursor
	set        filter.Set[*watched]
	watched    map[watchedKey]*watched
	offset     uint64 // of the record that is judged
	subject    []byte // its subject
	judging    filter.Record
	stamp      filter.Stamp // of judging
	found      []*watched   // by conditions in the records that are judged
	// foundBy and passedBy are note and pass.
	foundBy, passedBy func(*watched)
}

// watchedKey is a condition, with the filters by subject beside it.
type watchedKey struct {
	where    *filter.Filter
	subjects string
}

// watched is what a tail knows of one condition.
type watched struct {
	key     watchedKey
	member  *filter.Member[*watched]
	by      settings // of any that has it, for its filters
	users   int
	from    uint64 // records from here on were judged
	failed  uint64 // records before from that could not be judged
	recent  []recentMatch
	waiting []*Subscription
	isFound bool // it is in found
}

// recentMatch is a record that matched. failed is how many could not be judged before it.
type recentMatch struct{ offset, failed uint64 }

func newTail(k *cursorStore) *tail {
	t := &tail{store: k, watched: map[watchedKey]*watched{}}
	t.foundBy, t.passedBy = t.note, t.pass
	return t
}

// step judges new records. More of them wake it again.
func (t *tail) step(w *worker) (more bool) {
	_, end := t.store.shard.Offsets()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting.Load() == 0 {
		return false
	}
	return t.advance(w, end)
}

// advance judges records below end for some time, and wakes the Subscriptions that have a match.
// It reports whether it is to go on. After an error it stays: the Subscriptions judge for
// themselves, and report it. mu is held.
func (t *tail) advance(w *worker, end uint64) (more bool) {
	start, _ := t.store.shard.Offsets()
	t.to = max(t.to, start)
	if t.to >= end {
		return false
	}
	if t.cursor == nil {
		t.cursor = t.store.shard.NewCursor(t.to)
	}
	t.cursor.Lend(w.otherMemory)
	defer func() { w.otherMemory = t.cursor.Lend(nil) }()
	watch := stopwatch{service: t.store.service, begun: t.store.service.now()}
	bytes, from := 0, t.to
	for t.to < end && bytes < stepBytes && !watch.over {
		if t.cursor.Next() != t.to {
			t.cursor.Seek(t.to)
		}
		v, err := t.cursor.Read(readLargest)
		if err != nil {
			t.giveUp(end)
			break
		}
		if v.End == v.From {
			break
		}
		read, ok := t.judge(&v, end, &watch)
		bytes += read
		v.Release()
		if !ok {
			t.giveUp(end)
			break
		}
	}
	t.wake()
	return t.to < end && t.to > from
}

// judge judges the records of a view below end. It reports false if a record can't be read.
func (t *tail) judge(v *log.View, end uint64, watch *stopwatch) (bytes int, read bool) {
	var r log.Record
	for b, ok := v.Next(); ok; b, ok = v.Next() {
		it := b.Records()
		for it.Next(&r) {
			if r.Offset >= end {
				t.to = end
				return bytes, true
			}
			if r.Offset < t.to {
				continue
			}
			t.offset, t.subject = r.Offset, r.Subject
			setJudged(&t.judging, &t.stamp, &r)
			t.set.Match(&t.judging, r.Offset, t.foundBy, t.passedBy)
			t.to = r.Offset + 1
			bytes += len(r.Data) + 64
			if watch.ends(&r, true) {
				return bytes, true
			}
		}
		if it.Err() != nil {
			return bytes, false
		}
		t.to = max(t.to, min(b.End(), end)) // compaction left a gap
	}
	return bytes, true
}

// note notes that a condition matches the record that is judged.
func (t *tail) note(e *watched) {
	if !e.by.matches(t.subject) {
		return
	}
	if len(e.recent) >= mostRecent {
		half := e.recent[mostRecent/2-1]
		e.from, e.failed = half.offset+1, half.failed
		e.recent = e.recent[:copy(e.recent, e.recent[mostRecent/2:])]
	}
	e.recent = append(e.recent, recentMatch{t.offset, e.member.Failed()})
	t.find(e)
}

// pass passes over a record that is too large to be judged by a condition for all: its
// Subscriptions judge it, each in its turn.
func (t *tail) pass(e *watched) {
	if !e.by.matches(t.subject) {
		return
	}
	e.from, e.failed, e.recent = t.offset+1, e.member.Failed(), e.recent[:0]
	t.find(e)
}

// find has the Subscriptions of a condition woken.
func (t *tail) find(e *watched) {
	if !e.isFound && len(e.waiting) > 0 {
		e.isFound = true
		t.found = append(t.found, e)
	}
}

// wake wakes the Subscriptions that have a match, and those whose cursors are far behind.
func (t *tail) wake() {
	for i, e := range t.found {
		e.isFound = false
		t.wakeAll(e, 0)
		t.found[i] = nil
	}
	t.found = t.found[:0]
	if t.to-t.swept < lazySkips/2 {
		return
	}
	t.swept = t.to
	for _, e := range t.watched {
		t.wakeAll(e, t.to-lazySkips/2)
	}
}

// wakeAll wakes the Subscriptions that wait for a condition since before an offset; 0: all of them.
func (t *tail) wakeAll(e *watched, before uint64) {
	left := e.waiting[:0]
	for _, s := range e.waiting {
		if before > 0 && s.verdicts.waitsFrom >= before {
			left = append(left, s)
			continue
		}
		s.verdicts.waitsFor = nil
		t.waiting.Add(-1)
		t.store.service.tasks.wake(s)
	}
	clear(e.waiting[len(left):])
	e.waiting = left
}

// follow wakes the Subscriptions whose cursors are behind what was judged, so that what none of
// them needs is removed. They rest in between: then it returns when it is to be called again; 0:
// after the next record.
func (t *tail) follow(end uint64, now int64) (rest time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.waiting.Load()
	switch {
	case n == 0 || t.followed == t.to && t.to >= end:
		return 0
	case now < t.followNext:
		return time.Duration(t.followNext - now)
	}
	for _, e := range t.watched {
		t.wakeAll(e, t.to)
	}
	t.followed, t.followNext = t.to, now+int64(max(lazyFor, time.Duration(n)*followRest))
	if t.to < end {
		return lazyFor
	}
	return 0
}

// giveUp passes over records that can't be read: the Subscriptions judge for themselves.
func (t *tail) giveUp(end uint64) {
	t.restart(end)
	for _, e := range t.watched {
		t.wakeAll(e, 0)
	}
}

// restart forgets what was judged, and begins at an offset.
func (t *tail) restart(at uint64) {
	t.to, t.swept = at, at
	for _, e := range t.watched {
		e.from, e.failed, e.recent = at, e.member.Failed(), e.recent[:0]
	}
}

// watch has the tail judge for a Subscription, if it may. Its mu is held.
func (t *tail) watch(s *Subscription, end uint64) *watched {
	if s.verdicts.tailed != nil {
		return s.verdicts.tailed
	}
	key := watchedKey{s.settings.where, string(joined(s.settings.filters))}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.begun {
		t.begun = true
		t.restart(end - min(end, lazySkips))
	}
	e := t.watched[key]
	if e == nil {
		if len(t.watched) >= mostWatched {
			return nil
		}
		e = &watched{key: key, by: s.settings, from: t.to}
		if e.member = t.set.Add(key.where, e, key.subjects == ""); e.member == nil {
			return nil
		}
		t.watched[key] = e
	}
	e.users++
	s.verdicts.tailed = e
	return e
}

// leave ends watch. The Subscription's mu is held.
func (t *tail) leave(s *Subscription) {
	if s.verdicts == nil || s.verdicts.tailed == nil {
		return
	}
	e := s.verdicts.tailed
	t.mu.Lock()
	defer t.mu.Unlock()
	s.verdicts.tailed = nil
	if s.verdicts.waitsFor != nil {
		for i := range e.waiting {
			if e.waiting[i] == s {
				last := len(e.waiting) - 1
				e.waiting[i], e.waiting[last] = e.waiting[last], nil
				e.waiting = e.waiting[:last]
				break
			}
		}
		s.verdicts.waitsFor = nil
		t.waiting.Add(-1)
	}
	if e.users--; e.users == 0 {
		t.set.Remove(e.member)
		delete(t.watched, e.key)
	}
}

// joined returns filters as one text.
func joined(filters [][]byte) (all []byte) {
	for _, f := range filters {
		all = append(append(all, f...), ' ')
	}
	return all
}

// takeFromTail takes the verdicts of the tail about records behind the cursor, after it has
// judged those that are there. ok reports whether the tail knows them: it does not if the cursor
// is further behind, and then upTo is where it begins to. more reports that the tail is to judge
// on. mu is held.
func (s *Subscription) takeFromTail(w *worker, end uint64) (upTo uint64, ok, more bool) {
	t, v := s.store.tail, s.verdicts
	e := t.watch(s, end)
	if e == nil {
		return end, false, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.to+lazySkips < end && t.waiting.Load() == 0 {
		t.restart(end - lazySkips) // nobody waited, so it was not woken
	}
	if v.to < e.from {
		return min(e.from, end), false, false
	}
	// First to where the Subscription is: what could not be judged before that is not to be counted.
	if more = t.advance(w, min(v.to, end)); !more {
		v.meet(t, e)
		more = t.advance(w, end)
	}
	if v.to < e.from { // what it knew last was more than it remembers
		return min(e.from, end), false, false
	}
	v.meet(t, e)
	if t.to <= v.to {
		return end, true, more
	}
	failed := e.member.Failed()
	before := failed // of what it judged itself the count is not known, and 0 here
	switch v.to {
	case v.tailAt:
		before = v.tailFailed
	case e.from:
		before = e.failed
	}
	j := judged{from: v.to, to: t.to, matches: w.found[:0]}
	room := mostMatches - len(v.matches())
	for i := range e.recent {
		m := &e.recent[i]
		if m.offset < v.to {
			continue
		}
		if len(j.matches) == room {
			j.to, failed, more = m.offset, m.failed, false
			break
		}
		if !s.cursor.isAhead(m.offset) && !s.isRemoved(m.offset) {
			j.matches = append(j.matches, m.offset)
		}
	}
	j.n, j.failed = uint64(len(j.matches)), failed-min(before, failed)
	v.merge(&j, true)
	w.found = j.matches[:0]
	v.tailAt, v.tailFailed, v.failedAt = v.to, failed, e.member.FailedAt()
	s.service.unjudged.Add(j.failed)
	return end, true, more
}

// meet notes how many records the tail could not judge, if it is where the Subscription is. Both mu
// are held.
func (v *verdicts) meet(t *tail, e *watched) {
	if t.to == v.to {
		v.tailAt, v.tailFailed = v.to, e.member.Failed()
	}
}

// waitForMatch has the tail wake the Subscription for the next match, if it judges for it. again
// reports that there is one already, or that the Subscription is behind. mu is held.
func (s *Subscription) waitForMatch() (waits, again bool) {
	t, v := s.store.tail, s.verdicts
	e := s.verdicts.tailed
	if e == nil || v.stuck {
		return false, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if v.to < e.from || len(e.recent) > 0 && e.recent[len(e.recent)-1].offset >= v.to {
		return false, true
	}
	if s.verdicts.waitsFor == nil {
		s.verdicts.waitsFor, s.verdicts.waitsFrom = e, v.to
		e.waiting = append(e.waiting, s)
		t.waiting.Add(1)
	}
	if _, end := s.store.shard.Offsets(); end > t.to {
		s.service.tasks.wake(t)
	}
	if v.to < t.to && s.store.releasing.Load() {
		t.followed = 0
		s.service.tasks.wake(s.store)
	}
	return true, false
}
