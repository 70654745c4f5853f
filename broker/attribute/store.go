package attribute

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Entry is the attributes of a subject as etcd has them. The zero Entry is none.
type Entry struct {
	Subject  string
	Revision int64  // of etcd, at which they were written
	Text     string // the Set as JSON, which is canonical
	Holder   Holder // what they are bound to; the zero Holder: nothing
	User     string // who changed them last; empty: nobody in particular
	Bytes    int    // of key and value in etcd, with which they count
}

// Set returns the attributes.
func (e *Entry) Set() Set {
	if e.Text == "" {
		return nil
	}
	s, err := SetFromJSON([]byte(e.Text))
	if err != nil {
		return nil // the Store takes none that can't be read
	}
	return s
}

// Event is a change of a subject's attributes. A nil Set is that of a subject without.
type Event struct {
	Subject       string
	Before, After Set
	Revision      int64
}

// Store holds the attributes of all subjects. It is safe for concurrent use.
type Store struct {
	count   atomic.Int64 // of entries
	mu      sync.RWMutex
	entries map[string]*Entry
	order   order
	holders map[Holder]map[string]struct{}
	bytes   int64
	watched int64 // the watch has brought everything up to this revision
	newest  int64 // revision of the newest change that it has brought, as far as known
	history string
	lists   uint64
	ready   bool
	listed  chan struct{} // closed once ready
	// deleted are revisions of deletions that the watch has not passed; ahead are those of what was
	// taken before the watch brought it.
	deleted, ahead map[string]int64
	distrust       bool
	restores       int64 // how often it was distrusted
	changes        uint64
	told           []*told
}

type told struct{ tell func(Event) }

// NewStore returns a Store without attributes.
func NewStore() *Store {
	return &Store{entries: map[string]*Entry{}, holders: map[Holder]map[string]struct{}{}, deleted: map[string]int64{}, ahead: map[string]int64{}, listed: make(chan struct{})}
}

// Tell has tell called with each change of a Set from now on, until stop is called, and with the
// attributes that there are, as changes from none, before Tell returns. tell is called with the
// Store locked: it must be quick, and use no method of the Store. ok is false if too many are told.
func (s *Store) Tell(tell func(Event)) (stop func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.told) >= maxTold {
		return nil, false
	}
	t := &told{tell}
	s.told = append(slices.Clone(s.told), t)
	for subject := range s.order.after("", true) {
		e := s.entries[subject]
		tell(Event{subject, nil, e.Set(), e.Revision})
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.told = slices.DeleteFunc(slices.Clone(s.told), func(other *told) bool { return other == t })
	}, true
}

// Put takes what the watch, or a list, has of a subject. It reports whether that is news.
func (s *Store) Put(e Entry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.confirm(e.Subject, e.Revision)
	s.newest = max(s.newest, e.Revision)
	return s.put(e)
}

// Delete notes that a subject has no attributes at a revision, as the watch or a list says.
func (s *Store) Delete(subject string, revision int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.confirm(subject, revision)
	return s.delete(subject, revision)
}

// PutAhead takes what etcd has written, before the watch brings it. It reports whether that is
// news.
func (s *Store) PutAhead(e Entry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.Revision <= s.watched || !s.put(e) {
		return false
	}
	s.ahead[e.Subject] = e.Revision
	return true
}

// DeleteAhead takes a deletion before the watch brings it. written is false if the subject was
// found to have no attributes at that revision: then the deletion was an earlier one.
func (s *Store) DeleteAhead(subject string, revision int64, written bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision <= s.watched || s.known(subject) >= revision {
		return false
	}
	news := s.delete(subject, revision)
	delete(s.ahead, subject)
	if written {
		s.ahead[subject] = revision
	}
	return news
}

// known returns the revision of what is known of a subject. mu is held.
func (s *Store) known(subject string) int64 {
	if e := s.entries[subject]; e != nil {
		return e.Revision
	}
	return s.deleted[subject]
}

// confirm notes that the watch has brought a subject at a revision. mu is held.
func (s *Store) confirm(subject string, revision int64) {
	if at, ok := s.ahead[subject]; ok && at <= revision {
		delete(s.ahead, subject)
	}
}

// put takes an entry if it is newer. mu is held.
func (s *Store) put(e Entry) bool {
	if s.known(e.Subject) >= e.Revision && !s.distrust {
		return false
	}
	before := s.entries[e.Subject]
	if before != nil && *before == e {
		return false
	}
	if before == nil {
		s.order.insert(e.Subject)
	} else {
		s.bytes -= int64(before.Bytes)
		s.unhold(before)
	}
	delete(s.deleted, e.Subject)
	s.entries[e.Subject] = &e
	s.count.Store(int64(len(s.entries)))
	s.bytes += int64(e.Bytes)
	if e.Holder != (Holder{}) {
		of := s.holders[e.Holder]
		if of == nil {
			of = map[string]struct{}{}
			s.holders[e.Holder] = of
		}
		of[e.Subject] = struct{}{}
	}
	s.changes++
	s.tell(e.Subject, before, &e, e.Revision)
	return true
}

func (s *Store) unhold(e *Entry) {
	if of := s.holders[e.Holder]; of != nil {
		if delete(of, e.Subject); len(of) == 0 {
			delete(s.holders, e.Holder)
		}
	}
}

