package env

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// Clock is the wall clock of this machine, from which package clock computes the time of records.
// The zero value is the machine's clock. Timers and deadlines do not use it: they are monotonic, so
// a jump does not move them.
type Clock struct{ shift *shift }

// shift is an offset of a clock, read from a file.
type shift struct {
	path string // empty: no file; the owner of by sets it
	log  *slog.Logger
	by   *atomic.Int64
}

// NewOffsetClock returns a clock with an offset in nanoseconds, read at each Now. It is for
// simulations, in which each broker has its own clock.
func NewOffsetClock(offset *atomic.Int64) Clock { return Clock{&shift{by: offset}} }

// shiftEvery is the interval in which the file is read.
const shiftEvery = 50 * time.Millisecond

// shiftBytes is how much of the file is read: one duration.
const shiftBytes = 256

// NewShiftedClock returns a clock with an offset read from a file, such as "-1h30m", now and during
// Follow. It is for tests of clocks that jump. The file must exist.
func NewShiftedClock(path string, log *slog.Logger) (Clock, error) {
	c := Clock{&shift{path: path, log: log, by: new(atomic.Int64)}}
	if err := c.shift.read(); err != nil {
		return Clock{}, err
	}
	log.Warn("THIS BROKER'S CLOCK IS SHIFTED BY A FILE, WHICH IS FOR TESTS ONLY", "file", path, "shift", time.Duration(c.shift.by.Load()))
	return c, nil
}

// Now returns the wall time without a monotonic reading, so that it cannot be used to measure
// durations.
func (c Clock) Now() time.Time {
	now := time.Now().Round(0)
	if c.shift != nil {
		now = now.Add(time.Duration(c.shift.by.Load()))
	}
	return now
}

// Follow reads the file periodically until ctx ends. It returns at once if there is none.
func (c Clock) Follow(ctx context.Context) {
	if c.shift == nil || c.shift.path == "" {
		return
	}
	tick := time.NewTicker(shiftEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		before := c.shift.by.Load()
		if err := c.shift.read(); err != nil && !errors.Is(err, os.ErrNotExist) {
			c.shift.log.Error("the file with the clock's shift can't be read; it stays as it was", "file", c.shift.path, "error", err)
		} else if now := c.shift.by.Load(); now != before {
			c.shift.log.Warn("THE CLOCK JUMPED: it is shifted by a file, which is for tests only", "from", time.Duration(before), "to", time.Duration(now))
		}
	}
}

func (s *shift) read() error {
	text, _, err := ReadFile(s.path, shiftBytes)
	if err != nil {
		return fmt.Errorf("read the clock's shift: %w", err)
	}
	by, err := time.ParseDuration(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("read the clock's shift from %s: %w (write it as -1h30m)", s.path, err)
	}
	s.by.Store(int64(by))
	return nil
}
