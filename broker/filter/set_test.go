package filter

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// setOf returns a Set of some expressions, whose values they are.
func setOf(t testing.TB, texts ...string) (*Set[string], map[string]*Member[string]) {
	s, members := &Set[string]{}, map[string]*Member[string]{}
	for _, text := range texts {
		if members[text] = s.Add(compiled(t, text), text, true); members[text] == nil {
			t.Fatalf("%s does not fit", text)
		}
	}
	return s, members
}

func matches(s *Set[string], r *Record) (found []string) {
	s.Match(r, 0, func(text string) { found = append(found, text) }, func(string) { panic("unsure") })
	slices.Sort(found)
	return found
}

var setTexts = []string{
	`json.k == "a"`, `"b" == json.k`, `json.k == 1`, `json.k == 1.0 && json.n > 2`, `json["k"] == "a" && has(json.n)`,
	`json.k in ["a", "b", "a", 7]`, `json.k == 0`, `json.k == -0.0`, `json.o.k == "a"`, `json.o == "a"`, `headers.Kind == "a"`,
	`headers["Kind"] in ["b", "c"] && json.k != "a"`, `subject == "a"`, `subject == "a" && json.n < 3 && json.k == "a"`,
	`json.n > 1`, `json.k == "a" || json.n == 2`, `!(json.k == "a")`, `has(json.k)`, `json.k == true`, `json.k == null`,
}

// TestASetSaysWhatEachConditionSays compares a Set with its conditions one by one, while some come
// and go.
func TestASetSaysWhatEachConditionSays(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	any := func(all ...string) string { return all[random.IntN(len(all))] }
	s, members := setOf(t, setTexts...)
	filters := map[string]*Filter{}
	for _, text := range setTexts {
		filters[text] = compiled(t, text)
	}
	for range 5_000 {
		if text := any(setTexts...); members[text] == nil {
			members[text] = s.Add(filters[text], text, true)
		} else if random.IntN(4) == 0 {
			s.Remove(members[text])
			delete(members, text)
		}
		v := func() string {
			return any(`"a"`, `"b"`, `"\u0061"`, `1`, `1.0`, `0`, `-0`, `7`, `null`, `true`, `{}`, `[1]`, `{"k": "a"}`, `x`, `3`)
		}
		data := any(fmt.Sprintf(`{"k": %s, "n": %s, "o": %s}`, v(), v(), v()), fmt.Sprintf(`{"n": %s}`, v()), `none`, fmt.Sprintf(`{"o": {"k": %s}, "k": %s`, v(), v()))
		r := &Record{Subject: []byte(any("a", "b")), Data: []byte(data), Header: []byte(any("", "NATS/1.0\r\nKind: a\r\n\r\n", "NATS/1.0\r\nKind: c\r\n\r\n"))}
		var want []string
		for text := range members {
			if filters[text].Judge(r) == Yes {
				want = append(want, text)
			}
		}
		slices.Sort(want)
		if got := matches(s, r); !slices.Equal(got, want) {
			t.Fatalf("%s, %s, %s: %q match, want %q", r.Subject, r.Header, r.Data, got, want)
		}
	}
	for _, m := range members {
		s.Remove(m)
	}
	if len(s.groups)+len(s.rest) != 0 {
		t.Errorf("an empty set has %d groups, %d others", len(s.groups), len(s.rest))
	}
}

