package log

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

// TestScrubbingGoesOnWhereItStopped: each call continues where the last one stopped, also within a
// segment. Together they read every segment and find all damage.
func TestScrubbingGoesOnWhereItStopped(t *testing.T) {
	fsys, d, l := setup(t, small)
	put(t, l, 1500)
	l.Roll()
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	infos := l.SegmentInfos()
	bad := infos[len(infos)-2]
	if err := fsys.Flip(d.logDir(l.Name())+"/"+segmentName(bad.Base), 1000*8); err != nil {
		t.Fatal(err)
	}
	var all ScrubReport
	calls := 0
	for next := uint64(0); next < 1501; {
		ctx, cancel := context.WithCancel(context.Background())
		reads := 0
		fsys.SetHook(func(op opKind) error {
			if op.Kind == "read" {
				if reads++; reads == 5 {
					cancel()
				}
			}
			return nil
		})
		report, err := l.Scrub(ctx, ScrubOptions{From: next})
		cancel()
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if report.Next <= next {
			t.Fatalf("no progress from %d to %d", next, report.Next)
		}
		next = report.Next
		all.Damaged = append(all.Damaged, report.Damaged...)
		all.Segments += report.Segments
		calls++
	}
	if all.Segments != len(infos) || calls < 3 {
		t.Errorf("%d segments of %d in %d calls", all.Segments, len(infos), calls)
	}
	if len(all.Damaged) == 0 || all.Damaged[0].From < bad.Base || all.Damaged[0].Next > bad.End || !strings.Contains(all.Damaged[0].File, segmentName(bad.Base)) {
		t.Errorf("%+v", all.Damaged)
	}
	if report, err := l.Scrub(context.Background(), ScrubOptions{From: 1501}); err != nil || report.Segments != 0 || report.Next != 1501 {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestScrubbingKeepsItsPace: one pace holds for all logs that are scrubbed with it.
func TestScrubbingKeepsItsPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := crashfs.New()
		d, err := OpenDisk(fsys, "data", small)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = d.Close() }()
		const perSecond = 100 << 10
		pace := NewPace(perSecond)
		var wg sync.WaitGroup
		var mu sync.Mutex
		total := int64(0)
		began := time.Now()
		for i := range 3 {
			l, err := d.Open(Identity{Topic: "orders", Shard: i}, 1, 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			put(t, l, 3000)
			l.Roll()
			if err := l.Flush(); err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				report, err := l.Scrub(context.Background(), ScrubOptions{Pace: pace})
				mu.Lock()
				defer mu.Unlock()
				if total += report.Bytes; err != nil || report.Segments == 0 {
					t.Errorf("%+v, %v", report, err)
				}
			})
		}
		wg.Wait()
		took := time.Since(began).Seconds()
		if rate := float64(total) / took; total < 500<<10 || rate > 1.1*perSecond || rate < 0.8*perSecond {
			t.Errorf("%d bytes in %.1f s: %.0f instead of %d a second", total, took, rate, perSecond)
		}
	})
}

// TestClosingEndsAScrub: closing the log ends a scrub that would take hours.
func TestClosingEndsAScrub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, d, l := setup(t, small)
		put(t, l, 1000)
		result := make(chan error, 1)
		pace := NewPace(1)
		go func() {
			_, err := l.Scrub(context.Background(), ScrubOptions{Pace: pace})
			result <- err
		}()
		synctest.Wait() // for its turn to read on
		if pace.due.IsZero() {
			t.Fatal("it doesn't read")
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-result; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if _, err := l.Scrub(context.Background(), ScrubOptions{}); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
}

// TestReadingGoesOnBehindDamageInTheActiveSegment: a reader finds damage in the active segment of a
// running broker: the records behind it are readable at once, also later ones, and after the
// segment is sealed.
func TestReadingGoesOnBehindDamageInTheActiveSegment(t *testing.T) {
	fsys, d, l := setup(t, Options{TailBytes: 1})
	var at []int64
	for range 50 {
		at = append(at, d.position(l))
		put(t, l, 1)
	}
	if err := fsys.Flip(firstFile(t, l), (at[20]+100)*8); err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		end := uint64(51 + round*20)
		got, err := readAll(l, 1)
		corrupt, ok := errors.AsType[*CorruptError](err)
		if !ok || corrupt.From != 21 || corrupt.Next != 22 || len(got) != 20 {
			t.Fatalf("round %d: %d records: %v", round, len(got), err)
		}
		for _, from := range []uint64{22, 23, 40} {
			mustRead(t, l, from, end)
		}
		if round == 1 {
			l.Roll()
		}
		for range 20 {
			put(t, l, 1)
		}
	}
}
