package removal

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
)

func TestAProgressIsReadAsItWasWritten(t *testing.T) {
	p := Progress{Epoch: 7, Offset: 1 << 40, Sources: []Source{
		{Key: KeyOf("orders > >"), Sequence: 12, Origin: "a1b2"},
		{Key: KeyOf("bills > >"), Sequence: 1 << 50},
	}}
	data := AppendProgress(nil, &p)
	if got, err := ParseProgress(data); err != nil || !reflect.DeepEqual(got, p) {
		t.Errorf("ParseProgress(AppendProgress(%v)) = %v, %v", p, got, err)
	}
	for n := range data {
		got, err := ParseProgress(data[:n])
		if err == nil && len(got.Sources) == 2 || err != nil && !errors.Is(err, ErrMalformed) {
			t.Errorf("ParseProgress of the first %d of %d bytes = %v, %v", n, len(data), got, err)
		}
	}
	if AreExpiries(data) || EachSpan(data, func(Span) {}) == nil {
		t.Error("a Progress is taken for expiries or an Item")
	}
}

// TestEpochsOfSources: a progress has them if one source has, and is as before otherwise.
func TestEpochsOfSources(t *testing.T) {
	p := Progress{Epoch: 7, Offset: 9, Sources: []Source{{Key: KeyOf("a"), Sequence: 12, Origin: "a1b2"}, {Key: KeyOf("b"), Sequence: 3}}}
	before := AppendProgress(nil, &p)
	p.Sources[0].Epoch = 1 << 40
	data := AppendProgress(nil, &p)
	if got, err := ParseProgress(data); err != nil || !reflect.DeepEqual(got, p) || data[0] == before[0] || !IsProgress(data) {
		t.Errorf("ParseProgress(AppendProgress(%v)) = %v, %v", p, got, err)
	}
	for n := range data {
		if got, err := ParseProgress(data[:n]); err == nil && len(got.Sources) == 2 || err != nil && !errors.Is(err, ErrMalformed) {
			t.Errorf("ParseProgress of the first %d of %d bytes = %v, %v", n, len(data), got, err)
		}
	}
	of := func(epoch, sequence uint64, origin string) *Source {
		return &Source{Epoch: epoch, Sequence: sequence, Origin: origin}
	}
	for _, test := range []struct {
		s, other *Source
		want     bool
	}{
		{of(0, 5, "a"), of(0, 5, "a"), true}, {of(0, 5, "a"), of(0, 6, "a"), false}, {of(0, 5, "a"), of(0, 5, "b"), false},
		{of(2, 5, "a"), of(1, 9, "a"), true}, {of(1, 9, "a"), of(2, 5, "a"), false}, {of(2, 5, "a"), of(2, 6, "a"), false},
		{of(0, 5, "a"), of(2, 5, "a"), true}, {of(2, 5, "a"), of(0, 6, "a"), false},
	} {
		if got := test.s.Covers(test.other); got != test.want {
			t.Errorf("%+v covers %+v: %v", test.s, test.other, got)
		}
	}
}

func TestASourceOfAProgressIsReplaced(t *testing.T) {
	a, b := KeyOf("a"), KeyOf("b")
	p := Progress{Sources: []Source{{Key: a, Sequence: 1}, {Key: b, Sequence: 5}}}
	p.Sources = p.With(Source{Key: a, Sequence: 2}, nil)
	if s, ok := p.Of(a); !ok || s.Sequence != 2 {
		t.Errorf("after With, Of(a) = %v, %t", s, ok)
	}
	if s, ok := p.Of(b); !ok || s.Sequence != 5 || len(p.Sources) != 2 {
		t.Errorf("after With, Of(b) = %v, %t, of %d sources", s, ok, len(p.Sources))
	}
}

// TestASilentSourceIsNotForgotten: only former ones are, however many move meanwhile.
func TestASilentSourceIsNotForgotten(t *testing.T) {
	silent := KeyOf("silent")
	p := Progress{Sources: []Source{{Key: silent, Sequence: 7, Origin: "a"}}}
	for i := range 3 * maxSources {
		p.Sources = p.With(Source{Key: KeyOf(fmt.Sprint(i)), Sequence: 1}, func(k SourceKey) bool { return k == silent })
	}
	if s, _ := p.Of(silent); s.Sequence != 7 || len(p.Sources) != maxSources {
		t.Errorf("of %d sources the silent one has come to %d", len(p.Sources), s.Sequence)
	}
}
