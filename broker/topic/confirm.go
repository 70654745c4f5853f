package topic

import (
	"fmt"

	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/replica"
)

// An answer that a record of a newer leader could falsify waits until the in-sync replicas have confirmed that
// this broker still leads (replica.Leading.Question). Rules:
//
//  1. A message that is refused by a condition is such an answer, whether it fails for a record that is there or
//     for one that is missing: it goes to a pending of its own, so that acks never wait for it.
//  2. An ack, and that a message is a duplicate of a kept one, stay true. They wait for their record alone (T1).
//  3. Readers that claim to show the latest call Confirm before they look.
//  4. A question is asked after its answer was judged, or before it is looked up, in any case after the message or
//     request came. So the answer was true at a time between that and its being given.
//  5. Without a confirmation within confirmTime the answer is a *publish.UnconfirmedError. Nothing of the message is kept
//     by this leader then. A message that a former leader was sent, too, may stand in that one's log: its sender sends it again.
//  6. A new epoch of the same leader asks anew: rounds are numbered by epoch.

// Confirm says at once, if it can, that no newer leader had begun to lead the shard when it was called; then it
// returns true, and what is read of the shard from then on is not older than that moment. Otherwise it returns false and calls
// done, once and on any goroutine: with nil if that is so, with a *publish.UnconfirmedError if it could not be
// confirmed in time, or with why this broker leads no more. done must not block.
func (s *ShardLeader) Confirm(done func(err error)) (now bool) {
	c := &s.confirms
	c.mu.Lock()
	if c.ended || s.ending.Load() {
		c.mu.Unlock()
		done(s.shard.refusal())
		return false
	}
	defer c.mu.Unlock()
	l := s.leading.Load()
	round := l.Question()
	if l.Confirmed() >= round {
		return true
	}
	c.waiting = append(c.waiting, confirm{round, forward.Mono(), done})
	c.pending.Add(1)
	return false
}

// confirmed lets readers go on whose round is confirmed, and others that have waited for too long. No lock is held.
func (s *ShardLeader) confirmed() {
	c := &s.confirms
	if c.pending.Load() == 0 {
		return
	}
	var ready, late []confirm
	c.mu.Lock()
	round, before := s.leading.Load().Confirmed(), forward.Mono()-int64(confirmTime)
	left := c.waiting[:0]
	for _, w := range c.waiting {
		switch {
		case w.round <= round:
			ready = append(ready, w)
		case w.asked < before:
			late = append(late, w)
		default:
			left = append(left, w)
		}
	}
	clear(c.waiting[len(left):])
	c.waiting = left
	c.mu.Unlock()
	c.pending.Add(-int32(len(ready) + len(late)))
	for _, w := range ready {
		w.done(nil)
	}
	for _, w := range late {
		w.done(s.unconfirmed())
	}
}

// askAgain asks anew in a new epoch, which leading is that of. mu is held.
func (s *ShardLeader) askAgain(leading *replica.Leading) {
	c := &s.confirms
	c.mu.Lock()
	defer c.mu.Unlock()
	s.leading.Store(leading)
	for i := range c.waiting {
		c.waiting[i].round = leading.Question()
	}
	for _, p := range s.waiting {
		if p.round > 0 {
			p.round = leading.Question()
		}
	}
}

// endConfirms fails all readers that wait, and all that come.
func (s *ShardLeader) endConfirms(why error) {
	c := &s.confirms
	c.mu.Lock()
	c.ended = true
	waiting := c.waiting
	c.waiting = nil
	c.mu.Unlock()
	c.pending.Add(-int32(len(waiting)))
	for _, w := range waiting {
		w.done(why)
	}
}

// unconfirmed is the error of an answer that nobody confirmed in time.
func (s *ShardLeader) unconfirmed() *publish.UnconfirmedError {
	return &publish.UnconfirmedError{Topic: s.shard.name, Why: fmt.Sprintf("broker %s leads it, and its other replicas have not confirmed that for %v", s.service.config.Name, confirmTime)}
}

// settles says whether the answers of p can be given: its records are safe up to high, and its round is confirmed. err is
// why they never will be.
func (p *pending) settles(high, round uint64, now int64) (ok bool, err error) {
	switch {
	case p.rest() >= high:
		return false, nil
	case p.round <= round:
		return true, nil
	case now-p.asked > int64(confirmTime):
		return true, p.shard.unconfirmed()
	}
	return false, nil
}
