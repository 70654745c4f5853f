package log

import (
	"errors"
	"fmt"
	"slices"

	"github.com/carillon-mq/carillon/broker/env"
)

// Recovery is what opening a log found. Suspect means that records were cut, are damaged or are
// missing, or may be: this copy must not be trusted alone before it was compared with another.
type Recovery struct {
	// Cut is the number of bytes of a torn tail that were cut: writes that the crash interrupted.
	// None of them was proven to be synced; proven bytes that can't be read are in Damaged.
	Cut int64
	// Kept is the path of a file with the cut bytes, or the first of them; empty if they could not
	// be kept.
	Kept    string
	Suspect bool
	// EndLost reports that the end of the log is missing. The log may have had more records than are
	// known of: the manifest lags behind what was synced.
	EndLost bool
	// Rebuilt reports that the manifest was lost and rebuilt from the segments: the former state of
	// the copy is unknown, records that were trimmed within the first segment may be back, and Spec
	// and Copy are those of OpenCopy.
	Rebuilt bool
	// Strange reports faults beyond damaged or missing segments (see Log.Lacks).
	Strange bool
	Reason  string
	// Damaged are the known unreadable ranges of this copy.
	Damaged []CorruptError
}

func (r *Recovery) suspect(format string, args ...any) {
	r.Suspect = true
	if r.Reason != "" {
		r.Reason += "; "
	}
	r.Reason += fmt.Sprintf(format, args...)
}

// readSegments opens the listed segments and finds the end of the log.
//
//  1. From the last segment backwards, segments without records are removed from the list.
//  2. The last segment with records is read from front to end, and a torn tail is cut.
//  3. Of earlier segments only the footers are read: they were sealed and synced before the last
//     one was written.
//  4. Missing segments stay in the list. Their records are reported as damaged.
func (l *Log) readSegments(o *opening) error {
	m := o.m
	l.end, l.durable = l.start, l.start
	var last *segment
	for n := len(m.Segments); n > 0 && last == nil; n = len(m.Segments) {
		r := m.Segments[n-1]
		if !o.there(r) && r.End == 0 {
			m.Durable = max(m.Durable, l.disk.points.of(m.Log, r.Base, r.File).end)
		}
		if r.End > 0 || !o.there(r) && r.Base < m.Durable {
			break // r was written, so all earlier segments were sealed
		}
		used := false
		s := newSegment(l.dir, r)
		if o.there(r) {
			var err error
			if used, err = l.recoverLast(s, o); err != nil {
				return err
			}
		}
		if used {
			last = s
			break
		}
		l.disk.handles.forget(s)
		o.gone = append(o.gone, r)
		m.Segments = m.Segments[:n-1]
	}
	for n, r := range m.Segments {
		end, known := m.end(n)
		if last != nil && n == len(m.Segments)-1 {
			continue
		}
		if known && n+1 < len(m.Segments) && end < m.Segments[n+1].Base {
			l.lost(max(end, l.start), m.Segments[n+1].Base)
		}
		if !o.there(r) {
			if !known {
				end = m.Durable
			}
			l.lost(max(r.Base, l.start), end)
			if n == len(m.Segments)-1 && (end > l.start || m.Drops) { // else what is gone may be trimmed
				l.recovery.EndLost = true
			}
			continue
		}
		s := newSegment(l.dir, r)
		s.end, s.closed = end, true
		l.segments = append(l.segments, s)
		l.end = max(l.end, s.end)
		if s.end > l.start {
			if err := l.recoverSealed(s, r.End > 0); err != nil {
				return err
			}
		}
	}
	if last != nil {
		l.segments = append(l.segments, last)
		l.end = max(l.end, last.end)
		if !last.closed {
			if last.end >= l.start {
				l.active = last
			} else {
				last.closed = true
			}
		}
	}
	if first := m.Segments; len(first) > 0 && first[0].Base > l.start {
		l.recovery.suspect("records from %d up to %d are gone: the first segment begins after the log's start", l.start, first[0].Base)
		l.damaged(l.dir, damage{from: l.start, next: first[0].Base, reason: "segments are missing"})
	}
	if l.end < m.Durable {
		l.recovery.EndLost = true
		if n := len(l.recovery.Damaged); n == 0 || l.recovery.Damaged[n-1].Next < m.Durable {
			l.recovery.suspect("records from %d up to %d were safe and are gone", l.end, m.Durable)
			l.damaged(l.dir, damage{from: l.end, next: m.Durable, reason: "the end of the log is missing"})
		}
		l.end = m.Durable
		if l.active != nil {
			l.active.closed, l.active = true, nil
		}
	}
	l.epochs = m.Epochs
	m.Rebuilt = m.Rebuilt || l.hidesEpoch(m)
	for _, s := range l.segments {
		l.epochs = mergeEpochs(l.epochs, s.epochs)
	}
	l.epochs = slices.DeleteFunc(slices.Clone(l.epochs), func(e Epoch) bool { return e.Start >= l.end })
	m.Epochs = slices.Clone(l.epochs)
	l.durable = l.end
	if n := len(m.Segments); n > 0 && m.Segments[n-1].Base >= m.Durable {
		m.Durable = l.end // the manifest doesn't list the round that wrote the last segment
	}
	return nil
}

