package log

import (
	"slices"
	"testing"
)

// TestARepairRemovesEpochsWithoutRecords: the end of a log is lost, with uncommitted records of an
// epoch that the other replica lacks. Records of a later epoch take its place. After each segment
// the log's epochs are those of its records, so that it can be compared with other logs.
func TestARepairRemovesEpochsWithoutRecords(t *testing.T) {
	fsys, d, l, other := replicas(t, 1990)
	_, parted, _ := l.Offsets()
	for _, to := range []struct {
		log     *Log
		epoch   uint64
		records int
	}{{l, 4, 800}, {l, 5, 10}, {other, 6, 900}} {
		for range to.records {
			_, end, _ := to.log.Offsets()
			if _, err := to.log.Append(&Append{Epoch: to.epoch, Records: texts(end, 1)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := to.log.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	_, end, _ := l.Offsets()
	infos := l.SegmentInfos()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var from uint64
	for _, s := range slices.Backward(infos) {
		if from = s.Base; s.End <= parted {
			break
		}
		remove(t, fsys, d, "orders-0", s.Base)
	}
	l = openLog(t, d, orders)
	segments := 0
	for ; ; segments++ {
		r, err := l.Repair()
		if err != nil {
			t.Fatal(err)
		}
		if r == nil {
			break
		}
		if _, err := feed(t, r, other); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Finish(); err != nil {
			t.Fatal(err)
		}
		epochs := l.Epochs()
		if !slices.IsSortedFunc(epochs, func(a, b Epoch) int { return int(a.Start) - int(b.Start) }) || slices.ContainsFunc(epochs, func(e Epoch) bool { return e.Epoch == 4 }) {
			t.Fatalf("repaired up to %d, the epochs are %v", r.Span().From, epochs)
		}
	}
	want := slices.DeleteFunc(other.Epochs(), func(e Epoch) bool { return e.Start >= end })
	if got := l.Epochs(); segments < 2 || !slices.Equal(got, want) {
		t.Errorf("after %d segments from %d on, the epochs are %v, want %v", segments, from, got, want)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if l = openLog(t, d, orders); l.Recovery().Suspect || !slices.Equal(l.Epochs(), want) {
		t.Errorf("opened again: %v, %+v", l.Epochs(), l.Recovery())
	}
}
