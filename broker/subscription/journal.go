package subscription

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/removal"
	"github.com/carillon-mq/carillon/broker/viewing"
)

// completion receives the result of an append to the state log.
type completion struct {
	store   *cursorStore
	waiters []func(error)
	trim    uint64 // 0: nothing to trim
}

// Committed implements log.Completion. It answers the waiters.
func (c *completion) Committed(_, _ uint64, err error) {
	k := c.store
	if err != nil {
		err = fmt.Errorf("it can't be kept: %w", err)
	}
	for i, done := range c.waiters {
		done(err)
		c.waiters[i] = nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		k.markDirty(err)
	} else if c.trim > 0 {
		k.trimTo = c.trim
		k.service.tasks.wake(k)
	}
	c.waiters, c.trim = c.waiters[:0], 0
	k.free = append(k.free, c)
}

// markDirty records that the state log accepts no appends. mu is held.
func (k *cursorStore) markDirty(err error) {
	if k.failed == nil && k.closed == 0 {
		k.service.config.Logger.Error("cursors can't be written; acks that ask for an answer are refused", "topic", k.shard.name, "error", err)
	}
	k.failed = err
}

// write appends the buffer to the state log. stepping is held.
func (k *cursorStore) write() {
	k.mu.Lock()
	k.armed = false
	k.flushLast()
	failed := k.failed
	if failed != nil {
		waiters := k.waiters
		k.waiters, k.buffer, k.readers = nil, k.buffer[:0], nil
		k.mu.Unlock()
		for _, done := range waiters {
			done(fmt.Errorf("it can't be kept: %w", failed))
		}
		return
	}
	k.waiters, k.again = append(k.waiters, k.again...), nil
	settled, again := k.releases.noted()
	removals := k.shard.RemovalBytes()
	most := max(k.service.wholeAfter, snapshotFactor*k.snapshot)
	whole := k.dirty || k.written+int(removals-k.removals) > most || k.others > most
	nothing := len(k.buffer) == 0 && len(k.readers) == 0 && len(k.waiters) == 0
	k.mu.Unlock()
	logged := true
	switch {
	case whole:
		logged = k.writeAll()
	case !nothing:
		logged = k.put(true, 0)
	}
	k.logged(settled, again, logged)
	k.wholeAt.Store(k.removals + uint64(max(k.service.wholeAfter, snapshotFactor*k.snapshot, k.written)-k.written))
}

// writeAll appends a snapshot of all cursors, and trims what precedes it once the snapshot is
// durable. It reports whether the log takes it. stepping is held.
func (k *cursorStore) writeAll() bool {
	state, removals := k.shard.State(), k.shard.RemovalBytes()
	state.Roll() // so that what precedes the snapshot is in segments of its own
	_, mark, _ := state.Offsets()
	k.mu.Lock()
	k.dirty = false
	k.buffer, k.readers, k.last = k.buffer[:0], nil, op{} // the snapshots contain it
	k.mu.Unlock()
	total := 0
	for _, s := range k.each() {
		s.mu.Lock()
		if s.search.done && s.closed != Deleted { // when the store closes, the others are closed, too
			total += k.putSubscription(s)
		}
		s.mu.Unlock()
		k.putSome()
	}
	for _, r := range k.recovered {
		total += k.putRecovered(&r)
		k.putSome()
	}
	total += k.putRemovals()
	k.mu.Lock()
	interrupted := k.dirty
	k.mu.Unlock()
	if !interrupted {
		k.snapshot, k.written, k.removals = total, 0, removals
		k.mu.Lock()
		k.others = 0
		k.mu.Unlock()
		return k.put(true, mark)
	}
	return false
}

// putSubscription adds a Subscription to the buffer, and returns how many bytes it takes. The
// Subscription's mu is held.
func (k *cursorStore) putSubscription(s *Subscription) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := len(k.buffer) + len(k.readers)
	k.addSnapshot(s)
	return len(k.buffer) + len(k.readers) - before
}

// addSnapshot is putSubscription under mu.
func (k *cursorStore) addSnapshot(s *Subscription) {
	k.fill()
	k.flushLast()
	s.forgetKept()
	k.buffer = appendSnapshot(k.buffer, s.handle, s.id, &s.cursor, k.base)
	if s.ephemeral.Load() {
		k.readers = appendReader(k.readers, s.handle, s.reading())
	}
}

// putRecovered adds a Subscription that is not known yet to the buffer, and returns how many bytes
// it takes. It has no reader item: readers are known once the state log was read.
func (k *cursorStore) putRecovered(r *recovered) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fill()
	k.flushLast()
	before := len(k.buffer)
	k.buffer = appendSnapshot(k.buffer, r.handle, r.id, &r.cursor, k.base)
	return len(k.buffer) - before
}

