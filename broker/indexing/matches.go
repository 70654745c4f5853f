package indexing

import (
	"context"
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/subject"
)

// Matches are records whose subjects match a pattern.
type Matches struct {
	Last    uint64   // the offset of the last one; 0: there is none
	Offsets []uint64 // of all, in order; nil if they are too many
	Count   uint64
}

// FindMatches returns the records below an offset whose subjects match a pattern. It returns the
// last one only if most is 0. If it is not patient it waits for no index that is being made.
type FindMatches func(ctx context.Context, pattern string, below uint64, most int, patient bool) (Matches, error)

// Rolling is the value of wait while the records that a message depends on may be removed by a
// rollup of a pattern that is not on all in-sync replicas yet. Nobody is told when it is.
const Rolling = ^uint64(0) - 2

// matches are what a Lasts knows of patterns: each is known from when it was looked for until
// nobody has asked for it for matchTime. Each record that is noted is compared with them. Its
// owner's mu guards it.
type matches struct {
	known []*match

	rolled   *rollup // the last rollup of a pattern; nil: readers see that its records are removed
	appended bool    // its batch was appended
}

// match is what is known of a pattern.
type match struct {
	pattern []byte
	list    bool // offsets are kept, and not only last
	last    uint64
	offsets []uint64 // at most MostOldest
	more    uint64   // newer ones that are not in offsets
	looking bool     // the records are those from below on only; the others are being found
	below   uint64
	asked   time.Time
}

// rollup is a record that removes all earlier ones that match a pattern.
type rollup struct {
	pattern []byte
	offset  uint64
	removes []uint64 // those that readers may still see
}

// of returns what is known of a pattern, or nil.
func (m *matches) of(pattern string, list bool) *match {
	for _, k := range m.known {
		if k.list == list && string(k.pattern) == pattern {
			return k
		}
	}
	return nil
}

// look begins to look for a pattern, below the end of the log, unless it has begun. It returns
// below which offset.
func (m *matches) look(pattern string, list bool, end uint64) (below uint64) {
	if k := m.of(pattern, list); k != nil && k.looking {
		return k.below
	}
	m.forget(pattern, list)
	if len(m.known) >= mostMatches {
		oldest := slices.MinFunc(m.known, func(a, b *match) int { return a.asked.Compare(b.asked) })
		m.forget(string(oldest.pattern), oldest.list)
	}
	m.known = append(m.known, &match{pattern: []byte(pattern), list: list, looking: true, below: end, asked: time.Now()})
	return end
}

// forget forgets a pattern.
func (m *matches) forget(pattern string, list bool) {
	m.known = slices.DeleteFunc(m.known, func(k *match) bool { return k.list == list && string(k.pattern) == pattern })
}

// note adds records.
func (m *matches) note(of []byte, from, last uint64) {
	for _, k := range m.known {
		if subject.Matches(k.pattern, of) {
			k.note(from, last)
		}
	}
}

func (k *match) note(from, last uint64) {
	k.last = last
	if !k.list {
		return
	}
	for ; from <= last && k.more == 0 && len(k.offsets) < MostOldest; from++ {
		k.offsets = append(k.offsets, from)
	}
	k.more += last + 1 - from
}

// sweep forgets patterns that nobody has asked for lately: each costs every record that is noted.
func (m *matches) sweep() {
	if m.appended = m.rolled != nil; len(m.known) == 0 {
		return
	}
	before := time.Now().Add(-matchTime)
	m.known = slices.DeleteFunc(m.known, func(k *match) bool { return k.asked.Before(before) })
}

// undo notes that the batch was not appended.
func (m *matches) undo() {
	if m.known = nil; !m.appended {
		m.rolled = nil
	}
}

// held returns how many bytes are held, about.
func (m *matches) held() (bytes int) {
	for _, k := range m.known {
		bytes += 8*len(k.offsets) + oldestBytes
	}
	return bytes
}