// hidesEpoch reports whether an epoch that the manifest does not list seems to begin behind damage.
// None of its records counted as durable before.
func (l *Log) hidesEpoch(m *Manifest) bool {
	for _, s := range l.segments {
		for _, e := range s.epochs {
			listed := slices.ContainsFunc(m.Epochs, func(known Epoch) bool { return known.Epoch == e.Epoch })
			behind := func(d CorruptError) bool { return d.From < d.Next && d.Next == e.Start }
			if !listed && slices.ContainsFunc(l.recovery.Damaged, behind) {
				return true
			}
		}
	}
	return false
}

// lost records that the records of a listed segment are missing.
func (l *Log) lost(from, next uint64) {
	if from < next {
		l.recovery.suspect("records from %d up to %d are gone: their segment is missing", from, next)
		l.damaged(l.dir, damage{from: from, next: next, reason: "a segment is missing"})
	}
}

func (l *Log) damaged(file string, d damage) {
	l.recovery.Damaged = append(l.recovery.Damaged, CorruptError{File: file, Pos: d.pos, From: d.from, Next: d.next, Reason: d.reason})
}

// recoverLastSealed is recoverLast for a segment in a form other than plain. It was written as a
// whole, so it can't be torn.
func (l *Log) recoverLastSealed(s *segment, c sealed, o *opening) (used bool, err error) {
	s.end, s.closed = c.end(), true
	if o.cut == 0 || o.cut >= s.end {
		return true, l.recoverSealed(s, false)
	}
	return false, fmt.Errorf("%s is compressed, and a truncation to %d is under way in it", s.path, o.cut)
}

// recoverSealed opens a segment before the last one. listed means that its end is from the
// manifest, so its file may be longer.
func (l *Log) recoverSealed(s *segment, listed bool) error {
	f, err := l.disk.handles.acquire(s)
	if err != nil {
		return err
	}
	defer l.disk.handles.release(s)
	if listed {
		err = l.shortenLeft(s, f)
	}
	if err == nil {
		_, err = l.look(s, f)
	}
	if disk := (*env.DiskError)(nil); errors.As(err, &disk) {
		l.recovery.suspect("%v", err)
		l.damaged(s.path, damage{from: s.base, next: s.end, reason: err.Error()})
		s.bad = true
		return nil
	}
	if err != nil {
		return err
	}
	if found := s.lookup.Load(); found.whole && l.endsBefore(s, f, found) {
		next := found.damages[0].next
		l.recovery.suspect("records from %d up to %d are gone: their segment is missing", s.end, next)
		l.damaged(l.dir, damage{from: s.end, next: next, reason: "a segment is missing"})
	} else if found.whole {
		s.bad = true
		l.recovery.suspect("%v", found.footer)
		for _, d := range found.damages {
			l.recovery.suspect("%s is damaged at byte %d: %s", s.path, d.pos, d.reason)
			l.damaged(s.path, d)
		}
	}
	s.written, s.synced = s.pos, s.pos
	return nil
}