// TestASetSaysWhatCELSays compares a Set of conditions made at random with what cel-go says of
// each: numbers of all kinds that are equal or nearly so, names with any bytes, names that come
// twice, escapes, headers with several values, and values that are no JSON.
func TestASetSaysWhatCELSays(t *testing.T) {
	for seed := range uint64(8) {
		random := rand.New(rand.NewPCG(seed, 3))
		any := func(all ...string) string { return all[random.IntN(len(all))] }
		constant := func() string {
			return any(`"1"`, `"a"`, `"\u00e9"`, `""`, `1`, `1u`, `1.0`, `0`, `-0.0`, `0u`, `9007199254740991`, `9007199254740992`,
				`9007199254740993`, `9007199254740992.0`, `18446744073709551615u`, `1e300`, `0.1`, `-1`, `true`, `null`, `timestamp("2026-01-01T00:00:00Z")`)
		}
		of := func() string {
			return any(`json.a`, `json["a"]`, `json.a.b`, `json["a\x00b"]`, `json["a.b"]`, `json.a.b.c`, `json["\u00e9"]`, `json[""]`, `json.b`)
		}
		part := func() string {
			switch random.IntN(8) {
			case 0:
				return constant() + " == " + of()
			case 1:
				return fmt.Sprintf("%s in [%s, %s, %s]", of(), constant(), constant(), constant())
			case 2:
				return any(`headers.A`, `headers["a"]`, `subject`) + any(` == "1"`, ` == ""`, ` in ["1", "a"]`)
			case 3:
				return any(`has(json.a)`, `has(json.a.b)`, `"A" in headers`, `json.b != 1`, `json.a > 0`, `!(json.b == "a")`)
			}
			return of() + " == " + constant()
		}
		s, filters, members := &Set[string]{}, map[string]*Filter{}, map[string]*Member[string]{}
		for len(filters) < 40 {
			text := part()
			for random.IntN(2) == 0 {
				text += " && " + part()
			}
			if f, err := Compile(text); err == nil { // some compare a subject with a number
				filters[text] = f
			}
		}
		texts := slices.Sorted(maps.Keys(filters))
		for range 200 {
			if text := any(texts...); members[text] == nil {
				if m := s.Add(filters[text], text, true); m != nil {
					members[text] = m
				}
			} else if random.IntN(3) == 0 {
				s.Remove(members[text])
				delete(members, text)
			}
			value := func() string {
				return any(`"1"`, `"a"`, `"\u0061"`, `"é"`, `"\u00e9"`, `""`, `1`, `1.0`, `10e-1`, `0`, `-0`, `-0.0`, `0e5`, `9007199254740991`, `9007199254740992`,
					`9007199254740993`, `18446744073709551615`, `1e300`, `1e999`, `0.1`, `0.10000000000000001`, `-1`, `true`, `null`, `01`, `tru`, `NaN`, `[1]`, `{}`, `{"b": 1}`,
					`{"b": "a", "b": 1}`, `{"b": {"c": 1}}`, `{"b": {"c": "a"`)
			}
			var data strings.Builder
			data.WriteString("{")
			for i := range 1 + random.IntN(4) {
				if i > 0 {
					data.WriteString(", ")
				}
				data.WriteString(any(`"a"`, `"a"`, `"\u0061"`, `"b"`, `"a\u0000b"`, `"a.b"`, `"é"`, `"\u00e9"`, `""`) + ": " + value())
			}
			data.WriteString(any("}", "}", "}", "", ",}"))
			r := &Record{Subject: []byte(any("1", "a")), Data: []byte(data.String()), Header: []byte(any("", "NATS/1.0\r\nA: 1\r\nA: a\r\n\r\n", "NATS/1.0\r\nA: \r\na: 1\r\n\r\n"))}
			var want []string
			for text := range members {
				if verdict, _ := filters[text].byProgram(r); verdict == Yes {
					want = append(want, text)
				}
			}
			slices.Sort(want)
			if got := matches(s, r); !slices.Equal(got, want) {
				t.Fatalf("seed %d, %s, %q, %s: %q match, want %q", seed, r.Subject, r.Header, r.Data, got, want)
			}
		}
	}
}

func TestASetCountsWhatItCannotJudge(t *testing.T) {
	s, members := setOf(t, `json.k == "a"`, `has(json.k) && json.k == "a"`, `json.n > 1`, `json.k == "a" && json.n > 1`)
	for _, data := range []string{`{"k": "a"}`, `{"k": "b"}`, `{"n": 2}`, `none`} {
		matches(s, &Record{Data: []byte(data)})
	}
	for text, want := range map[string]uint64{
		`json.k == "a"`: 2, `has(json.k) && json.k == "a"`: 0, `json.n > 1`: 3, `json.k == "a" && json.n > 1`: 3,
	} {
		if got := members[text].Failed(); got != want {
			t.Errorf("%s: %d failures, want %d", text, got, want)
		}
	}
}

