package log

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/carillon-mq/carillon/broker/env"
)

// Hold pins the records from an offset on, until it is released.
type Hold struct {
	log    *Log
	offset uint64
}

// Hold keeps the log's start from passing offset, or the present start if that is later.
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

// Offset returns the first pinned offset.
func (h *Hold) Offset() uint64 { return h.offset }

// Release ends the hold. Further calls do nothing.
func (h *Hold) Release() {
	h.log.mu.Lock()
	defer h.log.mu.Unlock()
	delete(h.log.holds, h)
}

// Pinned returns the first offset that a Hold pins, or the log's end.
func (l *Log) Pinned() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held(l.end)
}

// held returns start, or the lowest pinned offset if that is lower. mu is held.
func (l *Log) held(start uint64) uint64 {
	for h := range l.holds {
		start = min(start, h.offset)
	}
	return start
}

// Trim moves the log's start to offset, or as far as holds allow, and deletes the segments that end
// at or before it. It returns the new start. The manifest has the new start before the first file
// is deleted, so a crash leaves files that the next opening deletes, and never a hole.
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
		// The start must not be beyond the records that survive a crash.
		if err := l.flush(); err != nil && l.unsafeBelow(target) {
			return l.Start(), err
		}
	}
	l.mu.Lock()
	last := l.lastBelow(target)
	if s := l.active; s != nil && last.End > 0 && s.ref().file() == last.file() {
		l.retire()
	}
	l.mu.Unlock()
	if err := l.change(func(m *Manifest) {
		m.Start, m.Durable = target, max(m.Durable, target)
		m.endAt(last)
	}); err != nil {
		return l.Start(), err
	}
	l.mu.Lock()
	l.start = max(l.start, min(target, l.held(target)))
	for len(l.epochs) > 1 && l.epochs[1].Start <= l.start {
		l.epochs = l.epochs[1:]
	}
	l.settle()
	l.mu.Unlock()
	return l.Start(), l.dropBelowStart()
}

// lastBelow returns the last segment with records, and where it ends, if that is at or before an
// offset. mu is held, or the log is not shared yet.
func (l *Log) lastBelow(offset uint64) (last SegmentRef) {
	for _, s := range slices.Backward(l.segments) {
		if s.end > s.base {
			if last = s.ref(); s.end <= offset {
				last.End = s.end
				return last
			}
			break
		}
	}
	return SegmentRef{}
}

// Start returns the first retained offset.
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

// dropBelowStart deletes the segments that end at or before the start, oldest first. admin is held.
func (l *Log) dropBelowStart() error {
	l.mu.Lock()
	var gone []*segment
	for len(l.segments) > 0 && l.segments[0].end <= l.start && l.segments[0] != l.active {
		gone = append(gone, l.segments[0])
		l.segments = l.segments[1:]
	}
	l.stats.Deleted += uint64(len(gone))
	l.mu.Unlock()
	if err := l.remove(gone...); err != nil {
		return fmt.Errorf("log %s: %w", l.name, err)
	}
	if len(gone) > 0 {
		l.sweepBeside()
	}
	return nil
}

// TruncateTo cuts the log's end back to offset, or to the beginning of the batch that contains it,
// and returns the new end. A follower truncates records that its leader does not have.
//
//  1. It cuts no further than the beginning of the batch that contains the log's start. If that
//     leaves no records, the log begins there.
//  2. If compaction has removed records because of newer ones that are cut, it empties the log.
//  3. Removed records below committed are set aside. aside is their path, or empty if there are
//     none. With committed 0, none are.
//
// The caller has ended readers of the removed records, and appends nothing during the call.
func (l *Log) TruncateTo(offset, committed uint64) (end uint64, aside string, err error) {
	l.admin.Lock()
	defer l.admin.Unlock()
	l.mu.Lock()
	l.settle()
	if err := l.writable(); err != nil {
		l.mu.Unlock()
		return 0, "", err
	}
	if offset >= l.end || offset < l.start {
		defer l.mu.Unlock()
		if offset >= l.end {
			return l.end, "", nil
		}
		return 0, "", &RangeError{Log: l.name, Asked: offset, Start: l.start, End: l.end}
	}
	l.cutting = true
	l.watermark.Store(min(l.watermark.Load(), offset))
	l.mu.Unlock()
	defer l.endCutting()
	base, err := l.BatchBase(offset)
	if err != nil {
		return 0, "", err
	}
	l.mu.Lock()
	l.cuts++ // voids compactions and repairs that began before
	void := base <= l.start || base < l.judged()
	l.mu.Unlock()
	reason := fmt.Sprintf("truncated to %d; records below %d were committed", base, committed)
	if void {
		// Either no records remain: then the epochs of trimmed records must be dropped, too.
		// Or compaction has removed records below base because of newer ones, which are cut now:
		// then the whole log is to be copied again.
		end = base
		aside, err = l.reset(base, committed, reason)
	} else {
		end, aside, err = l.truncate(base, committed, reason)
	}
	if err != nil {
		return 0, aside, fmt.Errorf("log %s: truncate to %d: %w", l.name, offset, l.disk.noticed(err))
	}
	return end, aside, nil
}

// Empties reports whether TruncateTo would leave no records although there are some below the
// offset: compaction has removed records because of newer ones that would be cut. It may read the
// disk.
func (l *Log) Empties(offset uint64) (bool, error) {
	l.mu.Lock()
	start, end, judged := l.start, l.end, l.judged()
	l.mu.Unlock()
	if offset >= end || offset <= start || judged <= start {
		return false, nil
	}
	base, err := l.BatchBase(offset)
	return err == nil && base > start && base < judged, err
}

