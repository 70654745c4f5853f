package query

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/attribute"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func expectDeltas(t *testing.T, got []Delta, want ...Delta) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("the changes are %v, want %v", got, want)
	}
}

// TestEachMatchingQueryIsTold: CQBS' forwarding stopped at the first matching query without
// clients. A subject in several queries is announced to each of them, in order, and once to each.
func TestEachMatchingQueryIsTold(t *testing.T) {
	s := NewSet(DefaultLimits())
	for id, text := range map[ID]string{
		7: `attributes.room == "410"`, 2: `has(attributes.room)`, 5: `attributes.room == "410"`, 3: `attributes.floor > 3`, 9: `subject == "s.1"`, 8: `!has(attributes.x)`,
		4: `"410" in attributes.room`, 6: `size(attributes) == 2`, 1: `attributes.room in ["410", "411"] || "410" == attributes.room`, 10: `true`, 11: `subject.startsWith("t")`,
	} {
		must(t, s.Add(id, 1, compiled(t, text, CEL), nil))
	}
	s.Remove(5) // one of two with the same text
	var want []Delta
	for _, id := range []ID{1, 2, 3, 6, 7, 8, 9, 10} {
		want = append(want, Delta{id, "s.1", New})
	}
	expectDeltas(t, s.Apply("s.1", attributes(t, `{"room":"410","floor":4}`), 1, nil), want...)
	expectDeltas(t, s.Apply("s.1", attributes(t, `{"room":"410","floor":4}`), 2, nil))
	if got := slices.Sorted(s.Queries("s.1")); !slices.Equal(got, []ID{1, 2, 3, 6, 7, 8, 9, 10}) {
		t.Errorf("the queries of the subject are %v", got)
	}
	expectDeltas(t, s.Apply("s.1", attributes(t, `{"room":["410"],"x":true}`), 3, nil),
		Delta{1, "s.1", Del}, Delta{3, "s.1", Del}, Delta{4, "s.1", New}, Delta{7, "s.1", Del}, Delta{8, "s.1", Del})
	expectDeltas(t, s.Apply("s.1", attribute.Set{}, 4, nil), Delta{2, "s.1", Del}, Delta{4, "s.1", Del}, Delta{6, "s.1", Del}, Delta{8, "s.1", New})
	expectDeltas(t, s.Apply("s.1", nil, 5, nil), Delta{8, "s.1", Del}, Delta{9, "s.1", Del}, Delta{10, "s.1", Del})
	expectDeltas(t, s.Apply("s.1", nil, 6, nil))
}

// TestClosedQueriesAreForgotten: CQBS never removed a query of which the last subscriber had left.
func TestClosedQueriesAreForgotten(t *testing.T) {
	s := NewSet(DefaultLimits())
	s.Loaded(0)
	empty := s.Stats()
	for n := range 200 {
		s.Apply(fmt.Sprint("s.", n), attributes(t, `{"a":"x","b":["y","z"],"on":true}`), uint64(n+1), nil)
	}
	subjects := s.Stats()
	texts := []string{`attributes.a == "x"`, `has(attributes.b)`, `!has(attributes.c)`, `true`, `size(attributes) > 1`, `attributes.a in ["x","y"] && "y" in attributes.b`, `attributes.on || attributes.off`}
	for round := range 3 {
		for i := range 4 * len(texts) {
			must(t, s.Add(ID(i), Owner(i%3), compiled(t, texts[i%len(texts)], CEL), func(subject string) bool { return strings.HasSuffix(subject, "1") }))
		}
		if got := s.Stats(); got.Queries != 4*len(texts) || got.Distinct != len(texts) {
			t.Errorf("round %d: %+v", round, got)
		}
		for i := range 4 * len(texts) {
			s.Remove(ID(i))
			s.Remove(ID(i))
		}
	}
	got := s.Stats()
	got.Memory -= spare(s)
	if got != subjects || len(s.index.pairs)+len(s.index.rest)+len(s.groups)+len(s.owners) > 0 || len(s.numbered) != len(texts) {
		t.Errorf("after the last query was closed: %+v, want %+v; index %v", got, subjects, s.index)
	}
	for n := range 200 {
		expectDeltas(t, s.Apply(fmt.Sprint("s.", n), nil, uint64(n+201), nil))
	}
	s.Loaded(400)
	if got := s.Stats(); got != empty {
		t.Errorf("after the last subject has gone: %+v, want %+v", got, empty)
	}
}

