package topic

import (
	"fmt"

	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/replica"
)

// An answer that a record of a newer leader could falsify waits for a barrier round: all in-sync
// replicas confirm that this broker still leads (replica.Leading.RequestRound). Rules:
//
//  1. A refusal by a condition waits, whether a record contradicts the condition or is missing. It
//     goes to a pending of its own, so that acks never wait for it.
//  2. Acks and duplicates of kept messages stay true. They wait for their record alone (T1).
//  3. Readers that claim to show the latest record call Confirm before they read.
//  4. A round is asked for after the message or request has come. So the answer was true at some
//     time between its arrival and the answer.
//  5. Without confirmation within confirmTime the answer is a *publish.UnconfirmedError, and this
//     leader keeps nothing of the message. A message that was also sent to a former leader may be
//     in that leader's log: its sender sends it again.
//  6. A new epoch of the same leader asks for new rounds: rounds are numbered by epoch.

// Confirm confirms that no newer leader had begun to lead the shard when it was called. If that is
// known already it returns true. Otherwise it returns false and calls done once, on any goroutine,
// with one of:
//
//  1. nil: confirmed.
//  2. A *publish.UnconfirmedError: not confirmed in time.
//  3. Another error: why this broker doesn't lead any more.
//
// Records that are read afterwards are at least as new as the call. done must not block.
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
	round := l.RequestRound()
	if l.Confirmed() >= round {
		return true
	}
	c.waiting = append(c.waiting, confirm{round, forward.Mono(), done})
	c.pending.Add(1)
	return false
}

// confirmed calls back readers whose round is confirmed or that waited for too long. No lock is
// held.
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

// askAgain asks for new rounds in the epoch of leading, which is a new one. mu is held.
func (s *ShardLeader) askAgain(leading *replica.Leading) {
	c := &s.confirms
	c.mu.Lock()
	defer c.mu.Unlock()
	s.leading.Store(leading)
	for i := range c.waiting {
		c.waiting[i].round = leading.RequestRound()
	}
	for _, p := range s.waiting {
		if p.round > 0 {
			p.round = leading.RequestRound()
		}
	}
}

// endConfirms fails all waiting readers, and all later ones.
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

// unconfirmed returns the error for an answer that was not confirmed in time.
func (s *ShardLeader) unconfirmed() *publish.UnconfirmedError {
	return &publish.UnconfirmedError{Topic: s.shard.name,
		Why: fmt.Sprintf("broker %s leads it, and its other replicas have not confirmed that for %v",
			s.service.config.Name, confirmTime)}
}

// settles reports whether the answers of p can be given: high is above the records that they depend
// on, and their round is confirmed or late. err is set if it is late.
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
