package log

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/carillon-mq/carillon/broker/env"
)

// Recovery is what opening a log found. Suspect means that something was cut or couldn't be
// believed, so that this copy must not be trusted alone until it was compared with another.
type Recovery struct {
	// Cut is how many bytes of a torn tail were cut: writes that were under way when the process died.
	// Nothing that was proven to be synced is among them; what was is in Damaged.
	Cut int64
	// Kept is the file that holds what was cut, or the beginning of it; empty if it couldn't be kept.
	Kept    string
	Suspect bool
	// Rebuilt says that the meta file was damaged: what it said is lost, and Spec is what was given to Open.
	Rebuilt bool
	// Strange says that there is more amiss than segments that are damaged or missing (see Log.Lacks).
	Strange bool
	Reason  string
	// Damaged are the ranges that are known to be unreadable here.
	Damaged []CorruptError
}

func (r *Recovery) suspect(format string, args ...any) {
	r.Suspect = true
	if r.Reason != "" {
		r.Reason += "; "
	}
	r.Reason += fmt.Sprintf(format, args...)
}

// open reads the log's directory, or makes it. Nobody else knows the log yet. Every step can be
// cut short by a crash and is then done again.
func (l *Log) open(start, epoch uint64, spec []byte) error {
	d := l.disk
	m, err := readMeta(d.fs, l.dir)
	var corrupt *CorruptError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if m, err = l.create(start, epoch, spec); err != nil {
			return err
		}
	case errors.As(err, &corrupt):
		if m, err = l.rebuildMeta(corrupt, epoch, spec); err != nil {
			return err
		}
	case err != nil:
		return err
	}
	if m.Topic != l.id.Topic || m.Shard != l.id.Shard || m.Part != l.id.Part {
		return fmt.Errorf("its directory belongs to %s-%d%s; set it aside", m.Topic, m.Shard, m.Part)
	}
	l.meta, l.secret = *m, m.Log
	if m.Reset > 0 {
		if err := l.finishReset(); err != nil {
			return err
		}
	}
	l.start = l.meta.Start
	bases, err := l.bases()
	if err != nil {
		return err
	}
	if bases, err = l.finishMerge(bases); err != nil {
		return err
	}
	if err := l.readSegments(bases); err != nil {
		return err
	}
	if err := l.lookAtBad(); err != nil {
		return err
	}
	if m := l.meta; m.Cut > 0 {
		m.Cut = 0
		if err := l.saveMeta(m); err != nil {
			return err
		}
	}
	return l.dropBelowStart()
}

