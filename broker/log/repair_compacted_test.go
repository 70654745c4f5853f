package log

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestReplicasThatWereCompactedDifferently: each replica compacts by itself, so the other one's
// batches cross segment borders, lack other records, or have more.
func TestReplicasThatWereCompactedDifferently(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 3))
		fsys, _, l, other := replicas(t, 1500)
		for i, each := range []*Log{l, other} {
			times := rng.IntN(3)
			if seed < 4 { // only this one
				times = 2 - 2*i
			}
			for range times {
				if _, err := each.Compact(context.Background(), CompactOptions{Below: 1 + rng.Uint64N(1500), Subjects: 3 + rng.IntN(20)}); err != nil {
					t.Fatal(err)
				}
			}
		}
		infos := l.SegmentInfos()
		n := rng.IntN(len(infos) - 1)
		if seed < 4 { // what was compacted
			n = 0
		}
		bad := infos[n]
		if err := fsys.Flip(fileOf(t, l, bad.Base), (headerSize+markerSize+20)*8); err != nil {
			t.Fatal(err)
		}
		if found, err := scrubAll(l); err != nil || len(found) == 0 {
			t.Fatalf("seed %d: %v, %v", seed, found, err)
		}
		if _, _, err := mend(t, l, other); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		check := func() {
			t.Helper()
			got, err := readSparse(l, 1)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			for o := uint64(1); o <= 1500; o++ {
				if text, there := got[o]; there && text != fmt.Sprintf("record %d", o) || !there && o > 1500-7 {
					t.Fatalf("seed %d: offset %d holds %q", seed, o, text)
				}
			}
		}
		check()
		// What the other one had left in goes with the next compaction.
		copyTo(t, l, other)
		l.Roll()
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Compact(context.Background(), CompactOptions{Below: 1501}); err != nil {
			t.Fatal(err)
		}
		check()
		if got, _ := readSparse(l, 1); len(got) != 8 {
			t.Errorf("seed %d: %d records of 8 subjects are left", seed, len(got))
		}
	}
}

// TestARepairCopiesBatchesAcrossSegmentBorders: compaction that removes no record still makes
// larger batches. These have all their offsets, and lie across the segment borders of another
// replica.
func TestARepairCopiesBatchesAcrossSegmentBorders(t *testing.T) {
	fsys, d, l := setup(t, small)
	_, _, other := setup(t, Options{SegmentSmallest: 4 << 10, SegmentLargest: 64 << 10, TailBytes: 1})
	for i := range 1000 {
		r := Record{Time: int64(i), Subject: fmt.Appendf(nil, "s.%d", i), Data: fmt.Appendf(nil, "record %d", i+1)}
		if i == 999 {
			r.Subject = []byte("s.0")
		}
		if _, err := l.Append(&Append{Epoch: 1, Records: []Record{r}}); err != nil {
			t.Fatal(err)
		}
	}
	copyTo(t, l, other)
	other.Roll()
	for _, each := range []*Log{l, other} {
		if err := each.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if did, err := other.Compact(context.Background(), CompactOptions{Below: 1001}); err != nil || did.Records != 1 {
		t.Fatalf("%+v, %v", did, err)
	}
	spoil(t, fsys, d, l, 2)
	if _, _, err := mend(t, l, other); err != nil {
		t.Fatal(err)
	}
	got, err := readSparse(l, 1)
	if err != nil || len(got) != 1000 && len(got) != 999 {
		t.Fatalf("%d records, %v", len(got), err)
	}
	for o, text := range got {
		if text != fmt.Sprintf("record %d", o) {
			t.Fatalf("offset %d holds %q", o, text)
		}
	}
}

// TestARepairDuringACompaction: a segment is repaired while the log is compacted: the repaired
// segment does not count as compacted.
func TestARepairDuringACompaction(t *testing.T) {
	fsys, d, l, other := replicas(t, 2000)
	spoil(t, fsys, d, l, 2)
	options := CompactOptions{Below: 2001, Subjects: 100}
	c, todo := l.plan(options, true)
	if _, _, err := mend(t, l, other); err != nil {
		t.Fatal(err)
	}
	if err := c.run(context.Background(), todo, &Compaction{}); err != nil && !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	if _, err := l.Compact(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	active := l.SegmentInfos()[len(l.SegmentInfos())-1]
	got, err := readSparse(l, 1)
	if err != nil || len(got) > 8+int(active.End-active.Base) {
		t.Errorf("%d records of 8 subjects are left, %d of them behind: %v", len(got), active.End-active.Base, err)
	}
}
