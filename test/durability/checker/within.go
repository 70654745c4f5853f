package checker

import (
	"fmt"
	"time"
)

// Within asks every so often until there is no error, and returns the last one if there still is one when the limit has passed.
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
