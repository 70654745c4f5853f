package log

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/limits"
)

// Rewritten counts what a compaction or an Expunge has done.
type Rewritten struct {
	Records  uint64 // removed
	Bytes    int64  // by which the files became smaller, before compression
	Read     int64
	Segments int // rewritten
}

// rewriter replaces sealed segments by ones without some of their records.
type rewriter struct {
	log   *Log
	pace  *Pace
	cuts  uint64 // of the log when the job began
	start uint64 // of the log
	// taken is the offset below which batches lose their removals (ExtensionRemovals).
	taken uint64
	// stays reports whether a record stays.
	stays func(r *Record) bool
	// bound returns the offset below which the log must not be truncated, because records of a batch
	// were removed. It is called after stays was called for them. lost counts them.
	bound func(lost uint64) uint64
	// settle is called before a new file replaces others. It may be nil.
	settle func() error
}

// errCut is returned when the log was truncated, reset or repaired during a rewrite.
var errCut = errors.New("the log was cut meanwhile")

// rewrite replaces the first segment of todo, and as many of the following ones as more allows, by
// one file without the removed records. It returns the number of segments replaced, and the new
// one.
func (w *rewriter) rewrite(ctx context.Context, todo []*segment, more func(n int, size int64) bool, ends string, out *Rewritten) (n int, fresh *segment, err error) {
	l, first := w.log, todo[0]
	path := first.path + ends[len(segmentEnd):]
	f, err := l.disk.createAnew(path)
	if err != nil {
		return 1, nil, err
	}
	fresh = &segment{base: first.base, end: first.base, path: first.path}
	n, records, err := w.write(ctx, todo, more, fresh, f, out)
	if err == nil {
		if err = f.Sync(); err != nil {
			err = &syncError{err}
		}
	}
	if err == nil {
		err = l.verifyPlain(fresh, f)
	}
	err = errors.Join(err, f.Close())
	if err == nil && w.settle != nil {
		err = w.settle()
	}
	if err == nil {
		err = w.replace(todo[:n], fresh, path)
	}
	if err != nil {
		if removeErr := l.disk.fs.Remove(path); removeErr != nil && !errors.Is(removeErr, fs.ErrNotExist) && l.disk.Failed() == nil {
			return 1, nil, errors.Join(err, removeErr)
		}
		return 1, nil, err
	}
	saved := -fresh.pos
	for _, s := range todo[:n] {
		saved += s.pos
	}
	out.Records, out.Bytes, out.Segments = out.Records+records, out.Bytes+saved, out.Segments+n
	return n, fresh, nil
}

// each calls f with each batch of a segment, and checks that their offsets are dense.
func (w *rewriter) each(ctx context.Context, s *segment, out *Rewritten, f func(b Batch) error) error {
	file, err := w.log.disk.handles.acquire(s)
	if err != nil {
		return err
	}
	defer w.log.disk.handles.release(s)
	in := &paced{File: file, ctx: ctx, pace: w.pace, path: s.path}
	defer func() { out.Read += in.bytes }()
	r, err := newFrames(in)
	if err != nil {
		return err
	}
	for pos, end := int64(0), s.base; ; {
		fr, err := r.next(pos)
		switch disk := (*env.DiskError)(nil); {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &disk):
			return err
		case err == nil && fr.kind() == kindBatch && Batch(fr).Base() != end:
			err = fmt.Errorf("a batch from offset %d stands where %d is due", Batch(fr).Base(), end)
		case err == nil && fr.kind() == kindFooter && end != s.end:
			err = fmt.Errorf("the segment ends at offset %d", end)
		}
		if err != nil && w.log.cutSince(w.cuts) {
			return errCut
		}
		if err != nil {
			w.log.blame(s)
			return &CorruptError{File: s.path, Pos: pos, From: end, Next: s.end, Reason: err.Error()}
		}
		if fr.kind() == kindFooter {
			return nil
		}
		if fr.kind() == kindBatch {
			if err := f(Batch(fr)); err != nil {
				return err
			}
			end = Batch(fr).End()
		}
		pos += int64(len(fr))
	}
}

