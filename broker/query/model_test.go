package query

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/attribute"
)

// randomText returns a random condition of a few names and values, of each form that the index
// knows, and of others.
func randomText(r *rand.Rand, depth int) string {
	name := []string{`attributes.a`, `attributes.b`, `attributes["c.d"]`}[r.IntN(3)]
	value := []string{`"x"`, `"y"`, `1`, `2.0`, `0u`, `true`, `false`, `null`}[r.IntN(8)]
	if depth > 0 && r.IntN(3) > 0 {
		a, b := randomText(r, depth-1), randomText(r, depth-1)
		switch r.IntN(7) {
		case 0, 1, 2:
			return "(" + a + " && " + b + ")"
		case 3, 4:
			return "(" + a + " || " + b + ")"
		case 5:
			return "!(" + a + ")"
		}
		return "(" + a + " ? " + b + " : " + randomText(r, depth-1) + ")"
	}
	switch r.IntN(16) {
	case 0, 1, 2:
		return name + " == " + value
	case 3:
		return value + " == " + name
	case 4:
		return name + " in [" + value + `, "y", 1]`
	case 5:
		return value + " in " + name
	case 6:
		return name + " != " + value
	case 7:
		return name + " < 2"
	case 8:
		return []string{`has(attributes.a)`, `"b" in attributes`, `"c.d" in attributes`}[r.IntN(3)]
	case 9:
		return "dyn(" + name + ") == true || " + name
	case 10:
		return fmt.Sprintf(`subject == "s.%d"`, r.IntN(8))
	case 11:
		return `subject.endsWith("1")`
	case 12:
		return name + `.exists(e, e == ` + value + `)`
	case 13:
		return []string{`size(attributes) > 1`, `attributes.exists(n, attributes[n] == ` + value + `)`, `attributes == {"a": "x"}`, `attributes[subject] == 1`}[r.IntN(4)]
	case 14:
		return name + ` == attributes.b`
	}
	return name
}

func randomAttributes(r *rand.Rand) attribute.Set {
	values := []attribute.Value{
		attribute.String("x"), attribute.String("y"), attribute.Number(1), attribute.Number(2), attribute.Number(0), attribute.Bool(true), attribute.Bool(false),
		attribute.List(attribute.String("x"), attribute.Number(1)), attribute.List(), attribute.List(attribute.Bool(true), attribute.String("y")),
	}
	s := attribute.Set{}
	for _, name := range []string{"a", "b", "c.d", "e"} {
		if r.IntN(3) > 0 {
			s[name] = values[r.IntN(len(values))]
		}
	}
	return s
}

// model re-evaluates everything.
type model struct {
	queries  map[ID]*Query
	subjects map[string]attribute.Set
	denied   map[ID]map[string]bool // subjects that the user of a query may not see
	shadow   map[ID]map[string]bool // members as the changes say
}

