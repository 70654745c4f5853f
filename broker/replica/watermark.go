package replica

import "sync/atomic"

// Watermark is an offset that is raised concurrently. Only Store lowers it, after a truncation.
type Watermark struct{ atomic.Uint64 }

// Raise raises the watermark to an offset, if it is lower, and returns the result.
func (w *Watermark) Raise(to uint64) uint64 {
	for {
		at := w.Load()
		if at >= to {
			return at
		}
		if w.CompareAndSwap(at, to) {
			return to
		}
	}
}
