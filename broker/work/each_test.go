package work

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
)

// TestEachItemIsDoneAndItsErrorReturned: more items than goroutines are all done, and each error is
// returned.
func TestEachItemIsDoneAndItsErrorReturned(t *testing.T) {
	odd, even := errors.New("odd"), errors.New("even")
	var sum atomic.Int64
	err := Each(3, slices.Values([]int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), func(n int) error {
		sum.Add(int64(n))
		switch n {
		case 3:
			return odd
		case 8:
			return even
		}
		return nil
	})
	if sum.Load() != 55 || !errors.Is(err, odd) || !errors.Is(err, even) {
		t.Errorf("the sum of what was done is %d, and the error %v", sum.Load(), err)
	}
	if err := Each(3, slices.Values([]int(nil)), func(int) error { return odd }); err != nil {
		t.Error(err)
	}
}
