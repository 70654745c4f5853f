package replica

import "github.com/carillon-mq/carillon/broker/coordination"

// maxRounds is how many barrier rounds may be open at a time. With one, a question that arrives
// during a round waits half a round more on average; with four an eighth. More would only cost more
// frames.
const maxRounds = 4

// barrier is the part of a Leader that proves that it still leads, as etcd's ReadIndex does. A
// question is a request whose answer a record of a newer leader could falsify, for example for the
// last message, or a publish whose condition fails. Its answer waits for a round:
//
//  1. A follower confirms a round by a frame, sent after the round began, that it copies from this
//     leader under its epoch, or by an ack of a record appended after the round began.
//  2. A round is confirmed when every member of the in-sync set has confirmed it, and every member
//     of the set of an unanswered swap. A newer leader is one of them, so none had begun to lead
//     when the round began.
//  3. A follower that confirms a round confirms all earlier rounds.
//  4. A question belongs to the next round to begin. One round serves all questions that wait for
//     it. At most maxRounds are open; the next one begins when one of them is confirmed.
//  5. A confirmation stands, whatever happens to the connection or the set, because it is about the
//     past.
//  6. A member of version 018b7c1, which has no rounds, confirms by being connected. That is no
//     proof; it is what that version offered.
//
// Rounds are numbered from 1. Of each, only its number and the end of the log are kept.
//
// Rejected: a lease measured by clocks. It is cheaper, and wrong when a clock is.
type barrier struct {
	begun, confirmed uint64
	wanted           bool              // a question waits for the round after begun
	ends             [maxRounds]uint64 // end of the data log when a round began, by number % maxRounds
}

// RequestRound returns the round that must be confirmed before a question that arrives now may be
// answered.
func (l *Leader) RequestRound() (round uint64) {
	b := &l.barrier
	if b.begun-b.confirmed == maxRounds {
		b.wanted = true
		return b.begun + 1
	}
	l.beginRound()
	l.confirm()
	return b.begun
}

// Round returns the newest round that began. Followers are asked for it until it is confirmed.
func (l *Leader) Round() uint64 { return l.barrier.begun }

// Confirmed returns the newest confirmed round. All earlier ones are confirmed, too.
func (l *Leader) Confirmed() uint64 { return l.barrier.confirmed }

// Confirm records that a follower confirmed a round. It reports whether a round was confirmed by
// all members.
func (l *Leader) Confirm(from coordination.Replica, round uint64) (moved bool) {
	f := l.followers[from.Broker]
	if f == nil || f.Replica != from || round <= f.confirmed || round > l.barrier.begun {
		return false
	}
	f.confirmed = round
	return l.confirm()
}

// WithoutRounds records that a follower that has joined supports no rounds (rule 6).
func (l *Leader) WithoutRounds(from coordination.Replica) {
	if f := l.followers[from.Broker]; f != nil && f.Replica == from {
		f.withoutRounds = true
	}
}

func (l *Leader) beginRound() {
	l.barrier.begun++
	l.barrier.ends[l.barrier.begun%maxRounds] = l.end[Data]
}

// acknowledged counts the ack of a record appended after a round began as a confirmation.
func (l *Leader) acknowledged(f *progress) {
	b := &l.barrier
	for n := max(f.confirmed, b.confirmed) + 1; n <= b.begun && f.safe[Data] > b.ends[n%maxRounds]; n++ {
		f.confirmed = n
	}
}

// confirm advances confirmed to what all members have confirmed, and begins a wanted round.
func (l *Leader) confirm() (moved bool) {
	b := &l.barrier
	for {
		round := b.begun
		for _, m := range l.shard.InSync {
			round = min(round, l.confirmedBy(m))
		}
		for _, m := range l.unanswered {
			round = min(round, l.confirmedBy(m))
		}
		if round <= b.confirmed {
			return moved
		}
		b.confirmed, moved = round, true
		if !b.wanted {
			return true
		}
		b.wanted = false
		l.beginRound()
	}
}

// confirmedBy returns the newest round that a member has confirmed.
func (l *Leader) confirmedBy(m coordination.Replica) uint64 {
	if m.Broker == l.self.Broker {
		return l.barrier.begun
	}
	f := l.followers[m.Broker]
	switch {
	case f == nil || f.Replica != m:
		return 0
	case f.withoutRounds && f.joined:
		return l.barrier.begun
	}
	return f.confirmed
}
