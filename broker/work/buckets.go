package work

import (
	"sync"
	"time"
)

// Buckets are token buckets of clients, by a key. Whoever takes tokens that are not there yet is
// told how long to wait for them. So a client that waits for each answer is slowed down and never
// refused. A bucket that is full again is forgotten. The number of others is bounded: the clients
// beyond it share a bucket. Safe for concurrent use.
type Buckets struct {
	burst, rate float64 // tokens, and tokens per second
	patience    time.Duration
	most        int

	mu    sync.Mutex
	by    map[string]bucket
	swept time.Time // when full buckets were looked for last
}

// bucket has the tokens that were left at a time; below 0: some wait for theirs.
type bucket struct {
	left float64
	at   time.Time
}

// sharedBucket is the key of clients for which there is no bucket of their own.
const sharedBucket = ""

// sweepEvery is the least time between two searches for full buckets.
const sweepEvery = time.Second

// NewBuckets returns up to most buckets of burst tokens, which get rate tokens per second. Nobody
// waits for longer than patience.
func NewBuckets(burst, rate float64, patience time.Duration, most int) *Buckets {
	return &Buckets{burst: burst, rate: rate, patience: patience, most: most, by: map[string]bucket{}}
}

// Take takes n tokens of a key, and returns how long to wait for them. ok is false if that is
// longer than the patience; then nothing was taken.
func (b *Buckets) Take(key string, n float64, now time.Time) (wait time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.by[key]; !known && !b.roomForOne(now) {
		key = sharedBucket
	}
	left := b.refilled(b.by[key], now) - n
	if left < 0 {
		wait = time.Duration(-left / b.rate * float64(time.Second))
	}
	if wait > b.patience {
		return 0, false
	}
	b.by[key] = bucket{left, now}
	return wait, true
}

// Len returns the number of buckets.
func (b *Buckets) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.by)
}

// refilled returns the tokens of a bucket now. The zero bucket is full.
func (b *Buckets) refilled(of bucket, now time.Time) float64 {
	if of.at.IsZero() {
		return b.burst
	}
	return min(b.burst, of.left+max(0, now.Sub(of.at).Seconds())*b.rate)
}

// roomForOne reports whether there is room for one more bucket, and forgets full ones for it. The
// last place is the shared bucket's.
func (b *Buckets) roomForOne(now time.Time) bool {
	if len(b.by) < b.most-1 {
		return true
	}
	if now.Sub(b.swept) < sweepEvery {
		return false
	}
	b.swept = now
	for key, of := range b.by {
		if b.refilled(of, now) >= b.burst {
			delete(b.by, key)
		}
	}
	return len(b.by) < b.most-1
}
