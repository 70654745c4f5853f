package stall

import (
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/limits"
)

// disk produces the input of a judge, tick by tick.
type disk struct {
	t     *testing.T
	judge judge
	now   time.Time
	limit time.Duration
}

func newDisk(t *testing.T, limit time.Duration) *disk {
	d := &disk{t: t, now: time.Unix(1_700_000_000, 0), limit: limit}
	d.look(time.Time{}, env.Operation{}, env.Operation{})
	return d
}

func (d *disk) look(round time.Time, read, other env.Operation) (Stall, bool) {
	return d.judge.observe(d.now, round, read, other, d.limit)
}

// lasts observes once per tick until something exceeds the limit, at most for the given time. It
// returns when that was and when it was first reported.
func (d *disk) lasts(most time.Duration, round time.Time, read, other env.Operation) (reported, beyond time.Duration, stall Stall) {
	began := d.now
	for d.now.Sub(began) < most {
		d.now = d.now.Add(tick)
		s, over := d.look(round, read, other)
		if s.What != "" && reported == 0 {
			reported = d.now.Sub(began)
		}
		if stall = s; over {
			return reported, d.now.Sub(began), s
		}
	}
	return reported, 0, stall
}

func (d *disk) operation(op string) env.Operation {
	return env.Operation{Op: op, Path: "/data/file", Since: d.now}
}

func within(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if got < want || got > want+2*tick {
		t.Errorf("%s after %v, want %v", what, got, want)
	}
}

func TestAHungOperationIsReportedAndThenExceedsTheLimit(t *testing.T) {
	d := newDisk(t, limits.DiskStallLimit)
	reported, beyond, stall := d.lasts(time.Minute, time.Time{}, env.Operation{}, d.operation("sync"))
	within(t, "reported", reported, limits.DiskStallWarn)
	within(t, "too much", beyond, limits.DiskStallLimit)
	if got, want := stall.String(), "sync of /data/file for 5s"; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	if s, over := d.look(time.Time{}, env.Operation{}, env.Operation{}); s.What != "" || over {
		t.Errorf("all has ended, and it says %v", s)
	}
}

func TestALongRoundOfShortOperationsExceedsTheLimit(t *testing.T) {
	d := newDisk(t, limits.DiskStallLimit)
	round := d.now
	for d.now.Sub(round) < limits.DiskStallLimit+tick {
		d.now = d.now.Add(tick)
		if _, over := d.look(round, env.Operation{}, d.operation("write")); over {
			within(t, "too much", d.now.Sub(round), limits.DiskStallLimit)
			return
		}
	}
	t.Error("a round went on and on")
}

func TestADiskThatIsBusyAllTheTimeIsNotStalled(t *testing.T) {
	d := newDisk(t, limits.DiskStallLimit)
	for range 500 {
		d.now = d.now.Add(tick)
		if s, _ := d.look(d.now.Add(-900*time.Millisecond), d.operation("read"), d.operation("sync")); s.What != "" {
			t.Fatalf("it says %v", s)
		}
	}
}

// TestTheTimeInWhichAProcessWasStoppedDoesNotCount: a process that was stopped must not count its
// own pause.
func TestTheTimeInWhichAProcessWasStoppedDoesNotCount(t *testing.T) {
	d := newDisk(t, limits.DiskStallLimit)
	sync := d.operation("sync")
	d.now = d.now.Add(tick)
	d.look(sync.Since, env.Operation{}, sync)
	d.now = d.now.Add(time.Hour)
	if s, over := d.look(sync.Since, env.Operation{}, sync); s.What != "" || over {
		t.Errorf("after it was stopped it says %v", s)
	}
	_, beyond, _ := d.lasts(time.Minute, sync.Since, env.Operation{}, sync)
	if beyond < limits.DiskStallLimit-5*tick {
		t.Errorf("too much after %v more", beyond)
	}
}

func TestASlowReadHasMoreTime(t *testing.T) {
	d := newDisk(t, limits.DiskStallLimit)
	reported, beyond, _ := d.lasts(10*time.Minute, time.Time{}, d.operation("read"), env.Operation{})
	within(t, "reported", reported, limits.DiskStallWarn)
	within(t, "too much", beyond, limits.DiskReadStallLimit)
}

func TestWithoutALimitAStallIsOnlyReported(t *testing.T) {
	d := newDisk(t, 0)
	reported, beyond, stall := d.lasts(10*time.Minute, d.now, d.operation("read"), d.operation("sync"))
	within(t, "reported", reported, limits.DiskStallWarn)
	if beyond != 0 || stall.For < 9*time.Minute {
		t.Errorf("too much after %v: %v", beyond, stall)
	}
}
