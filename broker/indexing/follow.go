package indexing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/subjectindex"
	"github.com/carillon-mq/carillon/broker/work"
)

// step does a piece of what questions want: it closes the index, opens it, or reads more of the
// log. more says that there is more to do.
func (x *Index) step() (more bool, err error) {
	x.stepping.Lock()
	defer x.stepping.Unlock()
	if x.ctx.Err() != nil {
		return false, nil
	}
	x.turn <- struct{}{}
	unwanted := x.unwanted.Swap(false)
	x.wanted = x.wanted && !unwanted
	wanted, open := x.wanted, x.shard != nil
	again := open && (x.stale || !x.adapt())
	x.unlock()
	if open && (unwanted || again) {
		x.shut()
		open = false
	}
	if !wanted {
		x.turn <- struct{}{}
		defer x.unlock()
		x.report() // a question that still met it asks again
		return false, nil
	}
	if !open {
		if err := x.open(); err != nil {
			x.log.UseBeside(false)
			return false, passing(err)
		}
	}
	more, err = x.readMore()
	return more, passing(x.unreadable(err))
}

// readMore reads a piece of the log.
func (x *Index) readMore() (more bool, err error) {
	x.turn <- struct{}{}
	defer x.unlock()
	err = x.read(x.ctx, x.want, stepBytes)
	x.count()
	x.report()
	return err == errMore, err
}

// passing returns an error unless the next question settles it: the index was not ready, or
// retention was faster than what read the log.
func passing(err error) error {
	if _, gone := errors.AsType[*log.RangeError](err); gone || notReady(err) {
		return nil
	}
	return err
}

// make writes one file.
func (x *Index) make() (more bool, err error) {
	x.turn <- struct{}{}
	shard, ctx := x.shard, x.making
	x.unlock()
	if shard == nil {
		return false, nil
	}
	more, err = shard.Work(ctx)
	if ctx.Err() != nil {
		return false, nil // it is being closed
	}
	x.turn <- struct{}{}
	defer x.unlock()
	x.count()
	x.report()
	return more, passing(err)
}

// count tells the set how much memory the index takes, and has it flushed if all take too much. The
// turn is held.
func (x *Index) count() {
	if x.shard == nil {
		return
	}
	now := int64(x.shard.Bytes())
	sum := x.set.parts.Add(now - x.bytes)
	x.bytes = now
	if sum > partsBytes && now > partsBytes/mostOpen {
		x.shard.Freeze()
		x.set.makers.Wake(&x.maker, work.Urgent)
	}
}

// open opens the index with the sealed segments that end below what questions want: the high
// watermark, or for conditions the log's end. stepping is held, and not the turn.
func (x *Index) open() error {
	x.turn <- struct{}{}
	end := x.want
	x.unlock()
	x.log.UseBeside(true)
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
		segments = append(segments, subjectindex.SegmentState{Segment: nameOf(g), End: g.End, Epoch: g.Epoch, Sealed: true, Remade: g.Disowned > 0})
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
		FS: x.set.disk.FS(), Dir: x.log.Dir(), Cache: x.set.cache, Secret: x.log.Secret(), Source: (*source)(x), Has: x.has, Removed: x.removed,
		Room: x.set.room, Added: x.log.AddBeside, Dropped: x.log.DropBeside, Wake: func() { x.set.makers.Wake(&x.maker, work.Urgent) },
	}, layout.Start, segments)
	if err != nil {
		return err
	}
	x.turn <- struct{}{}
	defer x.unlock()
	x.making, x.cancel = context.WithCancel(context.Background())
	x.shard, x.stale, x.layout, x.start, x.end = shard, false, layout, layout.Start, next
	x.segments, x.ahead = slices.Clone(states[:known]), slices.Clone(states[known:])
	if known > sealed {
		x.segments[known-1].Sealed = false // it is read record by record
	}
	x.unsealed = false
	x.cursor = x.log.NewCursor(next)
	if known > sealed && states[sealed].Sealed {
		x.cursor = x.log.NewFileCursor(next)
	}
	x.report()
	x.set.makers.Wake(&x.maker, work.Urgent) // what is missing
	return nil
}

