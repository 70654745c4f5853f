package subscription

import (
	"fmt"
	"math"
	"slices"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// ResetRefusedError is why a cursor can't be moved to a record.
type ResetRefusedError struct{ Why string }

func (e *ResetRefusedError) Error() string { return e.Why }

// unlogged are resets of a Subscription that the state log may lack. Until it has the last one,
// all records from from on count as needed: another leader would find the former cursor. Guarded by
// the store's mu.
type unlogged struct {
	from   uint64 // 0: none
	number uint64 // of the last reset
}

// Reset makes next the next record, or the one after the ack floor if it is 0, and forgets all
// deliveries. It returns the record. done is called once, when that is durable or failed; it must
// not block. If Reset returns an error, nothing changed, and done is not called.
//
// Where acks remove, what was given up stays. In a work queue, so does all that it passes, until it
// is acknowledged. By interest the rest of that is removed, once the reset is durable.
func (s *Subscription) Reset(next uint64, done func(error)) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed != 0 || !s.search.done || !s.store.knowsPolicy() {
		return 0, s.store.notServed(s.id.name, Opening, "it is being opened or closed; try again", nil)
	}
	if next == 0 {
		_, floor := s.cursor.floor()
		next = floor + 1
	} else {
		_, end := s.store.shard.Offsets()
		next = max(min(next, end), s.firstEver())
	}
	kept, err := s.keptBelow(next)
	if err == nil {
		err = s.store.accepts()
	}
	if err != nil {
		return 0, err
	}
	logged := s.store.resetting(s, s.cursor.lowest())
	until := s.cursor.until
	s.forgetDeliveries(next)
	s.cursor.kept = kept
	if until > next {
		s.cursor.until = until
	}
	err = s.store.rewrite(s, func(err error) {
		logged(err)
		done(err)
	})
	if err != nil {
		return 0, err
	}
	s.service.tasks.wake(s)
	return next, nil
}

// knowsPolicy reports whether the retention of the Topic is known.
func (k *cursorStore) knowsPolicy() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return removes(k.releases.policy) || !k.releasing.Load()
}

// firstEver returns the first record to which a client may reset. mu is held.
func (s *Subscription) firstEver() uint64 {
	if s.spec.Start.From == coordination.FromOffset {
		return max(s.spec.Start.Offset, 1)
	}
	return 1
}

// keptBelow returns the records that stay when the cursor moves to next, where acks remove: what
// was given up, and in a work queue all that is needed. mu is held.
func (s *Subscription) keptBelow(next uint64) (kept []uint64, _ error) {
	if k := s.store; k.isQueue() {
		for _, some := range k.left(s.cursor.needs(spans{{1, next}})) {
			if some.next-some.from > mostKept-uint64(len(kept)) {
				return nil, &ResetRefusedError{fmt.Sprintf("it passes more than %d messages that were not acknowledged, and a work queue keeps them: reset to an earlier one, or purge them", mostKept)}
			}
			for offset := some.from; offset < some.next; offset++ {
				kept = append(kept, offset)
			}
		}
		return kept, nil
	}
	return s.keptByInterest(next), nil
}

// keptByInterest returns the records below next that were given up, and that stay. Nothing stays
// where acks remove nothing. mu is held.
func (s *Subscription) keptByInterest(next uint64) []uint64 {
	if !s.store.releasing.Load() {
		return nil
	}
	return slices.DeleteFunc(s.cursor.givenUp(next), s.isRemoved)
}

// resetting notes that a reset is under way. from is the first record that the cursor may need
// before it. The result is to be called when the reset is in the state log, or failed. The
// Subscription's mu is held.
func (k *cursorStore) resetting(s *Subscription, from uint64) (logged func(error)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	u := &s.unlogged
	if u.from == 0 || from < u.from {
		u.from = from
	}
	u.number++
	number := u.number
	logged = func(err error) {
		k.mu.Lock()
		from := u.from
		switch {
		case u.number != number:
			from = 0 // the later one decides
		case err != nil:
			k.again, from = append(k.again, logged), 0
			if k.failed == nil {
				k.arm(retryAfter)
			}
		default:
			u.from = 0
		}
		k.mu.Unlock()
		if from > 0 {
			k.lookAgain(from, endless)
		}
	}
	return logged
}

// heldBack returns what a Subscription needs of some offsets besides its cursor's needs.
func (k *cursorStore) heldBack(s *Subscription, some, needed spans) spans {
	k.mu.Lock()
	from := s.unlogged.from
	k.mu.Unlock()
	if from == 0 {
		return needed
	}
	for _, part := range some {
		needed = append(needed, span{max(part.from, from), part.next})
	}
	return merge(needed)
}

// forgetDeliveries begins a new cursor whose next record is next. mu is held.
func (s *Subscription) forgetDeliveries(next uint64) {
	s.changes++
	s.notePasses()
	s.cursor = cursor{offset: next - 1, maxDeliver: s.cursor.maxDeliver, due: math.MaxInt64}
	s.reader, s.readEnd, s.redeliveryReader = *s.store.shard.NewCursor(next), 0, nil
	s.known, s.newest, s.ahead, s.replay = 0, nil, lookahead{}, replay{}
	s.verdicts.restart()
	if e := s.endpoint(); e != nil {
		e.Forget()
	}
	s.skipUnlogged = false
	s.dead = newDeadLetters(nil, s.spec.DeadLetter).counted(s.dead)
	s.lastSeen.delivered, s.lastSeen.acked, s.lastSeen.used = 0, 0, s.service.now()
}

// restart begins a new cursor where a reset has it begin. Waiting requests go on waiting. The
// store's stepping is held.
//
// It becomes that of the entry under the same lock: a step between would write the start that the
// former reset found as the one of this reset.
func (s *Subscription) restart(d *coordination.Subscription, e *entry) {
	s.mu.Lock()
	s.changeSpec(d.Spec)
	s.unstarted.Store(true)
	kept := s.keptByInterest(endless)
	s.forgetDeliveries(1)
	s.cursor.kept = kept
	s.id.made, s.begin = d.Incarnation(), d.Begin()
	s.search, s.trouble, s.readError = &startSearch{}, "", ""
	s.store.mu.Lock()
	s.store.subs[s.id.name] = e
	s.store.mu.Unlock()
	s.mu.Unlock()
	s.service.tasks.wake(s)
}

// rewrite writes the cursor of a Subscription, and the spec of a reader, anew. done is as of await.
// The Subscription's mu is held.
func (k *cursorStore) rewrite(s *Subscription, done func(error)) error {
	k.mu.Lock()
	if !k.dirty && k.closed == 0 {
		k.addSnapshot(s)
	}
	k.mu.Unlock()
	return k.await(done)
}
