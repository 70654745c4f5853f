package log

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/limits"
)

// beingCompacted ends the name of a file that is to replace one or more segments. Opening the log
// deletes such a file that a crash has left.
const beingCompacted = segmentEnd + ".compact"

// CompactOptions bound a compaction. With zero values for all but Below, everything below it is
// compacted, without a pause.
type CompactOptions struct {
	// Below is the high watermark. Only segments that end there or before are compacted, since
	// later records may be truncated.
	Below uint64
	// Before excludes segments with a record of this time or later. Zero excludes none.
	Before time.Time
	// Share and Least are what must have been appended since the last compaction: a share of all
	// segments below Below, and bytes. With less, nothing is done.
	Share float64
	Least int64
	// Subjects bounds the subjects in memory at once; 0: limits.CompactSubjects. A log with more is
	// read more than once.
	Subjects int
	Pace     *Pace // may be nil
}

// Compaction is the result of Compact.
type Compaction struct {
	Records  uint64 // removed
	Bytes    int64  // by which the files became smaller, before compression
	Read     int64
	Segments int    // rewritten
	Clean    uint64 // below, each subject has one record
}

// Compact rewrites sealed segments without the records that have a newer one of the same subject.
//
//  1. Offsets stay. A batch that loses records becomes a sparse batch.
//  2. Neighbouring batches of one epoch are merged, and so are small neighbouring segments.
//  3. The newest record of a subject stays, and so do records that a Hold pins.
//
// The algorithm is that of Kafka's cleaner. A map takes the newest offset of each subject, by a
// hash of 128 bits, from the records appended since the last compaction, until it is full. Then
// each segment up to there is rewritten if it holds an older record of one of these subjects. The
// manifest remembers the progress, which only saves time.
//
// Rejected: lists per subject on disk. A log that has to drop newer records could restore older
// ones (L14), and each record would cost a write.
//
// Compact runs beside appends and reads, and excludes Compress. It stops with ctx, and when the log
// is closed. On damage it returns a *CorruptError. A new file is complete, synced and verified
// before the manifest names it, so a crash leaves the old files or the new one.
func (l *Log) Compact(ctx context.Context, o CompactOptions) (out Compaction, err error) {
	ctx, end, err := l.beginUpkeep(ctx)
	if err != nil {
		return out, err
	}
	defer end()
	l.upkeep.compressing.Lock()
	defer l.upkeep.compressing.Unlock()
	if o.Subjects == 0 {
		o.Subjects = limits.CompactSubjects
	}
	for first := true; ; first = false {
		if err := l.usable(); err != nil {
			return out, err
		}
		c, todo := l.plan(o, first)
		out.Clean = c.clean
		if len(todo) == 0 {
			return out, nil
		}
		err := c.run(ctx, todo, &out)
		if err = l.disk.noticed(err); errors.Is(err, errCut) {
			return out, nil // the map is void; the next call begins again
		}
		if err != nil {
			return out, fmt.Errorf("log %s: compact: %w", l.name, err)
		}
	}
}

// errCut is returned when the log was truncated, reset or repaired during a compaction.
var errCut = errors.New("the log was cut meanwhile")

// compaction is one pass over a log.
type compaction struct {
	log      *Log
	pace     *Pace
	cuts     uint64 // of the log when it began
	start    uint64 // of the log
	clean    uint64 // below, each subject has one record
	limit    uint64 // end of the segments that may be rewritten
	end      uint64 // of the records that newest covers
	subjects int
	newest   map[subjectHash]uint64
	seeds    [2]maphash.Seed
}

// subjectHash is a hash of a subject with secret random seeds, so collisions are not to be expected
// and can't be provoked.
type subjectHash [2]uint64

