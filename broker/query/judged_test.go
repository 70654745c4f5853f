package query

import (
	"errors"
	"slices"
	"testing"
)

// TestAQueryIsJudgedAhead: its members are those at the time when it is added, whatever came, went
// or changed since it was judged, and whatever part was.
func TestAQueryIsJudgedAhead(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		s := NewSet(DefaultLimits())
		s.Loaded(0)
		yes, no := `{"a":1}`, `{"a":2}`
		apply := func(name, text string, revision uint64) {
			if text == "" {
				s.Apply(name, nil, revision, nil)
			} else {
				s.Apply(name, attributes(t, text), revision, nil)
			}
		}
		for i, name := range []string{"stays", "leaves", "goes", "goes.and.comes"} {
			apply(name, yes, uint64(i+1))
		}
		apply("comes", no, 5)
		q := compiled(t, `attributes.a == 1`, CEL)
		j, err := s.Ahead(q)
		must(t, err)
		stop := make(chan struct{})
		if stopped {
			close(stop)
		}
		j.Judge(stop)
		apply("leaves", no, 6)
		apply("goes", "", 7)
		apply("goes.and.comes", "", 8)
		apply("goes.and.comes", no, 9) // perhaps under the number of another
		apply("comes", yes, 10)
		apply("is.new", yes, 11)
		if !s.Use(q, j) || s.Use(q, nil) {
			t.Error("all subjects are judged with it, or few without it")
		}
		s.Use(q, j)
		must(t, s.Add(1, 1, q, nil))
		if got := slices.Sorted(s.Members(1)); !slices.Equal(got, []string{"comes", "is.new", "stays"}) {
			t.Errorf("the members are %q", got)
		}
		if j, err = s.Ahead(compiled(t, `attributes.a == 1`, CEL)); j != nil || err != nil {
			t.Errorf("a query that is open: %v, %v", j, err)
		}
	}
}

// TestAQueryThatCostsTooMuchForAllSubjectsIsRefused, and the difference of one that resumes over
// many changes.
func TestAQueryThatCostsTooMuchForAllSubjectsIsRefused(t *testing.T) {
	limits := DefaultLimits()
	q := compiled(t, `attributes.l.exists(x, x == "b")`, CEL)
	limits.OpenCosts, limits.ResumeCosts = 2*q.cost, 2*q.cost
	s := NewSet(limits)
	s.Loaded(0)
	for i, name := range []string{"s.1", "s.2", "s.3"} {
		_, err := s.Ahead(q)
		must(t, err)
		s.Apply(name, attributes(t, `{"l":["a"]}`), uint64(i+1), nil)
	}
	if _, err := s.Ahead(q); err == nil {
		t.Error("it is accepted")
	}
	if _, err := s.Resume(1, 1, q, nil, 0, nil); !errors.Is(err, ErrTooOld) {
		t.Errorf("three changes: %v", err)
	}
	_, err := s.Resume(1, 1, q, nil, 1, nil)
	must(t, err)
}
