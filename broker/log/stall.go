package log

import (
	"sync/atomic"
	"time"
)

// roundClock records when the committer's present round began. It allocates nothing.
type roundClock struct {
	base  time.Time
	since atomic.Int64 // nanoseconds after base; 0: no round is under way
}

func (c *roundClock) begin() { c.since.Store(max(1, int64(time.Since(c.base)))) }

func (c *roundClock) end() { c.since.Store(0) }

// RoundSince returns when the committer began to write and sync its present round; zero if none is
// under way. It takes no lock and does no I/O, so it works while the disk hangs. A round may take
// long without an operation that hangs: on a slow disk it is many operations.
func (d *Disk) RoundSince() time.Time {
	if since := d.rounds.since.Load(); since != 0 {
		return d.rounds.base.Add(time.Duration(since))
	}
	return time.Time{}
}
