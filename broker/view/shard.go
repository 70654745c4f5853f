package view

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/carillon-mq/carillon/broker/aggregate"
	"github.com/carillon-mq/carillon/broker/filter"
)

// Position is a place in the order of windows.
type Position = aggregate.Position

// begin is before all windows.
var begin = Position{End: math.MinInt64}

// Everything is the watermark of a shard that gets no more records: all windows are closed.
const Everything = aggregate.Everything

// after returns the position after the windows that a watermark closes.
func after(watermark int64) Position {
	if watermark == Everything {
		return Position{End: Everything}
	}
	return Position{End: watermark + 1}
}

// ErrPaused says that a shard has too many windows which the owner has not acknowledged. The record
// was not added: it is added again after an acknowledgement.
var ErrPaused = errors.New("view: too many closed windows wait for the owner of the view: its output may refuse messages, or a shard of the Topic may have no leader")

// Counts are about the records of a shard.
type Counts struct {
	Records uint64 // that the view's filter matches
	Failed  uint64 // the filter could not judge
	Refused uint64 // were not added, because of a bound
	Late    uint64 // came too late for a window, once for each window
	NoTime  uint64 // have no time, or one too far after they were stored
	NoKey   uint64 // have no key, or one that is too long
	NoValue uint64 // values that are missing: of a record, for a function
}

func (c *Counts) fields() []*uint64 {
	return []*uint64{&c.Records, &c.Failed, &c.Refused, &c.Late, &c.NoTime, &c.NoKey, &c.NoValue}
}

func (c *Counts) add(o *Counts) {
	theirs := o.fields()
	for i, n := range c.fields() {
		*n += *theirs[i]
	}
}

// Shard is what a view knows of one shard of its Topic. It is a function of the shard's log before
// an offset, of the logged advances, and of acknowledgements; the latter decide only which closed
// windows are held. One goroutine uses it at a time.
type Shard struct {
	view      *View
	next      uint64 // records before are added
	watermark int64  // windows that end here or before are closed
	open      *aggregate.Partial
	closed    *aggregate.Partial // not acknowledged
	counts    Counts
	done      done
	kept      int   // bytes of done
	last      int64 // the latest end of a closed window
}

// NewShard returns a shard of whose log nothing is added.
func (v *View) NewShard() *Shard {
	return &Shard{view: v, watermark: math.MinInt64, last: begin.End, open: v.query.NewPartial(), closed: v.query.NewPartial(), done: done{upTo: begin}}
}

// Next returns the offset behind the last record that was added.
func (s *Shard) Next() uint64 { return s.next }

// Watermark returns the time up to which windows are closed.
func (s *Shard) Watermark() int64 { return s.watermark }

// Keys returns how many keys have an open window.
func (s *Shard) Keys() int { return s.open.Keys() }

// Size returns how many bytes of memory the shard takes, about.
func (s *Shard) Size() int { return s.open.Size() + s.closed.Size() + s.kept }

// Pass says that the log has no record before an offset that was not added: some were removed. An
// advance that was logged behind them can follow then.
func (s *Shard) Pass(next uint64) { s.next = max(s.next, next) }

// Held returns how many windows of all keys are not acknowledged.
func (s *Shard) Held() int { return s.open.Len() + s.closed.Len() }

// Counts returns what is known of the records.
func (s *Shard) Counts() Counts {
	c, t := s.counts, s.open.Totals()
	c.NoTime, c.NoKey, c.NoValue = t.NoTime, t.NoKey, t.NoValue
	return c
}

// Add adds the record at an offset of the log. Offsets ascend; what compaction and removals left
// out is no gap. The error is ErrPaused, or says that the offset is before Next.
func (s *Shard) Add(offset uint64, r *filter.Record) error {
	if offset < s.next {
		return fmt.Errorf("view: the record at offset %d was added before, and the next one is at %d", offset, s.next)
	}
	if s.full() && (!s.settle() || s.full()) {
		return ErrPaused
	}
	s.next = offset + 1
	switch s.view.matches(r) {
	case filter.Yes:
		s.counts.Records++
		s.put(r)
	case filter.Failed:
		s.counts.Failed++
	}
	if s.view.stored {
		s.raise(r.Time)
	}
	return nil
}

func (s *Shard) full() bool {
	return s.Held() >= maxHeld || s.open.Size()+s.closed.Size() >= maxHeldBytes
}

// put adds a record that matches.
func (s *Shard) put(r *filter.Record) {
	gate := aggregate.Gate{Watermark: s.watermark, Latest: math.MaxInt64, Windows: maxOpen, Bytes: maxOpenBytes}
	if !s.view.stored && r.Time < math.MaxInt64-int64(maxAhead) {
		gate.Latest = r.Time + int64(maxAhead)
	}
	o := s.open.AddOpen(r, &gate)
	if o.Refused && s.settle() { // closed windows don't count, whenever they are moved
		o = s.open.AddOpen(r, &gate)
	}
	if o.Refused {
		s.counts.Refused++
	}
	s.counts.Late += uint64(o.Late)
	if t := s.open.Totals(); !s.view.stored && t.Any {
		s.raise(t.Greatest)
	}
}

// raise notes the time of a record.
func (s *Shard) raise(time int64) {
	if late := int64(s.view.spec.Window.Lateness); time >= math.MinInt64+late {
		s.watermark = max(s.watermark, time-late)
	}
}

