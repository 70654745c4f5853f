// Package testutil has what tests of several packages share: waiting for conditions and failing on
// errors, and ports. Packages below it start an etcd and an API server.
package testutil

import (
	"fmt"
	"testing"
	"time"
)

const (
	// Patience is how long a condition may take that tests wait for: far longer than it takes on a
	// busy machine, and shorter than the time that a test may take.
	Patience = 3 * time.Minute
	// poll is how often a condition is checked.
	poll = 5 * time.Millisecond
)

// Must fails the test if err is not nil.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Eventually waits until check returns nil, and fails the test with its last error after Patience.
func Eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	Must(t, Within(Patience, poll, what, check))
}

// EventuallyTrue waits until condition is true, and fails the test after Patience.
func EventuallyTrue(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Patience); !condition(); time.Sleep(poll) {
		if time.Now().After(deadline) {
			t.Fatalf("still not after %v: %s", Patience, what)
		}
	}
}

// Within calls check every so often until it returns nil, and returns its last error after limit.
func Within(limit, every time.Duration, what string, check func() error) error {
	err := check()
	for deadline := time.Now().Add(limit); err != nil; err = check() {
		if time.Now().After(deadline) {
			return fmt.Errorf("still not after %v: %s: %w", limit, what, err)
		}
		time.Sleep(every)
	}
	return nil
}
