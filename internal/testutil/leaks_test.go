package testutil

import (
	"strings"
	"testing"
	"time"
)

// Alone in this test's process for as long as no other test of the package is parallel.
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
