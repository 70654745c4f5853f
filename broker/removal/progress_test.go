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
