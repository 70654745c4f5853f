package push

import "time"

// circuit decides when an endpoint is sent anything. It is pure. Times are nanoseconds of one clock.
//
//  1. Closed, everything is sent. circuitFailures failures in a row open it.
//  2. Open, nothing is sent until the pause is over, and then one request: the probe.
//  3. An answer that shows a working endpoint closes it. A failed probe doubles the pause, up to
//     circuitLast.
//  4. An endpoint that asks to wait opens it for that long, up to retryAfterLast. One that is gone
//     for good (410) opens it for the longest pause.
type circuit struct {
	open     bool
	failures int // in a row, while closed
	pause    time.Duration
	until    int64 // end of the pause
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
func (c *circuit) worked() { c.open, c.failures, c.pause = false, 0, 0 }

// failed notes a request that failed, and reports whether the circuit was open before. after is how
// long the endpoint asks to wait; 0: it does not.
func (c *circuit) failed(now int64, probe, gone bool, after time.Duration) (wasOpen bool) {
	wasOpen = c.open
	switch {
	case after > 0:
		c.open, c.until = true, max(c.until, now+int64(min(after, retryAfterLast)))
	case gone:
		c.open, c.pause = true, circuitLast
		c.until = max(c.until, now+int64(c.jitter(c.pause)))
	case c.open && probe:
		c.pause = min(max(2*c.pause, circuitFirst), circuitLast)
		c.until = now + int64(c.jitter(c.pause))
	case c.open: // it was under way when the circuit opened
	default:
		if c.failures++; c.failures >= circuitFailures {
			c.open, c.pause = true, circuitFirst
			c.until = now + int64(c.jitter(c.pause))
		}
	}
	return wasOpen
}
