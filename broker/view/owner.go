package view

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/carillon-mq/carillon/broker/aggregate"
)

// ErrAhead says that a shard is so far ahead of others that its windows would take too much memory.
// It is asked again when the others have handed over.
var ErrAhead = errors.New("view: the shard is too far ahead of others")

// ErrCrowded says the same, because of the room that the owner was given.
var ErrCrowded = errors.New("view: the shard is ahead of others, and there is no room for its windows")

// ErrRoom says that present values take more memory than they may.
var ErrRoom = errors.New("view: the present values take more memory than there is")

// ErrReplaced says that another owner has acknowledged windows meanwhile. What this one knows of
// the outputs, and of sessions, may be old: it is dropped, and made anew.
var ErrReplaced = errors.New("view: another owner of the view has acknowledged windows: this one begins anew")

// errNotBegun says that the outputs are not read yet.
var errNotBegun = errors.New("the results that are written already are not read yet: ask again")

// Owner merges the windows of all shards, and closes them. One goroutine uses it at a time. After a
// result or an alert could not be written, it is dropped, and made anew.
//
// It hears all shards first (Take, until Heard). Only then its user reads the outputs, and calls
// Begin. So what the shards say to be done was in the outputs before they were read.
type Owner struct {
	view    *View
	sources map[uint32]*source
	pending *aggregate.Partial
	done    done             // by earlier owners, as far as shards say
	closed  Position         // windows before are closed, but for sessions with a bar
	written map[string]int64 // the ends of the last windows in the output, by key, if not done
	acked   done             // by this owner
	heard   bool             // all shards were
	begun   bool             // the outputs are known
	late    uint64
	most    int // windows in pending, before shards that are ahead have to wait
	room    int // bytes that the owner may take, for the same
}

// source is what the owner knows of a shard.
type source struct {
	next      uint64
	watermark int64
	received  Position // all windows before are merged
	heard     bool     // it has handed over
	done      done     // what it said then
	floor     int64    // of a shard that was added: no record may be earlier
	bars      map[string]int64
	held      uint64
	counts    Counts
	memory    int // bytes of done and bars
}

// Result is a window that is closed. Results of a key come in the order of their ends.
type Result struct {
	aggregate.Row
	// Written: it is in the output already. Only triggers judge it.
	Written bool
}

