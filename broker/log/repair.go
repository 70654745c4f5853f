package log

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/carillon-mq/carillon/broker/env"
)

// beingRepaired is a file that is to take the place of a damaged or missing segment. One that is left by a crash goes at
// the next opening.
const beingRepaired = segmentEnd + ".repair"

// Span is the offsets from From up to, not including, Next.
type Span struct{ From, Next uint64 }

// Lacks says what has to be fetched from another replica for the log to be whole, oldest first: what damaged sealed
// segments hold, and what no segment holds. None, although it was found damaged, says that retention took what was.
func (l *Log) Lacks() (out []Span) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settle()
	at := l.start
	for _, s := range l.segments {
		if s.end <= l.start {
			continue
		}
		if s.base > at {
			out = append(out, Span{at, s.base})
		}
		if s.bad && s != l.active {
			out = append(out, Span{max(s.base, l.start), s.end})
		}
		at = s.end
	}
	if at < l.end {
		out = append(out, Span{at, l.end})
	}
	return out
}

// blame notes that a segment is damaged, for later lives, too. If that can't be written, this one knows.
func (l *Log) blame(s *segment) {
	l.admin.Lock()
	defer l.admin.Unlock()
	l.mu.Lock()
	s.bad = true
	there := slices.Contains(l.segments, s)
	l.mu.Unlock()
	if there && !slices.Contains(l.meta.Bad, s.base) {
		m := l.meta
		m.Bad = append(slices.Clone(m.Bad), s.base)
		_ = l.saveMeta(m) // a disk that fails by it says so to whoever appends
	}
}

// NoteDamage has later lives know of all damage that was met, also by who only read.
func (l *Log) NoteDamage() error {
	l.admin.Lock()
	defer l.admin.Unlock()
	m := l.meta
	m.Bad = slices.Clone(m.Bad)
	l.mu.Lock()
	for _, s := range l.segments {
		if s.bad && !slices.Contains(m.Bad, s.base) {
			m.Bad = append(m.Bad, s.base)
		}
	}
	l.mu.Unlock()
	if len(m.Bad) == len(l.meta.Bad) {
		return nil
	}
	return l.saveMeta(m)
}

// lookAtBad reads the segments again, all of each, that were found damaged in an earlier life. Nobody knows the log yet.
func (l *Log) lookAtBad() error {
	still := slices.Clone(l.meta.Bad)
	still = slices.DeleteFunc(still, func(base uint64) bool {
		return !slices.ContainsFunc(l.segments, func(s *segment) bool { return s.base == base && s.closed && s.end > l.start })
	})
	for _, s := range l.segments {
		if !slices.Contains(still, s.base) || s.bad {
			continue
		}
		found, _, err := l.scrub(context.Background(), s, nil)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			still = slices.DeleteFunc(still, func(base uint64) bool { return base == s.base })
			continue
		}
		s.bad = true
		l.recovery.suspect("%s is damaged at byte %d: %s", s.path, found[0].Pos, found[0].Reason)
		l.recovery.Damaged = append(l.recovery.Damaged, found...)
	}
	if slices.Equal(still, l.meta.Bad) {
		return nil
	}
	m := l.meta
	m.Bad = still
	return l.saveMeta(m)
}

// SetTailAside sets the active segment aside if it is damaged, and returns where to. What it held is lacking from then on,
// and appends go on behind it in a new one.
func (l *Log) SetTailAside() (to string, err error) {
	l.admin.Lock()
	defer l.admin.Unlock()
	if err := l.flush(); err != nil {
		return "", err
	}
	l.mu.Lock()
	s := l.active
	if s == nil || !s.bad {
		l.mu.Unlock()
		return "", nil
	}
	m := l.meta
	m.Durable = max(m.Durable, l.durable)
	l.mu.Unlock()
	if err := l.saveMeta(m); err != nil {
		return "", err
	}
	l.mu.Lock()
	l.settle()
	if l.end > m.Durable || l.active != s {
		l.mu.Unlock()
		return "", fmt.Errorf("log %s: appended meanwhile", l.name)
	}
	s.closed, l.active = true, nil
	l.mu.Unlock()
	return l.setAside(s)
}

