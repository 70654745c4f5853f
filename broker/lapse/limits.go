package lapse

import "time"

const (
	// Grace is how long attributes outlive their connection: longer than clients take to connect to
	// another broker.
	Grace = 10 * time.Second
	// every is how often connections are looked at.
	every = time.Second
	// pause is between two batches of a hundred: 2,000 deletions a second at most, as many as
	// changes.
	pause = 50 * time.Millisecond
)
