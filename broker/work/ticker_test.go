package work

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestTickersTickTogether: whenever they were made, and however long their ticks take.
func TestTickersTickTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every = 100 * time.Millisecond
		began := time.Now().Truncate(every)
		time.Sleep(37 * time.Millisecond)
		early := NewTicker(every)
		defer early.Stop()
		time.Sleep(50 * time.Millisecond)
		late := NewTicker(5 * every)
		defer late.Stop()
		at := func(ticker *Ticker) time.Duration {
			<-ticker.C
			ticker.Next()
			return time.Since(began).Round(time.Microsecond)
		}
		for i := 1; i <= 5; i++ {
			if got := at(early); got != time.Duration(i)*every {
				t.Fatalf("tick %d after %v", i, got)
			}
			time.Sleep(30 * time.Millisecond)
		}
		if got := at(late); got != 530*time.Millisecond { // it was due at 500
			t.Fatalf("a tick of five periods after %v", got)
		}
		time.Sleep(2*every + every/2) // early misses ticks at 700, and gets the one of 600 late
		if got := at(early); got != 780*time.Millisecond {
			t.Fatalf("a late tick after %v", got)
		}
		if got := at(early); got != 8*every {
			t.Fatalf("the next tick after %v", got)
		}
	})
}

func TestUntilMultiple(t *testing.T) {
	for _, c := range []struct {
		now         time.Time
		every, left time.Duration
	}{
		{time.Unix(10, 0), time.Second, time.Second},
		{time.Unix(10, 1), time.Second, time.Second - 1},
		{time.Unix(10, 999_999_999), time.Second, 1},
		{time.Unix(10, 30_000_000), 100 * time.Millisecond, 70 * time.Millisecond},
		{time.Unix(-10, 30_000_000), 100 * time.Millisecond, 70 * time.Millisecond},
	} {
		if left := untilMultiple(c.now, c.every); left != c.left {
			t.Errorf("from %v to a multiple of %v: %v; want %v", c.now.UTC(), c.every, left, c.left)
		}
	}
}
