package log

import (
	"slices"
	"testing"
)

// A log is damaged in its last segment, whose records are in memory still. The other replica has
// another history there. What is read after the repair is what the other one has, also before the
// log is opened again.
func TestARepairedTailIsNotReadFromMemory(t *testing.T) {
	fsys, d, l := setup(t, Options{SegmentSmallest: 8 << 10, SegmentLargest: 16 << 10})
	_, _, other := setup(t, small)
	fill(t, l, other, 900)
	l.Roll()
	fill(t, l, other, 5)
	_, shared, _ := l.Offsets()
	for i := range uint64(60) { // that the other one never got
		if _, err := l.Append(&Append{Epoch: 3, Records: texts(shared+i, 1)}); err != nil {
			t.Fatal(err)
		}
	}
	l.Roll()
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
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
