package subject

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestValid(t *testing.T) {
	for s, want := range map[string][2]bool{ // publish, subscribe
		"a": {true, true}, "a.b": {true, true}, "": {false, false}, ".": {false, false}, ".a": {false, false}, "a.": {false, false},
		"a..b": {false, false}, "*": {false, true}, ">": {false, true}, "a.*": {false, true}, "a.>": {false, true}, "a.>.b": {false, false},
		"a*": {true, true}, "a.b>": {true, true}, "a b": {false, false}, "a\t": {false, false}, "$SYS.x": {true, true}, "größe": {true, true},
	} {
		if got := [2]bool{Valid([]byte(s)), ValidPattern([]byte(s))}; got != want {
			t.Errorf("%q: publish, subscribe = %v, want %v", s, got, want)
		}
	}
}

// matches is the definition of a match, token by token.
func matches(pattern, subject []string) bool {
	if len(pattern) == 0 || len(subject) == 0 {
		return len(pattern) == len(subject)
	}
	if pattern[0] == ">" {
		return true
	}
	return (pattern[0] == "*" || pattern[0] == subject[0]) && matches(pattern[1:], subject[1:])
}

type sub struct {
	pattern, queue string
	counted, gone  bool
	sink, slot     int
}

func (s *sub) Listed() bool { return !s.gone && !s.counted }
func (s *sub) Slot() *int   { return &s.slot }

var (
	tokens   = rapid.SampledFrom([]string{"a", "b", "c"})
	literals = rapid.SliceOfN(tokens, 1, 4)
	patterns = rapid.Custom(func(t *rapid.T) string {
		p := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "*"}), 0, 3).Draw(t, "tokens")
		return strings.Join(append(p, rapid.SampledFrom([]string{"a", "c", "*", ">"}).Draw(t, "last")), ".")
	})
)

