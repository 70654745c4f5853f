package topic

import (
	"fmt"

	"github.com/carillon-mq/carillon/broker/confirm"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/replica"
)

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
	if s.ending.Load() {
		done(s.shard.refusal())
		return false
	}
	now, ended := s.confirms.Wait(s.leading.Load, done)
	if ended {
		done(s.shard.refusal())
	}
	return now
}

// confirmed calls back readers whose round is confirmed or that waited for too long. No lock is
// held.
func (s *ShardLeader) confirmed() { s.confirms.Settle(s.leading.Load, s.unconfirmed) }

// askAgain asks for new rounds in the epoch of leading, which is a new one. mu is held.
func (s *ShardLeader) askAgain(leading *replica.Leading) {
	s.confirms.Again(leading, func() { s.leading.Store(leading) })
	s.acks.AskAgain(leading.RequestRound)
}

// unconfirmed returns the error for an answer that was not confirmed in time.
func (s *ShardLeader) unconfirmed() error {
	return &publish.UnconfirmedError{Topic: s.shard.name,
		Why: fmt.Sprintf("broker %s leads it, and its other replicas have not confirmed that for %v",
			s.service.config.Name, confirm.Time)}
}