// shortenLeft cuts the file of a segment at the segment's end, if a crash has interrupted a
// truncation before that.
func (l *Log) shortenLeft(s *segment, f env.File) error {
	if _, other := f.(sealed); other {
		return nil
	}
	fresh := &segment{base: s.base, path: s.path, end: s.end}
	_, err := fresh.readFooter(f, l.secret)
	if err == nil {
		return l.footerAgain(fresh, f)
	}
	if disk := (*env.DiskError)(nil); errors.As(err, &disk) {
		return err
	}
	return l.shorten(s, f, nil)
}

// footerAgain finishes the truncation that wrote the footer of s. Its sync may have failed, or a
// crash may have come before it:
//
//  1. The footer may be in the page cache only, so it is written again.
//  2. The header's sector on the disk may be older than the truncation, even if those of the footer
//     are not. So the file gets another number again: the sync points of the former number prove
//     records that the truncation removed.
func (l *Log) footerAgain(s *segment, f env.File) error {
	if l.disk.mark != nil {
		return nil
	}
	if err := renumber(f); err != nil {
		return err
	}
	foot := make([]byte, s.size-s.pos)
	if err := readFull(f, foot, s.pos); err != nil {
		return err
	}
	if _, err := f.WriteAt(foot, s.pos); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return &syncError{err}
	}
	return nil
}

// endsBefore reports whether a segment is intact up to the end that its footer says, and only
// shorter than expected. If so, it sets the segment's end.
func (l *Log) endsBefore(s *segment, f env.File, found *lookup) bool {
	short, is := errors.AsType[*shortError](found.footer)
	if !is || short.end >= s.end || len(found.damages) != 1 || found.damages[0].from != short.end {
		return false
	}
	fresh := &segment{base: s.base, path: s.path, end: short.end}
	index, err := fresh.readFooter(f, l.secret)
	if err != nil {
		return false
	}
	fresh.stored = storedIn(f)
	s.end, s.pos = short.end, 0
	l.learn(s, fresh)
	s.lookup.Store(&lookup{index: index, pos: s.pos})
	return true
}

// look returns the lookup of a closed segment: from its footer or, if that is invalid, from a scan
// of the file.
func (l *Log) look(s *segment, f env.File) (*lookup, error) {
	if known := s.lookup.Load(); known != nil {
		return known, nil
	}
	fresh := &segment{base: s.base, path: s.path, end: s.end}
	index, err := fresh.readFooter(f, l.secret)
	out := &lookup{index: index, pos: fresh.pos}
	if disk := (*env.DiskError)(nil); errors.As(err, &disk) {
		return nil, err
	}
	if err != nil {
		why := err
		if out, err = l.survey(s, f); err != nil {
			return nil, err
		}
		out.footer = why
		return out, nil
	}
	fresh.stored = storedIn(f)
	l.learn(s, fresh)
	s.lookup.Store(out)
	return out, nil
}

// survey reads a closed segment from front to end.
func (l *Log) survey(s *segment, f env.File) (*lookup, error) {
	fresh := &segment{base: s.base, path: s.path, end: s.end}
	found, err := fresh.scan(f, l.secret, false, 0, 0)
	if err != nil {
		return nil, err
	}
	out := &lookup{index: fresh.index, pos: fresh.pos, damages: found.damages, whole: true}
	fresh.stored = storedIn(f)
	l.learn(s, fresh)
	s.lookup.Store(out)
	return out, nil
}

// learn copies what was found in a closed segment to s, if it is not known yet.
func (l *Log) learn(s, found *segment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.pos == 0 {
		s.first, s.last, s.epochs, s.pos, s.size, s.stored = found.first, found.last, found.epochs, found.pos, found.size, found.stored
		s.holes, s.judged = found.holes, found.judged
	}
}
