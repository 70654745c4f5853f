package log

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/carillon-mq/carillon/broker/env"
)

// beingRepaired ends the name of an unfinished replacement for a damaged or missing segment. The
// next opening removes one that a crash has left.
const beingRepaired = segmentEnd + ".repair"

// Lacks returns the offsets that must be fetched from another replica, oldest first: those of
// damaged sealed segments and of missing segments. If a damaged log lacks nothing, retention has
// deleted the damaged segments.
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

// blame records in the manifest that a segment is damaged. If that fails, only this process knows.
func (l *Log) blame(s *segment) {
	l.admin.Lock()
	defer l.admin.Unlock()
	l.mu.Lock()
	s.bad = true
	there := slices.Contains(l.segments, s)
	l.mu.Unlock()
	if there && !slices.Contains(l.man.now.Load().Bad, s.base) {
		// An error is ignored: if it fails the disk, appends report it.
		_ = l.change(func(m *Manifest) { m.Bad = append(m.Bad, s.base) })
	}
}

// NoteDamage durably records all known damage in the manifest, including what readers have found.
func (l *Log) NoteDamage() error {
	l.admin.Lock()
	defer l.admin.Unlock()
	if err := l.stillOpen(); err != nil {
		return err
	}
	var bad []uint64
	l.mu.Lock()
	for _, s := range l.segments {
		if s.bad && !slices.Contains(l.man.now.Load().Bad, s.base) {
			bad = append(bad, s.base)
		}
	}
	l.mu.Unlock()
	if len(bad) == 0 {
		return nil
	}
	return l.change(func(m *Manifest) { m.Bad = append(m.Bad, bad...) })
}

// lookAtBad scrubs the segments that the manifest lists as damaged. No other goroutine uses the log
// yet.
func (l *Log) lookAtBad(m *Manifest) error {
	m.Bad = slices.DeleteFunc(m.Bad, func(base uint64) bool {
		return !slices.ContainsFunc(l.segments, func(s *segment) bool { return s.base == base && s.closed && s.end > l.start })
	})
	l.lookAtDisowned(m)
	for _, s := range l.segments {
		if !slices.Contains(m.Bad, s.base) || s.bad {
			continue
		}
		found, _, err := l.scrub(context.Background(), s, nil)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			m.Bad = slices.DeleteFunc(m.Bad, func(base uint64) bool { return base == s.base })
			continue
		}
		s.bad = true
		l.recovery.suspect("%s is damaged at byte %d: %s", s.path, found[0].Pos, found[0].Reason)
		l.recovery.Damaged = append(l.recovery.Damaged, found...)
	}
	return nil
}

// SealDamagedTail seals the active segment if it is damaged, and reports whether it was. From then
// on Lacks has its offsets, and appends go to a new segment behind it.
func (l *Log) SealDamagedTail() (sealed bool, err error) {
	l.mu.Lock()
	sealed = l.active != nil && l.active.bad
	l.mu.Unlock()
	if !sealed {
		return false, nil
	}
	l.Roll()
	if err := l.Flush(); err != nil {
		return false, err
	}
	return true, l.NoteDamage()
}

// Unreadable returns which of the offsets that the log lacks (Lacks) can't be read, oldest first.
// Others are in segments with damage elsewhere. It reads these segments. An error means that this
// is not known: for example, the disk can't read them at present.
func (l *Log) Unreadable() (out []Span, err error) {
	for _, span := range l.Lacks() {
		for c := l.NewCursor(span.From); c.Next() < span.Next; {
			at := c.Next()
			v, err := c.Read(scanWindow)
			if damage, ok := errors.AsType[*CorruptError](err); ok && damage.Next > at {
				out = append(out, Span{at, min(damage.Next, span.Next)})
				c.Seek(damage.Next)
				continue
			}
			if err != nil {
				return nil, err
			}
			v.Release()
		}
	}
	return out, nil
}

// makeAside creates the directory for a segment's file that is to be set aside.
func (l *Log) makeAside(s *segment, reason string) (*Aside, error) {
	a, err := l.beginAside(Aside{From: s.base, Next: s.end, Reason: brief(reason), Files: []SegmentRef{s.ref()}})
	return a, l.disk.noticed(err)
}

// Repair writes a new file for a damaged or missing segment, from batches of another replica. Until
// Finish the log is unchanged. One goroutine uses a Repair at a time, and ends it with Finish or
// Abandon.
type Repair struct {
	log  *Log
	span Span
	cuts uint64 // the log's counter when the repair began
	next uint64
	low  uint64 // end of the previous segment
	tail bool   // the span ends with the log
	file bool   // the damaged segment is there
	why  string // the reason recorded with the damaged segment
	// of is a segment that is replaced in part, from span.From on; nil: a whole segment or a
	// missing one is replaced.
	of   *segment
	path string
	f    env.File // nil until the first batch
	w    segmentWriter
}

// UnfitError means that batches of another replica can't replace a damaged segment: the two logs
// have different histories, or this log's history is not known well enough. The whole log has to be
// fetched anew.
type UnfitError struct{ Log, Why string }

