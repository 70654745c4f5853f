package subscription

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
)

// step does what is due, within bounds.
func (s *Subscription) step(w *worker) (more bool) {
	s.sinkMu.Lock()
	s.mu.Lock()
	now := s.service.now()
	s.endRefused()
	idle := false
	if s.closed == 0 {
		more, idle = s.advance(w, now)
	}
	unflushed, over := s.unflushed, s.waiting.takeEnded()
	s.unflushed = false
	letters := s.dead.take()
	s.mu.Unlock()
	if unflushed {
		s.sink.Flush()
	}
	s.sinkMu.Unlock()
	s.store.publishDead(s, letters)
	completeEnded(over)
	if idle {
		s.retire()
	}
	return more && !idle
}

// advance searches the start position, delivers what it may, and handles waiting requests. mu is
// held.
func (s *Subscription) advance(w *worker, now int64) (more, idle bool) {
	if now >= s.timerAt {
		s.timerAt = math.MaxInt64
	}
	start, end := s.store.shard.Offsets()
	retry := int64(math.MaxInt64)
	if !s.search.done {
		again, err := s.seek(w, start, end, stepBytes)
		if again {
			return true, false
		}
		if err != nil {
			retry = now + int64(retryAfter)
		}
	}
	if s.waiting.n > 0 && now >= s.waiting.due {
		s.tick(now)
	}
	s.lookForReceiver(w, now)
	s.unpinSilent(now)
	if s.search.done && !s.unstarted.Load() {
		s.catchUp(now, start)
		var err error
		if err = s.sendDead(w, now); err != nil {
			retry = now + int64(retryAfter)
		}
		rest := s.pausedFor()
		s.pauseEndpoint(rest > 0)
		if rest > 0 {
			s.blocked = false
			s.endNoWait(false)
			return false, s.arm(now, min(retry, now+int64(min(rest, longestPause))))
		}
		if more, err = s.deliverSome(w, now, start, end); err != nil {
			retry = now + int64(retryAfter)
		}
		retry = min(retry, s.replay.due, s.turnstile.due)
		if !more && err == nil && s.wanting(now) && !s.blocked {
			more = s.waitForMore(end)
		}
		if s.blocked {
			more = s.store.waitForRemoval(s) || more
		}
	}
	idle = s.arm(now, retry)
	return more, idle || s.ephemeral.Load() && s.search.failed != ""
}

// tick ends expired requests and sends due heartbeats. mu is held.
func (s *Subscription) tick(now int64) {
	s.waiting.sweep(func(r *request) bool {
		if r.expires > 0 && now >= r.expires {
			s.end(r, Expired)
			s.lastSeen.used = now
			return false
		}
		if r.heartbeat > 0 && now >= r.beat {
			switch {
			case !s.sink.Interested(r.to):
				return false
			case s.blocked && r.noWait && r.got > 0: // as nats-server, which looks at the next timer only
				s.end(r, NoMessages)
				return false
			}
			s.sink.Heartbeat(r.to, s.cursor.sequence, s.cursor.offset, 0)
			s.unflushed = true
			r.beat = now + r.heartbeat
		}
		return true
	})
}

// catchUp applies what time and retention changed. mu is held.
func (s *Subscription) catchUp(now int64, start uint64) {
	if d := s.cursor.pending.first(); d != nil && d.offset < start {
		s.change(op{kind: opForget, offset: start})
	}
	s.dropRemoved()
	if ms := now / int64(time.Millisecond); ms >= s.cursor.due && now >= s.nextScan() {
		s.scanned = now
		s.cursor.expire(ms)
	}
	kind := opExhausted
	if s.store.releasing.Load() {
		kind = opKeep
	}
	for _, offset := range s.cursor.exhausted {
		if d := s.cursor.pending.find(offset); d != nil && d.queued {
			if s.isRemoved(offset) {
				s.change(op{kind: opTerm, offset: offset})
				continue
			}
			if s.dead != nil {
				s.giveUp(d)
				continue
			}
			if d.isTerminated() { // for a dead-letter Topic that was taken out of the spec since
				s.change(op{kind: opAck, offset: offset, count: 1})
				continue
			}
			if kind == opKeep && len(s.cursor.kept) >= mostKept {
				s.forgetKept()
			}
			if kind == opKeep && len(s.cursor.kept) >= mostKept {
				s.change(op{kind: opProgress, offset: offset, deadline: after(now/int64(time.Millisecond), s.settings.ackWait(d.count))})
				continue
			}
			if sink, ok := s.sink.(ExhaustedSink); ok {
				sink.Exhausted(offset, uint64(d.count))
			}
			s.change(op{kind: kind, offset: offset})
			s.exhausted++
			s.service.exhausted.Add(1)
		}
	}
	s.cursor.exhausted = s.cursor.exhausted[:0]
}

