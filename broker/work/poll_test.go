package work

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestAPollAtRestLooksRarely: it looks often at first, while there is work, and for a while after a
// change; otherwise rarely. A change that comes during a look is not missed.
func TestAPollAtRestLooksRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		changed := make(chan struct{})
		change := func() {
			mu.Lock()
			defer mu.Unlock()
			close(changed)
			changed = make(chan struct{})
		}
		p := Poll{Often: 100 * time.Millisecond, Rarely: time.Second, Lively: 3 * time.Second, Changed: func() <-chan struct{} {
			mu.Lock()
			defer mu.Unlock()
			return changed
		}}
		looks := func(d time.Duration, busy bool) (n int) {
			for end := time.Now().Add(d); time.Now().Before(end); n++ {
				if !p.Wait(t.Context(), busy) {
					t.Fatal("it ended")
				}
			}
			return n
		}
		for _, c := range []struct {
			what   string
			busy   bool
			before func()
			want   int // looks in three seconds
		}{
			{"at first", false, func() {}, 30},
			{"at rest", false, func() {}, 3},
			{"with work", true, func() {}, 30},
			{"without work again", false, func() {}, 3},
			{"after a change during a look", false, change, 30},
			{"at rest again", false, func() {}, 3},
		} {
			c.before()
			if got := looks(3*time.Second, c.busy); got < c.want-1 || got > c.want+1 {
				t.Errorf("%s: %d looks in three seconds, want %d", c.what, got, c.want)
			}
		}
		time.AfterFunc(250*time.Millisecond, change)
		before := time.Now()
		p.Wait(t.Context(), false)
		if took := time.Since(before); took > 400*time.Millisecond {
			t.Errorf("it looked %v after it began to rest, and 250 ms after that came a change", took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		if p.Wait(ctx, true) || p.Wait(ctx, false) {
			t.Error("it goes on after its context has ended")
		}
	})
}
