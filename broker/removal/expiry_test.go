package removal

import (
	"errors"
	"math"
	"slices"
	"testing"
)

// TestExpiriesAreReadAsTheyWereWritten: any order and any values, and in pieces.
func TestExpiriesAreReadAsTheyWereWritten(t *testing.T) {
	want := []Expiry{{3, 10, 1e18}, {3, 11, 1e18}, {4, 12, 5}, {2, 1, math.MaxInt64}, {math.MaxUint64, math.MaxUint64, 0}, {1, 2, -1}}
	for range ItemSpans {
		want = append(want, Expiry{7, uint64(len(want)), int64(len(want)) * 1e9})
	}
	var got []Expiry
	pieces := 0
	for data := range ExpiryItems(slices.Values(want)) {
		if pieces++; !AreExpiries(data) {
			t.Error("they are not known as expiries")
		}
		if err := EachExpiry(data, func(e Expiry) { got = append(got, e) }); err != nil {
			t.Fatal(err)
		}
		if err := EachSpan(data, func(Span) {}); !errors.Is(err, ErrMalformed) {
			t.Error("a version without expiries takes them for an Item:", err)
		}
	}
	if !slices.Equal(got, want) || pieces != 2 {
		t.Errorf("%d of %d expiries in %d pieces", len(got), len(want), pieces)
	}
	if AreExpiries(AppendItem(nil)) || AreExpiries(nil) {
		t.Error("an Item is taken for expiries")
	}
}

func FuzzExpiries(f *testing.F) {
	f.Add(AppendExpiries(nil, Expiry{1, 2, 3}, Expiry{1, 3, 2}))
	f.Add([]byte{expiriesVersion, 0x80})
	f.Add([]byte{expiriesVersion, 2, 2, 0x80})
	f.Fuzz(func(t *testing.T, data []byte) {
		var all []Expiry
		if err := EachExpiry(data, func(e Expiry) { all = append(all, e) }); err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Error(err)
			}
			return
		}
		var again []Expiry
		if err := EachExpiry(AppendExpiries(nil, all...), func(e Expiry) { again = append(again, e) }); err != nil || !slices.Equal(all, again) {
			t.Errorf("%v became %v, %v", all, again, err)
		}
	})
}