func (m *model) members(id ID) (names []string) {
	for name, s := range m.subjects {
		if m.queries[id].Matches(name, s) && !m.denied[id][name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// follow applies changes to the shadow; each has to change it.
func (m *model) follow(t *testing.T, deltas []Delta) {
	t.Helper()
	for _, d := range deltas {
		switch members := m.shadow[d.Query]; {
		case members == nil:
			t.Fatalf("%v of a query that is closed", d)
		case d.Kind == New && !members[d.Subject]:
			members[d.Subject] = true
		case d.Kind == Del && members[d.Subject]:
			delete(members, d.Subject)
		default:
			t.Fatalf("%v of the members %v", d, members)
		}
	}
}

func (m *model) check(t *testing.T, s *Set) {
	t.Helper()
	of := map[string][]ID{}
	for id, q := range m.queries {
		want := m.members(id)
		for _, name := range want {
			of[name] = append(of[name], id)
		}
		if got := slices.Sorted(s.Members(id)); !slices.Equal(got, want) {
			t.Fatalf("%v has the members %v, want %v of %v", q, got, want, m.subjects)
		}
		if got := slices.Sorted(maps.Keys(m.shadow[id])); !slices.Equal(got, want) {
			t.Fatalf("%v has the members %v by its changes, want %v", q, got, want)
		}
	}
	for name := range m.subjects {
		if got := slices.Sorted(s.Queries(name)); !slices.Equal(got, slices.Sorted(slices.Values(of[name]))) {
			t.Fatalf("%s is in the queries %v, want %v", name, got, of[name])
		}
	}
}

// story drives a Set and the model by random calls.
func story(t *testing.T, seed uint64, steps int) {
	r := rand.New(rand.NewPCG(seed, 1))
	s := NewSet(DefaultLimits())
	m := &model{queries: map[ID]*Query{}, subjects: map[string]attribute.Set{}, denied: map[ID]map[string]bool{}, shadow: map[ID]map[string]bool{}}
	next := ID(1)
	for step := range steps {
		switch n := r.IntN(10); {
		case n < 2 && len(m.queries) < 60:
			q, err := Compile(randomText(r, 3), CEL)
			if err != nil {
				if !strings.Contains(err.Error(), "overload") {
					t.Fatal(err)
				}
				continue
			}
			id, denied := next, map[string]bool{}
			if next++; r.IntN(5) == 0 {
				id = ID(r.Uint64()) // the order of changes is that of the ids
			}
			var may func(string) bool
			if r.IntN(2) == 0 {
				for n := range 8 {
					denied[fmt.Sprint("s.", n)] = r.IntN(3) == 0
				}
				may = func(name string) bool { return !denied[name] }
			}
			must(t, s.Add(id, Owner(r.IntN(3)), q, may))
			m.queries[id], m.denied[id], m.shadow[id] = q, denied, map[string]bool{}
			for name := range s.Members(id) {
				m.shadow[id][name] = true
			}
		case n == 2 && len(m.queries) > 0:
			ids := slices.Sorted(maps.Keys(m.queries))
			id := ids[r.IntN(len(ids))]
			s.Remove(id)
			delete(m.queries, id)
			delete(m.shadow, id)
		case n == 3 && len(m.queries) > 0:
			ids := slices.Sorted(maps.Keys(m.queries))
			id := ids[r.IntN(len(ids))]
			if len(m.denied[id]) > 0 {
				m.denied[id][fmt.Sprint("s.", r.IntN(8))] = r.IntN(2) == 0
				m.follow(t, s.Refresh(id, nil))
			}
		default:
			name, set := fmt.Sprint("s.", r.IntN(8)), randomAttributes(r)
			if r.IntN(4) == 0 {
				set = nil
			} else if before := m.subjects[name]; before != nil && r.IntN(2) == 0 { // a small change
				for name, v := range set {
					set = maps.Clone(before)
					set[name] = v
					break
				}
			}
			if delete(m.subjects, name); set != nil {
				m.subjects[name] = set
			}
			deltas := s.Apply(name, set, uint64(step+1), nil)
			if !slices.IsSortedFunc(deltas, func(a, b Delta) int { return int(min(1, max(a.Query, b.Query)-b.Query)) }) {
				t.Fatalf("the changes have no order: %v", deltas)
			}
			m.follow(t, deltas)
		}
		m.check(t, s)
	}
}

// TestTheSetAgreesWithANaiveOne: whatever comes, goes and changes.
func TestTheSetAgreesWithANaiveOne(t *testing.T) {
	for seed := range uint64(25) {
		story(t, seed, 150)
	}
}

// FuzzSet is the same with seeds of the fuzzer.
func FuzzSet(f *testing.F) {
	f.Add(uint64(1), uint8(100))
	f.Fuzz(func(t *testing.T, seed uint64, steps uint8) { story(t, seed, int(steps)) })
}

// TestClientsResumeAtOtherBrokers: the changes since a revision, with what followed, lead to the
// members, although each broker knew some changes early, and neither knew all.
func TestClientsResumeAtOtherBrokers(t *testing.T) {
	resumed, old, members := 0, 0, 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		type change struct {
			name string
			set  attribute.Set
		}
		var changes []change // that of revision n+1 at n
		for range 120 {
			c := change{fmt.Sprint("s.", r.IntN(8)), randomAttributes(r)}
			if r.IntN(4) == 0 {
				c.set = nil
			}
			changes = append(changes, c)
		}
		limits := DefaultLimits()
		limits.HistoryEntries = []int{0, 10, 40, 1000}[r.IntN(4)]
		type broker struct {
			*Set
			known map[string]uint64 // the newest revision of each subject
			at    int
		}
		newBroker := func() *broker {
			b := &broker{Set: NewSet(limits), known: map[string]uint64{}}
			b.Loaded(0)
			return b
		}
		apply := func(b *broker, i int) []Delta {
			c := changes[i]
			if b.known[c.name] > uint64(i) {
				return nil
			}
			b.known[c.name] = uint64(i + 1)
			return b.Apply(c.name, c.set, uint64(i+1), nil)
		}
		// advance applies the watch up to a revision, and before it what links brought.
		advance := func(b *broker, to int) (deltas []Delta) {
			for ; b.at < to; b.at++ {
				if r.IntN(4) == 0 {
					early, last := b.at+r.IntN(len(changes)-b.at), fmt.Sprint("s.", r.IntN(8))
					for i := b.at; i <= early; i++ {
						if changes[i].name == last {
							deltas = append(deltas, apply(b, i)...)
						}
					}
				}
				deltas = append(deltas, apply(b, b.at)...)
				b.Passed(uint64(b.at + 1))
			}
			return deltas
		}
		client := map[string]bool{}
		follow := func(deltas []Delta) {
			for _, d := range deltas {
				if client[d.Subject] = d.Kind == New; d.Kind == Del {
					delete(client, d.Subject)
				}
			}
		}
		q, err := Compile(randomText(r, 2), CEL)
		if err != nil {
			continue
		}
		first, second := newBroker(), newBroker()
		must(t, first.Add(1, 1, q, nil))
		follow(advance(first, r.IntN(100)))
		advance(second, r.IntN(len(changes)))
		deltas, err := second.Resume(1, 1, q, nil, first.Revision(), nil)
		if err == ErrTooOld {
			old++
			continue
		}
		must(t, err)
		if follow(deltas); len(deltas) > 0 {
			resumed++
		}
		follow(advance(second, len(changes)))
		if got, want := slices.Sorted(maps.Keys(client)), slices.Sorted(second.Members(1)); !slices.Equal(got, want) {
			t.Fatalf("seed %d: %v has the members %v by its changes, want %v", seed, q, got, want)
		}
		members += len(client)
	}
	if resumed < 50 || old < 50 || members < 100 {
		t.Errorf("%d clients resumed with changes, %d were too old, with %d members", resumed, old, members)
	}
}

// TestResumingBeyondTheHistoryIsRefused: and so is what was before a gap in the watch.
func TestResumingBeyondTheHistoryIsRefused(t *testing.T) {
	limits := DefaultLimits()
	limits.HistoryEntries = 10
	s := NewSet(limits)
	q := compiled(t, `attributes.a == 1`, CEL)
	resume := func(since uint64) error {
		defer s.Remove(1)
		_, err := s.Resume(1, 1, q, nil, since, nil)
		return err
	}
	if err := resume(0); err != ErrTooOld {
		t.Errorf("before the subjects are loaded: %v", err)
	}
	s.Loaded(100)
	for n := range 15 {
		s.Apply("s.1", attributes(t, fmt.Sprintf(`{"a":%d}`, n)), uint64(101+n), nil)
	}
	s.Passed(115)
	for since, want := range map[uint64]error{99: ErrTooOld, 100: ErrTooOld, 104: ErrTooOld, 105: nil, 115: nil} {
		if err := resume(since); err != want {
			t.Errorf("since %d: %v", since, err)
		}
	}
	s.Loaded(130)
	if err := resume(129); err != ErrTooOld {
		t.Errorf("before a gap: %v", err)
	}
	must(t, resume(130))
	limits.HistoryBytes = 10_000
	limits.HistoryEntries = 1000
	s = NewSet(limits)
	s.Loaded(0)
	for n := range 50 {
		s.Apply("s.1", attribute.Set{"a": attribute.String(strings.Repeat("x", 1000) + fmt.Sprint(n))}, uint64(n+1), nil)
		if s.history.bytes > limits.HistoryBytes {
			t.Fatalf("the history has %d bytes", s.history.bytes)
		}
	}
	if err := resume(20); err != ErrTooOld || resume(48) != nil {
		t.Errorf("with few bytes: %v, %v", err, resume(48))
	}
}

// TestResumingOverLargeAttributesIsBounded: it takes the longer the more there is to read, while
// changes wait.
func TestResumingOverLargeAttributesIsBounded(t *testing.T) {
	limits := DefaultLimits()
	limits.ResumeCosts = 1_000_000
	q := compiled(t, `attributes.a == 1`, CEL)
	list := attribute.List(slices.Repeat([]attribute.Value{attribute.Number(1)}, 2000)...)
	for _, c := range []struct {
		set     attribute.Set
		changes int
		want    error
	}{
		{attribute.Set{"list": list}, 10, nil},
		{attribute.Set{"list": list}, 100, ErrTooOld},
		{attribute.Set{}, 100, nil},
	} {
		s := NewSet(limits)
		s.Loaded(0)
		for n := range c.changes {
			set := maps.Clone(c.set)
			set["n"] = attribute.Number(float64(n))
			s.Apply("s.1", set, uint64(n+1), nil)
		}
		if _, err := s.Resume(1, 1, q, nil, 0, nil); err != c.want {
			t.Errorf("over %d changes of %d bytes: %v", c.changes, c.set.Size(), err)
		}
	}
}

// TestHistoriesKeepWhatWas: chunks are neither written twice nor too small.
func TestHistoriesKeepWhatWas(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 4))
	h := newHistory(&Limits{HistoryEntries: 100, HistoryBytes: 1 << 20})
	var want []attribute.Set
	for n := range 1000 {
		var set attribute.Set
		if r.IntN(5) > 0 {
			set = randomAttributes(r)
			numbers := make([]attribute.Value, r.IntN(1000)*r.IntN(2))
			for i := range numbers {
				numbers[i] = attribute.Number(r.Float64())
			}
			set["numbers"], set["text"] = attribute.List(numbers...), attribute.String(strings.Repeat("x", r.IntN(2*chunkBytes)*(r.IntN(20)/19)))
		}
		want = append(want, set)
		h.add(changed{revision: uint64(n + 1), subject: "s", before: h.keep(set)})
		for i := range h.len {
			if was := want[len(want)-h.len+i]; n%50 == 0 && (!h.at(i).was().Equal(was) || (h.at(i).was() == nil) != (was == nil)) {
				t.Fatalf("change %d of %d is not as it was", i, n)
			}
		}
	}
}

