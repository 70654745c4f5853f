package clock

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/env"
)

// shifted returns the machine's clock with a shift that set changes.
func shifted(t *testing.T) (wall env.Clock, set func(time.Duration)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shift")
	set = func(by time.Duration) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(by.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	set(0)
	wall, err := env.NewShiftedClock(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return wall, set
}

// TestAClockOutlivesAJump: a jump of the wall clock is logged once, Time goes on, and a restarted
// broker knows of it.
func TestAClockOutlivesAJump(t *testing.T) {
	wall, set := shifted(t)
	file := filepath.Join(t.TempDir(), "clock.json")
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		mono := func() int64 { return int64(time.Since(began)) + int64(time.Hour) }
		logged := &bytes.Buffer{}
		life := func() (c *Clock, end func()) {
			c = New(Config{Wall: wall.Now, Mono: mono, Boot: "one", Store: File(file), Logger: slog.New(slog.NewTextHandler(logged, nil))})
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan struct{}, 3)
			for _, run := range []func(context.Context){wall.Follow, c.Run, c.Keep} {
				go func() { run(ctx); ended <- struct{}{} }()
			}
			return c, func() {
				stop()
				for range cap(ended) {
					<-ended
				}
			}
		}
		same := func(what string, c *Clock) {
			t.Helper()
			if off := time.Until(c.Time()); off.Abs() > Bound {
				t.Errorf("%s: the time is %v off", what, off)
			}
		}
		c, end := life()
		time.Sleep(2 * time.Minute)
		same("at first", c)
		if c.InDoubt() || c.Jumps() != 0 {
			t.Errorf("at first: %+v, %d jumps", c.Verdict(), c.Jumps())
		}
		set(year)
		time.Sleep(time.Minute)
		same("after the jump", c)
		if !c.InDoubt() || c.Jumps() != 1 || (c.Away()-year).Abs() > Bound {
			t.Errorf("after the jump: %+v, %d jumps, %v away", c.Verdict(), c.Jumps(), c.Away())
		}
		if n := strings.Count(logged.String(), "jumped; "); n != 1 {
			t.Errorf("it was said %d times", n)
		}
		if age := c.Mono() - c.Written(c.Now()-int64(time.Minute)); age != int64(time.Minute) {
			t.Errorf("what was written a minute ago has an age of %v", time.Duration(age))
		}
		if c.Written(c.Now()+int64(year)) > c.Mono() {
			t.Error("something is to be written yet")
		}
		end()
		time.Sleep(time.Hour)
		c, end = life()
		same("in the next life", c)
		if !c.InDoubt() {
			t.Error("the next life doesn't know")
		}
		if err := c.Confirm(time.Now()); err == nil || !strings.Contains(err.Error(), "which is 8760h") {
			t.Errorf("a clock that is a year from what a person believes: %v", err)
		}
		if !c.InDoubt() {
			t.Error("a refused confirmation took the doubt away")
		}
		if err := c.Confirm(time.Now().Add(year)); err != nil {
			t.Error(err)
		}
		if s := c.Status(); s.State != Sure || s.Verdict.Doubt != None || s.Away != 0 || s.Wall != s.Time || s.Jumps != 0 {
			t.Errorf("confirmed: %+v", s)
		}
		synctest.Wait()
		if saved, err := File(file).Load(); err != nil || !saved.Sure || time.Until(time.Unix(0, saved.Time)) < year-time.Second {
			t.Errorf("after the confirmation %+v is saved, %v", saved, err)
		}
		if off := time.Until(c.Time()); (off - year).Abs() > Bound {
			t.Errorf("confirmed: the time is %v off", off)
		}
		end()
		if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		c, end = life()
		if c.InDoubt() || !strings.Contains(logged.String(), "is not known") {
			t.Errorf("with a damaged file: %+v", c.Verdict())
		}
		end()
	})
}

func TestMonotonicTimeNeverGoesBack(t *testing.T) {
	c := New(Config{})
	for range 100 {
		before := c.Mono()
		c.Observe()
		if c.Mono() < before {
			t.Fatal("it went back")
		}
	}
	before := time.Now()
	at := c.Time()
	if early, late := before.Sub(at), time.Until(at); max(early, late) > time.Second {
		t.Errorf("the time is %v off", max(early, late))
	}
	if n := testing.AllocsPerRun(100, func() { c.Now(); c.Mono(); c.Written(0); c.InDoubt() }); n != 0 {
		t.Errorf("the hot path allocates %v times", n)
	}
}

func BenchmarkNow(b *testing.B) {
	c := New(Config{})
	b.ReportAllocs()
	for b.Loop() {
		c.Now()
	}
}

// TestARecordOfThisMomentCastsNoDoubt: although the last reading of the clocks is old, because the
// machine is starved, and the record later than that.
func TestARecordOfThisMomentCastsNoDoubt(t *testing.T) {
	passed := time.Duration(0)
	began := time.Now()
	c := New(Config{Wall: func() time.Time { return began.Add(passed) }, Mono: func() int64 { return int64(time.Hour + passed) }})
	passed = 10 * time.Second
	c.Wrote(began.Add(passed).UnixNano())
	if c.InDoubt() || c.Now() != began.Add(passed).UnixNano() {
		t.Errorf("the verdict is %+v", c.Verdict())
	}
	c.Wrote(began.Add(passed + Bound + 1).UnixNano())
	if !c.InDoubt() {
		t.Error("a record of the future casts no doubt")
	}
}
