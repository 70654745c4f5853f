package log

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

// firstFile is the path of the only segment of a log.
func firstFile(t *testing.T, l *Log) string {
	t.Helper()
	if n := len(l.segments); n != 1 {
		t.Fatalf("%d segments", n)
	}
	return l.segments[0].path
}

// TestAMarkerDistinguishesDamageFromATornTail: without an orderly end only the markers distinguish
// a damaged old batch from a torn write.
func TestAMarkerDistinguishesDamageFromATornTail(t *testing.T) {
	fsys, d, l := setup(t, Options{})
	var at []int64
	for range 20 {
		at = append(at, l.disk.position(l))
		put(t, l, 1)
	}
	path := firstFile(t, l)
	after := fsys.Crash(rand.New(rand.NewPCG(1, 1)))
	_ = d.Close()
	if err := after.Flip(path, (at[5]+100)*8); err != nil {
		t.Fatal(err)
	}
	l = openLog(t, openDisk(t, after, "data", Options{}), orders)
	r := l.Recovery()
	if r.Cut != 0 || !r.Suspect || len(r.Damaged) != 1 || r.Damaged[0].From != 6 || r.Damaged[0].Next != 7 {
		t.Fatalf("%+v", r)
	}
	got, err := readAll(l, 1)
	corrupt, ok := errors.AsType[*CorruptError](err)
	if !ok || len(got) != 5 || corrupt.From != 6 || corrupt.Next != 7 || corrupt.File != path {
		t.Fatal(len(got), err)
	}
	mustRead(t, l, 7, 21)
	put(t, l, 1)
	mustRead(t, l, 7, 22)
}

// position is where the log's next frame goes.
func (d *Disk) position(l *Log) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.active == nil {
		return 0
	}
	return l.active.pos
}

// TestAnOffsetIsNeverAssignedTwice: the end of a closed log is known, so damage of its last records
// does not free their offsets.
func TestAnOffsetIsNeverAssignedTwice(t *testing.T) {
	fsys, d, l := setup(t, Options{})
	for range 5 {
		put(t, l, 1)
	}
	path, end := firstFile(t, l), d.position(l)
	_ = d.Close()
	if err := fsys.Flip(path, (end-4)*8); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		d = openDisk(t, fsys, "data", Options{})
		l = openLog(t, d, orders)
		if r := l.Recovery(); !r.Suspect || r.Cut != 0 || len(r.Damaged) != 1 || r.Damaged[0].From != 5 || r.Damaged[0].Next != 6 {
			t.Fatalf("%+v", r)
		}
		mustRead(t, l, 6, l.end)
		put(t, l, 2)
		_ = d.Close()
	}
	l = openLog(t, openDisk(t, fsys, "data", Options{}), orders)
	mustRead(t, l, 6, 10)
	if _, err := readAll(l, 1); err == nil {
		t.Error("the damage was forgotten")
	}
}

// TestABatchOutOfPlaceIsRefused: a batch that is whole and stands in the wrong place is no part of
// the log. It is damage and not torn: it stays, and appends continue behind it.
func TestABatchOutOfPlaceIsRefused(t *testing.T) {
	for name, b := range map[string]func(*testing.T) Batch{
		"offset": func(t *testing.T) Batch { return encode(t, 2, 4, texts(4, 1), nil) },
		"epoch":  func(t *testing.T) Batch { return encode(t, 0, 3, texts(3, 1), nil) },
	} {
		t.Run(name, func(t *testing.T) {
			fsys, d, l := setup(t, Options{})
			put(t, l, 2)
			path, end := firstFile(t, l), d.position(l)
			_ = d.Close()
			f, err := fsys.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt(b(t), end); err != nil {
				t.Fatal(err)
			}
			l = openLog(t, openDisk(t, fsys, "data", Options{}), orders)
			if r := l.Recovery(); !r.Suspect || r.Cut > 0 || len(r.Damaged) != 1 || r.Damaged[0].From != 3 || r.Damaged[0].Next != 3 || l.end != 3 {
				t.Errorf("ends at %d: %+v", l.end, r)
			}
			mustRead(t, l, 1, 3)
			put(t, l, 2)
			mustRead(t, l, 1, 5)
		})
	}
}

// TestATruncationMayBeCutShortAnywhere: a truncation that a crash cut short at any operation leaves
// the log as it was, shorter by whole segments, or cut as asked: never damaged, and never with what
// was cut behind what is left.
func TestATruncationMayBeCutShortAnywhere(t *testing.T) {
	for steps := range 12 {
		for seed := range uint64(40) {
			fsys := crashfs.New()
			d := openDisk(t, fsys, "data", Options{SegmentSmallest: 4 << 10, SegmentLargest: 4 << 10})
			l := openLog(t, d, orders)
			for range 60 {
				put(t, l, 1)
			}
			fsys.StopAfter(steps)
			_, _, err := l.TruncateTo(10, 0)
			_, d, l = cutPower(t, fsys, d, seed, steps, small)
			if r := l.Recovery(); r.Suspect || len(r.Damaged) > 0 || l.end < 10 || l.end > 61 || err == nil && l.end != 10 {
				t.Fatalf("%d steps, seed %d: ends at %d (%v): %+v", steps, seed, l.end, err, r)
			}
			mustRead(t, l, 1, l.end)
			put(t, l, 3)
			mustRead(t, l, 1, l.end)
			_ = d.Close()
		}
	}
}
