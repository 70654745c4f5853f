package session

import (
	"net"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/quota"
)

// user is what the connections of one user to this broker share. mu of the hub guards all but rate.
type user struct {
	connections int
	demand      quota.Demand // of the last interval
	standing    quota.Standing
	rate        rate
}

// rate holds the room of one user below its limits a second: a token bucket for messages and one
// for their bytes. They fill by this broker's share of the limits, and hold what that is in one
// second. A message takes its room before it is handled. One message may be larger than the room
// for bytes; the next then waits for the difference, so no limit is too small for a message. Its
// methods are safe for concurrent use.
type rate struct {
	mu              sync.Mutex
	share           quota.Share     // of the limits; 0: all
	at              time.Time       // of what is left; zero: nothing was taken yet
	messages, bytes float64         // left
	limits          identity.Limits // of the last call

	// Since demand was called last, at that time.
	seen                      time.Time
	usedMessages, usedBytes   int
	shortMessages, shortBytes bool // a message waited
}

// take takes the room for a message of that size, or returns how long there is none.
func (r *rate) take(l *identity.Limits, size int, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refill(l, now)
	messages, bytes := lack(r.messages, l.Messages, r.share.Messages), lack(r.bytes, l.Bytes, r.share.Bytes)
	if wait := max(messages, bytes); wait > 0 {
		r.shortMessages = r.shortMessages || messages > 0
		r.shortBytes = r.shortBytes || bytes > 0
		return wait
	}
	r.messages--
	r.bytes -= float64(size)
	r.usedMessages++
	r.usedBytes += size
	return 0
}

// apply sets the share of the limits.
func (r *rate) apply(s quota.Share, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s == r.share {
		return
	}
	if !r.at.IsZero() {
		r.refill(&r.limits, now) // the time before by the former share
	}
	r.share = s
	r.messages = min(r.messages, burst(r.limits.Messages, s.Messages))
	r.bytes = min(r.bytes, burst(r.limits.Bytes, s.Bytes))
}

// refill adds the room of the time since the last call, as the present limits and share have it.
func (r *rate) refill(l *identity.Limits, now time.Time) {
	first := r.at.IsZero()
	past := max(now.Sub(r.at).Seconds(), 0) // another connection's clock may be ahead
	if first || past > 0 {
		r.at = now
	}
	r.limits = *l
	if first {
		r.messages, r.bytes = burst(l.Messages, r.share.Messages), burst(l.Bytes, r.share.Bytes)
	}
	r.messages = refilled(r.messages, past, l.Messages, r.share.Messages)
	r.bytes = refilled(r.bytes, past, l.Bytes, r.share.Bytes)
}

func refilled(left, past float64, limit int, share float64) float64 {
	if limit == 0 {
		return 0
	}
	return min(left+past*perSecond(limit, share), burst(limit, share))
}

// perSecond returns a share of a limit. A share of 0 is all of it.
func perSecond(limit int, share float64) float64 {
	if share == 0 {
		share = 1
	}
	return share * float64(limit)
}

// burst returns the room of a second: that of one message or byte at least, or none would ever have
// room.
func burst(limit int, share float64) float64 {
	if limit == 0 {
		return 0
	}
	return max(perSecond(limit, share), 1)
}

// lack returns how long it takes until there is room for one message or byte.
func lack(left float64, limit int, share float64) time.Duration {
	if limit == 0 || left >= 1 {
		return 0
	}
	return time.Duration((1 - left) / perSecond(limit, share) * float64(time.Second))
}

// demand returns what the user demands of its limits, and begins an interval: all, if a message
// waited, and else what it used, or half of what it demanded in the interval before.
func (r *rate) demand(before quota.Demand, now time.Time) quota.Demand {
	r.mu.Lock()
	defer r.mu.Unlock()
	if before == (quota.Demand{}) && r.usedMessages == 0 && !r.shortMessages && !r.shortBytes { // at rest
		r.seen = now
		return before
	}
	seconds := max(now.Sub(r.seen), quota.Interval).Seconds()
	if r.seen.IsZero() {
		seconds = quota.Interval.Seconds()
	}
	is := quota.Demand{
		Messages: max(before.Messages/2, demanded(r.usedMessages, r.limits.Messages, seconds, r.shortMessages)),
		Bytes:    max(before.Bytes/2, demanded(r.usedBytes, r.limits.Bytes, seconds, r.shortBytes)),
	}
	r.seen, r.usedMessages, r.usedBytes, r.shortMessages, r.shortBytes = now, 0, 0, false, false
	return is
}

func demanded(used, limit int, seconds float64, short bool) uint16 {
	switch {
	case limit == 0:
		return 0
	case short:
		return quota.Whole
	}
	return uint16(min(float64(used)/seconds/float64(limit), 1) * quota.Whole)
}

// full reports whether the user has all of its room, so that nothing need be known of it.
func (r *rate) full(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refill(&r.limits, now)
	return r.messages >= burst(r.limits.Messages, r.share.Messages) && r.bytes >= burst(r.limits.Bytes, r.share.Bytes)
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
	pause := min(max(c.over, rateStepMin), rateStep)
	c.hub.rateWaited.Add(int64(pause))
	time.Sleep(pause)
	c.over = 0
	if c.closed() {
		return net.ErrClosed
	}
	return nil
}