// TestIndexAgreesWithAList: after any additions and removals the index equals a list of all
// subscriptions, also through the cache, and an emptied index has no nodes left.
func TestIndexAgreesWithAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const sinks = 3
		x := NewIndex[*sub, string](sinks)
		var cache Cache[*sub, string]
		var all []*sub
		peers := map[[3]string]int{} // peer, pattern, queue
		t.Repeat(map[string]func(*rapid.T){
			"insert": func(t *rapid.T) {
				s := &sub{pattern: patterns.Draw(t, "pattern"), queue: rapid.SampledFrom([]string{"", "", "q", "r"}).Draw(t, "queue"), sink: rapid.IntRange(0, sinks-1).Draw(t, "sink")}
				s.counted = s.queue == "" && rapid.Bool().Draw(t, "counted")
				before := x.Nodes()
				nodes, _ := x.Missing(s.pattern, s.queue)
				x.Insert(s.pattern, s.queue, s.sink, s.counted, s)
				if x.Nodes() != before+nodes {
					t.Fatalf("%s adds %d nodes, and %d were missing", s.pattern, x.Nodes()-before, nodes)
				}
				all = append(all, s)
			},
			"count": func(t *rapid.T) {
				for _, s := range all {
					if s.queue == "" && !s.counted {
						s.counted = true
						x.Count(x.find(s.pattern), s.sink, s)
						return
					}
				}
			},
			"remove": func(t *rapid.T) {
				if len(all) == 0 {
					return
				}
				i := rapid.IntRange(0, len(all)-1).Draw(t, "which")
				s := all[i]
				s.gone = true
				x.Remove(s.pattern, s.queue, s.sink, s)
				all = slices.Delete(all, i, i+1)
			},
			"peer": func(t *rapid.T) {
				key := [3]string{rapid.SampledFrom([]string{"x", "y"}).Draw(t, "peer"), patterns.Draw(t, "pattern"), rapid.SampledFrom([]string{"", "q"}).Draw(t, "queue")}
				peers[key] = rapid.IntRange(0, 2).Draw(t, "count")
				x.SetPeer(key[1], key[2], key[0], peers[key])
			},
			"": func(t *rapid.T) {
				subject := literals.Draw(t, "subject")
				m := cache.Match(x, []byte(strings.Join(subject, ".")))
				want, got := map[string]int{}, map[string]int{}
				for _, s := range all {
					if matches(strings.Split(s.pattern, "."), subject) {
						want[fmt.Sprintf("%s:%p", s.queue, s)]++
					}
				}
				for key, n := range peers {
					if n > 0 && matches(strings.Split(key[1], "."), subject) {
						if key[2] == "" {
							want["peer "+key[0]] = 1
						} else {
							want["weight "+key[2]+" "+key[0]] += n
						}
					}
				}
				for _, leaf := range m.Leaves {
					for sink := range sinks {
						for _, s := range leaf.Plain(sink) {
							if s.Listed() {
								got[fmt.Sprintf(":%p", s)]++
							}
						}
					}
					for _, s := range leaf.Counted() {
						got[fmt.Sprintf(":%p", s)]++
					}
				}
				for _, p := range m.Peers {
					got["peer "+p]++
				}
				for _, g := range m.Groups {
					for _, part := range append([]*Group[*sub, string]{g.first}, g.more...) {
						for _, s := range part.local {
							got[fmt.Sprintf("%s:%p", g.Queue(), s)]++
						}
						for _, r := range part.remote {
							got["weight "+g.Queue()+" "+r.peer] += r.weight
						}
					}
				}
				if fmt.Sprint(want) != fmt.Sprint(got) {
					t.Fatalf("%v reaches %v, want %v", subject, got, want)
				}
				if x.Len() != len(all) {
					t.Fatalf("%d subscriptions, want %d", x.Len(), len(all))
				}
				nodes := map[string]bool{} // by the tokens that lead there
				for _, s := range all {
					for i := range len(s.pattern) + 1 {
						if prefix := s.pattern[:i]; (i == len(s.pattern) || s.pattern[i] == '.') && !strings.HasSuffix(prefix, ">") {
							nodes[prefix] = true
						}
					}
				}
				if x.Nodes() != len(nodes) {
					t.Fatalf("%d nodes, want %d", x.Nodes(), len(nodes))
				}
			},
		})
		for _, s := range all {
			s.gone = true
			x.Remove(s.pattern, s.queue, s.sink, s)
		}
		for key := range peers {
			x.SetPeer(key[1], key[2], key[0], 0)
		}
		if r := x.root; len(r.next) > 0 || r.any != nil || r.rest != nil || r.leaf != nil {
			t.Fatal("the empty index is not empty")
		}
	})
}

func TestMatchesIsTheDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern, subject := patterns.Draw(t, "pattern"), literals.Draw(t, "subject")
		if got, want := Matches([]byte(pattern), []byte(strings.Join(subject, "."))), matches(strings.Split(pattern, "."), subject); got != want {
			t.Fatalf("%s ~ %v = %v", pattern, subject, got)
		}
	})
}

func TestListThatWasMatchedDoesNotChange(t *testing.T) {
	x := NewIndex[*sub, string](1)
	var subs []*sub
	for range 100 {
		s := &sub{pattern: "a"}
		x.Insert("a", "", 0, false, s)
		subs = append(subs, s)
	}
	var m Match[*sub, string]
	x.Match([]byte("a"), &m)
	seen := m.Leaves[0].Plain(0)
	before := slices.Clone(seen)
	for _, s := range subs[:90] {
		s.gone = true
		x.Remove("a", "", 0, s)
	}
	x.Insert("a", "", 0, false, &sub{pattern: "a"})
	if !slices.Equal(seen, before) {
		t.Fatal("a removal or an addition changed a list that a publisher still walks")
	}
	if n := len(m.Leaves[0].Plain(0)); n > 30 {
		t.Fatalf("%d places are kept for 11 subscribers", n)
	}
}