// putSome appends the snapshots gathered so far, if they exceed snapshotBatch. It answers no
// waiters. stepping is held.
func (k *cursorStore) putSome() {
	k.mu.Lock()
	many := len(k.buffer)+len(k.readers) > snapshotBatch && !k.dirty
	k.mu.Unlock()
	if many {
		k.put(false, 0)
	}
}

// putRemovals appends all removals that precede the snapshot, and returns how many bytes they take.
// They are kept before the log loses what precedes. stepping is held.
func (k *cursorStore) putRemovals() (total int) {
	for r := range k.shard.RemovalItems {
		r.Time = k.service.recordTime(k.service.now())
		a := log.Append{Durability: log.Memory, Records: []log.Record{r}}
		err := k.shard.State().WaitRoom(k.service.ctx)
		if err == nil {
			_, err = k.shard.AppendState(&a)
		}
		if err != nil {
			k.refused(err, nil, nil, nil)
			k.mu.Lock()
			k.dirty = true
			k.mu.Unlock()
			break
		}
		total += len(r.Data)
	}
	return total
}

// put appends the buffer as one batch. With answer, the waiters are answered when it is durable.
// With trim, the log is trimmed to there afterwards. put reports whether the log takes the batch.
// stepping is held.
func (k *cursorStore) put(answer bool, trim uint64) bool {
	k.mu.Lock()
	k.flushLast()
	data, readers := k.buffer, k.readers
	k.buffer, k.spare, k.readers = k.spare[:0], nil, nil
	k.putting = true
	var c *completion
	if answer && len(k.waiters) > 0 || trim > 0 {
		c = k.completion()
		c.trim = trim
		if answer {
			c.waiters, k.waiters = k.waiters, c.waiters
		}
	}
	base := k.base
	k.mu.Unlock()
	k.record[0] = log.Record{Time: k.service.recordTime(base * int64(time.Millisecond)), Data: data, Attributes: readers}
	k.append = log.Append{Records: k.record[:], Durability: log.Memory}
	if c != nil {
		k.append.Done, k.append.Durability = c, k.shard.ackDurability()
		if trim > 0 {
			k.append.Durability = log.Synced
		}
	}
	if _, err := k.shard.AppendState(&k.append); err != nil {
		k.refused(err, data, readers, c)
		return false
	}
	k.written += len(data) + len(readers)
	k.service.stateBytes.Add(uint64(len(data) + len(readers)))
	k.mu.Lock()
	k.spare, k.putting, k.loose = data[:0], false, c == nil
	k.mu.Unlock()
	return true
}

// completion returns a new or reused completion. mu is held.
func (k *cursorStore) completion() *completion {
	if last := len(k.free) - 1; last >= 0 {
		c := k.free[last]
		k.free = k.free[:last]
		return c
	}
	return &completion{store: k}
}

// refused handles a failed append: its content is written later, or a full snapshot is. stepping is
// held.
func (k *cursorStore) refused(err error, data, readers []byte, c *completion) {
	var waiters []func(error)
	k.mu.Lock()
	k.putting = false
	behind := errors.Is(err, log.ErrOverloaded)
	if behind && c != nil {
		k.waiters, c.waiters = append(c.waiters, k.waiters...), nil
	} else if c != nil {
		waiters = c.waiters
	}
	if behind && (c == nil || c.trim == 0) && len(data)+len(readers)+len(k.buffer)+len(k.readers) <= heldBytes {
		k.buffer, k.readers = append(data, k.buffer...), append(readers, k.readers...)
		k.arm(lazyFor)
	} else {
		// From now on the memory is ahead of the log.
		k.dirty = true
		k.buffer, k.readers, k.last = k.buffer[:0], nil, op{}
		k.spare = data[:0]
		k.arm(retryAfter)
	}
	var failed *log.FailedError
	var epoch *log.EpochError
	if errors.As(err, &failed) || errors.As(err, &epoch) || errors.Is(err, log.ErrClosed) {
		k.markDirty(err)
	} else if !behind {
		k.service.config.Logger.Warn("cursors can't be written; trying again", "topic", k.shard.name, "error", err)
	}
	k.mu.Unlock()
	for _, done := range waiters {
		done(fmt.Errorf("it can't be kept: %w", err))
	}
}

// trim deletes what precedes the last full snapshot. stepping is held.
func (k *cursorStore) trim() {
	k.mu.Lock()
	to := k.trimTo
	k.trimTo = 0
	k.mu.Unlock()
	if to == 0 {
		return
	}
	if _, err := k.shard.State().Trim(to); err != nil {
		k.service.config.Logger.Warn("what cursors were before can't be deleted", "topic", k.shard.name, "error", err)
	}
}

// recovered is a Subscription of the state log.
type recovered struct {
	handle  uint64
	id      identity
	cursor  cursor
	epoch   uint64 // of the leader that changed the cursor last
	known   uint64
	beyond  uint64 // where the cursor stood if the log lacked that; 0: it did not
	trouble string
	reader  *reader // nil: it is no reader, or its item is lost
}

