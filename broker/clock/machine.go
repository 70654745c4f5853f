package clock

import (
	"sync/atomic"
	"time"
)

// machine is Mono of this machine: the process's monotonic clock plus the time of suspensions.
type machine struct {
	base      time.Time
	boot      int64 // time since boot, at base; 0: unknown
	suspended atomic.Int64
}

func newMachine() *machine { return &machine{base: time.Now(), boot: sinceBoot()} }

func (m *machine) mono() int64 {
	return m.boot + int64(time.Since(m.base)) + m.suspended.Load()
}

// refresh adds the time of suspensions since the last call.
func (m *machine) refresh() {
	if m.boot == 0 {
		return
	}
	// A difference below Bound is ignored.
	if more := sinceBoot() - m.mono(); more > int64(Bound) {
		m.suspended.Add(more)
	}
}