func TestGroupIsServedEvenlyAndPrefersThisNode(t *testing.T) {
	x := NewIndex[*sub, string](1)
	x.SetPeer("a", "q", "far", 3)
	x.SetPeer("a", "q", "near", 1)
	subject, taken := []byte("a"), map[string]int{}
	var cache Cache[*sub, string]
	always := func(*sub) bool { return true }
	for range 4000 {
		_, p, found := cache.Match(x, subject).Groups[0].Pick(always)
		if found != Remote {
			t.Fatalf("found %v", found)
		}
		taken[p]++
	}
	if n := taken["far"]; n < 2700 || n > 3300 {
		t.Fatalf("3 of 4 members got %d of 4000", n)
	}
	local := []*sub{{pattern: "a", queue: "q"}, {pattern: "*", queue: "q"}}
	for _, s := range local {
		x.Insert(s.pattern, s.queue, 0, false, s)
	}
	count := map[*sub]int{}
	for range 2000 {
		s, _, found := cache.Match(x, subject).Groups[0].Pick(always)
		if found != Local {
			t.Fatalf("found %v", found)
		}
		count[s]++
	}
	if n := count[local[0]]; n < 800 || n > 1200 {
		t.Fatalf("one of two members got %d of 2000", n)
	}
	_, p, found := cache.Match(x, subject).Groups[0].Pick(func(*sub) bool { return false })
	if found != Remote || p == "" {
		t.Fatal("members that refuse leave the message to a peer")
	}
}

func TestCachedMatchAllocatesNothing(t *testing.T) {
	x := NewIndex[*sub, string](1)
	x.Insert("a.*.c", "", 0, false, &sub{})
	var cache Cache[*sub, string]
	fresh := make([][]byte, 4096)
	for i := range fresh {
		fresh[i] = fmt.Appendf(nil, "a.%08d.c", i)
		cache.Match(x, fresh[i])
	}
	i := 0
	if n := testing.AllocsPerRun(2000, func() { cache.Match(x, fresh[i%len(fresh)]); i++ }); n > 0.1 {
		t.Errorf("%v allocations for subjects seen before or not", n)
	}
}

// TestPatternsLeaveMatchesOfOtherFirstTokensCached: a match stays cached until a pattern comes or
// goes that begins with the same token, or with a wildcard.
func TestPatternsLeaveMatchesOfOtherFirstTokensCached(t *testing.T) {
	other := "z"
	for slotOf(other) == slotOf("a") {
		other += "z"
	}
	change := map[string]func(x *Index[*sub, string], pattern string){
		"insert": func(x *Index[*sub, string], pattern string) { x.Insert(pattern, "", 0, false, &sub{}) },
		"group":  func(x *Index[*sub, string], pattern string) { x.Insert(pattern, "q", 0, false, &sub{}) },
		"peer":   func(x *Index[*sub, string], pattern string) { x.SetPeer(pattern, "", "p", 1) },
		"remove": func(x *Index[*sub, string], pattern string) {
			x.SetPeer(pattern, "", "p", 1)
			x.SetPeer(pattern, "", "p", 0)
		},
	}
	for name, change := range change {
		for _, subjects := range [][2]string{{"a.b", "a.b"}, {"a.in.1", "a.in.2"}, {"a", "a"}} { // the second is cached with the first
			for pattern, stays := range map[string]bool{other: true, other + ".x": true, other + ".>": true, "a.x": false, "a": false, "*.q": false, ">": false} {
				x := NewIndex[*sub, string](1)
				x.Insert("a.b", "", 0, false, &sub{})
				x.Insert("a.in.*", "", 0, false, &sub{})
				var cache Cache[*sub, string]
				cache.Match(x, []byte(subjects[0]))
				mark := &Leaf[*sub, string]{} // which the index does not have
				m := cache.Match(x, []byte(subjects[1]))
				m.Leaves = append(m.Leaves[:0], mark)
				change(x, pattern)
				if got := slices.Contains(cache.Match(x, []byte(subjects[1])).Leaves, mark); got != stays {
					t.Errorf("%s %s: the match of %s is still cached: %v, want %v", name, pattern, subjects[1], got, stays)
				}
			}
		}
	}
}