// plan returns the segments to compact, oldest first: none if too little was appended.
func (l *Log) plan(o CompactOptions, judge bool) (*compaction, []*segment) {
	clean := l.man.now.Load().Clean
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &compaction{log: l, pace: o.Pace, cuts: l.cuts, start: l.start, clean: max(clean, l.start), subjects: o.Subjects,
		seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
	bound := min(o.Below, l.durable, l.held(l.end))
	var todo []*segment
	var dirty, all int64
	for _, s := range l.segments {
		if s.end <= l.start {
			continue
		}
		if !s.closed || s.index != nil || s.end > bound || !o.Before.IsZero() && s.last >= o.Before.UnixNano() {
			break
		}
		if _, disowned := l.man.now.Load().disownedIn(s); disowned {
			break // it is to be replaced
		}
		todo = append(todo, s)
		c.limit = s.end
		all += s.pos
		if s.end > c.clean {
			dirty += s.pos
		}
	}
	if c.clean >= c.limit || judge && (dirty < o.Least || float64(dirty) < o.Share*float64(all)) {
		return c, nil
	}
	return c, todo
}

// run fills the map of newest offsets, and rewrites the segments below its end.
func (c *compaction) run(ctx context.Context, todo []*segment, out *Compaction) error {
	if err := c.learn(ctx, out); err != nil {
		return err
	}
	for len(todo) > 0 && todo[0].base < c.end {
		n, err := c.rewrite(ctx, todo, out)
		if errors.Is(err, fs.ErrNotExist) && !c.log.holdsSegment(todo[0]) {
			err = nil // retention was faster
		}
		if err != nil {
			return err
		}
		todo = todo[n:]
	}
	l := c.log
	l.admin.Lock()
	defer l.admin.Unlock()
	if l.cutSince(c.cuts) {
		return errCut
	}
	out.Clean = c.end
	return l.change(func(m *Manifest) { m.Clean = c.end })
}

// learn puts the newest offset of each subject into the map, beginning where the log is clean,
// until the map is full.
func (c *compaction) learn(ctx context.Context, out *Compaction) error {
	c.newest, c.end = map[subjectHash]uint64{}, c.limit
	for cursor := c.log.NewCursor(c.clean); cursor.Next() < c.limit; {
		v, err := cursor.Read(scanWindow)
		if gone, ok := errors.AsType[*RangeError](err); ok && gone.Start > cursor.Next() {
			cursor.Seek(gone.Start) // retention was faster
			continue
		}
		if c.log.cutSince(c.cuts) || err == nil && v.End == v.From {
			v.Release()
			return errCut
		}
		if err != nil {
			return err
		}
		n := len(v.data)
		full, err := c.note(&v)
		v.Release()
		if err != nil || full {
			return err
		}
		out.Read += int64(n)
		if err := c.pace.spend(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// note puts the records of a view into the map, and reports whether it is full.
func (c *compaction) note(v *View) (full bool, err error) {
	for b, ok := v.Next(); ok; b, ok = v.Next() {
		it := b.Records()
		var subject []byte
		var hash subjectHash
		for r := (Record{}); it.Next(&r); {
			if r.Offset < c.clean {
				continue
			}
			if r.Offset >= c.limit {
				return true, nil
			}
			if subject == nil || string(subject) != string(r.Subject) {
				subject, hash = r.Subject, c.hash(r.Subject)
			}
			if _, known := c.newest[hash]; !known && len(c.newest) >= c.subjects {
				c.end = r.Offset
				return true, nil
			}
			c.newest[hash] = r.Offset
		}
		if it.Err() != nil {
			return false, it.Err()
		}
	}
	return false, nil
}

func (c *compaction) hash(subject []byte) subjectHash {
	return subjectHash{maphash.Bytes(c.seeds[0], subject), maphash.Bytes(c.seeds[1], subject)}
}

// stays reports whether the map knows no newer record of the record's subject.
func (c *compaction) stays(r *Record) bool {
	if r.Offset < c.start {
		return false
	}
	newest, known := c.newest[c.hash(r.Subject)]
	return !known || r.Offset >= newest
}

// next reports whether the n-th segment can be merged with the segments before it, of which size
// bytes remain.
func (c *compaction) next(todo []*segment, n int, size int64) bool {
	return n < len(todo) && todo[n].base < c.end && todo[n].base == todo[n-1].end && size+todo[n].pos <= c.log.disk.opts.SegmentLargest
}

// rewrite replaces the first segment, and as many of the following ones as fit, by one file without
// the superseded records. It returns the number of segments replaced. A single segment that would
// lose nothing is left as it is.
func (c *compaction) rewrite(ctx context.Context, todo []*segment, out *Compaction) (n int, err error) {
	l, first := c.log, todo[0]
	if !c.next(todo, 1, first.pos) {
		if needless, err := c.needless(ctx, first, out); needless || err != nil {
			return 1, err
		}
	}
	path := first.path + beingCompacted[len(segmentEnd):]
	f, err := l.disk.createAnew(path)
	if err != nil {
		return 1, err
	}
	fresh := &segment{base: first.base, end: first.base, path: first.path}
	n, records, err := c.write(ctx, todo, fresh, f, out)
	if err == nil {
		if err = f.Sync(); err != nil {
			err = &syncError{err}
		}
	}
	if err == nil {
		err = l.verifyPlain(fresh, f)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = c.replace(todo[:n], fresh, path)
	}
	if err != nil {
		if removeErr := l.disk.fs.Remove(path); removeErr != nil && !errors.Is(removeErr, fs.ErrNotExist) && l.disk.Failed() == nil {
			return 1, errors.Join(err, removeErr)
		}
		return 1, err
	}
	saved := -fresh.pos
	for _, s := range todo[:n] {
		saved += s.pos
	}
	out.Records, out.Bytes, out.Segments = out.Records+records, out.Bytes+saved, out.Segments+n
	return n, nil
}

// errEnough ends the reading of a segment early.
var errEnough = errors.New("enough is known")

// needless reports whether all records of a segment stay.
func (c *compaction) needless(ctx context.Context, s *segment, out *Compaction) (bool, error) {
	err := c.each(ctx, s, out, func(b Batch) error {
		it := b.Records()
		for r := (Record{}); it.Next(&r); {
			if !c.stays(&r) {
				return errEnough
			}
		}
		return it.Err()
	})
	if err == errEnough {
		return false, nil
	}
	return err == nil, err
}

// each calls f with each batch of a segment, and checks that their offsets are dense.
func (c *compaction) each(ctx context.Context, s *segment, out *Compaction, f func(b Batch) error) error {
	file, err := c.log.disk.handles.acquire(s)
	if err != nil {
		return err
	}
	defer c.log.disk.handles.release(s)
	in := &paced{File: file, ctx: ctx, pace: c.pace, path: s.path}
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
		if err != nil && c.log.cutSince(c.cuts) {
			return errCut
		}
		if err != nil {
			c.log.blame(s)
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

// write writes the remaining records of the first segments of todo to f. It returns the number of
// segments and of removed records.
func (c *compaction) write(ctx context.Context, todo []*segment, fresh *segment, f env.File, out *Compaction) (n int, gone uint64, err error) {
	w := segmentWriter{log: c.log.secret, s: fresh, f: f, buf: appendHeader(nil, c.log.secret, fresh.base, 0)}
	var t thinner
	flush := func() error {
		if !t.open {
			return nil
		}
		return w.add(t.take())
	}
	add := func(b Batch) error {
		lost := uint64(0)
		keep := func(r *Record) bool {
			if c.stays(r) {
				return true
			}
			lost++
			return false
		}
		if len(b) >= limits.IndexInterval/2 { // checked first, since a large batch may stay as it is
			for it, r := b.Records(), (Record{}); it.Next(&r); {
				keep(&r)
			}
			if lost == 0 {
				return errors.Join(flush(), w.add(b))
			}
			lost = 0
		}
		if t.open && !t.fits(b) {
			if err := flush(); err != nil {
				return err
			}
		}
		if err := t.add(b, b.Base(), keep); err != nil {
			return err
		}
		t.judged = max(t.judged, c.end)
		// The group was as large as a batch may be, and a sparse batch needs a few bytes more.
		if len(t.buf) > limits.BatchBytes {
			t.open, lost = false, 0
			return w.add(b)
		}
		gone += lost
		return nil
	}
	for n == 0 || c.next(todo, n, w.written+int64(len(w.buf)+len(t.buf))) {
		if err := c.each(ctx, todo[n], out, add); err != nil {
			return 1, 0, err
		}
		n++
	}
	return n, gone, errors.Join(flush(), w.end())
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
func (c *compaction) replace(group []*segment, fresh *segment, path string) error {
	l := c.log
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
	case l.cutSince(c.cuts), pinned:
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

// judged returns the offset below which nothing may be cut: compaction has removed records because
// of newer ones below that offset. mu is held.
func (l *Log) judged() (offset uint64) {
	for _, s := range l.segments {
		offset = max(offset, s.judged)
	}
	return offset
}
