package indexing

import (
	"context"
	"errors"
	"slices"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/subjectindex"
)

// follow has the index read the log up to, not including, end, but no more than some bytes. It
// opens the index if it is not open. The turn is held.
func (x *Index) follow(ctx context.Context, end uint64, bytes int) error {
	defer x.count()
	for attempt := 0; ; attempt++ {
		if x.shard == nil || !x.adapt() {
			if attempt > 2 {
				return x.notReady("its segments change all the time")
			}
			x.shut()
			if err := x.open(end); err != nil {
				return err
			}
		}
		err := x.read(ctx, end, bytes)
		if gone, ok := errors.AsType[*log.RangeError](err); ok && gone.Start > x.end {
			x.shut() // retention was faster
			continue
		}
		return err
	}
}

// count tells the set how much memory the index takes, and has it flushed if all take too much.
func (x *Index) count() {
	if x.shard == nil {
		return
	}
	now := int64(x.shard.Bytes())
	sum := x.set.parts.Add(now - x.bytes)
	x.bytes = now
	if sum > partsBytes && now > partsBytes/mostOpen {
		x.shard.Freeze()
		x.set.submit(x)
	}
}

// open opens the index with the sealed segments that end below the high watermark.
func (x *Index) open(end uint64) error {
	layout, states := x.log.SegmentStates()
	states = from(states, layout.Start)
	known := 0
	for known < len(states) && states[known].Sealed && states[known].End <= end {
		known++
	}
	sealed := known
	segments := make([]subjectindex.SegmentState, 0, known+1)
	next := layout.Start
	for _, g := range states[:known] {
		segments = append(segments, subjectindex.SegmentState{Segment: nameOf(g), End: g.End, Epoch: g.Epoch, Sealed: true})
		next = max(next, g.End)
	}
	if known < len(states) {
		if g := states[known]; g.Base <= next {
			segments = append(segments, subjectindex.SegmentState{Segment: nameOf(g), End: max(g.Base, next)})
		} else {
			return x.notReady("a segment of the log is missing")
		}
		known++
	}
	shard, err := subjectindex.Open(x.ctx, subjectindex.Config{
		FS: x.set.disk.FS(), Dir: x.log.Dir(), Cache: x.set.cache, Secret: x.log.Secret(), Source: (*source)(x),
		Wake: func() { x.set.submit(x) },
	}, layout.Start, segments)
	if err != nil {
		return err
	}
	x.shard, x.layout, x.start, x.end = shard, layout, layout.Start, next
	x.segments, x.ahead = slices.Clone(states[:known]), slices.Clone(states[known:])
	if known > sealed {
		x.segments[known-1].Sealed = false // it is read record by record
	}
	x.unsealed = false
	x.cursor = x.log.NewCursor(next)
	if known > sealed && states[sealed].Sealed {
		x.cursor = x.log.NewFileCursor(next)
	}
	x.set.submit(x) // what is missing
	return nil
}

// from returns segments without those that end at an offset or before. One always stays.
func from(segments []log.SegmentState, offset uint64) []log.SegmentState {
	for len(segments) > 1 && segments[1].Base <= offset {
		segments = segments[1:]
	}
	return segments
}

func nameOf(g log.SegmentState) subjectindex.Segment {
	return subjectindex.Segment{Base: g.Base, Generation: g.Generation}
}

// adapt has the index follow what became of the log's segments. It reports whether it could; if
// not, the index is to be opened anew.
func (x *Index) adapt() bool {
	if !x.unsealed && x.log.Layout() == x.layout {
		return true // nothing but the last segment can have changed
	}
	layout, states := x.log.SegmentStates()
	if layout.Cuts != x.layout.Cuts || layout.Start > x.end {
		return false
	}
	x.layout = layout
	if layout.Start > x.start {
		x.start = layout.Start
		x.shard.Trim(x.start)
	}
	states = from(states, x.start)
	known := from(x.segments, x.start)
	x.unsealed = false
	fresh := make([]log.SegmentState, 0, len(known))
	for len(known) > 0 {
		if len(states) == 0 || states[0].Base != known[0].Base {
			return false
		}
		g := states[0]
		states = states[1:]
		if g.Generation == known[0].Generation {
			switch {
			case known[0].Sealed:
				g.Sealed = true
			case g.Sealed && g.End <= x.end:
				x.shard.Sealed(nameOf(g), g.Epoch)
			default:
				g.Sealed = false
				x.unsealed = x.unsealed || len(known) > 1
			}
			fresh, known = append(fresh, g), known[1:]
			continue
		}
		n := 0
		for n < len(known) && known[n].Sealed && known[n].End <= g.End {
			n++
		}
		if n == 0 || known[n-1].End != g.End {
			return false
		}
		var replaced []subjectindex.Segment
		for _, k := range known[:n] {
			replaced = append(replaced, nameOf(k))
		}
		same := n == 1 && known[0].Holes == g.Holes && known[0].Epoch == g.Epoch
		if x.shard.Replace(replaced, nameOf(g), g.End, same, nil) != nil {
			return false
		}
		g.Sealed = true
		fresh, known = append(fresh, g), known[n:]
	}
	x.segments, x.ahead = fresh, states
	return len(x.ahead) <= behindSegments
}

