package sender

import "time"

const (
	// OutboxBytes is how much may be on its way to leaders and not answered before publishers are
	// read no further: what brokers of one zone have under way for half a second at 1 Gbit/s, and
	// what a disk takes in 50 ms. With half of it, large batches of 16 publishers took 11 % longer.
	// At twice as much messages are refused.
	OutboxBytes = 64 << 20
	// OutboxMessages is the same in messages, at about 50 bytes each beside their own.
	OutboxMessages = 64 << 10
	// outboxUnled is how much waits for one shard while it has no leader that can be reached, so
	// that one such doesn't keep others waiting.
	outboxUnled = 8 << 20
	// againFirst and againLast bound how long an outbox rests that was told to go again.
	againFirst = 5 * time.Millisecond
	againLast  = 200 * time.Millisecond
	// tick is how often outboxes that are not empty are looked at.
	tick = 20 * time.Millisecond
	// gathers is of how many shards one read of a link gathers messages into batches.
	gathers = 16
)
