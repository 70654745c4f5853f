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
// late, and never take more than four times as long as the work.
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
	m.rested(2*time.Millisecond, time.Millisecond)
	if got := rest(); got != 8*time.Millisecond {
		t.Errorf("after a late end it rests for %s", got)
	}
	for range 10 { // on a machine that is always busy
		m.rested(8*time.Millisecond, time.Second)
	}
	for worked, want := range map[time.Duration]time.Duration{2: 8, 10: 40, 25: 100, 80: 100} {
		if got := m.due(worked * time.Millisecond); got != want*time.Millisecond {
			t.Errorf("after %d ms on a busy machine it rests for %s, want %d ms", worked, got, want)
		}
	}
	for range 100 {
		m.rested(8*time.Millisecond, 0)
	}
	if got := rest(); got > 3*time.Millisecond {
		t.Errorf("when nothing was late for long it rests for %s", got)
	}
}