// spare is what the subjects' empty lists keep.
func spare(s *Set) (bytes int) {
	for i := range s.subjects {
		bytes += s.subjects[i].groups.bytes()
	}
	return bytes
}

// TestTheOrderOfClausesMakesNoOtherQuery: CQBS' paper says so, and its code compared texts.
func TestTheOrderOfClausesMakesNoOtherQuery(t *testing.T) {
	s := NewSet(DefaultLimits())
	for i, text := range []string{
		`attributes.a == "x" && attributes.b == "y"`, `(attributes.b == "y") && attributes.a == "x"`, `attributes.a == "x" && (attributes.b == 'y' && attributes.a == "x")`,
	} {
		must(t, s.Add(ID(i), 1, compiled(t, text, CEL), nil))
	}
	if got := s.Stats(); got.Distinct != 1 || got.Queries != 3 {
		t.Errorf("%+v", got)
	}
	for _, text := range []string{
		`attributes.a == "x" || attributes.b == "y"`, `attributes.a == "x" && !(attributes.b == "y")`, `attributes.a == "y" && attributes.b == "x"`, `attributes.a == 'x" && attributes.b == "y'`,
	} {
		if compiled(t, text, CEL).key == compiled(t, `attributes.a == "x" && attributes.b == "y"`, CEL).key {
			t.Errorf("%s is taken as the first query", text)
		}
	}
}

// TestALostRightIsADel: and a right that was given a New.
func TestALostRightIsADel(t *testing.T) {
	s := NewSet(DefaultLimits())
	allowed := map[string]bool{"s.1": true, "s.2": false}
	may := func(subject string) bool { return allowed[subject] }
	q := compiled(t, `attributes.a == "x"`, CEL)
	s.Apply("s.1", attributes(t, `{"a":"x"}`), 1, nil)
	must(t, s.Add(1, 1, q, may))
	must(t, s.Add(2, 2, q, nil))
	expectDeltas(t, s.Apply("s.2", attributes(t, `{"a":"x"}`), 2, nil), Delta{2, "s.2", New})
	if got := slices.Collect(s.Members(1)); !slices.Equal(got, []string{"s.1"}) {
		t.Errorf("the members are %v", got)
	}
	if got := slices.Collect(s.Queries("s.2")); !slices.Equal(got, []ID{2}) {
		t.Errorf("the queries of s.2 are %v", got)
	}
	expectDeltas(t, s.Refresh(1, nil))
	allowed["s.1"], allowed["s.2"] = false, true
	expectDeltas(t, s.Refresh(1, nil), Delta{1, "s.1", Del}, Delta{1, "s.2", New})
	expectDeltas(t, s.Refresh(1, nil))
	expectDeltas(t, s.Refresh(2, nil))
	expectDeltas(t, s.Apply("s.1", nil, 3, nil), Delta{2, "s.1", Del}) // nothing of what it may not see
	expectDeltas(t, s.Apply("s.2", nil, 4, nil), Delta{1, "s.2", Del}, Delta{2, "s.2", Del})
}

