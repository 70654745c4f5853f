package work

import (
	"testing"
	"time"
)

// TestFailuresInARowAreRetriedLater: the pause doubles up to its bound, and begins anew after a
// time without failures.
func TestFailuresInARowAreRetriedLater(t *testing.T) {
	b, now := Backoff{First: time.Second, Last: 30 * time.Second}, time.Unix(1000, 0)
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		if got := b.Failed(now); got != want*time.Second {
			t.Errorf("failure %d: %v, want %v", i, got, want*time.Second)
		}
		now = now.Add(want * time.Second)
	}
	for range 100 {
		if got := b.Failed(now); got != b.Last {
			t.Fatal(got)
		}
	}
	if got := b.Failed(now.Add(time.Minute + 1)); got != time.Second {
		t.Errorf("after a minute without a failure: %v", got)
	}
}