func (e *UnfitError) Error() string {
	return fmt.Sprintf("log %s: what came can't take the place of what is damaged: %s", e.Log, e.Why)
}

func (l *Log) unfit(format string, args ...any) error {
	return &UnfitError{Log: l.name, Why: fmt.Sprintf(format, args...)}
}

// errMeanwhile means that the log has changed since the repair began. The caller begins again with
// Lacks.
var errMeanwhile = errors.New("the log was changed while it was repaired")

// Repair begins to repair the first span that the log lacks. It returns nil if it lacks none.
// Nothing may be appended until Finish or Abandon.
func (l *Log) Repair() (*Repair, error) {
	spans := l.Lacks()
	if len(spans) == 0 {
		return nil, nil
	}
	return l.repair(spans[0], false)
}

// RepairLed is Repair of the span that contains an offset, while the log may be appended to. It
// returns nil if the log does not lack the offset.
func (l *Log) RepairLed(offset uint64) (*Repair, error) {
	for _, span := range l.Lacks() {
		if span.From <= offset && offset < span.Next {
			return l.repair(span, true)
		}
	}
	return nil, nil
}

func (l *Log) repair(span Span, led bool) (*Repair, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return nil, err
	}
	r := &Repair{log: l, span: span, cuts: l.cuts, next: span.From, why: "damaged, and repaired from another replica"}
	r.tail = !led && r.span.Next == l.end
	for _, s := range l.segments {
		if s.end <= r.next {
			r.low = s.end
		}
		r.file = r.file || s.base <= r.next && r.next < s.end
	}
	return r, nil
}

// Span returns the offsets of the repair that are still missing.
func (r *Repair) Span() Span { return Span{r.next, r.span.Next} }

// Begun reports whether a batch has been added.
func (r *Repair) Begun() bool { return r.f != nil }