// Advance raises the watermark of a shard without records. It is an input like a record, so that
// all leaders of the shard close the same windows at the same place:
//
//  1. The leader writes (next, to) to the shard's state log.
//  2. When that is replicated, as a record is that is below the high watermark, it calls Advance.
//  3. Only after that it hands over.
//  4. Who restores a checkpoint calls Advance for each entry behind it, in the order of the state
//     log, before the record at next is added.
//
// A time that is not after the watermark changes nothing.
func (s *Shard) Advance(next uint64, to int64) error {
	if next != s.next {
		return fmt.Errorf("view: an advance at offset %d, and the next record is at %d", next, s.next)
	}
	s.watermark = max(s.watermark, to)
	return nil
}

// IdleTo returns where a shard is advanced to whose last record was stored at a time, by the
// leader's clock. ok is false if it is not idle yet, or not passed over. It leaves a record that is
// published now the same time to arrive that made the shard idle.
func (v *View) IdleTo(now, last time.Time) (to int64, ok bool) {
	w := &v.spec.Window
	if w.Idle == 0 || now.Sub(last) < w.Idle {
		return 0, false
	}
	return now.Add(-w.Idle - w.Lateness).UnixNano(), true
}

// settle moves what is closed. It reports whether anything was.
func (s *Shard) settle() bool {
	if !s.view.Windowed() || s.open.First() > s.watermark {
		return false
	}
	before := s.open.Len()
	s.open.Move(s.closed, func(w aggregate.Window) bool {
		if w.End > s.watermark {
			return false
		}
		s.last = max(s.last, w.End)
		return true
	})
	if s.closed.First() < s.done.upTo.End || s.closed.First() == s.done.upTo.End && s.done.upTo.Key != "" {
		s.drop() // a new leader is reading what was acknowledged
	}
	return s.open.Len() < before
}

// drop forgets closed windows that are done. What is kept of a key is one session, since all of it
// belongs to one session that goes on elsewhere.
func (s *Shard) drop() {
	s.closed.Move(nil, s.done.has)
	for key := range s.done.keep {
		s.closed.Join(key, func(w aggregate.Window) bool { return w.Position().Compare(s.done.upTo) < 0 })
	}
}

// Ack takes an acknowledgement of an owner, and forgets the windows that are done by it. An older
// one than the last changes nothing. An ack is a fact about the outputs, so it needs no epoch: one
// of an owner that was replaced is true, too.
func (s *Shard) Ack(ack []byte) error {
	d, err := s.view.decodeAck(ack)
	if err != nil {
		return err
	}
	if d.newer(&s.done) {
		s.done, s.kept = d, memoryOf(d.keep)
		s.settle()
		s.drop()
	}
	return nil
}

// Ahead returns how many bytes of memory closed windows take that the owner has not acknowledged:
// they wait for other shards, or are not handed over yet. 0: the owner has acknowledged all but
// sessions that go on elsewhere.
func (s *Shard) Ahead() int {
	if s.settle(); s.last < s.done.upTo.End {
		return 0
	}
	return s.closed.Size()
}

// HandOver returns closed windows from a position on, in their order, with what the owner needs to
// know for closing them: as many as a page has. It asks the same again if the answer is lost, and
// from where the page ends if it is not.
func (s *Shard) HandOver(from Position) ([]byte, error) { return s.HandOverPage(from, pageBytes) }

// HandOverPage does so with a smaller page, of about so many bytes; 0: as many as a page has.
func (s *Shard) HandOverPage(from Position, bytes int) ([]byte, error) {
	if bytes <= 0 || bytes > pageBytes {
		bytes = pageBytes
	}
	return s.handOver(from, max(bytes, leastPage))
}

func (s *Shard) handOver(from Position, bytes int) ([]byte, error) {
	s.settle()
	h := s.handover(from)
	var next Position
	var more bool
	h.part, next, more = s.closed.Page(from, bytes)
	switch {
	case more:
		h.upTo = next
	case s.view.Windowed() && after(s.watermark).Compare(from) > 0:
		h.upTo = after(s.watermark)
	}
	if s.view.sessions {
		h.bars = s.bars(h.upTo)
	}
	return h.encode(s.view)
}

// bars returns the beginnings of sessions behind a position, by key, that sessions before it may
// belong to.
func (s *Shard) bars(behind Position) map[string]int64 {
	bars := map[string]int64{}
	for _, p := range []*aggregate.Partial{s.open, s.closed} {
		for w := range p.Windows() {
			if w.Start < behind.End && w.Position().Compare(behind) >= 0 {
				if start, there := bars[w.Key]; !there || w.Start < start {
					bars[w.Key] = w.Start
				}
			}
		}
	}
	return bars
}

// Present returns all windows from a position on, open or closed, for [Owner.Present].
func (s *Shard) Present(from Position) ([]byte, error) {
	h := s.handover(from)
	h.part = s.view.query.NewPartial()
	for _, p := range []*aggregate.Partial{s.open, s.closed} {
		page, _, _ := p.Page(from, math.MaxInt)
		page.Move(h.part, func(aggregate.Window) bool { return true }) // no copies: h is encoded at once
	}
	return h.encode(s.view)
}

func (s *Shard) handover(from Position) *handover {
	return &handover{next: s.next, watermark: s.watermark, from: from, upTo: from, done: s.done, held: uint64(s.Held()), counts: s.Counts()}
}
