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
