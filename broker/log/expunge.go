package log

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/carillon-mq/carillon/broker/limits"
)

// beingExpunged ends the name of a file that is to replace one or more segments. Opening the log
// deletes such a file that a crash has left.
const beingExpunged = segmentEnd + ".expunge"

const (
	// expungeShare is the share of a segment's bytes that its removed records have at least when it
	// is rewritten. So removed records take at most a third of the space of the others, and all
	// rewrites of a segment write no more than three times its first size.
	expungeShare = 0.25
	// expungeRead is the share of a segment's records from which it is read, to weigh the removed
	// ones. With fewer it is read only if large records may be among them.
	expungeRead = expungeShare / 4
	// expungeMore is by how much the number of removed records of a segment has to grow, as a share,
	// before they are weighed again. So a segment is read few times before it is rewritten.
	expungeMore = 0.5
)

// Removed are the offsets whose records are removed, as removal.Set knows them. The set may grow
// concurrently.
type Removed interface {
	Has(offset uint64) bool
	Count(from, next uint64) uint64
}

// ExpungeOptions bound an Expunge.
type ExpungeOptions struct {
	Removed Removed
	// High returns the high watermark. Only segments that end there or before are rewritten. An
	// offset is in Removed only once its removal is committed: if a batch of this log carries it,
	// that batch is below the High that is returned from then on.
	High func() uint64
	// Sync makes the removals durable here that other logs carry. It is called after records were
	// looked up in Removed, and before the files without them replace others. It may be nil.
	Sync func() error
	// Before excludes segments with a record of this time or later: rewritten batches lose message
	// ids and numbers. Zero excludes none.
	Before time.Time
	// Taken is the offset below which batches lose their removals (ExtensionRemovals): another log
	// has them.
	Taken uint64
	Pace  *Pace // may be nil
}

// Expunge rewrites sealed segments without the records that were removed, if these have a quarter
// of a segment's bytes.
//
//  1. Offsets stay. A batch that loses records becomes a sparse batch, and so does one that loses
//     all of them.
//  2. Neighbouring batches of one epoch are merged. A segment is merged with the rewritten segment
//     beside it if that costs no more than was saved.
//  3. Records that a Hold pins stay. So do damaged segments, which are to be repaired first.
//
// What may have removed a record is below the high watermark, so no election that keeps what was
// acknowledged undoes it. A log that is truncated below that watermark nevertheless may have to
// have removed records again: it is emptied, and copied again (L23). A repair may bring removed
// records back into a file. They stay in Removed, and the next Expunge removes them.
//
// Rejected: to trim the log when its first records are removed. Leaders decide where a log begins.
//
// Expunge runs beside appends and reads, and excludes Compress and Compact. It stops with ctx, and
// when the log is closed. On damage it returns a *CorruptError. A new file is complete, synced and
// verified before the manifest names it, so a crash leaves the old files or the new one.
func (l *Log) Expunge(ctx context.Context, o ExpungeOptions) (out Rewritten, err error) {
	ctx, end, err := l.beginUpkeep(ctx)
	if err != nil {
		return out, err
	}
	defer end()
	l.upkeep.compressing.Lock()
	defer l.upkeep.compressing.Unlock()
	if err := l.usable(); err != nil {
		return out, err
	}
	e, todo := l.expunging(&o)
	if err := l.disk.noticed(e.run(ctx, todo, &out)); err != nil && !errors.Is(err, errCut) {
		return out, fmt.Errorf("log %s: remove removed records: %w", l.name, err)
	}
	return out, nil // after a cut, the next call begins again
}

// expunging is one pass over a log.
type expunging struct {
	rewriter
	removed Removed
	sync    func() error // of other logs; may be nil
	carried uint64       // the end of the records that may carry removals which were looked up
}

// leftIn is what is known of the removed records of a segment, some of which may have left its file
// before.
type leftIn struct {
	known   bool
	removed uint64 // offsets of the segment that were removed
	present uint64 // how many of these have a record in the file
	weighed uint64 // how many had when they were too few to rewrite the segment
}