func TestASetRefusesWhatSlowsAllOthers(t *testing.T) {
	s := &Set[int]{}
	for _, text := range []string{`json.k.exists(x, x == 1)`, `json.k == "a" && json.n.matches("a+")`, `json.n.contains("a")`, `json.n + 1.0 == 2.0`} {
		if s.Add(compiled(t, text), 0, true) != nil {
			t.Errorf("%s is taken", text)
		}
	}
	for i := range mostJudged {
		if s.Add(compiled(t, fmt.Sprintf("json.n > %d", i)), i, true) == nil {
			t.Fatal(i)
		}
	}
	if s.Add(compiled(t, "json.n > 1000"), 0, true) != nil {
		t.Error("one more is taken that no hash finds")
	}
	for i := range 2 * mostGroups {
		if m := s.Add(compiled(t, fmt.Sprintf(`headers.k%d == "a"`, i)), i, true); (m != nil) != (i < mostGroups) {
			t.Fatalf("header %d: taken is %v", i, m != nil)
		}
	}
}

// TestALargeRecordIsJudgedByNone: only hashes find its conditions.
func TestALargeRecordIsJudgedByNone(t *testing.T) {
	s, _ := setOf(t, `json.k == "a"`, `json.k == "a" && json.n > 1`, `json.k == "b" && json.n > 1`, `json.n > 1`)
	r := &Record{Data: []byte(`{"k": "a", "n": 2, "x": "` + strings.Repeat("x", judgedLarge) + `"}`)}
	var found, unsure []string
	s.Match(r, 0, func(text string) { found = append(found, text) }, func(text string) { unsure = append(unsure, text) })
	if len(found) != 1 || found[0] != `json.k == "a"` || len(unsure) != 2 || slices.Contains(unsure, `json.k == "b" && json.n > 1`) {
		t.Errorf("%q match, and %q are not judged", found, unsure)
	}
}

// TestARecordIsJudgedByFew: one record may have a value of each group, whose members are judged.
func TestARecordIsJudgedByFew(t *testing.T) {
	s := &Set[int]{}
	taken := 0
	var last *Member[int]
	for i := range 4 {
		for n := range mostJudged {
			if m := s.Add(compiled(t, fmt.Sprintf(`headers.k%d == "a" && json.n > %d`, i, n)), i, true); m != nil {
				taken, last = taken+1, m
			}
		}
	}
	if taken != 2*mostJudged || len(s.groups) != 1 {
		t.Errorf("a record may be judged by %d conditions, of %d groups", taken, len(s.groups))
	}
	s.Remove(last)
	if s.Add(last.filter, 0, true) == nil {
		t.Error("there is no room for one that was removed")
	}
	for i := range 2 * mostJudged { // those of one value each
		if s.Add(compiled(t, fmt.Sprintf(`headers.k0 == "%d" && json.n > 1`, i)), i, true) == nil {
			t.Errorf("%d does not fit", i)
		}
	}
}

// equalities returns a Set of n conditions json.k == i, and a record that matches one of them.
func equalities(t testing.TB, n int) (*Set[int], *Record) {
	s := &Set[int]{}
	for i := range n {
		s.Add(compiled(t, fmt.Sprintf("json.k == %d", i)), i, true)
	}
	return s, &Record{Subject: []byte("orders.eu"), Data: []byte(fmt.Sprintf(`{"id": "0123456789012345678901234567890", "shop": "paris-12", "region": "eu", "customer": {"id": 1234567, "vip": false}, "total": 120.5, "k": %d, "note": "none at all, thank you"}`, n/2))}
}

func TestMatchingAllocatesNothing(t *testing.T) {
	s, r := equalities(t, 1000)
	n := 0
	found := func(int) { n++ }
	if got := testing.AllocsPerRun(1000, func() { s.Match(r, 0, found, found) }); got > 0 || n == 0 {
		t.Errorf("%v allocations, %d matches", got, n)
	}
}

func BenchmarkMatch(b *testing.B) {
	for _, n := range []int{1, 10, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s, r := equalities(b, n)
			b.ReportAllocs()
			for b.Loop() {
				s.Match(r, 0, func(int) {}, nil)
			}
		})
	}
}
