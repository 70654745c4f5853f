package log

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

// TestARepairedTailIsNotReadFromMemory: a log is damaged in its last segment, whose records are
// still in memory. The other replica has another history there. What is read after the repair is
// what the other one has, also before the log is opened again.
func TestARepairedTailIsNotReadFromMemory(t *testing.T) {
	fsys, d, l := setup(t, Options{SegmentSmallest: 8 << 10, SegmentLargest: 16 << 10})
	_, _, other := setup(t, small)
	fill(t, l, other, 900)
	l.Roll()
	fill(t, l, other, 5)
	appendUnshared(t, l)
	for range 80 {
		_, at, _ := other.Offsets()
		if _, err := other.Append(&Append{Epoch: 4, Records: texts(at+1000, 1)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := other.Flush(); err != nil {
		t.Fatal(err)
	}
	spoil(t, fsys, d, l, len(l.SegmentInfos())-1)
	if _, _, err := mend(t, l, other); err != nil {
		t.Fatal(err)
	}
	copyTo(t, other, l)
	want := everything(t, other)
	if got := everything(t, l); !slices.Equal(got, want) {
		at := 0
		for at < len(got) && at < len(want) && got[at] == want[at] {
			at++
		}
		t.Errorf("of %d batches, the %dth is another one: %s, want %s", len(want), at, got[at], want[at])
	}
}

// compactedToOne returns two replicas, the first compacted to one segment. The number of commit
// rounds decides the sizes of the segments before. Rarely, two segments are left: then the setup is
// repeated.
func compactedToOne(t *testing.T) (fsys *crashfs.FS, d *Disk, l, other *Log, end uint64) {
	t.Helper()
	for range 20 {
		fsys, d, l, other = replicas(t, 2000)
		l.Roll()
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		_, end, _ = l.Offsets()
		if _, err := l.Compact(context.Background(), CompactOptions{Below: end}); err != nil {
			t.Fatal(err)
		}
		if len(l.SegmentInfos()) == 1 {
			return fsys, d, l, other, end
		}
	}
	t.Fatalf("it has segments %+v", l.SegmentInfos())
	return
}

// TestADamagedFileIsKeptUntilAllOfItIsReplaced: a log was compacted to one segment, and the other
// replica was not. Its records are more than a segment has usually, and it lacks the last ones. The
// damaged file has them, and they are taken from there.
func TestADamagedFileIsKeptUntilAllOfItIsReplaced(t *testing.T) {
	fsys, d, l, other, end := compactedToOne(t)
	infos := l.SegmentInfos()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = openLog(t, d, orders) // so that nothing is read from memory
	want := everything(t, l)
	last, err := l.BatchBase(end - 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := fsys.Flip(infos[0].File, 120*8); err != nil {
		t.Fatal(err)
	}
	l = openLog(t, d, orders)
	if _, err := l.Scrub(context.Background(), ScrubOptions{}); err != nil {
		t.Fatal(err)
	}
	r, err := l.Repair()
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := other.TruncateTo(last, 0); err != nil {
		t.Fatal(err)
	}
	bytes := 0
	for c := other.NewCursor(r.Span().From); c.Next() < last && !r.Full(); {
		v, err := c.Read(1 << 10)
		if err != nil {
			t.Fatal(err)
		}
		for b, ok := v.Next(); ok; b, ok = v.Next() {
			if err := r.Add(b); err != nil {
				t.Fatal(err)
			}
			bytes += len(b)
		}
		v.Release()
	}
	if int64(bytes) < small.SegmentLargest || r.Span() != (Span{last, end}) {
		t.Fatalf("%d bytes came, and %v is due", bytes, r.Span())
	}
	if added, err := r.AddOwn(0, math.MaxUint64); err != nil || !added || !r.Full() {
		t.Fatalf("added: %v, %v", added, err)
	}
	if _, err := r.Finish(); err != nil {
		t.Fatal(err)
	}
	got := everything(t, l)
	if len(l.Lacks()) > 0 || !slices.Equal(got[len(got)-2:], want[len(want)-2:]) {
		t.Errorf("it lacks %v, and ends with %v, want %v", l.Lacks(), got[len(got)-2:], want[len(want)-2:])
	}
}

// TestABatchOfAnotherOffsetMakesNoSegment: a batch that doesn't follow is refused, and leaves no
// empty segment. A repaired end of the log could not go beyond that.
func TestABatchOfAnotherOffsetMakesNoSegment(t *testing.T) {
	_, _, l, other := replicas(t, 300)
	l.Roll()
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	want := len(l.SegmentInfos())
	v, err := other.NewCursor(200).Read(1)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Release()
	b, _ := v.Next()
	b = slices.Clone(b)
	le.PutUint64(b[16:], 9) // of a later epoch
	seal(b)
	if _, is := errors.AsType[*OffsetError](l.AppendBatch(b, Synced, nil)); !is {
		t.Error("a batch that doesn't follow is taken")
	}
	if got := len(l.SegmentInfos()); got != want {
		t.Errorf("%d segments, want %d", got, want)
	}
}
