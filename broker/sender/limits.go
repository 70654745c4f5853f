package sender

import "time"

const (
	// OutboxBytes is the room for unanswered messages, beside lanes, in bytes: what brokers of one
	// zone have under way for half a second at 1 Gbit/s, and what a disk takes in 50 ms. With half of
	// it, large batches of 16 publishers took 11 % longer. The brokers that lead shards share it, and
	// the shards of each: publishers to one that holds more than its share are not read. Messages are
	// refused before all hold twice as much.
	OutboxBytes = 64 << 20
	// OutboxMessages is the same in messages, at about 50 bytes each beside their own.
	OutboxMessages = 64 << 10
	// leastBytes and leastMessages are what a shard may hold although others have filled the room: a
	// few reads of a connection. The shards of one broker may hold a third more than the room by
	// this, which 85 of them have, and always leave some to those of another (share).
	leastBytes    = 256 << 10
	leastMessages = 256
	// outboxUnled is the bytes that wait for one shard without a reachable leader, in its lanes, too,
	// so that such a shard doesn't block others.
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
	// mostLanes is how many lanes of a shard there are. Their connections wait for each other. Each
	// takes a KiB here and at the leader; a leader remembers the records of 16 patterns.
	mostLanes = 8
	// laneWindow is how many messages of a lane are on their way: the leader looks up what so many
	// ask for at once, and each wait of one has all of them sent again.
	laneWindow = 64
	// laneBytes is the bytes of unanswered messages of a lane above which its connections wait, and
	// laneWindow is the same in messages: what waits longer than the client does has no use.
	// lanesBytes and lanesMessages are the room for all lanes of a broker, which they share.
	laneBytes     = 1 << 20
	lanesBytes    = 16 << 20
	lanesMessages = 16 << 10
	// leastLaneBytes and leastLaneMessages are the same for lanes: a read, and what a leader looks up
	// at a time.
	leastLaneBytes    = 64 << 10
	leastLaneMessages = laneWindow
	// minSweep is how many connections lanes know before those are forgotten that don't use them.
	minSweep = 64
)
