package log

import (
	"fmt"
	"math"
	"slices"
)

// mostDisowned bounds the ranges of offsets that a log disowns, at 60 bytes of its manifest each.
// Ranges that touch each other are one. A log with more needs another copy of itself.
const mostDisowned = 1 << 10

// Disown durably records that other replicas get batches without records for offsets that can't be
// read here (Nothing). From then on these offsets can't be read from this log, also if the damage
// was in memory only, until other batches have replaced their segment (Repair, GiveUp). The
// manifest may need to grow for it. A crash leaves the offsets disowned or not.
//
// It returns an error if none of the offsets is in a damaged or missing segment any more.
func (l *Log) Disown(lost Span) error {
	l.admin.Lock()
	defer l.admin.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	if l.Disowned(lost) {
		return nil
	}
	var bad []uint64
	damaged := false
	l.mu.Lock()
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
	damaged = damaged || at < min(lost.Next, l.end)
	l.mu.Unlock()
	if !damaged {
		return errMeanwhile
	}
	all := AddSpan(l.man.now.Load().Disowned, lost)
	if len(all) > mostDisowned {
		return fmt.Errorf("log %s: more than %d ranges of it would be given up; set the copy aside", l.name, mostDisowned)
	}
	return l.change(func(m *Manifest) {
		m.Disowned = all
		for _, base := range bad {
			if !slices.Contains(m.Bad, base) {
				m.Bad = append(m.Bad, base)
			}
		}
	})
}

// Disowned reports whether all offsets of a span are disowned.
func (l *Log) Disowned(s Span) bool {
	at, ok := l.man.now.Load().disownedFrom(s.From)
	return ok && at.From <= s.From && s.Next <= at.Next
}

// DisownedFrom returns the offsets from a disowned one on that the log disowns.
func (l *Log) DisownedFrom(offset uint64) (at Span, disowned bool) {
	at, disowned = l.man.now.Load().disownedFrom(offset)
	return Span{From: offset, Next: at.Next}, disowned && at.From <= offset
}

// disownedFrom returns the first disowned range that ends behind an offset.
func (m *Manifest) disownedFrom(offset uint64) (at Span, ok bool) {
	for _, s := range m.Disowned {
		if s.Next > offset {
			return s, true
		}
	}
	return Span{}, false
}

// own removes offsets from those that the log disowns: they are gone, or were replaced.
func (m *Manifest) own(s Span) {
	var left []Span
	for _, d := range m.Disowned {
		for _, rest := range []Span{{d.From, min(d.Next, s.From)}, {max(d.From, s.Next), d.Next}} {
			if rest.From < rest.Next {
				left = append(left, rest)
			}
		}
	}
	m.Disowned = left
}

// disownedIn returns the first disowned range of a segment.
func (m *Manifest) disownedIn(s *segment) (at Span, ok bool) {
	at, ok = m.disownedFrom(s.base)
	return Span{From: max(at.From, s.base), Next: min(at.Next, s.end)}, ok && at.From < s.end
}

// reasonDisowned is the reason of a *CorruptError for disowned offsets.
const reasonDisowned = "its records were damaged, and other replicas have given them up"

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