// TestQueriesAreBounded: each error says which bound, and what to do; nothing of a refused query
// stays.
func TestQueriesAreBounded(t *testing.T) {
	limits := DefaultLimits()
	limits.Queries, limits.Owned, limits.Costs, limits.OwnedCosts = 4, 2, 200, 100
	text := func(n int) *Query { return compiled(t, fmt.Sprintf(`attributes.a == "%d"`, n), CEL) }
	s := NewSet(limits)
	refused := func(want string, id ID, owner Owner, q *Query) {
		t.Helper()
		before := s.Stats()
		if err := s.Add(id, owner, q, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %s", err, want)
		}
		if after := s.Stats(); after != before {
			t.Errorf("a refused query leaves %+v of %+v", after, before)
		}
	}
	must(t, s.Add(1, 1, text(1), nil))
	refused("query 1 is open already", 1, 1, text(2))
	must(t, s.Add(2, 1, text(2), nil))
	refused("close some, or join several", 3, 1, text(3))
	refused("use fewer patterns and passes over lists", 3, 2, compiled(t, `"x" in attributes.a`, CEL))
	must(t, s.Add(3, 2, text(1), nil))
	refused("take 3 of 4 open queries, so those of one user may take 1 now, and would take 2", 4, 2, text(1))
	must(t, s.Add(4, 3, text(1), nil))
	refused("connect to another broker", 5, 4, text(1))

	limits = DefaultLimits()
	limits.Costs = 2500
	s = NewSet(limits)
	must(t, s.Add(1, 1, compiled(t, `"x" in attributes.a`, CEL), nil))
	refused("units at a change", 2, 2, compiled(t, `"x" in attributes.b`, CEL))
	must(t, s.Add(3, 2, compiled(t, `"x" in attributes.a`, CEL), nil)) // the same costs nothing more

	limits = DefaultLimits()
	limits.OwnedMemory = 5000
	s = NewSet(limits)
	for n := range 2000 {
		s.Apply(fmt.Sprint("s.", n), attributes(t, `{"a":1}`), uint64(n+1), nil)
	}
	must(t, s.Add(1, 1, text(1), nil))
	must(t, s.Add(2, 1, compiled(t, `has(attributes.a)`, CEL), nil))
	refusedMemory := func(q *Query) {
		t.Helper()
		if err := s.Add(3, 1, q, nil); err == nil || !strings.Contains(err.Error(), "KiB of memory") {
			t.Errorf("the error is %v", err)
		}
	}
	refusedMemory(compiled(t, `attributes.a < 500 || has(attributes.x) || has(attributes.y)`, CEL))
	must(t, s.Add(3, 2, text(2), nil))
}

// TestOwnersShareABroker: one alone has its whole bound. Whoever comes late finds room, whatever
// the others have taken; and what they give back goes to those with little first.
func TestOwnersShareABroker(t *testing.T) {
	costly := func(n int) *Query { return compiled(t, fmt.Sprintf(`"x%d" in attributes.a`, n), CEL) }
	same := func(int) *Query { return compiled(t, `has(attributes.a)`, CEL) }
	each := costly(1).cost
	memory := func(l *Limits) { l.Memory, l.OwnedMemory = 512<<10, 64<<10 }
	for what, c := range map[string]struct {
		bound func(*Limits)
		query func(n int) *Query
		alone int // 0: more than some
	}{
		"open queries":              {func(l *Limits) { l.Queries, l.Owned = 320, 40 }, same, 40},
		"units of cost at a change": {func(l *Limits) { l.Costs, l.OwnedCosts = 320*each, 40*each }, costly, 40},
		"KiB of memory":             {memory, costly, 0},
	} {
		limits := DefaultLimits()
		c.bound(&limits)
		s := NewSet(limits)
		id, owned := ID(0), map[Owner][]ID{}
		fill := func(owner Owner) (added int, refusal error) {
			for {
				if id++; id > 10_000 {
					t.Fatalf("%s: there is no bound", what)
				}
				if refusal = s.Add(id, owner, c.query(int(id)), nil); refusal != nil {
					return added, refusal
				}
				owned[owner] = append(owned[owner], id)
				added++
			}
		}
		alone, _ := fill(1)
		if c.alone > 0 && alone != c.alone || alone < 8 {
			t.Errorf("%s: an owner alone has %d queries", what, alone)
		}
		before := alone
		for owner := Owner(2); owner <= 24; owner++ {
			added, refusal := fill(owner)
			if added < 1 || added > before {
				t.Errorf("%s: owner %d has %d queries, and the one before %d: %v", what, owner, added, before, refusal)
			}
			before = added
			shared, ok := errors.AsType[*ShareError](refusal)
			if owner == 24 && (!ok || shared.Name != what) {
				t.Errorf("%s: it is refused with %v", what, refusal)
			}
		}
		if before > alone/2 {
			t.Errorf("%s: the last owner has %d queries, of %d that one may have alone", what, before, alone)
		}
		for _, gone := range owned[2] {
			s.Remove(gone)
		}
		if added, _ := fill(1); added > 0 {
			t.Errorf("%s: the owner with most has %d more", what, added)
		}
		if added, _ := fill(24); added == 0 {
			t.Errorf("%s: the owner with least has no more", what)
		}
	}
}

