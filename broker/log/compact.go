package log

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"time"

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
	// Taken is the offset below which batches lose their removals (ExtensionRemovals): another log
	// has them.
	Taken uint64
	Pace  *Pace // may be nil
}

// Compaction is the result of Compact.
type Compaction struct {
	Rewritten
	Clean uint64 // below, each subject has one record
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

// compaction is one pass over a log.
type compaction struct {
	rewriter
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
	c := &compaction{rewriter: rewriter{log: l, pace: o.Pace, cuts: l.cuts, start: l.start, taken: o.Taken},
		clean: max(clean, l.start), subjects: o.Subjects, seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
	c.stays = c.newestOf
	c.bound = func(uint64) uint64 { return c.end }
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

// newestOf reports whether the map knows no newer record of the record's subject.
func (c *compaction) newestOf(r *Record) bool {
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
	if first := todo[0]; !c.next(todo, 1, first.pos) {
		if needless, err := c.needless(ctx, first, &out.Rewritten); needless || err != nil {
			return 1, err
		}
	}
	next := func(n int, size int64) bool { return c.next(todo, n, size) }
	n, _, err = c.rewriter.rewrite(ctx, todo, next, beingCompacted, &out.Rewritten)
	return n, err
}

// errEnough ends the reading of a segment early.
var errEnough = errors.New("enough is known")

// needless reports whether all records of a segment stay.
func (c *compaction) needless(ctx context.Context, s *segment, out *Rewritten) (bool, error) {
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

// judged returns the offset below which nothing may be cut: compaction has removed records because
// of newer ones below that offset. mu is held.
func (l *Log) judged() (offset uint64) {
	for _, s := range l.segments {
		offset = max(offset, s.judged)
	}
	return offset
}
