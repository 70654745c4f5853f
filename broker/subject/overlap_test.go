package subject

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestOverlapAndCovers(t *testing.T) {
	for _, c := range []struct {
		a, b              string
		overlap, aCb, bCa bool
	}{
		{"orders", "orders", true, true, true},
		{"orders", "orders.>", false, false, false}, // > stands for one token or more
		{"orders.>", "orders.eu", true, true, false},
		{"orders.*", "orders.eu.new", false, false, false},
		{"orders.*.new", "orders.eu.*", true, false, false},
		{"*", ">", true, false, true},
		{"*.>", ">", true, false, true}, // > also matches a subject of one token
		{"*.a", "b.*", true, false, false},
		{"a.*.>", "a.>", true, false, true},
		{"a>", "a>", true, true, true}, // a token that only contains the character is literal
		{"a>", "ab", false, false, false},
		{"", "a", false, false, false},
	} {
		if got := Overlap(c.a, c.b); got != c.overlap || Overlap(c.b, c.a) != got {
			t.Errorf("Overlap(%q, %q) = %v, want %v both ways", c.a, c.b, got, c.overlap)
		}
		if got := [2]bool{Covers(c.a, c.b), Covers(c.b, c.a)}; got != [2]bool{c.aCb, c.bCa} {
			t.Errorf("%q covers %q, and back: %v, want %v %v", c.a, c.b, got, c.aCb, c.bCa)
		}
	}
}

// everySubject has every subject of up to five tokens over an alphabet with one letter that no
// pattern of the generator uses, so that what a wildcard alone matches is among them.
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

// Both agree with trying all subjects one by one.
func TestOverlapAgreesWithEnumeration(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := patterns.Draw(t, "a"), patterns.Draw(t, "b")
		as, bs := strings.Split(a, "."), strings.Split(b, ".")
		overlap, covers := false, true
		for _, s := range everySubject {
			inA, inB := matches(as, s), matches(bs, s)
			overlap = overlap || inA && inB
			covers = covers && (inA || !inB)
		}
		if got := Overlap([]byte(a), []byte(b)); got != overlap {
			t.Fatalf("Overlap(%q, %q) = %v, want %v", a, b, got, overlap)
		}
		if got := Covers(a, b); got != covers {
			t.Fatalf("Covers(%q, %q) = %v, want %v", a, b, got, covers)
		}
	})
}

func TestOverlapAllocatesNothing(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { Overlap("orders.eu.*.new", "orders.*.x.new") }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
