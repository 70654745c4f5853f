package subject

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestOverlap(t *testing.T) {
	for _, c := range []struct {
		a, b    string
		overlap bool
	}{
		{"orders", "orders", true},
		{"orders", "orders.>", false}, // > stands for one token or more
		{"orders.>", "orders.eu", true},
		{"orders.*", "orders.eu.new", false},
		{"orders.*.new", "orders.eu.*", true},
		{"*", ">", true},
		{"*.>", ">", true}, // > also matches a subject of one token
		{"*.a", "b.*", true},
		{"a.*.>", "a.>", true},
		{"a>", "a>", true}, // a token that only contains the character is literal
		{"a>", "ab", false},
		{"", "a", false},
	} {
		if got := Overlap(c.a, c.b); got != c.overlap || Overlap(c.b, c.a) != got {
			t.Errorf("Overlap(%q, %q) = %v, want %v both ways", c.a, c.b, got, c.overlap)
		}
	}
}

// everySubject has every subject of up to five tokens. Its alphabet has one letter that the
// generator of patterns does not use, so that subjects matched by wildcards only are included.
var everySubject = func() (all [][]string) {
	last := [][]string{nil}
	for range 5 {
		var longer [][]string
		for _, s := range last {
			for _, token := range []string{"a", "b", "c", "z"} {
				longer = append(longer, append(s[:len(s):len(s)], token))
			}
		}
		all = append(all, longer...)
		last = longer
	}
	return all
}()

// TestOverlapAgreesWithEnumeration: Overlap equals the result of trying all subjects.
func TestOverlapAgreesWithEnumeration(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := patterns.Draw(t, "a"), patterns.Draw(t, "b")
		as, bs := strings.Split(a, "."), strings.Split(b, ".")
		overlap := false
		for _, s := range everySubject {
			overlap = overlap || matches(as, s) && matches(bs, s)
		}
		if got := Overlap([]byte(a), []byte(b)); got != overlap {
			t.Fatalf("Overlap(%q, %q) = %v, want %v", a, b, got, overlap)
		}
	})
}

func TestOverlapAllocatesNothing(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { Overlap("orders.eu.*.new", "orders.*.x.new") }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