// write writes the remaining records of the first segments of todo to f, as many of them as more
// allows. It returns the number of segments and of removed records.
func (w *rewriter) write(ctx context.Context, todo []*segment, more func(n int, size int64) bool, fresh *segment, f env.File, out *Rewritten) (n int, gone uint64, err error) {
	to := segmentWriter{log: w.log.secret, s: fresh, f: f, buf: appendHeader(nil, w.log.secret, fresh.base, 0)}
	t := thinner{taken: w.taken}
	flush := func() error {
		if !t.open {
			return nil
		}
		return to.add(t.take())
	}
	add := func(b Batch) error {
		if b.Lost() {
			return errors.Join(flush(), to.add(b))
		}
		lost, size := uint64(0), len(b)
		keep := func(r *Record) bool {
			if w.stays(r) {
				return true
			}
			lost++
			return false
		}
		if len(b) >= limits.IndexInterval/2 { // checked first, since a large batch may stay as it is
			it := b.Records()
			for r := (Record{}); it.Next(&r); {
				keep(&r)
			}
			if it.Err() != nil {
				return it.Err()
			}
			if lost == 0 {
				return errors.Join(flush(), to.add(b))
			}
			if lost == uint64(b.Count()) {
				size = batchHeader
			}
			lost = 0
		}
		if t.open && !t.fits(b, size) {
			if err := flush(); err != nil {
				return err
			}
		}
		if err := t.add(b, b.Base(), keep); err != nil {
			return err
		}
		t.judged = max(t.judged, w.bound(lost))
		// The group was as large as a batch may be, and a sparse batch needs a few bytes more.
		if t.size() > limits.BatchBytes {
			t.open, lost = false, 0
			return to.add(b)
		}
		gone += lost
		return nil
	}
	for n == 0 || more(n, to.written+int64(len(to.buf)+t.size())) {
		if err := w.each(ctx, todo[n], out, add); err != nil {
			return 1, 0, err
		}
		n++
	}
	return n, gone, errors.Join(flush(), to.end())
}

// segmentWriter writes a sealed segment from front to end.
type segmentWriter struct {
	log     uint64
	s       *segment
	f       env.File
	buf     []byte
	written int64
	marked  int64 // position of the last marker
}

// markedEvery is the distance between markers in a segment that is written as a whole: a damaged
// block costs no more than the batches up to the next marker.
const markedEvery = 64 << 10

// add writes a batch, and a marker before it each markedEvery bytes. After damage, reading resumes
// at the next marker.
func (w *segmentWriter) add(b Batch) error {
	if len(w.buf) >= 2*scanWindow {
		if err := w.flush(); err != nil {
			return err
		}
	}
	if pos := w.written + int64(len(w.buf)); pos-w.marked >= markedEvery {
		w.buf = appendMarker(w.buf, w.log, pos, w.written, w.s.end)
		w.marked = pos
	}
	w.s.begins(b)
	w.s.note(b, w.written+int64(len(w.buf)))
	w.buf = append(w.buf, b...)
	return nil
}

func (w *segmentWriter) flush() error {
	_, err := w.f.WriteAt(w.buf, w.written)
	w.written += int64(len(w.buf))
	w.buf = w.buf[:0]
	return err
}

// end writes the footer.
func (w *segmentWriter) end() error {
	s := w.s
	s.pos = w.written + int64(len(w.buf))
	w.buf = s.appendFooter(w.buf, w.log)
	if err := w.flush(); err != nil {
		return err
	}
	s.size, s.written, s.synced, s.closed, s.index = w.written, s.pos, s.pos, true, nil
	return nil
}

// verifyPlain reads all of a new file for s as a reader would.
func (l *Log) verifyPlain(s *segment, f env.File) error {
	read := &segment{base: s.base, path: s.path, end: s.end}
	found, err := read.scan(f, l.secret, false, 0, 0)
	if err != nil {
		return err
	}
	if len(found.damages) > 0 || read.end != s.end || read.pos != s.pos || read.holes != s.holes || !slices.Equal(read.epochs, s.epochs) {
		return fmt.Errorf("%s: what was written isn't what is read", s.path)
	}
	_, err = (&segment{base: s.base, path: s.path, end: s.end}).readFooter(f, l.secret)
	return err
}

// replace replaces a group of segments by fresh, whose durable file is at path. If the log was cut
// meanwhile or has lost a segment of the group, it returns an error and changes nothing.
func (w *rewriter) replace(group []*segment, fresh *segment, path string) error {
	l := w.log
	l.admin.Lock()
	defer l.admin.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	l.mu.Lock()
	i := slices.Index(l.segments, group[0])
	there := i >= 0 && len(l.segments) >= i+len(group) && slices.Equal(l.segments[i:i+len(group)], group)
	pinned := l.held(fresh.end) < fresh.end
	l.mu.Unlock()
	switch {
	case l.cutSince(w.cuts), pinned:
		return errCut
	case !there:
		return fs.ErrNotExist
	}
	// As in Log.replace.
	return l.swap(group, fresh, path, func(m *Manifest) { m.Durable = max(m.Durable, fresh.end) })
}

// cutSince reports whether the log was truncated, reset or repaired after its counter was cuts.
func (l *Log) cutSince(cuts uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cuts != cuts
}
