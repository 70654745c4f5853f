package bench

// steadily runs a function that wakes on time, on a goroutine of its own, since it changes its
// thread, and returns its error.
func steadily(run func() error) error {
	done := make(chan error, 1)
	go func() {
		defer steady()()
		done <- run()
	}()
	return <-done
}