// NewOwner returns an owner of a view of shards.
func (v *View) NewOwner(shards []uint32) (*Owner, error) {
	o := &Owner{view: v, sources: map[uint32]*source{}, pending: v.query.NewPartial(), done: done{upTo: begin}, acked: done{upTo: begin}, closed: begin, most: maxPending, room: math.MaxInt}
	for _, shard := range shards {
		if _, err := o.AddShard(shard); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// AddShard adds a shard. Of one that is added to a Topic, the first input is Advance(0, floor),
// before any record: windows that end there or before are closed. What it hands over of them
// nonetheless counts as late.
func (o *Owner) AddShard(shard uint32) (floor int64, err error) {
	if len(o.sources) >= maxShards {
		return 0, fmt.Errorf("view: more than %d shards", maxShards)
	}
	if o.sources[shard] == nil {
		o.sources[shard] = &source{received: begin, watermark: begin.End, floor: o.closed.End, done: done{upTo: begin}}
	}
	return o.closed.End, nil
}

// RemoveShard removes a shard that has been advanced to Everything, has handed over all of its
// windows, and has been acknowledged all of them.
func (o *Owner) RemoveShard(shard uint32) error {
	if s := o.sources[shard]; s != nil && (s.received.End != Everything || s.held > 0) {
		return fmt.Errorf("view: shard %d has windows that are not in the results", shard)
	}
	delete(o.sources, shard)
	return nil
}

// Wanted returns the position from which a shard hands over next.
func (o *Owner) Wanted(shard uint32) Position {
	if s := o.sources[shard]; s != nil {
		return s.received
	}
	return begin
}

// More reports whether a shard has closed windows behind those that are merged.
func (o *Owner) More(shard uint32) bool {
	s := o.sources[shard]
	return s != nil && o.view.Windowed() && s.received.Compare(after(s.watermark)) < 0
}

// Heard reports whether all shards have handed over. From then on an acknowledgement of another
// owner makes this one useless.
func (o *Owner) Heard() bool { return o.heard }

// Begin says what is in the outputs, which were read after all shards had been heard: written has
// the end of the last window in the output Topic, by key; without an output it is empty. Before
// that nothing closes.
func (o *Owner) Begin(written map[string]int64) error {
	if !o.heard || o.begun {
		return errors.New("view: an owner begins once, and after all shards were heard")
	}
	o.begun, o.written = true, maps.Clone(written)
	maps.DeleteFunc(o.written, func(_ string, end int64) bool { return end < o.done.upTo.End })
	return nil
}

// replaced reports whether what a shard says is not of one piece with what this owner knows:
//
//  1. Another owner has acknowledged windows after this one was to read the outputs. Of these
//     windows it might never see those that their triggers were raised by.
//  2. An acknowledgement has changed how the shard holds sessions that this owner has a part of:
//     those that are joined have moved, so they would be merged twice, or not at all.
func (o *Owner) replaced(s *source, h *handover) bool {
	if o.heard && h.done.newer(&o.done) && h.done.newer(&o.acked) {
		return true
	}
	if !o.view.sessions || s.received == begin || h.done.equal(&s.done) {
		return false
	}
	return s.received.Compare(h.done.upTo) < 0 || s.received.Compare(s.done.upTo) < 0
}

// Room says how many bytes the owner may take, Size included. Shards that are ahead of others wait
// then, as they do at the bound of any owner, and those that others wait for hand over less at a
// time. So it goes on, whatever the room.
func (o *Owner) Room(bytes int) { o.room = bytes }

// Size returns how many bytes of memory the owner takes, about.
func (o *Owner) Size() int {
	n := o.pending.Size() + memoryOf(o.done.keep) + memoryOf(o.acked.keep) + memoryOf(o.written)
	for _, s := range o.sources {
		n += s.memory
	}
	return n
}

// Take merges what a shard has handed over. Old, lost and repeated hand-overs do no harm. The error
// is ErrAhead or ErrCrowded, and nothing has changed, or the owner is of no more use.
func (o *Owner) Take(shard uint32, b []byte) error {
	s := o.sources[shard]
	if s == nil {
		return fmt.Errorf("view: shard %d is none of the view's", shard)
	}
	h, err := o.view.decodeHandover(b)
	if err != nil {
		return err
	}
	if h.next < s.next || h.watermark < s.watermark {
		return nil // of an earlier leader, or one that is reading its log
	}
	if o.replaced(s, h) {
		return ErrReplaced
	}
	if h.from.Compare(s.received) > 0 {
		return fmt.Errorf("view: shard %d has left out windows", shard)
	}
	h.part.Move(nil, func(w aggregate.Window) bool { return w.Position().Compare(s.received) < 0 })
	late := uint64(0)
	h.part.Move(nil, func(w aggregate.Window) bool {
		if w.End > s.floor && (!o.view.sessions || w.Start >= s.floor) {
			return false
		}
		late += w.Records
		return true
	})
	if full, crowded := o.full(h.part), o.crowded(h.part); full || crowded {
		if ahead := s.received.Compare(o.limit()) > 0; ahead && full {
			return ErrAhead
		} else if ahead {
			return ErrCrowded
		}
		h.shorten(o.spare()/len(o.sources), o.view.sessions)
	}
	if err := o.pending.Merge(h.part); err != nil {
		return err
	}
	o.late += late
	if h.done.newer(&o.done) {
		o.done = h.done
	}
	s.next, s.watermark, s.held, s.counts = h.next, h.watermark, h.held, h.counts
	if h.upTo.Compare(s.received) >= 0 {
		s.received, s.bars, s.done = h.upTo, h.bars, h.done
		s.memory = memoryOf(s.bars) + memoryOf(s.done.keep)
	}
	if s.heard = true; !o.heard {
		o.heard = true
		for _, s := range o.sources {
			o.heard = o.heard && s.heard
		}
	}
	return nil
}

// full reports whether there is no room for the windows of a shard.
func (o *Owner) full(part *aggregate.Partial) bool {
	return part.Len() > 0 && (o.pending.Len()+part.Len() > o.most || o.pending.Size()+part.Size() > maxPendingBytes)
}

// crowded reports whether the windows of a shard don't fit into the room.
func (o *Owner) crowded(part *aggregate.Partial) bool {
	return part.Len() > 0 && o.Size()+part.Size() > o.room
}

// spare returns how many bytes are taken of all shards that others wait for, beyond the bounds.
func (o *Owner) spare() int { return min(spareBytes, max(o.room, leastSpare)) }

// limit returns the position that all shards have handed over to.
func (o *Owner) limit() Position {
	limit := Position{End: Everything}
	for _, s := range o.sources {
		if s.received.Compare(limit) < 0 {
			limit = s.received
		}
	}
	return limit
}

// Close closes the windows that no shard will change any more, and returns their results in the
// order of their ends, and then of their keys.
func (o *Owner) Close() []Result {
	limit := o.limit()
	if !o.begun || len(o.sources) == 0 || limit == begin {
		return nil // of views without windows, too
	}
	if limit.Compare(o.closed) > 0 {
		o.closed = limit
	}
	if o.pending.First() > o.closed.End {
		return nil
	}
	ended := o.view.query.NewPartial()
	goesOn := map[string]bool{} // elsewhere, so all of it that ended is one session
	o.pending.Move(ended, func(w aggregate.Window) bool {
		if w.Position().Compare(limit) >= 0 {
			return false
		}
		if o.barred(w) {
			goesOn[w.Key] = true
			return false
		}
		return true
	})
	for key := range goesOn {
		o.pending.Join(key, func(w aggregate.Window) bool { return w.Position().Compare(limit) < 0 })
	}
	return o.results(ended)
}

// barred reports whether a session may belong to one that goes on in a shard.
func (o *Owner) barred(w aggregate.Window) bool {
	for _, s := range o.sources {
		if start, there := s.bars[w.Key]; there && start < w.End {
			return true
		}
	}
	return false
}

// results returns the results of windows that are not done.
func (o *Owner) results(of *aggregate.Partial) (results []Result) {
	of.Move(nil, o.done.has) // only a part of the shards may have it still
	for _, row := range of.Rows() {
		end, there := o.written[row.Key]
		results = append(results, Result{row, there && row.End <= end})
	}
	slices.SortFunc(results, func(a, b Result) int {
		return Position{End: a.End, Key: a.Key}.Compare(Position{End: b.End, Key: b.Key})
	})
	return results
}

// Ack returns the acknowledgement for a shard. It is sent after everything that Close returned is
// in the outputs for good, and the alerts about it, too. ok is false if there is none: the sessions
// that are not closed are too many to name.
func (o *Owner) Ack(shard uint32) (ack []byte, ok bool) {
	s := o.sources[shard]
	if s == nil {
		return nil, false
	}
	d := done{upTo: o.closed, keep: map[string]int64{}}
	if s.received.Compare(d.upTo) < 0 {
		d.upTo = s.received
	}
	bytes := 0
	if o.view.sessions {
		for w := range o.pending.Windows() {
			if start, there := d.keep[w.Key]; w.Start < d.upTo.End && (!there || w.Start < start) {
				d.keep[w.Key] = w.Start
				bytes += len(w.Key)
			}
		}
	}
	if bytes > maxKeepBytes {
		return nil, false
	}
	ack, err := o.view.seal(ackKind, d.append(nil))
	if err == nil && d.newer(&o.acked) {
		o.acked = d
	}
	return ack, err == nil
}

// Present returns the present values: of windows that are not closed, and of views without windows.
// present has what [Shard.Present] returned for each shard, from the position that it is wanted
// from. offsets are the next offsets of the shards, as triggers take them. If the values take more
// than so many bytes, the error is ErrRoom.
func (o *Owner) Present(present map[uint32][]byte, most int) (rows []aggregate.Row, offsets map[uint32]uint64, err error) {
	if o.view.Windowed() && !o.begun {
		return nil, nil, errNotBegun
	}
	all := o.view.query.NewPartial()
	if err := all.Merge(o.pending); err != nil {
		return nil, nil, err
	}
	offsets = map[uint32]uint64{}
	for shard, s := range o.sources {
		b, there := present[shard]
		if !there {
			return nil, nil, fmt.Errorf("view: nothing is known of shard %d: it may have no leader", shard)
		}
		h, err := o.view.decodeHandover(b)
		if err != nil {
			return nil, nil, err
		}
		if h.next < s.next || h.watermark < s.watermark || h.from.Compare(s.received) > 0 {
			return nil, nil, fmt.Errorf("view: the leader of shard %d is still reading its log: ask again", shard)
		}
		if o.replaced(s, h) {
			return nil, nil, ErrReplaced
		}
		if o.view.Windowed() {
			h.part.Move(nil, func(w aggregate.Window) bool { return w.Position().Compare(s.received) < 0 })
		}
		if err := all.Merge(h.part); err != nil {
			return nil, nil, err
		}
		if all.Size()+all.Len()*o.view.rowBytes() > most {
			return nil, nil, ErrRoom
		}
		offsets[shard] = h.next
	}
	for _, r := range o.results(all) {
		if !r.Written {
			rows = append(rows, r.Row)
		}
	}
	return rows, offsets, nil
}

// rowBytes returns what a row takes, without its key.
func (v *View) rowBytes() int { return valueBytes * (rowValues + len(v.names)) }

// PresentBytes returns how many bytes present values take at most while they are made of windows
// that take so many. Sketches that are merged may become larger.
func (v *View) PresentBytes(windows int64) int64 {
	return 2*windows + windows/leastWindow*int64(v.rowBytes())
}

// RowsBytes returns how many bytes of memory rows take, about.
func (v *View) RowsBytes(rows []aggregate.Row) (bytes int) {
	for i := range rows {
		r := &rows[i]
		bytes += v.rowBytes() + len(r.Key) + valueBytes*len(r.Keys)
		for j := range r.Values {
			bytes += len(r.Values[j].Text)
		}
	}
	return bytes
}

// Watermark returns the time up to which windows are closed.
func (o *Owner) Watermark() int64 { return o.closed.End }

// Counts returns what is known of the records of all shards.
func (o *Owner) Counts() (c Counts) {
	for _, s := range o.sources {
		c.add(&s.counts)
	}
	c.Late += o.late
	return c
}