// Add adds the next batch, which was checked with ParseBatch. The first batch may begin at or
// before the log's start, if the start has moved. A batch across a bound of the span is cut there:
// replicas compact independently, so their batches may have different bounds. At the end of the log
// it is not cut, and the log ends with it: there the other replica may have a recent batch of
// another history, and its extensions say what its records are as a whole.
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
	if !r.tail && b.Base() < r.span.Next && r.span.Next < b.End() {
		if b, err = b.Until(r.span.Next); err != nil {
			return err
		}
	}
	if b.Base() != r.next || r.next >= r.span.Next || b.End() > r.span.Next && !r.tail {
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

// AddOwn adds what can be read of the damaged segment itself, from the offset on that is due, and
// reports whether that is anything. It adds what is before the offset until, and only batches of
// epoch, unless that is 0. What was added before, and is added later, must be of the same log up to
// there. A segment that the disk can't read has nothing.
func (r *Repair) AddOwn(epoch, until uint64) (added bool, err error) {
	from := r.next
	v, err := r.log.NewCursor(from).Read(scanWindow)
	_, damaged := errors.AsType[*CorruptError](err)
	if _, unread := errors.AsType[*env.DiskError](err); damaged || unread {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer v.Release()
	end := min(until, r.span.Next)
	for b, ok := v.Next(); ok && b.Base() < end && !r.Full() && err == nil; b, ok = v.Next() {
		if epoch > 0 && b.Epoch() != epoch {
			break
		}
		if b, err = b.Until(until); err == nil {
			err = r.Add(b)
		}
	}
	return r.next > from, err
}

// Own returns the epoch of what the damaged segment itself has from the offset on that is due, and
// the offset up to which it can be read and is of that epoch. It returns zeros if that offset can't
// be read.
func (r *Repair) Own() (epoch, until uint64) {
	v, err := r.log.NewCursor(r.next).Read(scanWindow)
	if err != nil {
		return 0, 0
	}
	defer v.Release()
	for b, ok := v.Next(); ok && b.Base() < r.span.Next && (epoch == 0 || b.Epoch() == epoch); b, ok = v.Next() {
		epoch, until = b.Epoch(), b.End()
	}
	return epoch, until
}

// create creates the file, named after the first batch.
func (r *Repair) create() (err error) {
	fresh := newSegment(r.log.dir, SegmentRef{Base: r.next})
	r.path = fresh.path + beingRepaired[len(segmentEnd):]
	if r.f, err = r.log.disk.createAnew(r.path); err != nil {
		return err
	}
	r.w = segmentWriter{log: r.log.secret, s: fresh, f: r.f, buf: appendHeader(nil, r.log.secret, fresh.base, 0)}
	return nil
}

// Full reports whether Finish is due: the span is complete, or the segment has its full size.
func (r *Repair) Full() bool {
	largest := r.log.disk.opts.SegmentLargest
	if r.file {
		largest *= mostRepaired
	}
	return r.Begun() && (r.next >= r.span.Next || r.w.written+int64(len(r.w.buf)) >= largest)
}

// mostRepaired is by how much a segment that replaces a damaged file may exceed the usual size. The
// other replica may have compacted less. Until the segment is complete, the damaged file has what
// the other replica lacks, or does not send any more.
const mostRepaired = 16

// Finish syncs and verifies the new segment, replaces the damaged one by it, and sets that aside.
// It returns the path of the damaged one. A crash leaves the log from before or after the repair.
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

// Abandon removes the file. If that fails, the next opening removes it.
func (r *Repair) Abandon() {
	if r.f != nil {
		_ = r.f.Close() // the file is durable or not needed
		r.f = nil
	}
	if r.path != "" {
		_ = r.log.disk.fs.Remove(r.path)
		r.path = ""
	}
}

// place switches the log to the new segment, whose file is complete and durable.
func (r *Repair) place(fresh *segment) (aside string, err error) {
	l := r.log
	l.admin.Lock()
	defer l.admin.Unlock()
	old, err := r.judge(fresh)
	if err != nil {
		return "", err
	}
	if err := l.place(fresh, r.path); err != nil {
		return "", err
	}
	r.path = ""
	var a *Aside
	if old != nil {
		if a, err = l.makeAside(old, r.why); err != nil {
			return "", l.unplace(fresh, err)
		}
	}
	err = l.change(func(m *Manifest) {
		m.Durable = max(m.Durable, fresh.end)
		m.Clean = min(m.Clean, fresh.base) // the other replica may have compacted less
		if old != nil {
			m.Durable = max(m.Durable, old.end)
			m.Aside = append(m.Aside, *a)
		}
		m.Segments = slices.DeleteFunc(m.Segments, func(r SegmentRef) bool { // including missing ones
			return old != nil && r.file() == old.ref() || r.Base >= fresh.base && r.Base < fresh.end
		})
		m.insert(fresh)
		m.own(Span{fresh.base, fresh.end})
		m.Epochs = replaceEpochs(m.Epochs, fresh)
		m.Bad = slices.DeleteFunc(m.Bad, func(base uint64) bool { return base == fresh.base || old != nil && base == old.base })
		if r.of != nil {
			m.shorten(r.of.base, fresh.base)
		}
	})
	if err != nil {
		return "", l.unplace(fresh, err)
	}
	l.mu.Lock()
	if r.tail { // the batches in memory may be of another history
		l.settle()
		l.dropTail()
	}
	l.cuts++ // voids a compaction under way, which doesn't know the new segment
	l.segments = slices.DeleteFunc(l.segments, func(s *segment) bool { return s == old })
	// The rest of its file no longer belongs to the log.
	if at := slices.Index(l.segments, r.of); at >= 0 {
		short := newSegment(l.dir, r.of.ref())
		short.end, short.closed, short.bad, short.checked = fresh.base, true, true, r.of.checked
		l.segments[at] = short
	}
	at, _ := slices.BinarySearchFunc(l.segments, fresh.base, func(s *segment, base uint64) int { return cmp.Compare(s.base, base) })
	l.segments = slices.Insert(l.segments, at, fresh)
	l.epochs = replaceEpochs(l.epochs, fresh)
	l.generation = max(l.generation, fresh.gen)
	if fresh.end > l.end {
		l.end, l.durable = fresh.end, fresh.end
	}
	l.mu.Unlock()
	if r.of != nil {
		l.disk.handles.forget(r.of)
	}
	if old == nil {
		return "", nil
	}
	l.disk.handles.forget(old)
	return filepath.Join(l.asidePath(a), old.ref().name()), l.moveAside(a)
}

// shorten sets the end of a damaged segment, before the end of its file.
func (m *Manifest) shorten(base, end uint64) {
	if at, there := m.find(base); there {
		m.Segments[at].End = end
	}
	if !slices.Contains(m.Bad, base) {
		m.Bad = append(m.Bad, base)
	}
}

// replaceEpochs returns the epochs of a log after a new segment has replaced a damaged one. If the
// log ended with the damaged one, the other replica may have other records there. Then these are
// stale:
//
//  1. an epoch that began within the segment and is not in it;
//  2. an epoch that began behind the segment, where more is to be replaced, and is older than the
//     segment's last epoch.
func replaceEpochs(known []Epoch, fresh *segment) []Epoch {
	last := fresh.epochs[len(fresh.epochs)-1].Epoch
	kept := slices.DeleteFunc(slices.Clone(known), func(e Epoch) bool {
		return e.Start >= fresh.base && (e.Start < fresh.end || e.Epoch < last)
	})
	return mergeEpochs(kept, fresh.epochs)
}

// judge checks a new segment against its neighbours and the damaged segment that it replaces, and
// returns that one, or nil.
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
	if r.of != nil && !slices.Contains(l.segments, r.of) {
		return nil, errMeanwhile
	}
	for _, s := range l.segments {
		switch n := len(s.epochs); {
		case s == r.of:
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
	if old == nil || r.tail {
		return old, nil // at the end of the log, the other replica may have other epochs
	}
	// The readable part of the damaged segment contains some of its epochs, each perhaps only from
	// a later offset on.
	for _, e := range old.epochs {
		same := func(f Epoch) bool { return f.Epoch == e.Epoch && f.Start <= e.Start }
		if e.Start >= fresh.base && e.Start < fresh.end && !slices.ContainsFunc(fresh.epochs, same) {
			return nil, l.unfit("it has epochs %v, and the damaged one %v", fresh.epochs, old.epochs)
		}
	}
	return old, nil
}
