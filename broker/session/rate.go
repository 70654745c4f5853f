package session

import (
	"net"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/identity"
)

// user is what the connections of one user to this broker share.
type user struct {
	connections int // guarded by mu of the hub
	rate        rate
}

// rate holds the room of one user below its limits a second: a token bucket for messages and one
// for their bytes, each with a burst of one second. A message takes its room before it is handled.
// One message may be larger than the room for bytes; the next then waits for the difference, so no
// limit is too small for a message. Its methods are safe for concurrent use.
type rate struct {
	mu              sync.Mutex
	at              time.Time       // of what is left; zero: nothing was taken yet
	messages, bytes float64         // left
	limits          identity.Limits // of the last call
}

// take takes the room for a message of that size, or returns how long there is none.
func (r *rate) take(l *identity.Limits, size int, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refill(l, now)
	if wait := max(lack(r.messages, l.Messages), lack(r.bytes, l.Bytes)); wait > 0 {
		return wait
	}
	r.messages--
	r.bytes -= float64(size)
	return 0
}

// refill adds the room of the time since the last call, as the present limits have it.
func (r *rate) refill(l *identity.Limits, now time.Time) {
	past := 1.0
	if !r.at.IsZero() {
		past = max(now.Sub(r.at).Seconds(), 0) // another connection's clock may be ahead
	}
	if past > 0 {
		r.at = now
	}
	r.limits = *l
	r.messages = refilled(r.messages, past, l.Messages)
	r.bytes = refilled(r.bytes, past, l.Bytes)
}

func refilled(left, past float64, limit int) float64 {
	if limit == 0 {
		return 0
	}
	return min(left+past*float64(limit), float64(limit))
}

// lack returns how long it takes until there is room for one message or byte.
func lack(left float64, limit int) time.Duration {
	if limit == 0 || left >= 1 {
		return 0
	}
	return time.Duration((1 - left) / float64(limit) * float64(time.Second))
}

// full reports whether the user has all of its room, so that nothing need be known of it.
func (r *rate) full(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refill(&r.limits, now)
	return r.messages >= float64(r.limits.Messages) && r.bytes >= float64(r.limits.Bytes)
}

// rateStep and rateStepMin bound how long a connection over its limit waits before it looks again:
// for users and connections that change meanwhile, and so that a wake-up has several messages.
const (
	rateStep    = 50 * time.Millisecond
	rateStepMin = time.Millisecond
)

// spend takes the room of a message below the limits of its user. It reports false if there is
// none; then over is how long. A drained connection's last input is handled without waiting.
func (c *Conn) spend(size int) bool {
	is := c.identity.Load()
	if is == nil || is.Limits.Messages == 0 && is.Limits.Bytes == 0 {
		return true
	}
	c.over = c.user.rate.take(&is.Limits, size, time.Now())
	if c.draining.Load() != nil {
		c.over = 0
	}
	return c.over == 0
}

// waitForRate waits until there may be room for the message that is read next. Input that is read
// already stays where it is, and the socket is not read.
func (c *Conn) waitForRate() error {
	time.Sleep(min(max(c.over, rateStepMin), rateStep))
	c.over = 0
	if c.closed() {
		return net.ErrClosed
	}
	return nil
}
