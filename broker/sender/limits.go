package sender

import "time"

const (
	// OutboxBytes is the bytes of unanswered messages above which publishers are not read: what
	// brokers of one zone have under way for half a second at 1 Gbit/s, and what a disk takes in
	// 50 ms. With half of it, large batches of 16 publishers took 11 % longer.
	// At twice as much messages are refused.
	OutboxBytes = 64 << 20
	// OutboxMessages is the same in messages, at about 50 bytes each beside their own.
	OutboxMessages = 64 << 10
	// outboxUnled is the bytes that wait for one shard without a reachable leader, so that such a
	// shard doesn't block others.
	outboxUnled = 8 << 20
	// placementTime is how long messages wait for a broker to be chosen for a shard that has none: a
	// new one, or one after etcd was restored. For a new one that takes milliseconds; a Topic that
	// can't be placed is to be reported before clients time out.
	placementTime = 2 * time.Second
	// againFirst and againLast bound the pause before an outbox sends again at a leader's request.
	againFirst = 5 * time.Millisecond
	againLast  = 200 * time.Millisecond
	// tick is the interval of checks of outboxes with messages.
	tick = 20 * time.Millisecond
	// fastTick is how often idle fast batches are looked for: they end up to a second late.
	fastTick = time.Second
	// gathers bounds the shards for which one read of a link gathers messages into batches.
	gathers = 16
)
