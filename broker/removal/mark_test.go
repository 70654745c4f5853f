package removal

import (
	"errors"
	"math"
	"slices"
	"testing"
)

// TestMarksAreReadAsWritten: also the largest numbers, and no part of a Mark is one.
func TestMarksAreReadAsWritten(t *testing.T) {
	for _, m := range []Mark{{}, {Epoch: 1, Below: 2, Limit: 3}, {Below: 1 << 40}, {math.MaxUint64, math.MaxUint64, math.MaxUint64}} {
		data := AppendMark([]byte("before"), m)[len("before"):]
		if got, err := ParseMark(data); err != nil || got != m {
			t.Errorf("%+v is read as %+v, %v", m, got, err)
		}
		for n := range data {
			if got, err := ParseMark(data[:n]); !errors.Is(err, ErrMalformed) || got != (Mark{}) {
				t.Errorf("%d bytes of %+v are read as %+v, %v", n, m, got, err)
			}
		}
		later := slices.Clone(data)
		later[0]++
		if _, err := ParseMark(later); !errors.Is(err, ErrMalformed) {
			t.Errorf("a Mark of a later version: %v", err)
		}
	}
}

// TestOffsetsAreSplitByEpoch: offsets that the log has no more, or not yet, have no epoch.
func TestOffsetsAreSplitByEpoch(t *testing.T) {
	epochAt := func(offset uint64) (epoch, until uint64) { // as log.Log has it: 5 to 19, of two epochs
		switch {
		case offset < 5:
			return 0, 5
		case offset < 10:
			return 1, 10
		case offset < 20:
			return 4, 20
		}
		return 0, 0
	}
	for _, c := range []struct {
		from, next uint64
		want       []Span
	}{
		{1, 30, []Span{{1, 5, 10}, {4, 10, 20}}},
		{6, 7, []Span{{1, 6, 7}}},
		{9, 11, []Span{{1, 9, 10}, {4, 10, 11}}},
		{1, 5, nil},
		{20, 30, nil},
		{7, 7, nil},
	} {
		if got := slices.Collect(Split(c.from, c.next, epochAt)); !slices.Equal(got, c.want) {
			t.Errorf("from %d to %d: %v, want %v", c.from, c.next, got, c.want)
		}
	}
}

// TestASetKnowsWhereItBegins: offsets below are not in it, whether they were removed or not.
func TestASetKnowsWhereItBegins(t *testing.T) {
	var s Set
	s.Add(1, 10)
	for _, c := range [][2]uint64{{5, 5}, {3, 5}, {100, 100}} {
		if s.Trim(c[0]); s.Start() != c[1] {
			t.Errorf("trimmed to %d, it begins with %d", c[0], s.Start())
		}
	}
}