// delete takes a deletion if it is newer. mu is held.
func (s *Store) delete(subject string, revision int64) bool {
	if s.known(subject) > revision && !s.distrust {
		return false
	}
	if revision > s.watched {
		s.deleted[subject] = revision
	}
	before := s.entries[subject]
	if before == nil {
		return false
	}
	delete(s.entries, subject)
	s.count.Store(int64(len(s.entries)))
	s.order.remove(subject)
	s.bytes -= int64(before.Bytes)
	s.unhold(before)
	s.changes++
	s.tell(subject, before, nil, revision)
	return true
}

// tell tells of a change of a Set. mu is held.
func (s *Store) tell(subject string, before, after *Entry, revision int64) {
	if len(s.told) == 0 {
		return
	}
	event := Event{Subject: subject, Revision: revision}
	if before != nil && after != nil && before.Text == after.Text {
		return
	}
	if before != nil {
		event.Before = before.Set()
	}
	if after != nil {
		event.After = after.Set()
	}
	for _, t := range s.told {
		t.tell(event)
	}
}

// Distrust is called when etcd was restored from a backup, before everything is read again: what is
// known may have been restored away, and revisions are given again. Until Listed, everything that
// comes is taken.
func (s *Store) Distrust() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.distrust = true
	s.restores++
	s.watched, s.newest = 0, 0
	clear(s.deleted)
	clear(s.ahead)
}

// Watched notes that the watch has brought everything up to a revision. It reports false if
// something that was taken ahead of the watch did not come with it: it was restored away, so the
// caller calls Distrust and reads everything.
func (s *Store) Watched(revision int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pass(revision)
	for _, at := range s.ahead {
		if at <= revision {
			return false
		}
	}
	return true
}

// Of names the history of etcd of which everything is, from the next Watched or Listed on.
// Revisions of another one say nothing.
func (s *Store) Of(history string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history = history
}

// Listed notes that everything there is at a revision was put, and everything else deleted.
func (s *Store) Listed(revision int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ready {
		close(s.listed)
	}
	s.distrust, s.ready = false, true
	s.lists++
	s.pass(revision)
	for subject, at := range s.ahead {
		if at <= revision {
			delete(s.ahead, subject)
		}
	}
}

// pass forgets deletions up to a revision. mu is held.
func (s *Store) pass(revision int64) {
	s.watched = max(s.watched, revision)
	for subject, at := range s.deleted {
		if at <= revision {
			delete(s.deleted, subject)
		}
	}
}

// Ready is closed once the Store has what etcd has.
func (s *Store) Ready() <-chan struct{} { return s.listed }

// Get returns what is known of a subject; the zero Entry: it has no attributes.
func (s *Store) Get(subject string) Entry {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if e := s.entries[subject]; e != nil {
		return *e
	}
	return Entry{}
}

// IsEmpty reports whether no subject has attributes. It waits for nobody.
func (s *Store) IsEmpty() bool { return s.count.Load() == 0 }

// Text returns the attributes of a subject as JSON; empty: it has none.
func (s *Store) Text(of []byte) string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if e := s.entries[string(of)]; e != nil {
		return e.Text
	}
	return ""
}

// Revision is of etcd, and of how many of its restores: each gives revisions again.
type Revision struct{ Restores, Number int64 }

// Revision returns at which revision the attributes of a subject were written; number 0: it has
// none.
func (s *Store) Revision(of []byte) Revision {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if e := s.entries[string(of)]; e != nil {
		return Revision{s.restores, e.Revision}
	}
	return Revision{s.restores, 0}
}

// Page returns entries in the order of their subjects, from those after a subject on: up to limit
// for which want is true, of bytes in total or a little more. It looks at a bounded number of them.
// next, if not empty, is the subject to go on after. want must not use the Store.
func (s *Store) Page(after string, limit, bytes, looks int, want func(subject string) bool) (page []Entry, next string) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	last := ""
	for subject := range s.order.after(after, false) {
		if looks == 0 || len(page) == limit || bytes <= 0 {
			return page, last
		}
		looks, last = looks-1, subject
		if want(subject) {
			e := s.entries[subject]
			page, bytes = append(page, *e), bytes-e.Bytes
		}
	}
	return page, ""
}

// Subjects returns the subjects with attributes, in no order.
func (s *Store) Subjects() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]string, 0, len(s.entries))
	for subject := range s.entries {
		all = append(all, subject)
	}
	return all
}

// Holders returns what attributes are bound to, in no order.
func (s *Store) Holders() []Holder {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]Holder, 0, len(s.holders))
	for h := range s.holders {
		all = append(all, h)
	}
	return all
}

// HeldBy returns up to limit entries that are bound to a holder.
func (s *Store) HeldBy(h Holder, limit int) (held []Entry) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for subject := range s.holders[h] {
		if len(held) == limit {
			break
		}
		held = append(held, *s.entries[subject])
	}
	return held
}

// Stats are the figures of a Store.
type Stats struct {
	Ready    bool // it has what etcd has
	Subjects int
	Bytes    int64
	Revision int64 // up to which it has everything
	Changes  uint64
	// Newest is the revision of the newest change up to Revision, as far as known: a list does not
	// say when something was deleted.
	Newest int64
	// History is that of etcd which Revision counts in; empty: unknown.
	History string
	// Lists is how often everything was read. Changes between two lists may have been missed.
	Lists uint64
	// Distrusted is true from a restore of etcd until everything is read again.
	Distrusted bool
}

// Stats returns the figures.
func (s *Store) Stats() Stats {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return Stats{
		Ready: s.ready, Subjects: len(s.entries), Bytes: s.bytes, Revision: s.watched, Changes: s.changes,
		Newest: min(s.newest, s.watched), History: s.history, Lists: s.lists, Distrusted: s.distrust,
	}
}
