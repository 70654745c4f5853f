package batching

import "time"

const (
	// MaxMessages is how many messages a batch may have, as in nats-server.
	MaxMessages = 1000
	// maxID is the longest id of a batch, as in nats-server.
	maxID = 64
	// maxOpen is how many batches of a Topic are open at once, and maxOpenTotal how many of all
	// Topics, as in nats-server.
	maxOpen      = 50
	maxOpenTotal = 1000
	// maxFast is how many fast batches of a shard are open at once on a broker, as in nats-server, and
	// MaxFastTotal how many of all shards: with their ids and the place of their last message that is
	// 5 MiB. What they have on its way to leaders stands in outboxes, and is bounded there.
	maxFast      = 1000
	MaxFastTotal = 10_000
	// maxFlow is the most messages between two answers to a fast batch, and what all fast batches of a
	// shard share on a broker, as in nats-server.
	maxFlow = 500
	// maxAge is how long a batch waits for its next message, as in nats-server.
	maxAge = 10 * time.Second
	// maxBytes is the bytes of all open batches of a broker: as much as the outboxes hold. A Topic has
	// at most half of them, so that one doesn't keep all others out.
	maxBytes      = 64 << 20
	maxTopicBytes = maxBytes / 2
	// reserved is what a batch may grow by beyond its messages: the mark of the last one, its id and
	// its reply. A frame has room for more than that beside a payload.
	reserved = 1 << 10
)