// open reads the state log. stepping is held.
func (k *cursorStore) open() error {
	state := k.shard.State()
	start, _, _ := state.Offsets()
	byHandle := map[uint64]*recovered{}
	k.damage = nil
	handles := uint64(0)
	c := state.NewCursor(start)
	for {
		v, err := c.Read(readLargest)
		if err != nil {
			err = k.shard.Unreadable(err)
		}
		var damaged *log.CorruptError
		if errors.As(err, &damaged) && damaged.Next > c.Next() {
			k.dropDamaged(byHandle, err)
			c.Seek(damaged.Next)
			continue
		}
		if err != nil {
			return err
		}
		if v.End == v.From {
			break
		}
		for b, ok := v.Next(); ok; b, ok = v.Next() {
			if b.Lost() {
				k.dropDamaged(byHandle, fmt.Errorf("offsets %d to %d of the state log were damaged, and on no replica", b.Base(), b.End()-1))
			}
			it := b.Records()
			for r := (log.Record{}); it.Next(&r); {
				greatest, err := k.replay(byHandle, &r, b.Epoch())
				handles = max(handles, greatest)
				if err != nil {
					k.dropDamaged(byHandle, err)
				}
			}
			if it.Err() != nil {
				k.dropDamaged(byHandle, it.Err())
			}
		}
		v.Release()
	}
	k.mu.Lock()
	k.handles = handles
	k.mu.Unlock()
	_, end := k.shard.Offsets()
	epochs, known := k.shard.Data().Epochs(), min(end, k.shard.Inherited())
	k.recovered = make(map[string]recovered, len(byHandle))
	for handle, r := range byHandle {
		if seen := min(end, endOfEpoch(epochs, r.epoch)); r.cursor.isBeyond(seen) {
			r.beyond = r.cursor.offset
			r.cursor.apply(op{kind: opTruncate, offset: seen})
			k.dirty = true
		}
		r.handle, r.known = handle, known
		if other, twice := k.recovered[r.id.name]; !twice || other.handle < handle {
			k.recovered[r.id.name] = *r
		}
	}
	if k.damage != nil {
		k.dirty = true
		k.service.config.Logger.Error("cursors were read from a damaged log; what was acknowledged may come again, and what has no cursor left is not served",
			"topic", k.shard.name, "error", k.damage)
	}
	return nil
}

// endOfEpoch returns the offset at which the first epoch after the given one begins in the data
// log, or the greatest number.
//
// The records from there on were appended later. If a cursor of that epoch goes beyond, the records
// that it counts are gone: they were not durable, and other records have their offsets now. Every
// replica has the epochs of both logs, so each later leader comes to the same result, also if the
// leader that noticed it first died before it wrote a snapshot.
//
// Rejected: a comparison with the end of the log when the cursors are read. The new leader may have
// appended before.
func endOfEpoch(epochs []log.Epoch, epoch uint64) uint64 {
	for _, e := range epochs {
		if e.Epoch > epoch {
			return e.Start
		}
	}
	return math.MaxUint64
}

// replay applies one record of the state log, of a batch of that epoch. It returns the greatest
// handle in it.
func (k *cursorStore) replay(byHandle map[uint64]*recovered, r *log.Record, epoch uint64) (greatest uint64, err error) {
	base := k.service.written(r.Time) / int64(time.Millisecond)
	if string(r.Subject) == removal.Subject || string(r.Subject) == viewing.Subject {
		return 0, nil // it is not about cursors
	}
	var it item
	for in := (decoder{data: r.Data}); len(in.data) > 0; {
		if err := in.next(&it, base); err != nil {
			return greatest, fmt.Errorf("offset %d of the state log: %w", r.Offset, err)
		}
		greatest = max(greatest, it.handle)
		switch known := byHandle[it.handle]; {
		case it.snapshot:
			r := &recovered{id: it.id, cursor: it.cursor, epoch: epoch}
			if known != nil {
				r.reader = known.reader
			}
			byHandle[it.handle] = r
		case it.gone:
			delete(byHandle, it.handle)
		case known != nil:
			known.cursor.apply(it.op)
			known.epoch = epoch
		}
	}
	for in := (decoder{data: r.Attributes}); len(in.data) > 0; {
		handle, item, err := in.nextReader()
		if err != nil {
			return greatest, fmt.Errorf("offset %d of the state log: %w", r.Offset, err)
		}
		if known := byHandle[handle]; known != nil {
			known.reader = item
		}
	}
	return greatest, nil
}

// dropDamaged records that a part of the state log cannot be read, so the cursors before it may be
// too low.
func (k *cursorStore) dropDamaged(byHandle map[uint64]*recovered, err error) {
	k.damage = err
	for _, r := range byHandle {
		r.trouble = fmt.Sprintf("the log of its cursor is damaged, so what was acknowledged may come again: %v", err)
	}
}