// BenchmarkMatchBesideInboxes: each match of one subject is beside an inbox that came and went.
func BenchmarkMatchBesideInboxes(b *testing.B) {
	x := NewIndex[*sub, string](2)
	for i := range 10_000 {
		x.Insert(fmt.Sprintf("orders.%d.created", i), "", i%2, false, &sub{})
	}
	x.Insert("orders.*.created", "", 0, false, &sub{})
	var cache Cache[*sub, string]
	of, one := []byte("orders.17.created"), &sub{}
	for b.Loop() {
		x.Insert("_INBOX.hJ3bkzvQ8R6aZ0cM", "", 0, true, one)
		cache.Match(x, of)
		one.gone = true
		x.Remove("_INBOX.hJ3bkzvQ8R6aZ0cM", "", 0, one)
		one.gone = false
		cache.Match(x, of)
	}
}

func BenchmarkMatch(b *testing.B) {
	x := NewIndex[*sub, string](2)
	for i := range 10_000 {
		x.Insert(fmt.Sprintf("orders.%d.created", i), "", i%2, false, &sub{})
	}
	x.Insert("orders.*.created", "", 0, false, &sub{})
	x.Insert("orders.>", "q", 0, false, &sub{})
	subjects := make([][]byte, 10_000)
	for i := range subjects {
		subjects[i] = fmt.Appendf(nil, "orders.%d.created", i)
	}
	var cache Cache[*sub, string]
	b.Run("cached", func(b *testing.B) {
		for b.Loop() {
			cache.Match(x, subjects[1])
		}
	})
	x.Insert("_INBOX.hJ3bkzvQ8R6aZ0cM.*", "", 0, false, &sub{})
	replies := make([][]byte, 10_000)
	for i := range replies {
		replies[i] = fmt.Appendf(nil, "_INBOX.hJ3bkzvQ8R6aZ0cM.%d", i)
	}
	b.Run("inbox", func(b *testing.B) {
		i := 0
		for b.Loop() {
			cache.Match(x, replies[i%len(replies)])
			i++
		}
	})
	b.Run("walked", func(b *testing.B) {
		i := 0
		for b.Loop() {
			cache.Match(x, subjects[i%len(subjects)])
			i++
		}
	})
}

// TestWhatAPatternAddsIsKnownBefore it is inserted.
func TestWhatAPatternAddsIsKnownBefore(t *testing.T) {
	count := func(x *Index[*sub, string]) int {
		var walk func(n *node[*sub, string]) int
		walk = func(n *node[*sub, string]) int {
			all := 1
			for _, child := range n.next {
				all += walk(child)
			}
			if n.any != nil {
				all += walk(n.any)
			}
			return all
		}
		return walk(x.root) - 1
	}
	x := NewIndex[*sub, string](1)
	for i, c := range []struct {
		pattern, queue string
		nodes, groups  int
	}{
		{"a", "", 1, 0}, {"a", "", 0, 0}, {"a.b.c", "", 2, 0}, {"a.b.d.e.>", "", 2, 0}, {">", "", 0, 0}, {"*", "q", 1, 0}, {"*", "q", 0, 0},
		{"*", "r", 0, 1}, {"*", "s", 0, 2}, {"*.*.x", "", 2, 0}, {"z.>", "q", 1, 0}, {"z.>", "r", 0, 1}, {"z.y.x.w.v", "", 4, 0}, {"z.y", "q", 0, 0},
	} {
		nodes, groups := x.Missing(c.pattern, c.queue)
		before := count(x)
		x.Insert(c.pattern, c.queue, 0, false, &sub{})
		if nodes != c.nodes || groups != c.groups || count(x)-before != nodes {
			t.Errorf("%d: %s %s adds %d nodes to %d groups, and added %d nodes", i, c.pattern, c.queue, nodes, groups, count(x)-before)
		}
	}
}

// BenchmarkLeavingAGroup: all members of a large queue group leave, in no particular order.
func BenchmarkLeavingAGroup(b *testing.B) {
	const members = 20_000
	for b.Loop() {
		x := NewIndex[*sub, string](1)
		all := make([]*sub, members)
		for i := range all {
			all[i] = &sub{pattern: "a", queue: "workers"}
			x.Insert("a", "workers", 0, false, all[i])
		}
		for i := range all {
			s := all[(i*7919)%members]
			s.gone = true
			x.Remove("a", "workers", 0, s)
		}
		if x.Len() != 0 {
			b.Fatalf("%d are left", x.Len())
		}
	}
}
