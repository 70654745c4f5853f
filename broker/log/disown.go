package log

import (
	"fmt"
	"math"
	"slices"
)

// mostDisowned bounds the ranges of offsets that a log disowns, at 60 bytes of its manifest each.
// Ranges that touch each other are one. A log with more needs another copy of itself.
const mostDisowned = 1 << 10

// Disown durably records that other replicas are told that this one lacks offsets, which can't be
// read here. They may give them up. So from then on these offsets can't be read from this log, also
// if the damage was in memory only, until other batches have replaced their segment (Repair,
// GiveUp). The manifest may need to grow for it. A crash leaves the offsets disowned or not.
//
// It returns an error if none of the offsets of a span is in a damaged or missing segment any more.
func (l *Log) Disown(spans ...Span) error { return l.disown(spans, false) }

// DisownLost is Disown for offsets that no replica has: another one gets batches without records in
// their place (Nothing).
func (l *Log) DisownLost(lost Span) error { return l.disown([]Span{lost}, true) }

func (l *Log) disown(spans []Span, lost bool) error {
	l.admin.Lock()
	defer l.admin.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	known := l.man.now.Load()
	spans = slices.DeleteFunc(slices.Clone(spans), func(s Span) bool {
		return containsSpan(known.Disowned, s) && (!lost || containsSpan(known.Lost, s))
	})
	if len(spans) == 0 {
		return nil
	}
	all, allLost := known.Disowned, known.Lost
	var bad []uint64
	for _, s := range spans {
		in, damaged := l.damagedIn(s)
		if !damaged {
			return errMeanwhile
		}
		if all, bad = AddSpan(all, s), append(bad, in...); lost {
			allLost = AddSpan(allLost, s)
		}
	}
	if len(all) > mostDisowned {
		return fmt.Errorf("log %s: more than %d ranges of it would be given up; set the copy aside", l.name, mostDisowned)
	}
	return l.change(func(m *Manifest) {
		m.Disowned, m.Lost = all, allLost
		for _, base := range bad {
			if !slices.Contains(m.Bad, base) {
				m.Bad = append(m.Bad, base)
			}
		}
	})
}

// damagedIn returns the damaged segments that have offsets of a span, and whether there is one, or
// one is missing.
func (l *Log) damagedIn(lost Span) (bad []uint64, damaged bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := lost.From
	for _, s := range l.segments {
		if s.end <= lost.From || s.base >= lost.Next {
			continue
		}
		damaged = damaged || s.bad || s.base > at
		if at = s.end; s.bad {
			bad = append(bad, s.base)
		}
	}
	return bad, damaged || at < min(lost.Next, l.end)
}

// containsSpan reports whether all offsets of s are in one of some sorted spans.
func containsSpan(all []Span, s Span) bool {
	at, ok := spanBehind(all, s.From)
	return ok && at.From <= s.From && s.Next <= at.Next
}

// spanBehind returns the first of some sorted spans that ends behind an offset.
func spanBehind(all []Span, offset uint64) (at Span, ok bool) {
	for _, s := range all {
		if s.Next > offset {
			return s, true
		}
	}
	return Span{}, false
}

// IsLost reports whether all offsets of a span were disowned with DisownLost.
func (l *Log) IsLost(s Span) bool { return containsSpan(l.man.now.Load().Lost, s) }

// LostFrom returns the offsets from a lost one on that are lost (DisownLost).
func (l *Log) LostFrom(offset uint64) (at Span, lost bool) {
	at, lost = spanBehind(l.man.now.Load().Lost, offset)
	return Span{From: offset, Next: at.Next}, lost && at.From <= offset
}

// disownedFrom returns the first disowned range that ends behind an offset.
func (m *Manifest) disownedFrom(offset uint64) (at Span, ok bool) {
	return spanBehind(m.Disowned, offset)
}

// own removes offsets from those that the log disowns: they are gone, or were replaced.
func (m *Manifest) own(s Span) {
	m.Disowned, m.Lost = cutSpan(m.Disowned, s), cutSpan(m.Lost, s)
}

// cutSpan returns some spans without the offsets of s.
func cutSpan(all []Span, s Span) (left []Span) {
	for _, d := range all {
		for _, rest := range []Span{{d.From, min(d.Next, s.From)}, {max(d.From, s.Next), d.Next}} {
			if rest.From < rest.Next {
				left = append(left, rest)
			}
		}
	}
	return left
}

// disownedIn returns the first disowned range of a segment.
func (m *Manifest) disownedIn(s *segment) (at Span, ok bool) {
	at, ok = m.disownedFrom(s.base)
	return Span{From: max(at.From, s.base), Next: min(at.Next, s.end)}, ok && at.From < s.end
}

// reasonDisowned is the reason of a *CorruptError for disowned offsets.
const reasonDisowned = "its records were damaged, and other replicas may have given them up"

// lookAtDisowned marks the segments with disowned offsets as damaged. No other goroutine uses the
// log yet.
func (l *Log) lookAtDisowned(m *Manifest) {
	m.own(Span{Next: l.start})
	m.own(Span{From: l.end, Next: math.MaxUint64})
	for _, s := range l.segments {
		if at, ok := m.disownedIn(s); ok && s.end > l.start {
			s.bad = true
			l.recovery.suspect("%s can't be read from %d up to %d: %s", s.path, at.From, at.Next, reasonDisowned)
			l.damaged(s.path, damage{from: at.From, next: at.Next, reason: reasonDisowned})
		}
	}
}

// markDisowned marks a segment that has replaced another one as damaged, if it has disowned
// offsets. mu is held.
func (l *Log) markDisowned(s *segment) {
	_, ok := l.man.now.Load().disownedIn(s)
	s.bad = s.bad || ok
}