// nextScan returns when deadlines may be scanned again. The interval grows with the number of
// pending records, so that scans take a bounded share of the time.
func (s *Subscription) nextScan() int64 {
	const perRecord = 100
	return s.scanned + int64(s.cursor.pending.live)*perRecord
}

// deliverSome delivers as much as is requested, available and allowed in one step. mu is held.
func (s *Subscription) deliverSome(w *worker, now int64, start, end uint64) (more bool, err error) {
	s.blocked, s.replay.due, s.turnstile.due = false, math.MaxInt64, math.MaxInt64
	if !s.wanting(now) {
		return false, nil
	}
	w.read, w.unlocked, w.stale = false, false, false
	if s.settings.where != nil {
		if s.cursor.next() == nil && !s.isFullyPending() {
			if more, err = s.judgeAhead(w, start, end); more || err != nil {
				return more, err
			}
		}
	} else {
		s.recount(start, now, false)
		if s.counting || s.countByIndex(now) {
			return false, nil
		}
		if more := s.countAhead(w, start, end, stepBytes); more && s.ahead.spent < s.service.countBytes {
			return true, nil // the first delivery waits for an exact count
		}
	}
	w.readMemory = s.reader.Lend(w.readMemory)
	defer s.releaseBuffers(w)
	budget := stepBytes
	delivered, redelivered := uint64(0), uint64(0)
	defer func() {
		s.service.delivered.Add(delivered)
		s.service.redelivered.Add(redelivered)
	}()
	for range stepRecords {
		r := s.first(now, start, end)
		if r == nil || !s.turnstile.allows(&s.settings, now) {
			return s.nothing(w, false), nil
		}
		count := uint32(1)
		var rec *log.Record
		if d := s.cursor.next(); d != nil {
			count = d.count + 1
			if rec, err = s.reread(w, d.offset, true); err != nil || w.stale {
				return w.stale, err
			}
			if rec == nil {
				continue
			}
		} else if s.isFullyPending() {
			s.blocked = true
			return s.nothing(w, true), nil
		} else {
			rec, more, err = s.fresh(w, start, end, &budget)
			if rec == nil {
				if w.read && err == nil && !w.stale {
					continue // others may have changed what is first
				}
				if !more && err == nil {
					s.replay.over = true
					more = s.nothing(w, false)
				}
				return more, err
			}
			if s.settings.replayOriginal && !s.replay.allows(rec, now) {
				s.endNoWait(false)
				return false, nil
			}
		}
		if r.peek {
			s.end(r, Ready)
			s.waiting.remove()
			continue
		}
		if s.deliverTo(w, r, rec, count, now, start, end) {
			delivered++
			s.turnstile.delivered(&s.settings, now)
			if count > 1 {
				redelivered++
			}
		}
		if budget -= len(rec.Data); budget <= 0 {
			return true, nil
		}
	}
	return true, nil
}

// isFullyPending reports whether as many records are pending as may be. mu is held.
func (s *Subscription) isFullyPending() bool {
	return s.settings.policy != coordination.AckNone && s.cursor.pending.live >= s.settings.maxPending
}

// nothing ends the requests that do not wait, when nothing more is available for them. If mu was
// released meanwhile, they may have come after what was looked at, so the next step looks again:
// more is true. mu is held.
func (s *Subscription) nothing(w *worker, blocked bool) (more bool) {
	if !w.unlocked {
		s.endNoWait(blocked)
	}
	return w.unlocked
}

// first returns the request to serve next, or nil. mu is held.
func (s *Subscription) first(now int64, start, end uint64) *request {
	if s.push != nil {
		if s.push.open(now) {
			return &s.push.request
		}
		return nil
	}
	for s.waiting.n > 0 && s.choose(start, end) {
		r := s.waiting.at(0)
		if r.checked == now {
			return r
		}
		r.checked = now
		switch {
		case r.expires > 0 && now >= r.expires:
			s.end(r, Expired)
		case r.peek || s.sink.Interested(r.to):
			return r
		}
		s.waiting.remove()
	}
	return nil
}

