package work

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestWorkRestsForAsLongAsItTook: short pieces of work are put together.
func TestWorkRestsForAsLongAsItTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m Modest
		for _, c := range []struct{ worked, rests time.Duration }{
			{400 * time.Microsecond, 0},
			{500 * time.Microsecond, 0},
			{600 * time.Microsecond, 1500 * time.Microsecond},
			{999 * time.Microsecond, 0},
			{20 * time.Millisecond, 20999 * time.Microsecond},
			{time.Minute, 100 * time.Millisecond},
		} {
			began := time.Now()
			m.Rest(t.Context(), c.worked)
			if got := time.Since(began); got != c.rests {
				t.Errorf("after %s it rests for %s, want %s", c.worked, got, c.rests)
			}
		}
		ended, end := context.WithCancel(t.Context())
		end()
		began := time.Now()
		m.Rest(ended, time.Minute)
		if got := time.Since(began); got != 0 {
			t.Errorf("it rests for %s after its end", got)
		}
	})
}

// TestRestsGrowWhileTheyEndLate: goroutines wait for processors then. They shrink once no rest ends
// late, and never stop work.
func TestRestsGrowWhileTheyEndLate(t *testing.T) {
	var m Modest
	rest := func() time.Duration { return m.due(2 * time.Millisecond) }
	if got := rest(); got != 2*time.Millisecond {
		t.Errorf("at first it rests for %s", got)
	}
	m.rested(2*time.Millisecond, 999*time.Microsecond)
	if got := rest(); got != 2*time.Millisecond {
		t.Errorf("when a rest was in time it rests for %s", got)
	}
	longest := rest()
	for range 10 {
		m.rested(longest, time.Millisecond)
		if got := rest(); got < min(2*longest, maxRest) {
			t.Errorf("after late ends it rests for %s, and for %s before", got, longest)
		} else {
			longest = got
		}
	}
	if longest != maxRest {
		t.Errorf("it rests for %s at most", longest)
	}
	for range 100 {
		m.rested(longest, 0)
	}
	if got := rest(); got > 3*time.Millisecond {
		t.Errorf("when nothing was late for long it rests for %s", got)
	}
}
