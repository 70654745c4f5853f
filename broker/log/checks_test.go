package log

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// sinces are the hours since each sealed segment was scrubbed; -1: unknown.
func sinces(l *Log) (out []int) {
	for _, c := range l.Checks() {
		if c.Since.IsZero() {
			out = append(out, -1)
		} else {
			out = append(out, int(time.Since(c.Since).Round(time.Hour)/time.Hour))
		}
	}
	return out
}

// TestTimesOfScrubsSurviveARestart: the next process knows when each segment was written or
// scrubbed, as of the last save. A compressed segment is a new file, so it counts from then on.
func TestTimesOfScrubsSurviveARestart(t *testing.T) {
	decoder() // is shared with tests outside of this bubble
	synctest.Test(t, func(t *testing.T) {
		fsys, d, l := setup(t, small)
		put(t, l, 700)
		l.Roll()
		put(t, l, 1) // a kill has the last segment opened for more, so that one is not to count
		n := len(l.Checks())
		const some = -2 // the last segment may be too small to be compressed
		want := func(first, second, rest int) {
			t.Helper()
			got := sinces(l)
			if len(got) != n || n < 4 {
				t.Fatalf("%d segments, and there were %d", len(got), n)
			}
			for i, hours := range got {
				if w := map[int]int{0: first, 1: second}; i < 2 && hours != w[i] || i >= 2 && hours != rest && rest != some {
					t.Fatalf("hours since the segments were scrubbed: %v, want %d, %d and %d", got, first, second, rest)
				}
			}
		}
		again := func(fs func()) {
			t.Helper()
			fs()
			d = openDisk(t, fsys, "data", small)
			l = openLog(t, d, orders)
		}
		want(0, 0, 0)
		time.Sleep(2 * time.Hour)
		report, err := l.Scrub(context.Background(), ScrubOptions{Most: 1})
		if err != nil || report.Segments != 1 {
			t.Fatalf("%+v, %v", report, err)
		}
		want(0, 2, 2)
		if err := d.SaveChecks(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if _, err := l.Scrub(context.Background(), ScrubOptions{From: report.Next, Most: 1}); err != nil {
			t.Fatal(err)
		}
		want(1, 0, 3)
		again(func() { // the second one was not saved
			old := d
			fsys = fsys.Kill()
			_ = old.Close()
		})
		want(1, 3, 3)
		if saved, err := l.Compress(context.Background(), 1); err != nil || saved == 0 {
			t.Fatal(saved, err)
		}
		want(0, 0, some)
		time.Sleep(time.Hour)
		again(func() {
			if err := d.CloseMarked(nil); err != nil {
				t.Fatal(err)
			}
		})
		want(1, 1, some)
		// What can't be believed says nothing, and the log is opened all the same.
		again(func() {
			if err := d.CloseMarked(nil); err != nil {
				t.Fatal(err)
			}
			if err := fsys.Flip(filepath.Join("data", checksName), 100); err != nil {
				t.Fatal(err)
			}
		})
		want(-1, -1, -1)
		_ = d.Close()
	})
}