// setAside moves the file of a segment that is damaged to where Disk.SetAside moves logs, and lets the log lack what it
// held. meta.json says already that this was safe, so a crash behind it is found as what it is. admin is held.
func (l *Log) setAside(s *segment) (to string, err error) {
	dir, err := l.disk.makeAside(l.name)
	if err != nil {
		return "", l.disk.noticed(err)
	}
	to = filepath.Join(dir, filepath.Base(s.path))
	if err := l.disk.fs.Rename(s.path, to); err != nil {
		return "", err
	}
	l.mu.Lock()
	l.segments = slices.DeleteFunc(l.segments, func(at *segment) bool { return at == s })
	l.mu.Unlock()
	l.disk.handles.forget(s)
	for _, d := range []string{dir, l.dir} {
		if err := l.disk.fs.SyncDir(d); err != nil {
			return to, l.disk.noticed(&syncError{err})
		}
	}
	return to, nil
}

// Repair writes a segment anew that is damaged or missing, from batches of another replica, beside the one that is there:
// the log goes on as it is until Finish. One goroutine uses it at a time, and ends it with Finish or Abandon.
type Repair struct {
	log  *Log
	span Span
	cuts uint64 // of the log when it began
	next uint64
	low  uint64 // where the segment before ends
	path string
	f    env.File // nil: no batch came yet
	w    segmentWriter
}

// UnfitError says that what came from another replica can't take the place of what is damaged: the two are not of one
// history, or what is known of this one's isn't enough. Such a log has to be fetched anew.
type UnfitError struct{ Log, Why string }

func (e *UnfitError) Error() string {
	return fmt.Sprintf("log %s: what came can't take the place of what is damaged: %s", e.Log, e.Why)
}

func (l *Log) unfit(format string, args ...any) error {
	return &UnfitError{Log: l.name, Why: fmt.Sprintf(format, args...)}
}

// errMeanwhile is a log that is not any more as it was when its repair began. What it lacks now is to be looked for again.
var errMeanwhile = errors.New("the log was changed while it was repaired")

// Repair begins with the first thing that the log lacks; nil: that is nothing.
func (l *Log) Repair() (*Repair, error) {
	spans := l.Lacks()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil || len(spans) == 0 {
		return nil, err
	}
	r := &Repair{log: l, span: spans[0], cuts: l.cuts, next: spans[0].From}
	for _, s := range l.segments {
		if s.end <= r.next {
			r.low = s.end
		}
	}
	return r, nil
}

// Span is what is still to come.
func (r *Repair) Span() Span { return Span{r.next, r.span.Next} }

// Begun says that a batch has come.
func (r *Repair) Begun() bool { return r.f != nil }

// Add takes the next batch, which was checked with ParseBatch. The first one may begin where the log's start is or before,
// if that has moved. One that compaction made may lie across a border, since each replica compacts for itself; it is cut there.
func (r *Repair) Add(b Batch) (err error) {
	l := r.log
	if base := max(b.Base(), r.low); !r.Begun() && base <= l.Start() {
		r.next = base
	}
	if b.Base() < r.next && r.next < b.End() {
		if b, err = b.From(r.next); err != nil {
			return err
		}
	}
	if b.Base() < r.span.Next && r.span.Next < b.End() {
		if b, err = b.Until(r.span.Next); err != nil {
			return err
		}
	}
	if b.Base() != r.next || b.End() > r.span.Next {
		return l.unfit("a batch of offsets %d to %d came where %d to %d are due", b.Base(), b.End(), r.next, r.span.Next)
	}
	if !r.Begun() {
		if err := r.create(); err != nil {
			return err
		}
	}
	if known := r.w.s.epochs; len(known) > 0 && b.Epoch() < known[len(known)-1].Epoch {
		return l.unfit("a batch of epoch %d follows one of %d", b.Epoch(), known[len(known)-1].Epoch)
	}
	r.next = b.End()
	return r.w.add(b)
}

// create makes the file, named after the first batch.
func (r *Repair) create() (err error) {
	fresh := newSegment(r.log.dir, r.next)
	r.path = fresh.path + beingRepaired[len(segmentEnd):]
	if r.f, err = r.log.disk.createAnew(r.path); err != nil {
		return err
	}
	r.w = segmentWriter{log: r.log.secret, s: fresh, f: r.f, buf: appendHeader(nil, r.log.secret, fresh.base, 0)}
	return nil
}

// Full says that it is time to Finish: there is all of it, or as much as one segment is to hold.
func (r *Repair) Full() bool {
	return r.Begun() && (r.next == r.span.Next || r.w.written+int64(len(r.w.buf)) >= r.log.disk.opts.SegmentLargest)
}

// Finish makes the new segment safe, reads all of it once, sets the damaged one aside, returning where to, and puts the new
// one in its place. A crash leaves the damaged one, none, which is found when the log is opened, or the new one.
func (r *Repair) Finish() (aside string, err error) {
	l, fresh, f := r.log, r.w.s, r.f
	defer r.Abandon()
	if err := r.w.end(); err != nil {
		return "", err
	}
	if err := f.Sync(); err != nil {
		return "", l.disk.noticed(&syncError{err})
	}
	if err := l.verifyPlain(fresh, f); err != nil {
		return "", err
	}
	aside, err = r.place(fresh)
	return aside, l.disk.noticed(err)
}

