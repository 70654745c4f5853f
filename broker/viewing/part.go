package viewing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/filter"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/view"
	"github.com/carillon-mq/carillon/broker/work"
)

// errReading is the answer of a part that has not read its checkpoint yet.
var errReading = errors.New("the leader of the shard is reading where the view stood: ask again")

// part is a view of one shard that is led here.
type part[S Shard] struct {
	service *Service[S]
	shard   S
	place   Place
	of      *Declared
	view    *view.View
	key     key
	wake    chan struct{} // has one element after a change of the shard, or an ack
	held    atomic.Bool   // hold is set

	mu       sync.Mutex
	engine   *view.Shard  // nil: it is not restored yet
	next     uint64       // the offset that is read next
	advances []advance    // of earlier leaders, to be made on the way
	removed  uint64       // records that were gone before they were read
	lost     uint64       // and that could not be read
	size     int64        // of the engine, as the service counts it
	lastTime int64        // of the last record that was read here; 0: none was
	changed  bool         // since the last checkpoint
	fresh    uint64       // records since then
	paused   error        // why no record is added
	err      error        // why it failed last
	stamp    filter.Stamp // of the record that is added

	// The goroutine of the part has these.
	hold     *log.Hold // of the state log: its checkpoint, and all behind it
	serial   uint64    // of the next checkpoint
	written  int       // bytes of the last one
	savedAt  time.Time
	advanced time.Time // when the last advance was made
	began    time.Time
	budget   int64
}

func (p *part[S]) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// run keeps the part until ctx ends.
func (p *part[S]) run(ctx context.Context) {
	stop := p.shard.Watch(p.poke)
	defer stop()
	defer p.end()
	retry := work.Backoff{First: firstRetry, Last: lastRetry}
	for ctx.Err() == nil {
		err := p.serve(ctx)
		if ctx.Err() != nil {
			return
		}
		p.service.Logger.Warn("a view of a shard can't be kept; trying again", "topic", p.shard.Name(), "view", p.of.Name, "error", err)
		p.mu.Lock()
		p.err, p.engine, p.paused = err, nil, nil // what is in the state log is not known
		p.resize(0)
		p.mu.Unlock()
		p.service.forget(p.shard)
		work.Sleep(ctx, retry.Failed(time.Now()))
	}
}

// end releases all that the part holds.
func (p *part[S]) end() {
	p.mu.Lock()
	p.engine = nil
	p.resize(0)
	p.mu.Unlock()
	p.held.Store(false)
	if p.hold != nil { // the next part of the view may go on from there
		p.service.leave(p.shard, p.hold)
	}
}

// resize counts the memory of the part. mu is held.
func (p *part[S]) resize(bytes int64) {
	p.service.bytes.Add(bytes - p.size)
	p.size = bytes
}

// goesOn reports whether some records may be added. Between them grows is asked. mu is held.
func (p *part[S]) goesOn() bool {
	if p.service.grows(p.size, true) {
		return true
	}
	return int64(p.engine.Ahead()) <= p.service.lead() && p.service.grows(p.size, false)
}