// endNoWait ends the requests that do not wait, when nothing more is available for them. mu is
// held.
func (s *Subscription) endNoWait(blocked bool) {
	impatient := false
	for i := range s.waiting.n {
		r := s.waiting.at(i)
		impatient = impatient || r.impatient(blocked)
	}
	if !impatient {
		return
	}
	s.waiting.sweep(func(r *request) bool {
		if r.impatient(blocked) {
			s.end(r, NoMessages)
			return false
		}
		return true
	})
}

// deliverTo delivers a record to a request, unless the record is too large for it. mu is held.
func (s *Subscription) deliverTo(w *worker, r *request, rec *log.Record, count uint32, now int64, start, end uint64) bool {
	lag, _ := s.lag(start, end)
	fresh := rec.Offset > s.cursor.offset
	if fresh {
		lag = max(lag-s.passedOver(rec.Offset, start), 1) - 1
	}
	w.delivery = Delivery{
		Topic: s.store.shard.name, Name: s.id.name, Delivered: uint64(count), Offset: rec.Offset,
		Sequence: s.cursor.sequence + 1, Time: rec.Time, Pending: lag, HeadersOnly: s.spec.Consumer.HeadersOnly,
	}
	if r.bounded {
		size := s.sizeOf(&w.delivery, rec)
		if size > r.bytes && !r.relay {
			s.end(r, MaxBytes)
			s.waiting.remove()
			return false
		}
		r.bytes -= size
	}
	if fresh {
		s.ahead.passed(rec.Offset, s.cursor.until)
		s.skipUnlogged = false
		s.mean += (len(rec.Data) + len(rec.Subject) + 16 - s.mean) / 16
	}
	if s.settings.policy == coordination.AckNone {
		s.change(op{kind: opPass, offset: rec.Offset, count: 1})
	} else {
		deadline := after(now/int64(time.Millisecond), s.settings.ackWait(count))
		if s.settings.endpoint {
			deadline = untried
		}
		s.change(op{kind: opDeliver, offset: rec.Offset, count: 1, deadline: deadline})
	}
	if e := s.endpoint(); e != nil {
		if d := s.cursor.pending.find(rec.Offset); d != nil {
			w.delivery.Delivered = uint64(d.count)
		}
		e.Take(&w.delivery, rec)
		s.lastSeen.used = now
		return true
	}
	s.dead.delivered(&s.cursor, rec.Offset, now)
	w.delivery.Pin = s.pinned(r, now)
	s.sink.Deliver(r.to, &w.delivery, rec)
	s.unflushed = true
	s.lastSeen.delivered, s.lastSeen.used = now, now
	if r.standing {
		s.pushed(&w.delivery, rec, now)
		return true
	}
	r.got++
	r.left--
	r.beat = now + r.heartbeat
	switch {
	case r.left > 0 && (!r.relay || r.bytes > 0):
		s.waiting.rotate()
	case r.bounded && r.bytes > 0:
		s.end(r, BatchDone)
		s.waiting.remove()
	default:
		s.waiting.remove()
	}
	return true
}

// readView reads from a cursor without mu, so that neither acks nor requests wait for the disk. If
// the Subscription was reset or its spec changed meanwhile, what was read is of no use: w.stale is
// set, and the step ends. sinkMu and mu are held, so it isn't closed meanwhile.
func (s *Subscription) readView(w *worker, c *log.Cursor, size int) (v log.View, err error) {
	s.noteSkips()
	changes := s.changes
	s.mu.Unlock()
	v, err = c.Read(size)
	s.mu.Lock()
	w.read, w.unlocked = true, true
	if w.stale = s.changes != changes; !w.stale {
		return v, err
	}
	if err == nil {
		v.Release()
	}
	if w.open {
		w.view.Release()
	}
	if w.otherOpen {
		w.otherView.Release()
	}
	w.open, w.have, w.otherOpen = false, false, false
	return log.View{}, nil
}

