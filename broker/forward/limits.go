package forward

import "time"

const (
	// OutboxTime is how long a message is sent again before its publisher learns that its fate is
	// unknown. A silent leader is replaced within 5 s.
	OutboxTime = 10 * time.Second
	// runBytes is the approximate size of a frame: the messages of one read.
	runBytes = 64 << 10
	// OriginTime is how long brokers remember a silent source: the age of the messages in an
	// outbox, with clocks that may differ by 20 s.
	OriginTime = 3 * OutboxTime
	// originBytes bounds what is read of a log for that when it is opened, some 20 ms. Messages
	// that are sent again and stand before it are refused.
	originBytes = 16 << 20
	// readAtOnce is the size of one read, in bytes.
	readAtOnce = 256 << 10
)
