package testutil

import (
	"strings"
	"testing"
	"time"
)

// TestAGoroutineThatStaysIsFound: a goroutine that stays is found. No other test of the package may
// be parallel.
func TestAGoroutineThatStaysIsFound(t *testing.T) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() { defer close(ended); <-end }()
	if err := leaks(time.Millisecond); err == nil || !strings.Contains(err.Error(), "TestAGoroutineThatStaysIsFound") {
		t.Errorf("a goroutine that stays: %v", err)
	}
	close(end)
	<-ended
	Must(t, leaks(Patience))
}
