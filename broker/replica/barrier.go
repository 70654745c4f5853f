package replica

import "github.com/carillon-mq/carillon/broker/coordination"

// maxRounds is how many barrier rounds may be open at once. With one, a question that comes during a round
// waits half a round more on average; with four an eighth. More would only be more frames.
const maxRounds = 4

// barrier is the part of a Leader that proves that it still leads, as etcd's ReadIndex does. A question is
// something whose answer a record of a newer leader could falsify: what the last record is, or that a
// message does not follow the one that it expects. Its answer waits for a round:
//
//  1. A round is confirmed by a follower that says, after the round began, that it copies from this
//     leader under its epoch; or that acknowledges a record that was appended after the round began.
//  2. A round is confirmed when every member of the in-sync set has confirmed it, and of the set of a swap
//     of which it is not known what became of it. A newer leader comes from one of them, so none had
//     begun to lead when the round began.
//  3. A follower that confirms a round confirms all earlier ones.
//  4. A question belongs to the next round to begin. One round serves all questions that wait for it, and
//     at most maxRounds are open; the round after these begins when one of them is confirmed.
//  5. A confirmation stands, whatever becomes of the connection or of the set: it is about the past.
//  6. A member whose program knows no rounds (version 018b7c1) confirms by being connected. It is no proof,
//     and it is what there was before.
//
// Rounds are numbered from 1 on. Nothing is remembered of one but its number and where the log ended.
type barrier struct {
	begun, confirmed uint64
	wanted           bool              // a question waits for the round after begun
	ends             [maxRounds]uint64 // where the data log ended when a round began, by number modulo maxRounds
}

// Question returns the round that must be confirmed before something is answered that was asked by now.
func (l *Leader) Question() (round uint64) {
	b := &l.barrier
	if b.begun-b.confirmed == maxRounds {
		b.wanted = true
		return b.begun + 1
	}
	l.beginRound()
	l.confirm()
	return b.begun
}

// Round is the newest round that began. Followers are to be asked for it unless it is confirmed.
func (l *Leader) Round() uint64 { return l.barrier.begun }

// Confirmed is the newest round that is confirmed; all earlier ones are, too.
func (l *Leader) Confirmed() uint64 { return l.barrier.confirmed }

// Confirm notes that a follower confirmed a round. It says whether that confirmed one for good.
func (l *Leader) Confirm(from coordination.Replica, round uint64) (moved bool) {
	f := l.followers[from.Broker]
	if f == nil || f.Replica != from || round <= f.confirmed || round > l.barrier.begun {
		return false
	}
	f.confirmed = round
	return l.confirm()
}

// Mute notes that a follower that has joined can't be asked, since its program knows no rounds (rule 6).
func (l *Leader) Mute(from coordination.Replica) {
	if f := l.followers[from.Broker]; f != nil && f.Replica == from {
		f.mute = true
	}
}

func (l *Leader) beginRound() {
	l.barrier.begun++
	l.barrier.ends[l.barrier.begun%maxRounds] = l.end[Data]
}

// acknowledged takes the ack of a record that was appended after a round began for a confirmation.
func (l *Leader) acknowledged(f *progress) {
	b := &l.barrier
	for n := max(f.confirmed, b.confirmed) + 1; n <= b.begun && f.safe[Data] > b.ends[n%maxRounds]; n++ {
		f.confirmed = n
	}
}

// confirm moves confirmed to what all members have confirmed, and begins a round that is waited for.
func (l *Leader) confirm() (moved bool) {
	b := &l.barrier
	for {
		round := b.begun
		for _, m := range l.shard.InSync {
			round = min(round, l.confirmedBy(m))
		}
		for _, m := range l.asked {
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

// confirmedBy is the newest round that a member of a set has confirmed.
func (l *Leader) confirmedBy(m coordination.Replica) uint64 {
	if m.Broker == l.self.Broker {
		return l.barrier.begun
	}
	f := l.followers[m.Broker]
	switch {
	case f == nil || f.Replica != m:
		return 0
	case f.mute && f.joined:
		return l.barrier.begun
	}
	return f.confirmed
}
