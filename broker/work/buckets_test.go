package work

import (
	"fmt"
	"testing"
	"time"
)

// TestAClientBeyondItsBurstWaitsItsTurn: a burst is free, then tokens come at the rate, and whoever
// would wait for too long is refused and takes nothing. Another client is not affected.
func TestAClientBeyondItsBurstWaitsItsTurn(t *testing.T) {
	b := NewBuckets(10, 5, time.Second, 100)
	now := time.Unix(0, 0)
	take := func(key string, n float64, want time.Duration, wantOK bool) {
		t.Helper()
		if wait, ok := b.Take(key, n, now); ok != wantOK || (wait-want).Abs() > time.Millisecond {
			t.Errorf("take %v of %s: wait %v, %v; want %v, %v", n, key, wait, ok, want, wantOK)
		}
	}
	for range 10 {
		take("a", 1, 0, true)
	}
	for i := range 5 {
		take("a", 1, time.Duration(i+1)*time.Second/5, true)
	}
	take("a", 1, 0, false)
	take("b", 10, 0, true)
	now = now.Add(time.Second) // those that waited have theirs
	take("a", 1, time.Second/5, true)
	now = now.Add(time.Hour)
	take("a", 10, 0, true)
	take("a", 1, time.Second/5, true)
}

// TestBucketsAreBounded: clients with ever new keys get a bucket each until there are too many,
// then share one. Buckets that are full again make room.
func TestBucketsAreBounded(t *testing.T) {
	b := NewBuckets(10, 5, time.Second, 100)
	now := time.Unix(0, 0)
	refused := 0
	for i := range 1000 {
		if _, ok := b.Take(fmt.Sprint(i), 1, now); !ok {
			refused++
		}
	}
	if b.Len() != 100 || refused != 901-15 {
		t.Errorf("%d buckets, %d refusals", b.Len(), refused)
	}
	now = now.Add(time.Minute)
	if _, ok := b.Take("late", 1, now); !ok || b.Len() != 1 {
		t.Errorf("%d buckets after a minute", b.Len())
	}
}
