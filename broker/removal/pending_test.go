package removal

import (
	"slices"
	"testing"
)

// TestPendingRemovals: a removal is pending until it is done, and no other is.
func TestPendingRemovals(t *testing.T) {
	var p Pending
	one, two := &Removal{Spans: []Span{{1, 2, 3}}}, &Removal{Spans: []Span{{1, 2, 3}, {2, 8, 9}}}
	p.Add(one)
	p.Add(two)
	p.Done(one)
	p.Done(one)
	if got := p.Spans(); !slices.Equal(got, two.Spans) {
		t.Errorf("pending: %v", got)
	}
}

// TestItemsAreBounded: many spans make several Items, with all spans in order.
func TestItemsAreBounded(t *testing.T) {
	var spans, got []Span
	for i := range uint64(3*ItemSpans + 5) {
		spans = append(spans, Span{1 + i/5000, 1 + 3*i, 3 + 3*i})
	}
	items := 0
	for item := range Items(slices.Values(spans)) {
		items++
		if err := EachSpan(item, func(s Span) { got = append(got, s) }); err != nil || len(item) > 64<<10 {
			t.Fatal(len(item), err)
		}
	}
	if items != 4 || !slices.Equal(got, spans) {
		t.Errorf("%d Items with %d spans", items, len(got))
	}
}

// TestSplitByEpoch: a range is split where the epoch of a log's records changes, and ends with the
// log.
func TestSplitByEpoch(t *testing.T) {
	epochAt := func(offset uint64) (epoch, until uint64) {
		switch {
		case offset < 10:
			return 1, 10
		case offset < 20:
			return 4, 20
		}
		return 0, 0
	}
	got := slices.Collect(Split(7, 30, epochAt))
	if !slices.Equal(got, []Span{{1, 7, 10}, {4, 10, 20}}) {
		t.Errorf("split: %v", got)
	}
}
