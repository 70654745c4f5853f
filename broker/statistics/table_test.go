package statistics

import (
	"fmt"
	"testing"
)

var first = Segment{Log: "orders-0", Base: 1, Generation: 3, End: 5, Epoch: 2}

// collect has a scan collect values of a segment.
func collect(t *Table, s Segment, path string, values ...uint64) {
	b := t.Begin(s, path)
	if b == nil {
		return
	}
	for _, v := range values {
		b.Add(v, v != 0, int64(v))
	}
	t.Keep(b, s.End)
}

// TestTheSecondScanCollectsForLaterOnes: the first one of a segment notes that it came by. What is
// collected is about that path in that version of the segment.
func TestTheSecondScanCollectsForLaterOnes(t *testing.T) {
	var table Table
	for n := range 2 {
		if _, ok := table.Excludes(first, "json.a", []uint64{9}); ok {
			t.Errorf("after %d scans", n)
		}
		collect(&table, first, "json.a", 7, 8, 7, 6)
	}
	if latest, ok := table.Excludes(first, "json.a", []uint64{9, 10}); !ok || latest != 8 {
		t.Errorf("not excluded: %d, %v", latest, ok)
	}
	for _, v := range []uint64{6, 7, 8} {
		if _, ok := table.Excludes(first, "json.a", []uint64{9, v}); ok {
			t.Errorf("%d is excluded", v)
		}
	}
	others := []Segment{first, first, first, first, first}
	others[0].Log, others[1].Base, others[2].Generation, others[3].End, others[4].Epoch = "bills-0", 2, 4, 6, 3
	for _, s := range others {
		if _, ok := table.Excludes(s, "json.a", []uint64{9}); ok {
			t.Errorf("%+v is excluded", s)
		}
	}
	if _, ok := table.Excludes(first, "json.b", []uint64{9}); ok {
		t.Error("by another path")
	}
}

// TestASegmentWithoutAllValuesIsNeverExcluded: if a record has none, if there are too many, or if a
// scan has not come to its end.
func TestASegmentWithoutAllValuesIsNeverExcluded(t *testing.T) {
	var table Table
	many := make([]uint64, maxValues+1)
	for n := range many {
		many[n] = uint64(n + 1)
	}
	for path, values := range map[string][]uint64{"missing": {7, 0, 8}, "many": many} {
		for range 4 {
			collect(&table, first, path, values...)
		}
		if _, ok := table.Excludes(first, path, []uint64{1 << 40}); ok {
			t.Errorf("%s: excluded", path)
		}
		if table.Begin(first, path) != nil {
			t.Errorf("%s: it is collected again", path)
		}
	}
	large := Segment{Log: "orders-0", Base: 1, End: 1 + maxValues}
	for range 3 {
		collect(&table, large, "fits", many[:maxValues]...)
	}
	if _, ok := table.Excludes(large, "fits", []uint64{1 << 40}); !ok {
		t.Error("the most values are not kept")
	}
	for range 3 {
		collect(&table, first, "lacks one", 1, 2, 3)
	}
	if _, ok := table.Excludes(first, "lacks one", []uint64{1 << 40}); ok {
		t.Error("a segment is excluded though one of its records was not collected")
	}

	table.Begin(first, "part")
	b := table.Begin(first, "part")
	b.Add(7, true, 1)
	table.Keep(b, 2)
	excluded := func() bool { _, ok := table.Excludes(first, "part", []uint64{9}); return ok }
	if excluded() || table.Resume(first, "part", 3) != nil {
		t.Error("a part of a segment counts as all of it")
	}
	if b = table.Resume(first, "part", 2); b == nil || table.Resume(first, "part", 2) != nil {
		t.Fatal("not one scan goes on")
	}
	for range 3 {
		b.Add(8, true, 2)
	}
	table.Keep(b, 5)
	if !excluded() {
		t.Error("not excluded")
	}
	table.Keep(b, 2) // too late
	if !excluded() {
		t.Error("forgotten")
	}
}

// TestStatisticsTakeABoundedMemory: beyond it the oldest ones are forgotten.
func TestStatisticsTakeABoundedMemory(t *testing.T) {
	var table Table
	values := map[uint64]struct{}{}
	for n := range uint64(maxValues) {
		values[n] = struct{}{}
	}
	scan := func(path string, next uint64) {
		table.Begin(first, path)
		b := table.Begin(first, path)
		b.values, b.added = values, first.End-first.Base
		table.Keep(b, next)
	}
	const all = 3 * maxBytes / (8 * maxValues) / 2
	for n := range all {
		scan(fmt.Sprint(n), first.End)
	}
	kept, bytes := 0, 0
	for n := range all {
		if _, ok := table.Excludes(first, fmt.Sprint(n), []uint64{1 << 40}); ok {
			kept++
		} else if kept > 0 {
			t.Fatalf("%d is forgotten before older ones", n)
		}
	}
	for k := range table.of {
		bytes += table.size(k)
	}
	if kept < all/2 || kept > 2*all/3 || bytes != table.bytes || bytes > maxBytes || len(table.order) != len(table.of) {
		t.Errorf("%d of %d are kept, of %d bytes, %d are counted", kept, all, bytes, table.bytes)
	}
	// Scans that ended within a segment count, too.
	for n := range 2 * maxBytes / (builtBytes * maxValues) {
		scan(fmt.Sprint("part ", n), 3)
	}
	if table.bytes > maxBytes || len(table.of) > maxBytes/(builtBytes*maxValues) {
		t.Errorf("%d entries of %d bytes", len(table.of), table.bytes)
	}
}
