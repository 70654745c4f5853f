package push

import "time"

// circuit decides when an endpoint is sent anything. It is pure. Times are nanoseconds of one
// clock.
//
//  1. Closed, everything is sent. circuitFailures failures in a row open it.
//  2. Open, nothing is sent until the pause is over, and then one request: the probe.
//  3. An answer that shows a working endpoint closes it. A failed probe doubles the pause, up to
//     circuitLast.
//  4. An endpoint that asks to wait opens it for that long, up to retryAfterLast. One that is gone
//     for good (410) opens it for the longest pause. Only a probe ends such a pause: what was sent
//     before it was asked for says nothing of it.
type circuit struct {
	open     bool
	failures int // in a row, while closed
	pause    time.Duration
	until    int64 // end of the pause
	asked    bool  // the endpoint asked for the pause
	// jitter shortens or lengthens a pause.
	jitter func(time.Duration) time.Duration
}

// allows reports whether a request may begin, while so many are under way. probe is true if it is
// the only one then.
func (c *circuit) allows(now int64, underWay int) (ok, probe bool) {
	if !c.open {
		return true, false
	}
	return now >= c.until && underWay == 0, true
}

// worked notes an answer that shows a working endpoint.
func (c *circuit) worked(probe bool) {
	if c.open && c.asked && !probe {
		return
	}
	c.open, c.asked, c.failures, c.pause = false, false, 0, 0
}

// trip opens a closed circuit.
func (c *circuit) trip(now int64) {
	if !c.open {
		c.open, c.asked, c.pause = true, false, circuitFirst
		c.until = now + int64(c.jitter(c.pause))
	}
}

// failed notes a request that failed, and reports whether the circuit was open before. after is how
// long the endpoint asks to wait; 0: it does not.
func (c *circuit) failed(now int64, probe, gone bool, after time.Duration) (wasOpen bool) {
	wasOpen = c.open
	switch {
	case after > 0:
		c.open, c.asked, c.until = true, true, max(c.until, now+int64(min(after, retryAfterLast)))
	case gone:
		c.open, c.asked, c.pause = true, true, circuitLast
		c.until = max(c.until, now+int64(c.jitter(c.pause)))
	case c.open && probe:
		c.asked = false
		c.pause = min(max(2*c.pause, circuitFirst), circuitLast)
		c.until = now + int64(c.jitter(c.pause))
	case c.open: // it was under way when the circuit opened
	default:
		if c.failures++; c.failures >= circuitFailures {
			c.trip(now)
		}
	}
	return wasOpen
}
