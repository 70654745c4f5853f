package work

import (
	"errors"
	"iter"
	"sync"
)

// Each calls do for each item, on up to workers goroutines, and waits for all. It returns the
// joined errors.
func Each[T any](workers int, items iter.Seq[T], do func(T) error) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	next := make(chan T)
	for range workers {
		wg.Go(func() {
			for item := range next {
				if err := do(item); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	for item := range items {
		next <- item
	}
	close(next)
	wg.Wait()
	return errors.Join(errs...)
}
