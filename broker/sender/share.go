package sender

import "math"

// amount is how much outboxes hold, or may hold.
type amount struct{ bytes, messages int64 }

// within reports whether a is at most b, in bytes and in messages.
func (a amount) within(b amount) bool { return a.bytes <= b.bytes && a.messages <= b.messages }

// share divides the room for what is held among those that hold it, whatever their number. One may
// hold eight times what is free (shareOfFree), so alone it may fill eight ninths of the room. Each
// other one finds some of the rest, and the more of them are busy, the less each may hold.
//
// When the room is full, one may still hold least, and publishers to it go on. Beyond half as much
// again, none may hold anything: a publisher then waits until its sender holds nothing.
//
// It is the dynamic threshold of Choudhury and Hahne for switches with shared memory. Fixed parts
// of the room were rejected: a busy shard alone would be slower, and there may be 10,000 shards.
type share struct{ room, least amount }

// shareOfFree is how many times what is free of the room one may hold. With one time as much, a
// busy shard alone could use half of the room only.
const shareOfFree = 8

// until returns up to which amount of all together it is within its share what one holds. Nothing
// always is.
func (s *share) until(one amount) amount {
	return amount{shareUntil(one.bytes, s.room.bytes, s.least.bytes), shareUntil(one.messages, s.room.messages, s.least.messages)}
}

func shareUntil(one, room, least int64) int64 {
	switch {
	case one <= 0:
		return math.MaxInt64
	case one <= least:
		return room + room/2
	}
	return room - (one+shareOfFree-1)/shareOfFree
}

// exceeded reports whether one holds more than its share, when all hold that much together.
func (s *share) exceeded(one, all amount) bool { return !all.within(s.until(one)) }

// closes reports whether one that nobody answers may take no more. It is exceeded, but also for who
// holds nothing: many such would else fill the room twice, and all messages be refused.
func (s *share) closes(one, all amount) bool {
	return s.exceeded(amount{max(one.bytes, 1), max(one.messages, 1)}, all)
}

// overfull reports whether all hold twice as much as the room has.
func (s *share) overfull(all amount) bool {
	return !all.within(amount{2 * s.room.bytes, 2 * s.room.messages})
}