// create makes the directory of a new log. One without a meta file holds nothing: the meta file
// is safe before the first segment is made.
func (l *Log) create(start, epoch uint64, spec []byte) (*Meta, error) {
	d := l.disk
	if names, err := d.fs.List(l.dir); err == nil {
		for _, name := range names {
			if _, ok := segmentBase(name); ok {
				return nil, fmt.Errorf("%s has segments and no %s; set it aside", l.dir, metaName)
			}
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := d.fs.MkdirAll(l.dir); err != nil {
		return nil, err
	}
	if err := d.fs.SyncDir(d.logDir("")); err != nil {
		return nil, &syncError{err}
	}
	m := newMeta(l.id, start, epoch, spec)
	return m, writeMeta(d.fs, l.dir, m)
}

// rebuildMeta replaces a damaged meta file by what the segments say, and keeps the damaged one beside it.
// What had been trimmed within the first segment comes back by that, which is why the log is suspect.
func (l *Log) rebuildMeta(damaged *CorruptError, epoch uint64, spec []byte) (*Meta, error) {
	fsys := l.disk.fs
	bases, err := l.bases()
	if err != nil {
		return nil, err
	}
	m := newMeta(l.id, 1, epoch, spec)
	found := false
	for i, base := range bases {
		if i == 0 {
			m.Start, m.Durable = base, base
		}
		f, err := openSegment(fsys, newSegment(l.dir, base).path, &l.disk.handles.cache)
		if err != nil {
			return nil, err
		}
		head := make([]byte, headerSize)
		if err := errors.Join(readFull(f, head, 0), f.Close()); err != nil {
			continue
		}
		if h, err := parseFrame(head); err == nil && h.kind() == kindHeader {
			m.Log, found = h.log(), true
			break
		}
	}
	if !found && len(bases) > 0 {
		return nil, fmt.Errorf("%w, and no segment says which log it is; set it aside", damaged)
	}
	if err := fsys.Rename(damaged.File, damaged.File+".damaged"); err != nil {
		return nil, err
	}
	if err := writeMeta(fsys, l.dir, m); err != nil {
		return nil, err
	}
	l.recovery.suspect("%s was damaged (%s) and made again from the segments", damaged.File, damaged.Reason)
	l.recovery.Rebuilt, l.recovery.Strange = true, true
	return m, nil
}

// bases lists the segments, and removes what was to become one.
func (l *Log) bases() ([]uint64, error) {
	names, err := l.disk.fs.List(l.dir)
	if err != nil {
		return nil, err
	}
	var bases []uint64
	for _, name := range names {
		if base, ok := segmentBase(name); ok {
			bases = append(bases, base)
		} else if strings.HasSuffix(name, beingCompressed) || strings.HasSuffix(name, beingCompacted) || strings.HasSuffix(name, beingExpanded) || strings.HasSuffix(name, beingRepaired) {
			if err := l.disk.fs.Remove(filepath.Join(l.dir, name)); err != nil {
				return nil, err
			}
		} else if strings.HasSuffix(name, segmentEnd) {
			l.recovery.suspect("%s/%s is no segment's name", l.dir, name)
			l.recovery.Strange = true
		}
	}
	slices.Sort(bases)
	return bases, nil
}

// readSegments finds out where the log ends. From the last segment backwards, those that were
// made and never written go; the first with anything in it is read from front to end. All before
// it were sealed and synced before it was written, so of them only the footers are read.
func (l *Log) readSegments(bases []uint64) error {
	l.end, l.durable = l.start, l.start
	var last *segment
	for len(bases) > 0 && last == nil {
		s := newSegment(l.dir, bases[len(bases)-1])
		bases = bases[:len(bases)-1]
		used, err := l.recoverLast(s)
		if err != nil {
			return err
		}
		if used {
			last = s
		} else if err := l.removeFile(s); err != nil {
			return err
		}
	}
	for i, base := range bases {
		s := newSegment(l.dir, base)
		if s.end = last.base; i+1 < len(bases) {
			s.end = bases[i+1]
		}
		s.closed = true
		l.segments = append(l.segments, s)
		if s.end > l.start {
			if err := l.recoverSealed(s); err != nil {
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
	if first := l.segments; len(first) > 0 && first[0].base > l.start {
		l.recovery.suspect("records from %d up to %d are gone: the first segment begins after the log's start", l.start, first[0].base)
		l.damaged(l.dir, damage{from: l.start, next: first[0].base, reason: "segments are missing"})
	}
	if l.end < l.meta.Durable {
		l.recovery.suspect("records from %d up to %d were safe and are gone", l.end, l.meta.Durable)
		l.damaged(l.dir, damage{from: l.end, next: l.meta.Durable, reason: "the end of the log is missing"})
		l.end = l.meta.Durable
		if l.active != nil {
			l.active.closed, l.active = true, nil
		}
	}
	for _, s := range l.segments {
		for _, e := range s.epochs {
			if n := len(l.epochs); n == 0 || e.Epoch > l.epochs[n-1].Epoch {
				l.epochs = append(l.epochs, e)
			}
		}
	}
	l.durable = l.end
	return nil
}

func (l *Log) damaged(file string, d damage) {
	l.recovery.Damaged = append(l.recovery.Damaged, CorruptError{File: file, Pos: d.pos, From: d.from, Next: d.next, Reason: d.reason})
}

// recoverLastSealed is recoverLast of a segment that was brought into another form, so that nothing of it
// can be torn.
func (l *Log) recoverLastSealed(s *segment, c sealed) (used bool, err error) {
	s.end, s.closed = c.end(), true
	switch cut := l.meta.Cut; {
	case cut == 0 || cut >= s.end:
		return true, l.recoverSealed(s)
	case cut <= s.base:
		return false, nil
	}
	return false, fmt.Errorf("%s is compressed, and a truncation to %d is under way in it", s.path, l.meta.Cut)
}

// recoverSealed reads what a segment before the last says about itself.
func (l *Log) recoverSealed(s *segment) error {
	f, err := l.disk.handles.acquire(s)
	if err != nil {
		return err
	}
	defer l.disk.handles.release(s)
	_, err = l.look(s, f)
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

// endsBefore says whether a segment is whole, and what is missing stood behind it; and lets it end where it does.
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

// look returns what reading a closed segment needs: its footer's index or, where that can't be
// believed, what reading the whole file says.
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

// learn takes over what a closed segment was found to hold, if that wasn't known yet.
func (l *Log) learn(s, found *segment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.pos == 0 {
		s.first, s.last, s.epochs, s.pos, s.size, s.stored = found.first, found.last, found.epochs, found.pos, found.size, found.stored
		s.holes, s.judged = found.holes, found.judged
	}
}

// removeFile deletes a segment that nobody reads.
func (l *Log) removeFile(s *segment) error {
	l.disk.handles.forget(s)
	if err := l.disk.fs.Remove(s.path); err != nil {
		return err
	}
	if err := l.disk.fs.SyncDir(l.dir); err != nil {
		return &syncError{err}
	}
	return nil
}
