package flow

import "time"

const (
	// FirstWindow and LastWindow bound the bytes that a receiver with flow control has not
	// confirmed. A broker closes a client with 32 MiB or more unread, so several consumers of one
	// connection fit. nats-server begins with 2 MiB and ends with 32 MiB.
	FirstWindow = 512 << 10
	LastWindow  = 8 << 20
	// Burst is how much unused time of a rate limit is kept: longer than timers are late.
	Burst = 20 * time.Millisecond
)
