package log

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/carillon-mq/carillon/broker/env"
)

// Hold pins what stands from an offset on, until it is released.
type Hold struct {
	log    *Log
	offset uint64
}

// Hold keeps the log's start from passing offset, or what is retained now if that begins later.
func (l *Log) Hold(offset uint64) *Hold {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := &Hold{log: l, offset: max(offset, l.start)}
	if l.holds == nil {
		l.holds = map[*Hold]struct{}{}
	}
	l.holds[h] = struct{}{}
	return h
}

// Offset is what the hold pins.
func (h *Hold) Offset() uint64 { return h.offset }

// Release ends the hold. More than once is once.
func (h *Hold) Release() {
	h.log.mu.Lock()
	defer h.log.mu.Unlock()
	delete(h.log.holds, h)
}

// held bounds where the log may start. mu is held.
func (l *Log) held(start uint64) uint64 {
	for h := range l.holds {
		start = min(start, h.offset)
	}
	return start
}

// Trim moves the log's start to offset, or as far as holds allow, and deletes the segments that
// lie wholly below. It returns the new start. That is on the disk before the first file goes, so a
// crash in between leaves files that the next opening deletes, and never a hole.
func (l *Log) Trim(offset uint64) (uint64, error) {
	l.admin.Lock()
	defer l.admin.Unlock()
	l.mu.Lock()
	target := l.held(min(offset, l.end))
	if target <= l.start || l.closed {
		defer l.mu.Unlock()
		if l.closed {
			return l.start, ErrClosed
		}
		return l.start, nil
	}
	safe := l.durable
	l.mu.Unlock()
	if target > safe {
		// The start may not be ahead of what a crash leaves.
		if err := l.flush(); err != nil && l.unsafeBelow(target) {
			return l.Start(), err
		}
	}
	m := l.meta
	m.Start, m.Durable = target, max(m.Durable, target)
	if err := l.saveMeta(m); err != nil {
		return l.Start(), err
	}
	l.mu.Lock()
	l.start = max(l.start, min(target, l.held(target)))
	for len(l.epochs) > 1 && l.epochs[1].Start <= l.start {
		l.epochs = l.epochs[1:]
	}
	if l.active != nil && l.active.end <= l.start && l.active.end > l.active.base {
		l.retire()
	}
	l.settle()
	l.mu.Unlock()
	return l.Start(), l.dropBelowStart()
}

// Start is the first offset that is retained.
func (l *Log) Start() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.start
}

func (l *Log) unsafeBelow(offset uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.durable < offset
}

// dropBelowStart deletes the segments that hold nothing from the start on, oldest first. admin is held.
func (l *Log) dropBelowStart() error {
	l.mu.Lock()
	var gone []*segment
	for len(l.segments) > 0 && l.segments[0].end <= l.start && l.segments[0] != l.active {
		gone = append(gone, l.segments[0])
		l.segments = l.segments[1:]
	}
	l.stats.Deleted += uint64(len(gone))
	l.mu.Unlock()
	for _, s := range gone {
		l.disk.handles.forget(s)
		if err := l.disk.fs.Remove(s.path); err != nil {
			return fmt.Errorf("log %s: %w", l.name, err)
		}
	}
	return nil
}

