package clock

import (
	"sync/atomic"
	"time"
)

// machine is Mono of this machine: the process' monotonic clock, and the time for which the machine was suspended.
type machine struct {
	base      time.Time
	boot      int64 // the time since the machine started, at base; 0: not known
	suspended atomic.Int64
}

func newMachine() *machine { return &machine{base: time.Now(), boot: sinceBoot()} }

func (m *machine) mono() int64 {
	return m.boot + int64(time.Since(m.base)) + m.suspended.Load()
}

// refresh takes over for how long the machine was suspended.
func (m *machine) refresh() {
	if m.boot == 0 {
		return
	}
	// Less than Bound is not worth a step.
	if more := sinceBoot() - m.mono(); more > int64(Bound) {
		m.suspended.Add(more)
	}
}
