package removal

import (
	"errors"
	"slices"
	"testing"
)

// TestAnItemIsReadAsItWasWritten: spans come back as they were, in any order.
func TestAnItemIsReadAsItWasWritten(t *testing.T) {
	for _, spans := range [][]Span{
		{{1, 1, 2}},
		{{7, 100, 105}, {7, 105, 106}, {9, 1 << 62, 1<<62 + 1}},
		{{9, 500, 600}, {2, 3, 4}, {1 << 63, 1, ^uint64(0)}},
	} {
		var got []Span
		if err := EachSpan(AppendItem(nil, spans...), func(s Span) { got = append(got, s) }); err != nil || !slices.Equal(got, spans) {
			t.Errorf("%v became %v, %v", spans, got, err)
		}
	}
}

// TestWhatIsNoItemIsRefused: bytes of a later version, and bytes that end early, are errors.
func TestWhatIsNoItemIsRefused(t *testing.T) {
	whole := AppendItem(nil, Span{300, 1000, 2000})
	refused := [][]byte{nil, {2}, {itemVersion, 2, 0, 1}, {itemVersion, 2, 2, 0}}
	for n := 2; n < len(whole); n++ {
		refused = append(refused, whole[:n])
	}
	for _, item := range refused {
		if err := EachSpan(item, func(Span) {}); !errors.Is(err, ErrMalformed) {
			t.Errorf("%v: %v", item, err)
		}
	}
}

func FuzzEachSpan(f *testing.F) {
	f.Add(AppendItem(nil, Span{1, 1, 2}, Span{2, 7, 9}))
	f.Fuzz(func(t *testing.T, item []byte) {
		_ = EachSpan(item, func(s Span) {
			if s.From == 0 || s.From >= s.Next {
				t.Errorf("span %v", s)
			}
		})
	})
}

// epochs are the first offsets of epochs, and the end of the log.
type epochs struct {
	first map[uint64]uint64
	order []uint64
	end   uint64
}

func (e epochs) Extent(epoch uint64) (from, next uint64) {
	i := slices.Index(e.order, epoch)
	if i < 0 {
		return 0, 0
	}
	if i+1 < len(e.order) {
		return e.first[epoch], e.first[e.order[i+1]]
	}
	return e.first[epoch], e.end
}

// TestANewRecordIsNotRemovedByAnOldItem: the log lost its end, and other records have the offsets.
func TestANewRecordIsNotRemovedByAnOldItem(t *testing.T) {
	log := epochs{map[uint64]uint64{1: 1, 5: 40}, []uint64{1, 5}, 80} // epoch 1 once went to 60
	if part, ok := (Span{1, 30, 50}).Within(log); !ok || part != (Span{1, 30, 40}) {
		t.Errorf("%v, %v", part, ok)
	}
	if part, ok := (Span{1, 45, 50}).Within(log); ok {
		t.Errorf("%v is removed", part)
	}
	if part, ok := (Span{3, 45, 50}).Within(log); ok {
		t.Errorf("%v is removed, of an epoch that the log lacks", part)
	}
}
