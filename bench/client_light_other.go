//go:build !linux

package bench

func newReaders(loops int) readers { return newGoroutineReaders(loops) }