// Abandon lets go of what has come. What it can't remove goes at the next opening.
func (r *Repair) Abandon() {
	if r.f != nil {
		_ = r.f.Close() // it is safe, or nobody wants it
		r.f = nil
	}
	if r.path != "" {
		_ = r.log.disk.fs.Remove(r.path)
		r.path = ""
	}
}

// place puts the new segment, whose file is complete and safe, where it belongs.
func (r *Repair) place(fresh *segment) (aside string, err error) {
	l := r.log
	l.admin.Lock()
	defer l.admin.Unlock()
	old, err := r.judge(fresh)
	if err != nil {
		return "", err
	}
	m := l.meta
	m.Durable = max(m.Durable, fresh.end)
	m.Clean = min(m.Clean, fresh.base) // the other replica may have left in what compaction left out here
	if old != nil {
		m.Durable = max(m.Durable, old.end)
	}
	if err := l.saveMeta(m); err != nil {
		return "", err
	}
	if old != nil {
		if aside, err = l.setAside(old); err != nil {
			return aside, err
		}
	}
	if err := l.disk.fs.Rename(r.path, fresh.path); err != nil {
		return aside, err
	}
	r.path = ""
	l.mu.Lock()
	l.cuts++ // what is being compacted doesn't know what has come
	at, _ := slices.BinarySearchFunc(l.segments, fresh.base, func(s *segment, base uint64) int { return cmp.Compare(s.base, base) })
	l.segments = slices.Insert(l.segments, at, fresh)
	l.epochs = mergeEpochs(l.epochs, fresh.epochs)
	l.mu.Unlock()
	if err := l.disk.fs.SyncDir(l.dir); err != nil {
		return aside, &syncError{err}
	}
	// Not before the damaged one is gone for good: a crash may leave it, and opening the log doesn't find everything.
	m.Bad = slices.DeleteFunc(slices.Clone(m.Bad), func(base uint64) bool { return base == fresh.base || old != nil && base == old.base })
	if len(m.Bad) == len(l.meta.Bad) {
		return aside, nil
	}
	return aside, l.saveMeta(m)
}

// judge holds a segment to what stands around its place, and returns the damaged one that it takes the place of, if there
// is one.
func (r *Repair) judge(fresh *segment) (old *segment, err error) {
	l := r.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return nil, err
	}
	if l.cuts != r.cuts || fresh.end <= l.start {
		return nil, errMeanwhile
	}
	for _, s := range l.segments {
		switch n := len(s.epochs); {
		case s.end <= fresh.base:
			if n > 0 && !s.bad && s.epochs[n-1].Epoch > fresh.epochs[0].Epoch {
				return nil, l.unfit("epoch %d comes after %d", fresh.epochs[0].Epoch, s.epochs[n-1].Epoch)
			}
		case s.base >= fresh.end:
			if last := fresh.epochs[len(fresh.epochs)-1].Epoch; n > 0 && !s.bad && s.epochs[0].Epoch < last {
				return nil, l.unfit("epoch %d comes before %d", last, s.epochs[0].Epoch)
			}
		case old != nil || !s.bad || s == l.active || s.base < fresh.base && fresh.base > l.start:
			return nil, errMeanwhile
		default:
			old = s
		}
	}
	if old == nil {
		return nil, nil
	}
	// What could be read of the damaged one tells of its epochs, each perhaps later than it began.
	for _, e := range old.epochs {
		same := func(f Epoch) bool { return f.Epoch == e.Epoch && f.Start <= e.Start }
		if e.Start >= fresh.base && e.Start < fresh.end && !slices.ContainsFunc(fresh.epochs, same) {
			return nil, l.unfit("it has epochs %v, and the damaged one %v", fresh.epochs, old.epochs)
		}
	}
	return old, nil
}

// mergeEpochs adds where epochs begin in a segment to where they are known to.
func mergeEpochs(known, more []Epoch) (all []Epoch) {
	begin := map[uint64]uint64{}
	for _, e := range slices.Concat(known, more) {
		if at, ok := begin[e.Epoch]; !ok || e.Start < at {
			begin[e.Epoch] = e.Start
		}
	}
	for _, epoch := range slices.Sorted(maps.Keys(begin)) {
		all = append(all, Epoch{Epoch: epoch, Start: begin[epoch]})
	}
	return all
}
