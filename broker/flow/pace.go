package flow

import (
	"math"
	"time"
)

// Pace is a rate limit. Each delivery moves the earliest time of the next one by the time that its
// bytes take. Up to Burst of unused time is kept, so that late timers do not lower the rate. Times
// are nanoseconds of any clock.
type Pace struct {
	Bits uint64 // per second; 0: no limit
	Next int64  // earliest time of the next delivery
}

// Sent counts a delivery.
func (p *Pace) Sent(bytes int, now int64) {
	if p.Bits == 0 {
		p.Next = 0
		return
	}
	// A message has at most 8 MiB, so that this does not overflow.
	takes := uint64(bytes) * 8 * uint64(time.Second) / p.Bits
	p.Next = max(p.Next, now-int64(Burst)) + int64(min(takes, math.MaxInt64/4))
}
