package filter

import (
	"strings"
	"testing"
)

func TestReadsOfQuickFilters(t *testing.T) {
	for text, want := range map[string]Reads{
		`subject == "a"`: {Parts: 1},
		`json.a > 1 && (json.b == "x" || !has(json.c))`:                         {Parts: 3, Names: 3},
		`headers["A"] == "1" || "B" in headers`:                                 {Parts: 2, Headers: 2},
		`headers.A.startsWith("x") && time > timestamp("2026-01-01T00:00:00Z")`: {Parts: 2, Headers: 1, Time: true},
		`json.n in [1, 2, 3]`:                                                   {Parts: 4, Names: 1},
		`json.flag`:                                                             {Parts: 1, Names: 1},
	} {
		f, err := Compile(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := f.Reads(); !ok || got != want {
			t.Errorf("%s reads %+v, %v", text, got, ok)
		}
	}
	for _, text := range []string{`json.items.exists(i, i == 1)`, `json.a.contains("x")`, `json.a + json.b > 1`} {
		f, err := Compile(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := f.Reads(); ok {
			t.Errorf("%s is quick", text)
		}
	}
	for names, payload := range []int{0, 100, 125, 150} {
		r := Reads{Parts: 2, Headers: 1, Names: names}
		if got, want := r.Work(10, 100), 2*partWork+10+payload; got != want {
			t.Errorf("work of %d with %d names, want %d", got, names, want)
		}
	}
}

// TestEscapedNamesAreReadOnce: looking for many names in an object with escapes takes as many
// allocations as looking for one.
func TestEscapedNamesAreReadOnce(t *testing.T) {
	data := []byte("{" + strings.Repeat(`"\u007az":1,`, 100) + `"zy":1}`)
	allocations := func(text string) float64 {
		f, err := Compile(text)
		if err != nil {
			t.Fatal(err)
		}
		if v := f.Judge(&Record{Data: data}); v != No {
			t.Errorf("%s is judged %v", text, v)
		}
		return testing.AllocsPerRun(100, func() { f.Judge(&Record{Data: data}) })
	}
	one := allocations(`json.zy == 2`)
	if many := allocations(`json.zy == 2 || has(json.za) || has(json.zb) || has(json.zc) || has(json.zd) || has(json.ze)`); many > 2*one+10 {
		t.Errorf("%v allocations to look for six names, and %v for one", many, one)
	}
}