// TruncateTo cuts the log's end back to offset, or to the beginning of the batch that holds it, and
// returns the new end: what a follower does that has records its leader never had. It can't
// cut below the start, but for the beginning of the batch that holds the start; with nothing left,
// that is where the log begins. Nor can it cut below what compaction went by without emptying the log. Readers of what is cut must have been ended before.
func (l *Log) TruncateTo(offset uint64) (uint64, error) {
	l.admin.Lock()
	defer l.admin.Unlock()
	l.mu.Lock()
	l.settle()
	if err := l.writable(); err != nil {
		l.mu.Unlock()
		return 0, err
	}
	if offset >= l.end || offset < l.start {
		defer l.mu.Unlock()
		if offset >= l.end {
			return l.end, nil
		}
		return 0, &RangeError{Log: l.name, Asked: offset, Start: l.start, End: l.end}
	}
	l.mu.Unlock()
	base, err := l.BatchBase(offset)
	if err != nil {
		return 0, err
	}
	l.mu.Lock()
	l.cuts++ // from here on nothing is rewritten by what was known before
	void := base <= l.start || offset < l.judged()
	l.mu.Unlock()
	if void {
		// Nothing is left, so nothing of what was trimmed before may be either: its epochs are not the new ones'. Or what is left
		// may lack records that are there no more because of newer ones among those that go, so all of it is to be copied again.
		if err := l.reset(base); err != nil {
			return 0, fmt.Errorf("log %s: truncate to %d: %w", l.name, offset, l.disk.noticed(err))
		}
		return base, nil
	}
	if err := l.expand(base); err != nil {
		return 0, fmt.Errorf("log %s: truncate to %d: %w", l.name, offset, l.disk.noticed(err))
	}
	// A crash may leave the file's old length with zeros where the cut begins, which looks like
	// damage to bytes that were synced. So what is to happen is on the disk before it does.
	m := l.meta
	m.Cut, m.Durable, m.Clean = base, max(min(m.Durable, base), m.Start), min(m.Clean, base)
	if err := l.saveMeta(m); err != nil {
		return 0, err
	}
	if err := l.cut(base); err != nil {
		return 0, fmt.Errorf("log %s: truncate to %d: %w", l.name, offset, l.disk.noticed(err))
	}
	m.Cut, m.Durable = 0, base
	if err := l.saveMeta(m); err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		return 0, l.broken(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end, nil
}

// BatchBase is where the batch begins that holds an offset: before it, if the log was trimmed within a
// batch. At the log's end it is the end.
func (l *Log) BatchBase(offset uint64) (uint64, error) {
	v, err := l.NewCursor(offset).Read(1)
	if err != nil {
		return 0, err
	}
	defer v.Release()
	b, ok := v.Next()
	if !ok {
		return offset, nil
	}
	return b.Base(), nil
}

// cut removes what stands from base on, where a batch begins: whole segments from the last one backwards, so that a
// crash never leaves a hole, then the end of the one that holds it. admin is held.
func (l *Log) cut(base uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settle()
	if err := l.writable(); err != nil {
		return err // the last round failed, so what is below isn't known to be safe
	}
	l.dropTail()
	for n := len(l.segments); n > 0 && l.segments[n-1].base >= base; n-- {
		s := l.segments[n-1]
		if err := l.removeFile(s); err != nil {
			return l.broken(err)
		}
		l.segments = l.segments[:n-1]
		l.active = nil
	}
	l.end, l.durable = base, base // what is left was sealed, or is synced below
	for n := len(l.epochs); n > 0 && l.epochs[n-1].Start >= base; n-- {
		l.epochs = l.epochs[:n-1]
	}
	n := len(l.segments)
	if n == 0 || l.segments[n-1].end <= base {
		return nil
	}
	s := l.segments[n-1]
	f, err := l.disk.handles.acquire(s)
	if err != nil {
		return l.broken(err)
	}
	defer l.disk.handles.release(s)
	pos, err := l.positionOf(base, s, f)
	if err != nil {
		return l.broken(err)
	}
	if err := renumber(f); err != nil {
		return l.broken(err)
	}
	if err := errors.Join(f.Truncate(pos), f.Sync()); err != nil {
		return l.broken(&syncError{err})
	}
	fresh := newSegment(l.dir, s.base)
	fresh.end = base
	found, err := fresh.scan(f, l.secret, false, 0, 0)
	if err != nil {
		return l.broken(err)
	}
	fresh.size, fresh.written, fresh.synced = pos, pos, pos
	l.disk.handles.forget(s)
	l.segments[n-1] = fresh
	if len(found.damages) > 0 {
		// What is damaged stays so, and a footer would hide it.
		fresh.closed, fresh.bad = true, true
		fresh.lookup.Store(&lookup{index: fresh.index, pos: fresh.pos, damages: found.damages, whole: true})
		fresh.index = nil
		l.active = nil
		return nil
	}
	// It has no room, so the next append begins another segment, and this one gets its footer.
	l.active = fresh
	return nil
}

// positionOf is where the batch that begins at base stands in s, whose file is f. What is damaged
// before it doesn't matter, as long as it can be read itself. mu is held.
func (l *Log) positionOf(base uint64, s *segment, f env.File) (int64, error) {
	index := s.index
	if known := s.lookup.Load(); known != nil {
		index = known.index
	} else if index == nil {
		fresh := &segment{base: s.base, path: s.path, end: s.end}
		var err error
		if index, err = fresh.readFooter(f, l.secret); err != nil {
			index = nil // so it is looked for from the front
		}
	}
	r, err := newFrames(f)
	if err != nil {
		return 0, err
	}
	for pos := seek(index, base); ; {
		fr, err := r.next(pos)
		if err != nil {
			return 0, fmt.Errorf("%s at byte %d: %w", filepath.Base(s.path), pos, err)
		}
		if fr.kind() == kindBatch && Batch(fr).Base() == base {
			return pos, nil
		}
		pos += int64(len(fr))
	}
}

// broken ends appending after a change of the files that failed half-way. mu is held.
func (l *Log) broken(err error) error {
	l.failed = &FailedError{What: "log " + l.name, Err: err}
	return err
}