// TestMembersBeyondTheMemoryEndQueries: those of the owner that takes most, and no others.
func TestMembersBeyondTheMemoryEndQueries(t *testing.T) {
	limits := DefaultLimits()
	limits.Memory = 300 << 10
	s := NewSet(limits)
	must(t, s.Add(1, 1, compiled(t, `has(attributes.a)`, CEL), nil))
	for n := range 100 {
		must(t, s.Add(ID(10+n), 2, compiled(t, fmt.Sprintf(`attributes.a < %d`, 100_000+n), CEL), nil))
	}
	ended := map[ID]bool{}
	for n := range 900 {
		for _, d := range s.Apply(fmt.Sprint("s.", n), attributes(t, `{"a":1}`), uint64(n+1), nil) {
			if d.Kind == Ended {
				ended[d.Query] = true
			} else if ended[d.Query] && d.Subject != fmt.Sprint("s.", n) {
				t.Fatalf("%v after its end", d)
			}
		}
		if got := s.Stats().Memory - s.history.bytes; got > limits.Memory {
			t.Fatalf("%d bytes", got)
		}
	}
	if len(ended) < 5 || ended[1] || len(s.opens) != 101-len(ended) {
		t.Errorf("%d queries ended, %d are open; the other owner's ended: %v", len(ended), len(s.opens), ended[1])
	}
	if got := len(slices.Collect(s.Members(1))); got != 900 {
		t.Errorf("the other owner's query has %d members", got)
	}
}

// TestAnUnrelatedChangeJudgesNothing: the index knows what each query depends on.
func TestAnUnrelatedChangeJudgesNothing(t *testing.T) {
	s := NewSet(DefaultLimits())
	for i, text := range []string{
		`attributes.room == "410"`, `attributes.room == "411" && attributes.floor > 3`, `attributes.floor > 3`, `has(attributes.floor) || attributes.floor != 4`, `subject == "s.1"`,
		`attributes.tags.exists(t, t.startsWith("x"))`, `!("tags" in attributes)`, `"a" in attributes.tags`, `attributes["room"] in ["1", "2"]`, `attributes.on && !attributes.off`,
	} {
		must(t, s.Add(ID(i), 1, compiled(t, text, CEL), nil))
	}
	judged := func(want int, text string) {
		t.Helper()
		before := s.Stats().Judged
		s.Apply("s.1", attributes(t, text), 1, nil)
		if got := int(s.Stats().Judged - before); got != want {
			t.Errorf("%s: %d queries were judged, want %d", text, got, want)
		}
	}
	judged(2, `{"other":1}`) // subject, and "not tags"
	judged(0, `{"other":2}`)
	judged(1, `{"room":"410","other":2}`)
	judged(0, `{"room":"410","other":3}`)
	judged(2, `{"room":"410","floor":4}`)
	judged(4, `{"room":"411","floor":5}`) // both rooms, and two on the floor
	judged(3, `{"room":"411","floor":6}`)
	judged(1, `{"room":"412","floor":6}`)
	judged(3, `{"room":"412","floor":6,"tags":["a"]}`)
	judged(3, `{"room":"412","floor":6}`)
}

// TestNamesAndPairsOfAQueryAreBounded: a query with more is judged more often, and right.
func TestNamesAndPairsOfAQueryAreBounded(t *testing.T) {
	var in, or []string
	for n := range maxCover + 1 {
		in = append(in, fmt.Sprintf("%q", fmt.Sprint(n)))
	}
	for n := range maxNames + 1 {
		or = append(or, fmt.Sprintf(`attributes.n%d == "x"`, n))
	}
	for _, text := range []string{`attributes.a in [` + strings.Join(in, ",") + `]`, strings.Join(or, " || ")} {
		q := compiled(t, text, CEL)
		if got := len(q.needs.pairs) * len(q.needs.names); got > maxCover {
			t.Errorf("%.50s has %d entries", text, got)
		}
		s := NewSet(DefaultLimits())
		must(t, s.Add(1, 1, q, nil))
		expectDeltas(t, s.Apply("s.1", attributes(t, `{"a":"7","n3":"x"}`), 1, nil), Delta{1, "s.1", New})
		expectDeltas(t, s.Apply("s.1", attributes(t, `{"a":"x","n3":"7"}`), 1, nil), Delta{1, "s.1", Del})
	}
}