// noteSkips notes for the state log what was passed over. mu is held.
func (s *Subscription) noteSkips() {
	s.notePasses()
	if s.skipUnlogged {
		s.skipUnlogged = false
		s.change(op{kind: opSkip, offset: s.cursor.offset})
	}
}

// fresh returns the next undelivered record. If there is none, more reports that the search
// continues in the next step. After w.read it is called again, since mu was released. mu is held.
func (s *Subscription) fresh(w *worker, start, end uint64, budget *int) (rec *log.Record, more bool, err error) {
	w.read = false
	for {
		if w.open {
			if w.record.Offset > s.cursor.offset && w.have {
				return &w.record, false, nil
			}
			w.have = false
			if w.records.Next(&w.record) {
				if w.record.Offset <= s.cursor.offset {
					continue
				}
				if w.record.Offset >= end {
					return nil, false, nil
				}
				if s.settings.where != nil && w.record.Offset >= s.verdicts.to {
					if judged := s.verdicts.to - 1; judged > s.cursor.offset {
						s.skip(judged) // compaction took the matches that are remembered
					}
					return nil, true, nil // it is to be judged first
				}
				if s.wanted(&w.record) {
					w.have = true
					continue
				}
				s.skip(w.record.Offset)
				if *budget -= len(w.record.Data) + 64; *budget <= 0 {
					return nil, true, nil
				}
				continue
			}
			if err := w.records.Err(); err != nil && w.batchEnd > s.cursor.offset {
				s.skipUnreadable(w.batchEnd, err)
			}
			if last := min(w.batchEnd, end); last > s.cursor.offset+1 {
				s.skip(last - 1) // compaction left a gap
				*budget -= 64
			}
			if b, ok := w.view.Next(); ok {
				w.records, w.batchEnd = b.Records(), b.End()
				continue
			}
			w.view.Release()
			w.open = false
		}
		next := s.cursor.offset + 1
		switch {
		case next >= end:
			return nil, false, nil
		case next < start:
			s.skip(start - 1)
			s.ahead.at = 0
			continue
		case s.isRemoved(next):
			s.skip(min(s.store.shard.Removed().Next(next), end) - 1)
			continue
		case *budget <= 0:
			return nil, true, nil
		case s.cursor.until > next:
			if s.newest == nil {
				s.seekNewest()
				return nil, true, nil
			}
			if s.toNewest(next) {
				continue
			}
		}
		if s.settings.where != nil {
			if moved, unjudged := s.passUnmatched(next, end); unjudged {
				return nil, !s.verdicts.stuck, nil
			} else if moved {
				continue
			}
		}
		if at := s.reader.Next(); at > next || at < next && next >= s.readEnd {
			s.reader.Seek(next)
		}
		w.saved = s.reader
		want := min(max(s.mean*min(s.asked(), stepRecords), readSmallest), readLargest)
		reader := s.reader
		v, err := s.readView(w, &reader, want)
		if w.stale {
			return nil, true, nil
		}
		s.reader = reader
		if err != nil {
			err = s.unreadable(next, err)
			return nil, err == nil, err
		}
		s.readError = ""
		w.view, w.open, w.have = v, true, false
		w.records, w.batchEnd, s.readEnd = log.RecordIter{}, 0, v.End
		if v.End == v.From {
			w.read, w.unlocked = false, false // another step would find the same
			return nil, false, nil
		}
		return nil, true, nil
	}
}

// releaseBuffers returns what a step has borrowed and saves the read position. mu is held.
func (s *Subscription) releaseBuffers(w *worker) {
	w.readMemory = s.reader.Lend(nil)
	if w.open {
		w.view.Release()
		if s.cursor.offset+1 < s.readEnd {
			s.reader = w.saved // the next step reads the rest of it
			s.reader.Lend(nil)
		}
	}
	w.open, w.have = false, false
	s.releaseOther(w)
	s.noteSkips()
	if s.waiting.n == 0 && s.push == nil {
		s.cursor.shrink()
	}
}

// releaseOther returns what redeliveries have borrowed. mu is held.
func (s *Subscription) releaseOther(w *worker) {
	if w.otherOpen {
		w.otherView.Release()
	}
	w.otherOpen = false
	if s.redeliveryReader != nil {
		if memory := s.redeliveryReader.Lend(nil); memory != nil {
			w.otherMemory = memory
		}
	}
}

