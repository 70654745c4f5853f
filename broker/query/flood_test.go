package query

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/carillon-mq/carillon/broker/attribute"
)

// large returns the limits of tests with many queries of one owner.
func large() Limits {
	l := DefaultLimits()
	l.Owned = l.Queries
	l.OwnedMemory, l.OwnedCosts = l.Memory, l.Costs
	return l
}

// TestTenThousandQueriesAndOneChangedAttribute: the one that a subject leaves and the one that it
// joins are judged, and no memory is allocated.
func TestTenThousandQueriesAndOneChangedAttribute(t *testing.T) {
	limits := large()
	limits.HistoryEntries = 16
	s := NewSet(limits)
	for n := range 10_000 {
		must(t, s.Add(ID(n), 1, compiled(t, fmt.Sprintf(`attributes.k == "v%d"`, n), CEL), nil))
	}
	first, second := attributes(t, `{"k":"v17","floor":4}`), attributes(t, `{"k":"v4711","floor":4}`)
	expectDeltas(t, s.Apply("s.1", first, 1, nil), Delta{17, "s.1", New})
	before := s.Stats()
	expectDeltas(t, s.Apply("s.1", second, 2, nil), Delta{17, "s.1", Del}, Delta{4711, "s.1", New})
	if got := s.Stats(); got.Judged-before.Judged != 2 || got.Turned-before.Turned != 2 {
		t.Errorf("%d queries were judged", got.Judged-before.Judged)
	}
	var deltas []Delta
	if n := testing.AllocsPerRun(1000, func() {
		first, second = second, first
		deltas = s.Apply("s.1", second, 3, deltas[:0])
	}); n > 0 || len(deltas) != 2 {
		t.Errorf("%v allocations, and %d changes", n, len(deltas))
	}
}

// TestThousandsOfSubjectsJoin: each of some hundred queries gets what matches it, and a query for
// everything each of them.
func TestThousandsOfSubjectsJoin(t *testing.T) {
	const subjects, queries = 5000, 200
	s := NewSet(large())
	must(t, s.Add(queries, 1, compiled(t, `subject != ""`, CEL), nil))
	for n := range queries {
		must(t, s.Add(ID(n), 1, compiled(t, fmt.Sprintf(`attributes.n >= %d && attributes.n < %d`, 10*n, 10*n+1000), CEL), nil))
	}
	news := map[ID]int{}
	var deltas []Delta
	join := func(round int) {
		for n := range subjects {
			deltas = s.Apply(fmt.Sprint("s.", n), attribute.Set{"n": attribute.Number(float64(n)), "round": attribute.Number(float64(round))}, uint64(n+1), deltas[:0])
			for _, d := range deltas {
				if d.Kind == New {
					news[d.Query]++
				} else {
					t.Fatalf("%v", d)
				}
			}
		}
	}
	join(1)
	join(2) // changes nothing
	for id, n := range news {
		if want := len(slices.Collect(s.Members(id))); n != want || id < queries && n != 1000 || id == queries && n != subjects {
			t.Errorf("query %d was told %d, and has %d members", id, n, want)
		}
	}
	if len(news) != queries+1 {
		t.Errorf("%d queries were told something", len(news))
	}
}

// TestAQueryThatMatchesEverythingIsSmall: 100,000 members take 12.5 KB, and as many bits once more.
func TestAQueryThatMatchesEverythingIsSmall(t *testing.T) {
	s := NewSet(large())
	set := attribute.Set{"a": attribute.Number(1)}
	for n := range 100_000 {
		s.Apply(fmt.Sprint("s.", n), set, uint64(n+1), nil)
	}
	before := s.Stats().Memory
	for n := range 10 {
		must(t, s.Add(ID(n), 1, compiled(t, fmt.Sprintf(`has(attributes.a) || attributes.a == %d`, n), CEL), nil))
	}
	for n := range 10 {
		if got := s.groups[s.opens[ID(n)].group.query.key].members; got.len() != 100_000 || got.bytes() > 16<<10 {
			t.Errorf("%d members take %d bytes", got.len(), got.bytes())
		}
	}
	// A subject's list of ten groups is shorter as a list: 4 bytes each, and room for more.
	if grown := s.Stats().Memory - before; grown > 100_000*4*20 {
		t.Errorf("ten queries with all subjects take %d KiB", grown>>10)
	}
	expectDeltas(t, s.Apply("s.7", attribute.Set{}, 1, nil),
		Delta{0, "s.7", Del}, Delta{1, "s.7", Del}, Delta{2, "s.7", Del}, Delta{3, "s.7", Del}, Delta{4, "s.7", Del},
		Delta{5, "s.7", Del}, Delta{6, "s.7", Del}, Delta{7, "s.7", Del}, Delta{8, "s.7", Del}, Delta{9, "s.7", Del})
}

// TestTheMemoryIsThatOfTheHeap: what is accounted is what it takes, within a factor of two.
func TestTheMemoryIsThatOfTheHeap(t *testing.T) {
	heap := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	compiled(t, `attributes.a == 1`, CEL) // makes the environment
	sets := make([]attribute.Set, 10_000) // they are the caller's
	for n := range sets {
		sets[n] = attribute.Set{"k": attribute.Number(float64(3 * n))}
	}
	for what, fill := range map[string]func(s *Set){
		"subjects": func(s *Set) {
			for n := range 5_000 {
				s.Apply(fmt.Sprint("sensors.building.", n), attribute.Set{}, uint64(n+1), nil)
			}
		},
		"indexed queries": func(s *Set) {
			for n := range 1000 {
				must(t, s.Add(ID(n), 1, compiled(t, fmt.Sprintf(`attributes.k == "v%d"`, n), CEL), nil))
			}
		},
		"queries in the rest": func(s *Set) {
			for n := range 1000 {
				must(t, s.Add(ID(n), 1, compiled(t, fmt.Sprintf(`attributes.k > %d && attributes.l < 7`, n), CEL), nil))
			}
		},
		"queries with programs": func(s *Set) {
			for n := range 300 {
				must(t, s.Add(ID(n), 1, compiled(t, fmt.Sprintf(`size(attributes) > %d && attributes.l.exists(x, x == 7)`, n), CEL), nil))
			}
		},
		"members": func(s *Set) {
			for n := range 300 {
				must(t, s.Add(ID(n), 1, compiled(t, fmt.Sprintf(`attributes.k < %d || attributes.k > %d`, 100*n, 100*n+27_000), CEL), nil))
			}
			for n, set := range sets {
				s.Apply(fmt.Sprint("s.", n), set, uint64(n+1), nil)
			}
		},
	} {
		limits := large()
		limits.Costs, limits.OwnedCosts = 1<<40, 1<<40
		before := heap()
		s := NewSet(limits)
		s.Loaded(0)
		fill(s)
		took, counted := heap()-before, s.Stats().Memory
		t.Logf("%s: %d KiB on the heap, %d counted", what, took>>10, counted>>10)
		if counted < took/2 || counted > 3*took {
			t.Errorf("%s take %d KiB of the heap, and %d are counted", what, took>>10, counted>>10)
		}
		runtime.KeepAlive(s)
		runtime.KeepAlive(sets)
	}
}