// serve goes on from what the state log has.
func (p *part[S]) serve(ctx context.Context) error {
	if err := p.restore(ctx); err != nil {
		return fmt.Errorf("read where it stood: %w", err)
	}
	for {
		more, err := p.turn(ctx)
		if err != nil {
			return err
		}
		if p.due() {
			if err := p.save(ctx); err != nil {
				return fmt.Errorf("write a checkpoint: %w", err)
			}
		}
		if more {
			continue
		}
		if err := p.advance(ctx); err != nil {
			return fmt.Errorf("note that the shard is idle: %w", err)
		}
		timer := time.NewTimer(rest)
		select {
		case <-p.wake:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// restore reads the last checkpoint, or begins anew.
func (p *part[S]) restore(ctx context.Context) error {
	found, err := p.service.find(ctx, p.shard, p.key)
	if err != nil {
		return err
	}
	engine := p.view.NewShard()
	if found == nil || found.first == 0 {
		found = &saved{}
	}
	_, end, _ := p.shard.State().Offsets()
	if found.first == 0 {
		p.rehold(end)
	} else {
		decoded, damage, err := p.admit(ctx, found)
		if err != nil {
			return err
		}
		if damage == nil {
			engine = decoded
		} else {
			p.service.Logger.Error("a view of a shard begins anew: its checkpoint can't be read", "topic", p.shard.Name(), "view", p.of.Name, "error", damage)
			found = &saved{}
		}
	}
	p.mu.Lock()
	p.engine, p.next, p.advances, p.removed, p.lost = engine, engine.Next(), found.advances, found.removed, found.lost
	p.changed, p.fresh, p.err, p.paused = found.first == 0, 0, nil, nil
	p.resize(int64(engine.Size()))
	p.mu.Unlock()
	p.serial, p.began, p.savedAt, p.written = max(p.serial, found.serial)+1, time.Now(), time.Now(), 0
	if found.first == 0 { // so that the state log can be trimmed up to here
		return p.save(ctx)
	}
	return nil
}

// admit reads a checkpoint as soon as there is room for it, and takes the room. Until then it is
// copied as it is whenever it holds back too much of the state log. How much room it needs is known
// after it was read once.
func (p *part[S]) admit(ctx context.Context, of *saved) (engine *view.Shard, damage, err error) {
	p.rehold(of.first)
	p.serial, p.written, p.savedAt = max(p.serial, of.serial)+1, of.bytes, time.Now()
	for need := int64(of.bytes); ; { // windows take no less than their encoding
		if p.service.take(0, need) {
			if engine, damage, err = p.decode(ctx, of); err != nil || damage != nil {
				p.service.give(need)
				return nil, damage, err
			}
			size := int64(engine.Size())
			if size <= need || p.service.take(need, size-need) {
				p.mu.Lock()
				p.size = max(size, need)
				p.mu.Unlock()
				return engine, nil, nil
			}
			p.service.give(need)
			need, engine = size, nil // its garbage is collected while it waits
		}
		p.mu.Lock()
		p.paused = fmt.Errorf("%w; the checkpoint of this shard waits for %d KiB", errMemory, need>>10+1)
		p.err, p.removed, p.lost = nil, of.removed, of.lost
		p.mu.Unlock()
		if !work.Sleep(ctx, rest) {
			return nil, nil, ctx.Err()
		}
		if time.Since(p.savedAt) >= p.service.SaveEvery && p.holdsBack() {
			if err := p.copy(ctx, of); err != nil {
				return nil, nil, err
			}
		}
	}
}

// copy writes a checkpoint again that is not decoded.
func (p *part[S]) copy(ctx context.Context, of *saved) error {
	select {
	case p.service.encodes <- struct{}{}:
		defer func() { <-p.service.encodes }()
	case <-ctx.Done():
		return ctx.Err()
	}
	b, err := read(p.shard, p.key, of)
	if err != nil {
		return err
	}
	if err := p.write(ctx, b, &chunk{removed: of.removed, lost: of.lost}, of.advances); err != nil {
		return err
	}
	of.first = p.hold.Offset()
	_, of.end, _ = p.shard.State().Offsets()
	return nil
}

// decode reads a checkpoint. With damage it is none.
func (p *part[S]) decode(ctx context.Context, of *saved) (engine *view.Shard, damage, err error) {
	select {
	case p.service.encodes <- struct{}{}:
		defer func() { <-p.service.encodes }()
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	b, err := read(p.shard, p.key, of)
	if err != nil {
		return nil, nil, err
	}
	engine, damage = p.view.DecodeShard(b)
	return engine, damage, nil
}

// rehold has the state log keep what is from an offset on.
func (p *part[S]) rehold(from uint64) {
	before := p.hold
	p.hold = p.shard.State().Hold(from)
	if before != nil {
		before.Release()
	}
	p.held.Store(true)
}

// turn reads a bounded part of the log. more: there may be more at once.
func (p *part[S]) turn(ctx context.Context) (more bool, err error) {
	select {
	case p.service.turns <- struct{}{}:
		defer func() { <-p.service.turns }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	defer func() { p.resize(int64(p.engine.Size())) }()
	start, end := p.shard.Offsets()
	if p.paused = nil; p.next < end && !p.goesOn() { // at the end it may still be advanced
		p.paused = errMemory
		return false, nil
	}
	if p.next < start {
		if p.next > 0 {
			p.removed += start - p.next
		}
		p.next = start
	}
	return p.scan(end)
}

// scan is turn up to the end of what readers see. mu is held.
func (p *part[S]) scan(end uint64) (more bool, err error) {
	if p.next >= end {
		p.pass(p.next)
		return false, nil
	}
	began, n, stopped := time.Now(), 0, false
	var added error
	budget := max(p.budget, turnBytes)
	done, err := p.shard.Scan(p.next, end, budget, func(r *log.Record) bool {
		p.pass(r.Offset)
		header, data := protocol.SplitData(r.Data, r.Header)
		is := filter.Record{Subject: r.Subject, Header: header, Data: data, Time: r.Time}
		is.SetAttributes(&p.stamp, r.Stamp)
		added = p.engine.Add(r.Offset, &is)
		if added != nil {
			p.next, stopped = r.Offset, true
			return false
		}
		p.next, p.lastTime, p.changed = r.Offset+1, r.Time, true
		p.fresh++
		if size := int64(p.engine.Size()); size != p.size {
			p.resize(size)
			stopped = !p.service.grows(size, false)
		}
		if n++; n%turnRecords == 0 {
			stopped = stopped || time.Since(began) > turnTime || !p.goesOn()
		}
		return !stopped
	})
	p.budget = 0
	if corrupt, ok := errors.AsType[*log.CorruptError](err); ok && corrupt.Next > p.next && added == nil { // no replica has it
		from := max(p.next, corrupt.From)
		p.lost += min(corrupt.Next, end) - min(from, end)
		p.next = min(corrupt.Next, end)
		return true, nil
	}
	switch {
	case err != nil:
		return false, err
	case errors.Is(added, view.ErrPaused):
		p.paused = added
		return false, nil
	case added != nil:
		return false, added
	case stopped:
		return true, nil
	case done:
		p.next = end
		p.pass(end)
		return false, nil
	case n == 0:
		p.budget = 2 * budget // all that was read was removed
	}
	return true, nil
}

// pass makes the advances of earlier leaders that precede the record at an offset. mu is held.
func (p *part[S]) pass(offset uint64) {
	for len(p.advances) > 0 && p.advances[0].next <= offset {
		a := p.advances[0]
		p.advances = p.advances[1:]
		p.engine.Pass(a.next)
		_ = p.engine.Advance(p.engine.Next(), a.to) // the offset is right
		p.changed = true
	}
}

// advance raises the watermark of an idle shard.
func (p *part[S]) advance(ctx context.Context) error {
	now, sure := p.service.Now()
	idle := p.view.Spec().Window.Idle
	every := min(max(idle/2, advanceLeast), advanceMost)
	if idle == 0 || !sure || time.Since(p.advanced) < every || time.Since(p.began) < idle {
		return nil
	}
	p.mu.Lock()
	_, end := p.shard.Offsets()
	to, ok := p.view.IdleTo(now, time.Unix(0, p.lastTime))
	ok = ok && p.next >= end && p.paused == nil && len(p.advances) == 0 && to > p.engine.Watermark()
	a := advance{p.engine.Next(), to}
	p.mu.Unlock()
	if !ok {
		return nil
	}
	if err := p.append(ctx, appendAdvance(nil, p.key, a), true); err != nil {
		return err
	}
	p.advanced = time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed = true
	return p.engine.Advance(a.next, a.to)
}

// append appends a record to the state log. durable: it returns when all in-sync replicas have it.
func (p *part[S]) append(ctx context.Context, data []byte, durable bool) error {
	if err := p.shard.State().WaitRoom(ctx); err != nil {
		return err
	}
	now, _ := p.service.Now()
	a := log.Append{Durability: log.Memory, Records: []log.Record{{Time: now.UnixNano(), Subject: []byte(Subject), Data: data}}}
	if !durable {
		_, err := p.shard.AppendState(&a)
		return err
	}
	done := make(completion, 1)
	a.Durability, a.Done = p.service.Durability(p.shard), done
	if _, err := p.shard.AppendState(&a); err != nil {
		return err
	}
	// Not ctx: the next part of the view reads the state log, and must not find what may be lost. The
	// answer comes at the latest when this broker leads the shard no more.
	select {
	case err := <-done:
		return err
	case <-p.service.ctx.Done():
		return p.service.ctx.Err()
	}
}

// completion gets the result of an append.
type completion chan error

// Committed implements log.Completion.
func (c completion) Committed(_, _ uint64, err error) { c <- err }

// due reports whether a checkpoint is to be written.
func (p *part[S]) due() bool {
	p.mu.Lock()
	changed, fresh := p.changed, p.fresh
	p.mu.Unlock()
	since := time.Since(p.savedAt)
	if since < time.Second {
		return false
	}
	if changed && (fresh >= saveRecords || since >= max(p.service.SaveEvery, time.Duration(p.written)*time.Second/savePace)) {
		return true
	}
	return since >= p.service.SaveEvery && p.holdsBack()
}

// holdsBack reports whether the last checkpoint keeps too much of the state log.
func (p *part[S]) holdsBack() bool {
	state := p.shard.State()
	_, end, _ := state.Offsets()
	return state.BytesBetween(p.hold.Offset(), end) > 4*int64(p.written)+heldBytes
}

// save writes a checkpoint.
func (p *part[S]) save(ctx context.Context) error {
	select {
	case p.service.encodes <- struct{}{}:
		defer func() { <-p.service.encodes }()
	case <-ctx.Done():
		return ctx.Err()
	}
	p.mu.Lock()
	c := chunk{removed: p.removed, lost: p.lost}
	again := slices.Clone(p.advances) // they are behind the last checkpoint, and would be before this one
	b, err := p.engine.Encode()
	p.changed, p.fresh = false, 0
	p.mu.Unlock()
	if err != nil {
		return err
	}
	return p.write(ctx, b, &c, again)
}

// write writes the bytes of a checkpoint. c has what its pieces say.
func (p *part[S]) write(ctx context.Context, b []byte, c *chunk, again []advance) error {
	c.serial = p.serial
	p.serial++
	_, first, _ := p.shard.State().Offsets()
	for rest := b; ; c.index++ {
		n := min(len(rest), p.service.chunk)
		if c.index == 0 && len(again) > 0 {
			n = min(n, len(rest)-1) // there is a piece behind them
		}
		c.data, rest = rest[:n], rest[n:]
		c.last = len(rest) == 0
		if err := p.append(ctx, appendChunk(nil, p.key, c), c.last); err != nil {
			return err
		}
		if c.last {
			break
		}
		for _, a := range again { // before the last piece: the checkpoint is whole with them only
			if err := p.append(ctx, appendAdvance(nil, p.key, a), false); err != nil {
				return err
			}
		}
		again = nil
	}
	p.savedAt, p.written = time.Now(), len(b)
	p.rehold(first)
	p.service.saves.Add(1)
	p.service.savedBytes.Add(uint64(len(b)))
	state := p.shard.State()
	// Only what no other checkpoint holds: a snapshot of cursors for the rest would trim nothing.
	p.service.Trim(p.shard, state.BytesBetween(state.Start(), min(first, state.Pinned())))
	return nil
}