// wanted reports whether a record is to be delivered for the first time. mu is held.
func (s *Subscription) wanted(r *log.Record) bool {
	if s.cursor.until > r.Offset {
		s.dropNewest(r.Offset)
		return len(s.newest) > 0 && s.newest[0] == r.Offset && !s.cursor.isAhead(r.Offset) && !s.isRemoved(r.Offset)
	}
	if s.settings.where != nil && !s.isMatch(r.Offset) {
		return false
	}
	return s.settings.matches(r.Subject) && !s.cursor.isAhead(r.Offset) && !s.isRemoved(r.Offset)
}

// skip skips records. The end of the step notes it for the state log. mu is held.
func (s *Subscription) skip(to uint64) {
	if len(s.settings.filters) == 0 || s.settings.where != nil || s.cursor.until > 0 {
		s.store.lookAgain(s.cursor.offset+1, to+1)
	}
	s.cursor.apply(op{kind: opSkip, offset: to})
	s.skipUnlogged = true
}

// skipUnreadable skips records below next that cannot be read, and reports them. mu is held.
func (s *Subscription) skipUnreadable(next uint64, err error) {
	n := next - 1 - s.cursor.offset
	s.skipped += n
	s.service.lost.Add(n)
	s.trouble = fmt.Sprintf("%d records from offset %d on can't be read and were not delivered: %v", n, s.cursor.offset+1, err)
	s.service.config.Logger.Error("records can't be read and are not delivered",
		"topic", s.store.shard.name, "subscription", s.id.name, "from", s.cursor.offset+1, "to", next-1, "error", err)
	s.skip(next - 1)
	s.ahead.at = 0
}

// unreadable handles a failed read of records from next on: deleted ones and damaged ones are
// skipped; otherwise it returns an error and the read is to be tried again. mu is held.
func (s *Subscription) unreadable(next uint64, err error) error {
	var gone *log.RangeError
	var damaged *log.CorruptError
	err = s.store.shard.Unreadable(err)
	switch {
	case s.reader.Next() < next: // the read began earlier, in a partly delivered batch
		s.reader.Seek(next)
		return nil
	case errors.As(err, &gone) && gone.Start > next:
		s.skip(gone.Start - 1)
		s.ahead.at = 0
		return nil
	case errors.As(err, &damaged) && damaged.Next > next:
		s.skipUnreadable(damaged.Next, err)
		return nil
	}
	return s.fail(err)
}

// fail records a failed read that is to be tried again. mu is held.
func (s *Subscription) fail(err error) error {
	if s.readError == "" {
		s.service.config.Logger.Error("records can't be read; trying again", "topic", s.store.shard.name, "subscription", s.id.name, "error", err)
	}
	s.readError = err.Error()
	return err
}

// reread returns the record at an offset for redelivery, or nil if the log lacks it now. If unlock
// is set, it reads without mu, and returns nil then: it is called again. mu is held.
func (s *Subscription) reread(w *worker, offset uint64, unlock bool) (*log.Record, error) {
	if s.isRemoved(offset) {
		s.change(op{kind: opTerm, offset: offset})
		return nil, nil
	}
	// What is read without mu may be for a record that is acknowledged meanwhile. Then the next one
	// may stand before it.
	if !w.otherOpen || offset <= w.other.Offset || offset < w.otherView.From || offset >= w.otherView.End {
		if w.otherOpen {
			w.otherView.Release()
			w.otherOpen = false
		}
		if s.redeliveryReader == nil {
			s.redeliveryReader = s.store.shard.NewCursor(offset)
		}
		if s.redeliveryReader.Next() != offset {
			s.redeliveryReader.Seek(offset)
		}
		if w.otherMemory != nil {
			s.redeliveryReader.Lend(w.otherMemory)
			w.otherMemory = nil
		}
		var v log.View
		var err error
		if unlock {
			v, err = s.readView(w, s.redeliveryReader, readSmallest)
		} else {
			v, err = s.redeliveryReader.Read(readSmallest)
		}
		switch {
		case unlock && w.stale:
			return nil, nil
		case err != nil:
			return nil, s.vanished(offset, err)
		}
		w.otherView, w.otherOpen, w.other, w.otherRecords, w.otherEnd = v, true, log.Record{}, log.RecordIter{}, 0
		if unlock {
			return nil, nil
		}
	}
	for {
		for w.otherRecords.Next(&w.other) {
			if w.other.Offset == offset {
				return &w.other, nil
			}
		}
		if w.otherRecords.Err() == nil && w.otherEnd > offset {
			// The file lost this record: it was removed, or compaction found a newer one of its subject.
			s.change(op{kind: opTerm, offset: offset})
			return nil, nil
		}
		if err := w.otherRecords.Err(); err != nil {
			return nil, s.vanished(offset, &log.CorruptError{From: offset, Next: offset + 1, Reason: err.Error()})
		}
		b, ok := w.otherView.Next()
		if !ok {
			return nil, s.vanished(offset, fmt.Errorf("offset %d is not where it was", offset))
		}
		w.otherRecords, w.otherEnd = b.Records(), b.End()
	}
}

