package env

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestAClockFollowsTheOffsetInAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shift")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	log := slog.New(slog.DiscardHandler)
	if _, err := NewShiftedClock(path, log); err == nil {
		t.Error("a clock was made of a file that isn't there")
	}
	write("soon")
	if _, err := NewShiftedClock(path, log); err == nil {
		t.Error("a clock was made of a file that holds no duration")
	}
	write("-2h\n")
	clock, err := NewShiftedClock(path, log)
	if err != nil {
		t.Fatal(err)
	}
	if off := time.Until(clock.Now()); off > -119*time.Minute || off < -121*time.Minute {
		t.Errorf("the clock is off by %v, want two hours back", off)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { clock.Follow(ctx); close(ended) }()
		write("24h")
		time.Sleep(shiftEvery) // one read of the file, by the bubble's clock
		synctest.Wait()
		if off := time.Until(clock.Now()); off != 24*time.Hour {
			t.Errorf("the clock is off by %v, want a day", off)
		}
		stop()
		<-ended
	})

	Clock{}.Follow(t.Context()) // returns at once
	if off := time.Until(Clock{}.Now()); off > time.Minute || off < -time.Minute {
		t.Errorf("the machine's clock is off by %v", off)
	}
}

func TestAnOffsetClockAddsItsOffset(t *testing.T) {
	var offset atomic.Int64
	c := NewOffsetClock(&offset)
	offset.Store(int64(365 * 24 * time.Hour))
	if ahead := time.Until(c.Now()); ahead < 364*24*time.Hour {
		t.Errorf("it is ahead by %v", ahead)
	}
	c.Follow(t.Context()) // returns at once, since there is no file
}
