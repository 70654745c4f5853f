package work

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestSleepEndsWithItsContext: a pause lasts for its time, unless its context ends first; then it
// ends at once.
func TestSleepEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		began := time.Now()
		if !Sleep(ctx, time.Minute) || time.Since(began) != time.Minute {
			t.Errorf("a pause of a minute took %v", time.Since(began))
		}
		if !Sleep(ctx, 0) {
			t.Error("a pause of no time ended its context")
		}
		if Sleep(ctx, time.Hour) || time.Since(began) != 90*time.Second {
			t.Errorf("it ended %v after the beginning; its context ended after 90s", time.Since(began))
		}
		if Sleep(ctx, 0) {
			t.Error("its context goes on after its end")
		}
	})
}
