package clock

import (
	"fmt"
	"time"
)

// Status is a snapshot of one broker's clock.
type Status struct {
	Wall    time.Time     // the machine's clock
	Time    time.Time     // the broker's Time
	Away    time.Duration // Wall is ahead of Time by this; negative: behind
	State   State         // of the broker's vote
	Jumps   uint64        // jumps of Wall since the broker started
	Verdict Verdict
}

// UnexpectedClockError reports that a clock to be confirmed differs from the expected time.
type UnexpectedClockError struct{ Clock, Expected time.Time }

func (e *UnexpectedClockError) Error() string {
	return fmt.Sprintf("the clock says %s, which is %v from the expected %s: correct the one that is wrong",
		e.Clock.Format(time.RFC3339), e.Clock.Sub(e.Expected).Abs().Round(time.Millisecond), e.Expected.UTC().Format(time.RFC3339))
}

// Status returns the current status. It reads the machine's clocks.
func (c *Clock) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.read()
	v := *c.verdict.Load()
	return Status{
		Wall: time.Unix(0, r.Wall).UTC(), Time: time.Unix(0, r.Mono+v.Off).UTC(), Away: time.Duration(r.Wall - r.Mono - v.Off),
		State: c.judge.Vote(r.Mono).State, Jumps: c.jumps.Load(), Verdict: v,
	}
}

// Confirm makes the vote follow the wall clock of this machine, because an administrator says that
// it is right. It refuses with an UnexpectedClockError if the clock is further than ConfirmWithin
// from expected, since retention deletes records by the time that follows from it. The vote is
// saved soon.
func (c *Clock) Confirm(expected time.Time) error {
	c.Observe() // the clock may have jumped since the last reading
	c.mu.Lock()
	defer c.mu.Unlock()
	wall := time.Unix(0, c.judge.own.last.Wall).UTC()
	if wall.Sub(expected).Abs() > ConfirmWithin {
		return &UnexpectedClockError{wall, expected}
	}
	c.judge.Confirm()
	c.log.Warn("A person confirmed the wall clock of this machine", "clock", wall)
	c.publish(c.judge.own.last)
	select {
	case c.save <- struct{}{}:
	default:
	}
	return nil
}