// segmentLoss is what a segment would lose.
type segmentLoss struct {
	s     *segment
	bytes int64
	due   bool // it is worth a rewrite
}

// expunging begins a pass, and returns the segments that may be rewritten, oldest first.
func (l *Log) expunging(o *ExpungeOptions) (*expunging, []*segment) {
	high := o.High()
	l.mu.Lock()
	defer l.mu.Unlock()
	e := &expunging{rewriter{log: l, pace: o.Pace, cuts: l.cuts, start: l.start, taken: o.Taken}, o.Removed, o.Sync, 0}
	e.stays = func(r *Record) bool { return r.Offset >= e.start && !e.removed.Has(r.Offset) }
	e.bound = func(lost uint64) uint64 {
		if lost == 0 {
			return 0
		}
		e.carried = max(e.carried, high, o.High())
		return e.carried
	}
	e.settle = e.syncRemovals
	bound := min(high, l.durable, l.held(l.end))
	var todo []*segment
	for _, s := range l.segments {
		switch _, disowned := l.man.now.Load().disownedIn(s); {
		case s.end <= l.start || s.bad || disowned:
		case !s.closed || s.index != nil || s.end > bound:
			return e, todo
		case !o.Before.IsZero() && s.last >= o.Before.UnixNano():
		default:
			todo = append(todo, s)
		}
	}
	return e, todo
}

// run rewrites the segments that are worth it, and neighbours that are small beside what they lose.
func (e *expunging) run(ctx context.Context, todo []*segment, out *Rewritten) error {
	losses := make([]segmentLoss, len(todo))
	for i, s := range todo {
		loss, err := e.weigh(ctx, s, out)
		if err != nil && !e.overtaken(err, s) {
			return err
		}
		losses[i] = loss
	}
	for i := 0; i < len(todo); {
		if !e.begins(losses[i:]) {
			i++
			continue
		}
		n, err := e.replaceFrom(ctx, todo[i:], losses[i:], out)
		if err != nil && !e.overtaken(err, todo[i]) {
			return err
		}
		i += n
	}
	return nil
}

// overtaken reports whether an error means that retention has removed a segment meanwhile.
func (e *expunging) overtaken(err error, s *segment) bool {
	return errors.Is(err, fs.ErrNotExist) && !e.log.holdsSegment(s)
}

// begins reports whether the first segment is rewritten, alone or with what follows it.
func (e *expunging) begins(losses []segmentLoss) bool {
	if losses[0].due || len(losses) == 1 {
		return losses[0].due
	}
	a, b := &losses[0], &losses[1]
	return b.due && a.s.end == b.s.base && a.s.pos <= b.bytes && e.fits(a.s.pos-a.bytes, b)
}

// fits reports whether the rest of a segment fits into a file of a size.
func (e *expunging) fits(size int64, next *segmentLoss) bool {
	return size+next.s.pos-next.bytes <= e.log.disk.opts.SegmentLargest
}

// replaceFrom rewrites the first segment, and as many of the following ones as are worth it and
// fit, as one. It returns their number.
func (e *expunging) replaceFrom(ctx context.Context, todo []*segment, losses []segmentLoss, out *Rewritten) (int, error) {
	// Counted before records are looked up, so that all of these are gone afterwards.
	removed, had := e.removed.Count(todo[0].base, todo[0].end), int64(0)
	more := func(n int, size int64) bool {
		had += todo[n-1].pos
		if n == len(todo) || todo[n].base != todo[n-1].end || !e.fits(size, &losses[n]) {
			return false
		}
		if !losses[n].due && losses[n].s.pos > had-size {
			return false
		}
		removed += e.removed.Count(todo[n].base, todo[n].end)
		return true
	}
	n, fresh, err := e.rewrite(ctx, todo, more, beingExpunged, out)
	if err != nil {
		return 1, err
	}
	l := e.log
	l.mu.Lock()
	defer l.mu.Unlock()
	fresh.left = leftIn{known: true, removed: removed}
	return n, nil
}