// shut closes the shard's index, if it is open, after the work on it has ended. stepping is held,
// and not the turn: questions don't wait for the work.
func (x *Index) shut() {
	x.turn <- struct{}{}
	shard, cancel := x.shard, x.cancel
	x.shard, x.stale, x.cursor, x.segments, x.ahead = nil, false, nil, nil, nil
	x.set.parts.Add(-x.bytes)
	x.bytes = 0
	x.unlock()
	if shard == nil {
		return
	}
	cancel()
	if err := shard.Close(); err != nil {
		x.set.log.Warn("files of a subject index were left behind; they are deleted when it is used again", "log", x.log.Name(), "error", err)
	}
	x.log.UseBeside(false)
}

// room returns an error if the disk is too full for another file.
func (s *Indexes) room() error {
	free, err := s.disk.Free()
	if err == nil && free < leastFree {
		err = fmt.Errorf("the disk has %d MiB of free space, which the log may need", free>>20)
	}
	return err
}

// has reports whether the files of the log still have a record.
func (x *Index) has(_ context.Context, offset uint64) (found bool, err error) {
	v, err := x.log.NewFileCursor(offset).Read(1)
	if err != nil {
		return false, err
	}
	defer v.Release()
	err = each(&v, offset, offset+1, func(uint64, int, []byte) error {
		found = true
		return nil
	})
	return found, err
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
		if g.Disowned != known[0].Disowned {
			return false
		}
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

// read adds the records up to, not including, end, but no more than some bytes. The turn is held.
func (x *Index) read(ctx context.Context, end uint64, bytes int) error {
	for x.end < end {
		if err := ctx.Err(); err != nil {
			return err
		}
		switch {
		case x.set.parts.Load() > x.mostParts():
			return x.busy("other indexes take all memory for records that are not in files yet")
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
		if gone, ok := errors.AsType[*log.RangeError](err); ok && gone.Start > x.end {
			x.stale = true
			return x.notReady("retention was faster")
		}
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

// mostParts returns the bound for records that are not in files yet.
func (x *Index) mostParts() int64 {
	if x.needed.Load() > time.Now().Add(-evictTime).UnixNano() {
		return conditionParts
	}
	return mostParts
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
		if err := eachRun(b, x.end, limit, func(offset uint64, n int, subject []byte) error {
			x.shard.Add(offset, n, subject)
			x.end = offset + uint64(n)
			return nil
		}); err != nil {
			return bytes, err
		}
		if to := min(b.End(), limit); to > x.end {
			x.shard.Skip(to)
			x.end = to
		}
	}
	return bytes, nil
}

// source reads the log to make what an index lacks.
type source Index

// Subjects implements subjectindex.Source.
func (x *source) Subjects(from, to uint64, record func(offset uint64, n int, subject []byte) error, gap func(from, to uint64) error) error {
	c := x.log.NewFileCursor(from)
	for next := from; next < to; {
		c.Seek(next)
		v, err := c.Read(readBytes)
		if damage, ok := errors.AsType[*log.CorruptError](err); ok && damage.Next > next {
			_ = x.unreadable(err) // the index lacks the records until they are repaired
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

// each calls f with the records of a view within a range, n consecutive ones of a subject at once.
func each(v *log.View, from, to uint64, f func(offset uint64, n int, subject []byte) error) error {
	for b, ok := v.Next(); ok; b, ok = v.Next() {
		if err := eachRun(b, from, to, f); err != nil {
			return err
		}
	}
	return nil
}

// eachRun is each for a batch.
func eachRun(b log.Batch, from, to uint64, f func(offset uint64, n int, subject []byte) error) error {
	it := b.Subjects()
	for offset, n, subject := it.Next(); n > 0; offset, n, subject = it.Next() {
		end := min(offset+uint64(n), to)
		if offset = max(offset, from); offset >= end {
			continue
		}
		if err := f(offset, int(end-offset), subject); err != nil {
			return err
		}
	}
	return it.Err()
}
