package forward

import "time"

const (
	// OutboxTime is how long a message is forwarded again before its publisher is told that it isn't known what became of it: a
	// silent leader is replaced within 5 s.
	OutboxTime = 10 * time.Second
	// runBytes is about how much of an outbox goes as one frame: what one read brings.
	runBytes = 64 << 10
	// OriginTime is how long brokers remember what was forwarded by whom: what is in an outbox, whose clock may differ by 20 s.
	OriginTime = 3 * OutboxTime
	// originBytes is how much of a log is read for that when it is opened, some 20 ms. What comes again and stood before it is refused.
	originBytes = 16 << 20
	// readAtOnce is how much of it is read at once.
	readAtOnce = 256 << 10
)