// syncRemovals makes durable here what carries removals that were looked up. Otherwise a power cut
// could leave a log without records, and without what removed them.
func (e *expunging) syncRemovals() error {
	if e.sync != nil {
		if err := e.sync(); err != nil {
			return err
		}
	}
	return e.log.Sync(e.carried)
}

// Sync makes the records below an offset durable, as far as there are any.
func (l *Log) Sync(offset uint64) error {
	_, end, durable := l.Offsets()
	if offset = min(offset, end); durable >= offset {
		return nil
	}
	if err := l.Flush(); err != nil && l.unsafeBelow(offset) {
		return err
	}
	return nil
}

// weigh returns what a segment would lose. It reads the segment only if that is not known
// otherwise.
func (e *expunging) weigh(ctx context.Context, s *segment, out *Rewritten) (loss segmentLoss, err error) {
	l := e.log
	loss.s = s
	removed := e.removed.Count(s.base, s.end)
	l.mu.Lock()
	left, records := s.left, s.end-s.base-min(s.holes, s.end-s.base)
	l.mu.Unlock()
	if removed == 0 || records == 0 {
		return loss, nil
	}
	present := removed
	switch {
	case records == s.end-s.base: // none is gone yet
		left.known = true
	case left.known && left.removed <= removed:
		present = left.present + removed - left.removed
	default:
		left.known = false // also if the set has forgotten some, as that of another leader may
	}
	switch present = min(present, records); {
	case left.known && present == records:
		return segmentLoss{s, s.pos, true}, nil
	case present == 0 || float64(present) < (1+expungeMore)*float64(left.weighed):
		return loss, nil
	case float64(present) < expungeRead*float64(records):
		if large, err := e.mayLoseLarge(s); !large || err != nil {
			return loss, err
		}
	}
	present, bytes, err := e.weighRecords(ctx, s, out)
	if err != nil {
		return loss, err
	}
	left = leftIn{known: true, removed: removed, present: present}
	loss.bytes, loss.due = bytes, float64(bytes) >= expungeShare*float64(s.pos)
	if !loss.due {
		left.weighed = present
	}
	l.mu.Lock()
	s.left = left
	l.mu.Unlock()
	return loss, nil
}

// mayLoseLarge reports whether removed records can have the share of a segment's bytes that is
// worth a rewrite although they are few: because the index has large entries with removed offsets.
func (e *expunging) mayLoseLarge(s *segment) (bool, error) {
	l := e.log
	f, err := l.disk.handles.acquire(s)
	if err != nil {
		return false, err
	}
	defer l.disk.handles.release(s)
	known, err := l.look(s, f)
	if err != nil {
		return false, err
	}
	large := int64(0)
	for i, at := range known.index {
		next, pos := s.end, known.pos
		if i+1 < len(known.index) {
			next, pos = known.index[i+1].offset, known.index[i+1].pos
		}
		if pos-at.pos >= 2*limits.IndexInterval && e.removed.Count(at.offset, next) > 0 {
			large += pos - at.pos
		}
	}
	return float64(large) >= expungeShare*float64(s.pos), nil
}

// weighRecords reads a segment, and returns how many of its records are removed, and their bytes:
// their share of each batch.
func (e *expunging) weighRecords(ctx context.Context, s *segment, out *Rewritten) (present uint64, bytes int64, err error) {
	err = e.each(ctx, s, out, func(b Batch) error {
		all, gone := 0, 0
		it := b.Records()
		for r := (Record{}); it.Next(&r); {
			size, _ := recordSize(&r, b.Time(), true)
			all += size
			if e.removed.Has(r.Offset) {
				present, gone = present+1, gone+size
			}
		}
		if gone > 0 {
			bytes += int64(float64(len(b)) * float64(gone) / float64(all))
		}
		return it.Err()
	})
	return present, bytes, err
}