// vanished handles a failed read of a record for redelivery. mu is held.
func (s *Subscription) vanished(offset uint64, err error) error {
	var gone *log.RangeError
	var damaged *log.CorruptError
	err = s.store.shard.Unreadable(err)
	switch {
	case errors.As(err, &gone) && gone.Start > offset:
		s.change(op{kind: opForget, offset: gone.Start})
		return nil
	case errors.As(err, &damaged) && damaged.Next > offset:
		s.skipped++
		s.service.lost.Add(1)
		s.trouble = fmt.Sprintf("the record at offset %d can't be read and is not delivered again: %v", offset, err)
		s.service.config.Logger.Error("a record can't be read and is not delivered again",
			"topic", s.store.shard.name, "subscription", s.id.name, "offset", offset, "error", err)
		s.change(op{kind: opTerm, offset: offset})
		return nil
	}
	return s.fail(err)
}

// waitForMore registers for new records, and reports whether some arrived already. mu is held.
func (s *Subscription) waitForMore(end uint64) bool {
	if s.settings.where != nil {
		if waits, again := s.waitForMatch(); waits || again {
			return again
		}
	}
	s.store.wait(s)
	_, now := s.store.shard.Offsets()
	return now > end
}

// arm sets the timer, and reports whether the Subscription was idle for so long that it is to be
// retired. mu is held.
func (s *Subscription) arm(now, at int64) (idle bool) {
	if s.waiting.n > 0 {
		at = min(at, s.waiting.due)
	}
	if s.push != nil {
		at = min(at, s.push.dueAt(now))
	}
	if s.pin != nil {
		at = min(at, s.pin.until)
	}
	at = min(at, s.dead.due(now))
	if due := s.cursor.due; due < math.MaxInt64 && s.search.done && (s.waiting.n > 0 || s.push != nil && s.push.away == 0 || s.dead != nil) {
		at = min(at, max(due*int64(time.Millisecond), s.nextScan()))
	}
	switch {
	case s.inactive > 0 && s.push != nil:
		if s.push.away == 0 {
			break // the end of the interest wakes it
		}
		until := max(s.push.away+s.inactive, s.keepUntil)
		if now >= until {
			idle = true
			s.push.away = now
			until = now + s.inactive
		}
		at = min(at, until)
	case s.inactive > 0:
		until := max(s.lastSeen.used+s.inactive, s.keepUntil)
		if now >= until {
			s.dropDeserted()
			s.lastSeen.used = now
			idle = s.waiting.n == 0
			until = now + s.inactive
		}
		at = min(at, until)
	}
	if at >= s.timerAt {
		return idle
	}
	s.timerAt = at
	if wait := time.Duration(max(at-now, 0)); s.timer == nil {
		s.timer = time.AfterFunc(wait, func() { s.service.tasks.wake(s) })
	} else {
		s.timer.Reset(wait)
	}
	return idle
}

// retire deletes an unused reader, and reports an unused durable Subscription. A durable one is
// reported again after the same time if it still exists.
func (s *Subscription) retire() {
	if s.ephemeral.Load() {
		if retired := s.service.config.Retired; s.store.retireReader(s) && retired != nil {
			retired(s.store.shard.topic, s.id.name)
		}
	} else if inactive := s.service.config.Inactive; inactive != nil {
		s.mu.Lock()
		made := s.id.made
		s.mu.Unlock()
		inactive(s.store.shard.topic, s.id.name, made)
	}
}
