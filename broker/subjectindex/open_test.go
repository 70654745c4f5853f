package subjectindex

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

// Opening an index looks at each segment and each file once: four times as many of both take about
// four times the work.
func TestOpeningTakesLinearTime(t *testing.T) {
	allocations := func(segments int) float64 {
		var states []SegmentState
		var names []string
		for i := range segments {
			g := Segment{Base: uint64(1 + 10*i), Generation: 1}
			states = append(states, SegmentState{Segment: g, End: g.Base + 10, Sealed: true})
			names = append(names, segmentName(Segment{Base: g.Base, Generation: 2}, uint64(i))) // of another version
		}
		s := &Shard{config: Config{FS: crashfs.New(), Dir: "index"}, start: 1, end: 1, segments: states}
		return testing.AllocsPerRun(1, func() {
			s.end = 1
			if layers, err := s.openRuns(context.Background(), names); err != nil || len(layers) != segments {
				t.Fatalf("%d layers, %v", len(layers), err)
			}
		})
	}
	few, many := allocations(100), allocations(400)
	if many > 6*few {
		t.Errorf("400 segments took %v allocations, and 100 took %v", many, few)
	}
}

// An index that is no longer wanted is not opened to its end.
func TestOpeningEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	fs := crashfs.New()
	g := SegmentState{Segment: Segment{Base: 1, Generation: 1}, End: 11, Sealed: true}
	if _, err := Open(ctx, Config{FS: fs, Dir: "index", Cache: NewCache(fs, 0)}, 1, []SegmentState{g}); !errors.Is(err, context.Canceled) {
		t.Error(fmt.Sprint("the error is ", err))
	}
}

// A question whose time is over ends, also one that passes over all subjects of a file and finds
// none.
func TestQuestionsEndWithTheirContext(t *testing.T) {
	s := openEmpty(t, 0)
	s.Begin()
	for n := range uint64(5000) {
		s.Add(1+n, 1, fmt.Appendf(nil, "orders.%d.eu", n))
	}
	s.End()
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	in := Range{1, 5001}
	none, err := NewFilter("orders.*.us")
	if err != nil {
		t.Fatal(err)
	}
	for what, ask := range map[string]func() error{
		"the last of a filter":       func() error { _, err := s.LastMatch(ctx, none, in); return err },
		"the number of a filter":     func() error { _, err := s.Count(ctx, none, in); return err },
		"the last of a subject":      func() error { _, err := s.Last(ctx, []byte("orders.7.eu"), in); return err },
		"the records of a subject":   func() error { _, err := s.Info(ctx, []byte("orders.7.eu"), in); return err },
		"the subjects of a filter":   func() error { return s.Subjects(ctx, none, in, "", nil) },
		"the number of all subjects": func() error { _, err := s.NumSubjects(ctx, in); return err },
	} {
		if err := ask(); err != context.Canceled {
			t.Errorf("%s: %v", what, err)
		}
	}
}
