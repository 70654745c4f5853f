package subscription

import (
	"cmp"
	"strings"
)

// Claim names the leadership of a Topic's first shard under which a relay pulls. A shard serves the
// latest one that it knows of, and no earlier one.
type Claim struct {
	Generation int64  // of etcd
	Epoch      uint64 // of the first shard
	// Holder is the id of the relay's broker; empty: it is of an earlier version, which names no
	// claim.
	Holder string
}

// Before reports whether c is of an earlier leadership than other.
func (c Claim) Before(other Claim) bool {
	return cmp.Or(cmp.Compare(c.Generation, other.Generation), cmp.Compare(c.Epoch, other.Epoch)) < 0
}

// Claim makes the Subscription serve the relays of a claim, and of no earlier one from now on. It
// ends the requests of an earlier claim with Superseded, and those of the same one with Expired: a
// relay calls it before it pulls, so they are of the one before on its broker, or their results
// were lost. done is called once, without a lock, when all that was delivered before is sent, with
// the claim before and 0. If that was later than c, it stays, and why is Superseded. If the
// Subscription is closed, why is the reason. done must not block.
//
// The claim is in memory only: a leader that takes over the shard knows none. Its caller refuses
// claims before the one of its State.
func (s *Subscription) Claim(c Claim, done func(former Claim, why End)) {
	s.mu.Lock()
	former := s.claim
	why := s.claimed(c)
	if why == 0 {
		s.endRelayed(Expired)
	}
	s.refused = append(s.refused, &request{why: why, done: func(o Outcome) { done(former, o.Why) }})
	s.mu.Unlock()
	s.service.tasks.wake(s)
}

// claimed judges a claim, notes it, and ends the requests of an earlier one. It returns 0 or
// Superseded. mu is held.
func (s *Subscription) claimed(c Claim) (why End) {
	if c.Before(s.claim) {
		return Superseded
	}
	if s.claim.Before(c) {
		s.endRelayed(Superseded)
	}
	if c != s.claim {
		// Cloned, so that nothing of a Pull escapes to the heap.
		s.claim = Claim{c.Generation, c.Epoch, strings.Clone(c.Holder)}
	}
	return 0
}

// endRelayed has the next step end the requests of relays. mu is held.
func (s *Subscription) endRelayed(why End) {
	for s.settings.relayed && s.waiting.n > 0 {
		r := s.waiting.pop()
		r.why = why
		s.refused = append(s.refused, r)
	}
}