// LastMatch returns the offset of the last record whose subject matches a pattern. Otherwise it is
// as Last.
func (x *Lasts) LastMatch(pattern []byte) (offset, wait uint64, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	k := x.match(pattern, false)
	if k != nil && x.isRemoved(k.last) {
		x.matches.forget(string(pattern), false) // the one before is not known
		k = nil
	}
	switch {
	case k == nil:
		return x.awaitMatch(pattern, false)
	case k.last < x.firsts.floor:
		return 0, 0, nil
	}
	return k.last, 0, nil
}

// Matches returns the offsets of all records whose subjects match a pattern, in order, or how many
// there are if those are more than MostOldest. Otherwise it is as Firsts.
func (x *Lasts) Matches(pattern []byte, start uint64) (offsets []uint64, more, wait uint64, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	k := x.match(pattern, true)
	switch {
	case k == nil:
		_, wait, err = x.awaitMatch(pattern, true)
		return nil, 0, wait, err
	case k.more > 0:
		x.matches.forget(string(pattern), true) // fewer may be left the next time
		return nil, uint64(len(k.offsets)) + k.more, 0, nil
	}
	k.offsets = slices.DeleteFunc(k.offsets, func(offset uint64) bool {
		return offset < max(start, x.firsts.floor) || x.isRemoved(offset)
	})
	return k.offsets, 0, 0, nil
}

// match returns what is known of a pattern, or nil while it is not. mu is held.
func (x *Lasts) match(pattern []byte, list bool) *match {
	now := time.Now()
	x.asked.Store(now.UnixNano())
	k := x.matches.of(string(pattern), list)
	if k == nil || k.looking || x.rolling() {
		return nil
	}
	k.asked = now
	return k
}

// awaitMatch is await for a pattern. mu is held.
func (x *Lasts) awaitMatch(pattern []byte, list bool) (offset, wait uint64, err error) {
	if x.rolling() {
		return 0, Rolling, nil
	}
	wait, err = x.await(wantedKey{lastKeyOf(pattern), list, true}, pattern)
	return 0, wait, err
}

// RolledUp notes that a record at an offset removes those that Matches has returned of a pattern.
// Until readers see that, questions that depend on them wait.
func (x *Lasts) RolledUp(pattern []byte, offsets []uint64, offset uint64) {
	if len(offsets) == 0 || x.rests.Load() {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	m := &x.matches
	m.forget(string(pattern), true)
	m.rolled, m.appended = &rollup{slices.Clone(pattern), offset, slices.Clone(offsets)}, false
}

// rolling reports whether a rollup of a pattern is not on all in-sync replicas yet. mu is held.
func (x *Lasts) rolling() bool {
	r := x.matches.rolled
	if r == nil {
		return false
	}
	for len(r.removes) > 0 && x.isGone(r.removes[0]) {
		r.removes = r.removes[1:]
	}
	if len(r.removes) == 0 {
		x.matches.rolled = nil
	}
	return len(r.removes) > 0
}

// rolls reports whether such a rollup removes the record of a subject at an offset. mu is held.
func (x *Lasts) rolls(of []byte, offset uint64) bool {
	r := x.matches.rolled
	return r != nil && offset > 0 && offset < r.offset && subject.Matches(r.pattern, of) && x.rolling()
}

// findMatches finds the records that match the first pattern that is queued, below an offset.
func (x *Lasts) findMatches(w lastWanted, below uint64, patient bool) {
	most := 0
	if w.key.firsts {
		most = MostOldest
	}
	ctx, cancel := context.WithTimeout(context.Background(), findTime)
	defer cancel()
	found, err := x.matching(ctx, w.subject, below, most, patient)
	x.mu.Lock()
	defer x.mu.Unlock()
	k := x.matches.of(w.subject, w.key.firsts)
	switch {
	case err != nil:
		x.matches.forget(w.subject, w.key.firsts)
		x.notFound(err)
		return
	case k == nil || !k.looking || k.below != below:
		return // it was forgotten meanwhile, and is looked for again
	}
	k.looking, k.asked = false, time.Now()
	k.last = max(k.last, found.Last)
	k.more += found.Count - uint64(len(found.Offsets))
	k.offsets = append(found.Offsets, k.offsets...)
	x.count()
	x.answered(1)
}
