package testutil

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// RunWithoutLeaks runs the tests of a package and ends the process. It fails if a goroutine still
// runs Patience after the last test: goleak alone waits for less than half a second, in which a
// busy machine may not run what has been told to end. allowed are goroutines of libraries that may
// stay.
func RunWithoutLeaks(m *testing.M, allowed ...goleak.Option) {
	code := m.Run()
	if code == 0 {
		if err := leaks(Patience, allowed...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// leaks returns an error that has the stacks of goroutines that still run after limit.
func leaks(limit time.Duration, allowed ...goleak.Option) error {
	return Within(limit, poll, "no goroutine is left", func() error { return goleak.Find(allowed...) })
}
