package stall

import (
	"fmt"
	"time"

	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/limits"
)

// Stall is the operation that has been under way for too long; zero if there is none.
type Stall struct {
	What string // operation and path, or a commit round
	For  time.Duration
}

func (s Stall) String() string {
	return fmt.Sprintf("%s for %v", s.What, s.For.Round(100*time.Millisecond))
}

// Error ends a broker whose disk does not answer.
type Error struct {
	Dir   string
	Stall Stall
	Limit time.Duration
}

func (e *Error) Error() string {
	return fmt.Sprintf("the disk of %s does not answer: %s (limit %v); this broker leads nothing any more and ends; see to the disk, and start the broker when it answers",
		e.Dir, e.Stall, e.Limit)
}

// judge judges the disk by the age of the operations under way.
type judge struct {
	last               time.Time
	round, other, read underWay
}

// underWay is one operation, with the age in which this process ran.
type underWay struct {
	since time.Time
	age   time.Duration
}

func (u *underWay) observe(since, now time.Time, passed time.Duration) time.Duration {
	switch {
	case since.IsZero():
		*u = underWay{}
	case !since.Equal(u.since):
		*u = underWay{since, min(now.Sub(since), passed)}
	default:
		u.age += passed
	}
	return u.age
}

// observe returns the operation that exceeds limits.DiskStallWarn, and whether it exceeds the
// limit. A limit of zero is never exceeded.
func (j *judge) observe(now, round time.Time, read, other env.Operation, limit time.Duration) (stall Stall, beyond bool) {
	passed := min(now.Sub(j.last), 2*tick)
	if j.last.IsZero() {
		passed = 0
	}
	j.last = now
	for _, one := range []struct {
		what  string
		age   time.Duration
		limit time.Duration
	}{
		{other.Op + " of " + other.Path, j.other.observe(other.Since, now, passed), limit},
		{"a round of writes and syncs", j.round.observe(round, now, passed), limit},
		{read.Op + " of " + read.Path, j.read.observe(read.Since, now, passed), max(limit, limits.DiskReadStallLimit)},
	} {
		if one.age < limits.DiskStallWarn {
			continue
		}
		if stall.What == "" {
			stall = Stall{one.what, one.age}
		}
		if limit > 0 && one.age >= one.limit {
			return Stall{one.what, one.age}, true
		}
	}
	return stall, false
}
