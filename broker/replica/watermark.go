package replica

import "sync/atomic"

// Watermark is an offset of a log that many raise at once. It never goes back but by Store, for a log that was truncated.
type Watermark struct{ atomic.Uint64 }

// Raise moves it to an offset, unless it is there or beyond, and returns where it is then.
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