// TestAResumeGivesNothingThatWasLost: a subject that the user may not see is none of its members.
func TestAResumeGivesNothingThatWasLost(t *testing.T) {
	s := NewSet(DefaultLimits())
	s.Loaded(0)
	s.Apply("s.1", attributes(t, `{"a":1}`), 1, nil)
	s.Apply("s.2", attributes(t, `{"a":1}`), 2, nil)
	s.Apply("s.1", attributes(t, `{"a":1,"b":1}`), 3, nil)
	s.Apply("s.2", attributes(t, `{"a":1,"b":1}`), 4, nil)
	s.Apply("s.3", attributes(t, `{"a":1}`), 5, nil)
	s.Apply("s.4", attributes(t, `{"a":1}`), 6, nil)
	got, err := s.Resume(1, 1, compiled(t, `attributes.a == 1`, CEL), func(name string) bool { return name == "s.1" || name == "s.3" }, 2, nil)
	must(t, err)
	expectDeltas(t, got, Delta{1, "s.3", New}) // and no Del of s.2, of whose being the user knows nothing
}

// TestIDSetsAreSets: as lists and as bits.
func TestIDSetsAreSets(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 3))
	for _, most := range []int{50, 1000, 100_000} {
		var s idSet
		want, asBits := map[uint32]bool{}, false
		for step := range 30_000 {
			id, growing := uint32(r.IntN(most)), step/10_000%2 == 0
			if r.IntN(5) > 0 == growing {
				if s.add(id) == want[id] {
					t.Fatalf("adding %d", id)
				}
				want[id] = true
			} else {
				if s.remove(id) != want[id] {
					t.Fatalf("removing %d", id)
				}
				delete(want, id)
			}
			asBits = asBits || s.bits != nil
			if s.len() != len(want) || s.has(id) != want[id] {
				t.Fatalf("%d numbers, want %d", s.len(), len(want))
			}
		}
		if got := slices.Collect(s.all()); !slices.Equal(got, slices.Sorted(maps.Keys(want))) || asBits != (most > 50) {
			t.Errorf("up to %d: %d numbers, want %d; as bits: %v", most, len(got), len(want), asBits)
		}
		if most := 8*(most/64+1) + 64; s.bits != nil && s.bytes() > 2*most || s.bytes() > 4*most {
			t.Errorf("%d numbers take %d bytes", s.len(), s.bytes())
		}
		for range s.all() {
			break
		}
	}
}
