package testutil

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Wait has the times of waiting for a condition that a test asks other processes about. Eventually
// is simpler, for conditions in the test's own process.
type Wait struct {
	Limit time.Duration // after which the test fails
	Every time.Duration // between two checks
	// Each bounds one check. A check that begins before Limit then has all of it, so the last error
	// is about the condition and not about time. 0: all checks end at Limit.
	Each time.Duration
	Log  bool // log how long it took
}

// For calls check until it returns nil. After Limit it fails the test with check's last error.
func (w Wait) For(t testing.TB, what string, check func(ctx context.Context) error) {
	t.Helper()
	began := time.Now()
	for {
		err := w.check(t, began, check)
		if err == nil {
			if w.Log {
				t.Logf("%s after %s", what, time.Since(began).Round(100*time.Millisecond))
			}
			return
		}
		if time.Since(began) >= w.Limit || t.Context().Err() != nil {
			t.Fatalf("still not after %s: %s: %v", time.Since(began).Round(time.Millisecond), what, err)
		}
		time.Sleep(w.Every)
	}
}

// ForTrue is For with a condition instead of an error.
func (w Wait) ForTrue(t testing.TB, what string, condition func() bool) {
	t.Helper()
	w.For(t, what, func(context.Context) error {
		if !condition() {
			return errors.New("it is not so")
		}
		return nil
	})
}

func (w Wait) check(t testing.TB, began time.Time, check func(ctx context.Context) error) error {
	deadline := began.Add(w.Limit)
	if w.Each > 0 {
		deadline = time.Now().Add(w.Each)
	}
	ctx, cancel := context.WithDeadline(t.Context(), deadline)
	defer cancel()
	return check(ctx)
}