// endCutting allows appends again after a truncation or a reset.
func (l *Log) endCutting() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cutting = false
}

// BatchBase returns the beginning of the batch that contains an offset. For the log's start this is
// lower than the start if the log was trimmed within a batch. For the log's end it is the end.
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

// truncate removes everything from base on, where a batch begins. admin is held, and nothing is
// appended.
func (l *Log) truncate(base, committed uint64, reason string) (end uint64, aside string, err error) {
	if err := l.flush(); err != nil { // the remaining records must be durable and listed
		return 0, "", err
	}
	if err := l.expand(base); err != nil {
		return 0, "", err
	}
	kept, err := l.keep(base, committed, reason)
	if err != nil {
		return 0, "", err
	}
	err = l.change(func(m *Manifest) {
		m.leave(m.cut(base), kept)
		m.Committed = max(m.Committed, min(l.watermark.Load(), base))
	})
	if err != nil {
		return 0, "", err
	}
	l.mu.Lock()
	l.dropTail()
	i := slices.IndexFunc(l.segments, func(s *segment) bool { return s.base >= base })
	var gone []*segment
	if i >= 0 {
		gone = slices.Clone(l.segments[i:])
		l.segments = l.segments[:i]
	}
	l.active = nil
	l.generation = l.man.now.Load().Generation
	l.end, l.durable = base, base
	l.watermark.Store(min(l.watermark.Load(), base))
	for n := len(l.epochs); n > 0 && l.epochs[n-1].Start >= base; n-- {
		l.epochs = l.epochs[:n-1]
	}
	l.mu.Unlock()
	if err = l.leave(gone, kept); err == nil {
		err = l.endAt(base)
	}
	if err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		return 0, l.asidePath(kept), l.broken(err)
	}
	return base, l.asidePath(kept), nil
}

// leave removes the files of segments that a switch has removed from the log, or sets them aside
// with kept.
func (l *Log) leave(gone []*segment, kept *Aside) error {
	gone = slices.DeleteFunc(gone, func(s *segment) bool {
		l.disk.handles.forget(s)
		return kept != nil && slices.Contains(kept.Files, s.ref())
	})
	if kept != nil {
		if err := l.moveAside(kept); err != nil {
			return err
		}
	}
	defer l.sweepBeside()
	return l.remove(gone...)
}

// endAt cuts the file of the log's last segment at base, which is the segment's new end and the
// beginning of a batch. admin is held.
func (l *Log) endAt(base uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.segments)
	if n == 0 || l.segments[n-1].end <= base {
		return nil
	}
	s := l.segments[n-1]
	f, err := l.disk.handles.acquire(s)
	if err != nil {
		return err
	}
	defer l.disk.handles.release(s)
	fresh := newSegment(l.dir, s.ref())
	fresh.end, fresh.checked = base, s.checked
	index := s.index
	if known := s.lookup.Load(); known != nil {
		index = known.index
	}
	if err := l.shorten(fresh, f, index); err != nil {
		return err
	}
	l.markDisowned(fresh)
	l.disk.handles.forget(s)
	l.segments[n-1] = fresh
	return nil
}

// shorten cuts a segment's plain file at the segment's end, and seals it. After a crash the next
// opening repeats it. mu is held, or the log is not shared yet.
func (l *Log) shorten(s *segment, f env.File, index []indexEntry) error {
	until := s.end
	pos, err := l.positionOf(until, s, f, index)
	if _, failed := errors.AsType[*env.DiskError](err); failed {
		return err
	}
	if err == nil {
		if err := renumber(f); err != nil {
			return err
		}
		if err := f.Truncate(pos); err != nil {
			return err
		}
	}
	// If no batch begins there, the rest is cut off already, or is damaged.
	found, err := s.scan(f, l.secret, false, 0, until)
	if err != nil {
		return err
	}
	s.closed, s.end, s.size = true, until, s.pos
	if len(found.damages) > 0 { // a footer would hide the damage
		s.bad = true
	} else {
		foot := s.appendFooter(nil, l.secret)
		_, err := f.WriteAt(foot, s.pos)
		if err == nil {
			err = f.Truncate(s.pos + int64(len(foot)))
		}
		// Without a footer the segment is read in full when it is opened.
		if err != nil && !errors.Is(err, syscall.ENOSPC) {
			return err
		}
		s.size = s.pos + int64(len(foot))
	}
	if err := f.Sync(); err != nil {
		return &syncError{err}
	}
	s.written, s.synced = s.pos, s.pos
	at := &lookup{index: s.index, pos: s.pos}
	if len(found.damages) > 0 {
		at.damages, at.whole, at.footer = found.damages, true, fmt.Errorf("%s has no footer", s.path)
	}
	s.lookup.Store(at)
	s.index = nil
	return nil
}

// positionOf returns the position of the batch that begins at base in s, whose file is f. Damage
// before it doesn't matter. Without an index it searches from the front.
func (l *Log) positionOf(base uint64, s *segment, f env.File, index []indexEntry) (int64, error) {
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

// broken fails the log after a change of its files that failed halfway. mu is held.
func (l *Log) broken(err error) error {
	l.failed = &FailedError{What: "log " + l.name, Err: err}
	return err
}
