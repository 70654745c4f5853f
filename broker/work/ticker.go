package work

import (
	"context"
	"time"
)

// Ticker ticks at the multiples of its period, by the wall clock. So the periodic goroutines of a
// process wake it together: at rest, a processor's time goes into waking up, not into what is done
// then. Brokers of one machine wake together, too.
type Ticker struct {
	C     <-chan time.Time // takes a tick; Next sets the following one
	timer *time.Timer
	every time.Duration
}

// NewTicker returns a Ticker with a period. Stop ends it.
func NewTicker(every time.Duration) *Ticker {
	timer := time.NewTimer(untilMultiple(time.Now(), every))
	return &Ticker{C: timer.C, timer: timer, every: every}
}

// Next sets the next tick, after one was taken. Multiples that have passed since are left out.
func (t *Ticker) Next() { t.Pace(t.every) }

// Pace sets the next tick to a multiple of another period, in place of the tick that was due.
func (t *Ticker) Pace(every time.Duration) { t.timer.Reset(untilMultiple(time.Now(), every)) }

// Stop ends the ticks.
func (t *Ticker) Stop() { t.timer.Stop() }

// SleepToTick waits for the next tick of a Ticker with the same period, or for the end of ctx. It
// reports whether ctx goes on.
func SleepToTick(ctx context.Context, every time.Duration) bool {
	return Sleep(ctx, untilMultiple(time.Now(), every))
}

// untilMultiple returns the time from now to the next multiple of every, at least 1 ns.
func untilMultiple(now time.Time, every time.Duration) time.Duration {
	now = now.Round(0) // without the monotonic clock, which has other multiples
	return now.Truncate(every).Add(every).Sub(now)
}
