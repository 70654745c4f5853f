package filter

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// stampTexts are attributes as records are stored with them, and what else there could be.
var stampTexts = []string{
	`{"floor":4,"room":"410"}`, `{"a.b":"dotted","floor":-1.5e3,"on":true,"room":"a\"b\\\u00e9<"}`, `{"none":[],"on":false,"tags":["a","b",1,true]}`,
	`{"floor":"4","tags":["x\u0061"]}`, `{"floor":1e400}`, `{"floor":9007199254740993}`, `{ "room" : "410" , "tags" : [ "a" , 1 ] }`, `{}`, ``,
	`{"room":{"x":1},"floor":null}`,
}

var stampConditions = []string{
	`attributes.room == "410" && has(attributes.floor)`, `attributes["a.b"] == "dotted"`, `attributes.floor >= 4 && attributes.floor < 4.5`,
	`attributes.floor == "4"`, `attributes.on`, `!attributes.on`, `attributes.room != "410"`, `"room" in attributes && !("x" in attributes)`,
	`"b" in attributes.tags && 1 in attributes.tags && true in attributes.tags`, `"xa" in attributes.tags || "c" in attributes.none`,
	`"a" in attributes.room`, `attributes.missing != "x"`, `has(attributes.missing)`, `attributes.room in ["409", "410"]`, `attributes.floor in [4, -1500.0]`,
	`attributes.room.startsWith("a\"b") && attributes.room.endsWith("<")`, `attributes.room.matches("^4.0$")`, `attributes.floor == 9007199254740992.0`,
	`attributes.tags == ["a", "b", 1, true]`, `attributes.tags.exists(t, t == "b")`, `size(attributes) == 2`, `attributes.exists(k, attributes[k] == 4.0)`,
	`json.n == 1 && attributes.floor == 4`, `attributes.floor > json.n`,
}

// TestStampsAreJudgedAsTheirValuesAre: by our nodes, and by cel-go.
func TestStampsAreJudgedAsTheirValuesAre(t *testing.T) {
	for _, condition := range stampConditions {
		f, err := CompileStored(condition)
		if err != nil {
			t.Fatal(err)
		}
		if !f.NamesAttributes() {
			t.Errorf("%s: it is said to name no attributes", condition)
		}
		for _, text := range stampTexts {
			var s Stamp
			r := &Record{Subject: []byte("s"), Data: []byte(`{"n":1}`)}
			r.SetAttributes(&s, []byte(text))
			want := &Record{Subject: r.Subject, Data: r.Data}
			if text != "" {
				if strings.Contains(text, "e400") || strings.Contains(text, "null") {
					want = nil // no attributes: they are read without harm
				} else {
					v := values{}
					if err := json.Unmarshal([]byte(text), &v); err != nil {
						t.Fatal(err)
					}
					want.Attributes = v
				}
			}
			got := f.Judge(r)
			if want != nil && got != f.Judge(want) {
				t.Errorf("%s of %s: the verdict is %d, want %d (%v)", condition, text, got, f.Judge(want), f.Why(want))
			}
			if want != nil {
				if theirs, err := f.byProgram(r); theirs != got {
					t.Errorf("%s of %s: the verdict is %d, and cel-go's %d (%v)", condition, text, got, theirs, err)
				}
			}
		}
	}
	for _, text := range []string{`json.attributes == 1`, `headers.attributes == "x"`, `subject == "attributes"`} {
		if f, err := CompileStored(text); err != nil || f.NamesAttributes() {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := Shared(`attributes.a == 1`); err != nil {
		t.Error(err)
	}
}

// FuzzStamps: whatever stands there is read without harm.
func FuzzStamps(f *testing.F) {
	for i, text := range stampTexts {
		f.Add([]byte(text), uint8(i))
	}
	var all []*Filter
	for _, c := range stampConditions {
		all = append(all, mustStore(c))
	}
	f.Fuzz(func(_ *testing.T, text []byte, n uint8) {
		var s Stamp
		r := &Record{Data: []byte(`{"n":1}`)}
		r.SetAttributes(&s, text)
		of := all[int(n)%len(all)]
		of.Judge(r)
		_, _ = of.byProgram(r)
	})
}

// mustStore compiles a condition.
func mustStore(text string) *Filter {
	f, err := CompileStored(text)
	if err != nil {
		panic(err)
	}
	return f
}

// TestASetFindsAttributesByAHash: as many conditions as there are, and each says what it says
// alone.
func TestASetFindsAttributesByAHash(t *testing.T) {
	s := &Set[string]{}
	all := map[string]*Filter{}
	add := func(text string) *Member[string] {
		f := mustStore(text)
		m := s.Add(f, text, true)
		if m == nil {
			t.Fatalf("%s does not fit", text)
		}
		all[text] = f
		return m
	}
	for i := range 3 * mostJudged {
		add(fmt.Sprintf(`attributes.room == "%d"`, i))
	}
	lacks := add(`attributes.floor == 4 && json.n > 1`)
	add(`attributes["room"] in ["7", "8"] && json.n == 1`)
	add(`json.n == 1`)
	add(`has(attributes.floor) && attributes.floor == 5`)
	if len(s.rest) != 0 || len(s.groups) != 3 {
		t.Errorf("%d groups, and %d that no hash finds", len(s.groups), len(s.rest))
	}
	random, stamp := rand.New(rand.NewPCG(1, 2)), &Stamp{}
	failed := uint64(0)
	for range 2000 {
		text := fmt.Sprintf(`{"floor":%d,"room":"%d"}`, random.IntN(8), random.IntN(12))
		if random.IntN(4) == 0 {
			text = ""
			failed++
		}
		r := &Record{Subject: []byte("s"), Data: fmt.Appendf(nil, `{"n":%d}`, random.IntN(3))}
		r.SetAttributes(stamp, []byte(text))
		var want []string
		for text, f := range all {
			if f.Judge(r) == Yes {
				want = append(want, text)
			}
		}
		slices.Sort(want)
		if got := matches(s, r); !slices.Equal(got, want) {
			t.Fatalf("%s: %q match, want %q", text, got, want)
		}
	}
	if lacks.Failed() != failed {
		t.Errorf("%d records without the attribute are counted, want %d", lacks.Failed(), failed)
	}
}
