package work

import "time"

// Backoff says when to retry what failed: after First, doubling up to Last with each failure in a
// row. Failures that are more than twice Last apart are not in a row. It has no lock.
type Backoff struct {
	First, Last time.Duration

	failures int
	failed   time.Time // the last failure
}

// Failed notes a failure and returns how long to wait for the retry.
func (b *Backoff) Failed(now time.Time) time.Duration {
	if now.Sub(b.failed) > 2*b.Last {
		b.failures = 0
	}
	b.failures, b.failed = b.failures+1, now
	return min(b.First<<min(b.failures-1, 10), b.Last)
}