// errMore says that an index was read as far as it was to be at once.
var errMore = &NotReadyError{Why: "it is being made"}

// read adds the records up to, not including, end.
func (x *Index) read(ctx context.Context, end uint64, bytes int) error {
	for x.end < end {
		if err := ctx.Err(); err != nil {
			return err
		}
		switch {
		case x.set.parts.Load() > 2*partsBytes:
			return x.notReady("other indexes take all memory for records that are not in files yet")
		case bytes <= 0:
			return errMore
		}
		if err := x.enter(); err != nil {
			return err
		}
		if x.cursor.Next() != x.end {
			x.cursor.Seek(x.end)
		}
		v, err := x.cursor.Read(readBytes)
		if err != nil {
			return err
		}
		if v.End == v.From {
			v.Release()
			return x.notReady("the log ends before")
		}
		n, err := x.add(&v, end)
		v.Release()
		if err != nil {
			return err
		}
		bytes -= n
	}
	return nil
}

// enter begins the segment that the next record is in.
func (x *Index) enter() error {
	n := len(x.segments)
	if n > 0 && !x.segments[n-1].Sealed && (len(x.ahead) == 0 || x.end < x.ahead[0].Base) {
		return nil
	}
	if len(x.ahead) == 0 || x.ahead[0].Base != x.end && n > 0 {
		return x.notReady("a segment of the log is missing")
	}
	g := x.ahead[0]
	sealed := g.Sealed
	g.Sealed = false // until it was read
	x.shard.Roll(nameOf(g))
	x.unsealed = true // the one before, maybe
	x.segments, x.ahead = append(x.segments, g), x.ahead[1:]
	if x.cursor = x.log.NewCursor(x.end); sealed {
		x.cursor = x.log.NewFileCursor(x.end)
	}
	return nil
}

// add adds the records of a view, up to the end of the segment, and returns about how many bytes
// were read.
func (x *Index) add(v *log.View, end uint64) (bytes int, err error) {
	limit := end
	if len(x.ahead) > 0 {
		limit = min(limit, x.ahead[0].Base)
	}
	x.shard.Begin()
	defer x.shard.End()
	for b, ok := v.Next(); ok && x.end < limit; b, ok = v.Next() {
		bytes += len(b)
		var r log.Record
		var run []byte // the subject of n records that end at x.end
		n := 0
		it := b.Records()
		for it.Next(&r) {
			if r.Offset < x.end {
				continue
			}
			if r.Offset >= limit {
				break
			}
			if n > 0 && (r.Offset != x.end || string(r.Subject) != string(run)) {
				x.shard.Add(x.end-uint64(n), n, run)
				n = 0
			}
			run = r.Subject
			n++
			x.end = r.Offset + 1
		}
		if n > 0 {
			x.shard.Add(x.end-uint64(n), n, run)
		}
		if it.Err() != nil {
			return bytes, it.Err()
		}
		if to := min(b.End(), limit); to > x.end {
			x.shard.Skip(to)
			x.end = to
		}
	}
	return bytes, nil
}

// work does a piece of work: it reads more of the log if questions need it, and makes one file. more
// says that there is more to do.
func (x *Index) work() (more bool, err error) {
	if err := x.lock(x.ctx); err != nil {
		return false, err
	}
	if x.unwanted.Swap(false) {
		x.shut()
	}
	if x.shard == nil {
		x.report()
		x.unlock()
		return false, nil
	}
	err = x.follow(x.ctx, x.want, workBytes)
	behind := err == errMore
	shard := x.shard
	x.unlock()
	if shard == nil || err != nil && !notReady(err) {
		return false, err
	}
	more, err = shard.Work(x.ctx)
	if x.lock(x.ctx) != nil {
		return false, err
	}
	defer x.unlock()
	x.count()
	x.report()
	return more || behind, err
}

// report wakes those that wait for the worker. The turn is held.
func (x *Index) report() {
	if x.progress != nil {
		close(x.progress)
		x.progress = nil
	}
}

// source reads the log to make what an index lacks.
type source Index

// Subjects implements subjectindex.Source.
func (x *source) Subjects(from, to uint64, record func(offset uint64, subject []byte) error, gap func(from, to uint64) error) error {
	c := x.log.NewFileCursor(from)
	for next := from; next < to; {
		c.Seek(next)
		v, err := c.Read(readBytes)
		if damage, ok := errors.AsType[*log.CorruptError](err); ok && damage.Next > next {
			if err := gap(next, min(damage.Next, to)); err != nil {
				return err
			}
			next = damage.Next
			continue
		}
		if err != nil {
			return err
		}
		if v.End == v.From {
			v.Release()
			return (*Index)(x).notReady("the log ends before")
		}
		err = each(&v, next, to, record)
		next = v.End
		v.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

// each calls f with the records of a view within a range.
func each(v *log.View, from, to uint64, f func(offset uint64, subject []byte) error) error {
	for b, ok := v.Next(); ok; b, ok = v.Next() {
		it := b.Records()
		for r := (log.Record{}); it.Next(&r); {
			if r.Offset < from || r.Offset >= to {
				continue
			}
			if err := f(r.Offset, r.Subject); err != nil {
				return err
			}
		}
		if it.Err() != nil {
			return it.Err()
		}
	}
	return nil
}
