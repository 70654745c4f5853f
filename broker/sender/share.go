package sender

import "math"

// amount is how much outboxes hold, or may hold.
type amount struct{ bytes, messages int64 }

// within reports whether a is at most b, in bytes and in messages.
func (a amount) within(b amount) bool { return a.bytes <= b.bytes && a.messages <= b.messages }

// share divides the room for what is held, first among parties, then among the members of each,
// whatever their numbers. R is the room in bytes, and A is what all parties hold together:
//
//  1. A member goes on while it and its party together hold at most sixteen times what is free:
//     one + party <= 16 (R - A). So a member that is alone may fill eight ninths of the room, a
//     party with many members a little more, and a party with one busy member gets at least half
//     as much as one with a thousand.
//  2. Beyond that, a member with at most the least goes on while its party holds at most twice what
//     is left of a second room: party <= 2 (2R - A). One party alone may fill a third of that, and
//     always leaves a third of what the others left.
//  3. A member that holds nothing goes on.
//  4. Messages are refused once the party holds more than eight times what is left of the second
//     room: party > 8 (2R - A). So what a party holds beyond its share, since each connection
//     publishes one read before it waits, leaves something to a party that comes later, by rule 2.
//     All together stay below 2R, but for reads that are published at once.
//
// All rules compare A with a bound that falls as the member and its party hold more (until). So
// publishers can go on only when one of the three falls.
//
// It is the dynamic threshold of Choudhury and Hahne for switches with shared memory, on two
// levels. Fixed parts of the room were rejected: a busy shard alone would be slower, and there may
// be 10,000 shards. So was a part for each party by their number: a party that comes would find the
// room held by those before it, unless half of it stays unused.
type share struct{ room, least amount }

const (
	// shareOfFree is how many times what is free of the room a member and its party may hold. With
	// two times, a busy shard alone could use half of the room only.
	shareOfFree = 16
	// shareOfRest is how many times what is left of the second room a party may hold by the least
	// of its members. Each leaves a third: behind four silent ones a fifth may hold 1 MiB.
	shareOfRest = 2
	// refusedOfRest is the same beyond which messages are refused: enough for a read of each of 450
	// connections beyond the party's share. Behind two that are refused a third may hold 1 MiB.
	refusedOfRest = 8
)

// until returns up to which amount of all together a member that holds one, of a party that holds
// party, is within its share. Nothing always is.
func (s *share) until(one, party amount) amount {
	return amount{shareUntil(one.bytes, party.bytes, s.room.bytes, s.least.bytes), shareUntil(one.messages, party.messages, s.room.messages, s.least.messages)}
}

func shareUntil(one, party, room, least int64) int64 {
	if one <= 0 {
		return math.MaxInt64
	}
	until := room - ceil(one+party, shareOfFree)
	if one <= least {
		until = max(until, 2*room-ceil(party, shareOfRest))
	}
	return until
}

func ceil(n, by int64) int64 { return (n + by - 1) / by }

// exceeded reports whether a member holds more than its share.
func (s *share) exceeded(one, party, all amount) bool { return !all.within(s.until(one, party)) }

// closes reports whether a member that nobody answers may take no more. It is exceeded, but also
// for a member that holds nothing: many such would else fill what is left to other parties.
func (s *share) closes(one, party, all amount) bool {
	return s.exceeded(amount{max(one.bytes, 1), max(one.messages, 1)}, party, all)
}

// overfull reports whether a party holds so much that its messages are refused.
func (s *share) overfull(party, all amount) bool {
	return !all.within(amount{2*s.room.bytes - ceil(party.bytes, refusedOfRest), 2*s.room.messages - ceil(party.messages, refusedOfRest)})
}
