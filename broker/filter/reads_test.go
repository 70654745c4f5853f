package filter

import "testing"

func TestReadsOfQuickFilters(t *testing.T) {
	for text, want := range map[string]Reads{
		`subject == "a"`: {Parts: 1},
		`json.a > 1 && (json.b == "x" || !has(json.c))`:                         {Parts: 3, Payload: true},
		`headers["A"] == "1" || "B" in headers`:                                 {Parts: 2, Headers: 2},
		`headers.A.startsWith("x") && time > timestamp("2026-01-01T00:00:00Z")`: {Parts: 2, Headers: 1, Time: true},
		`json.n in [1, 2, 3]`:                                                   {Parts: 4, Payload: true},
		`json.flag`:                                                             {Parts: 1, Payload: true},
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
	r := Reads{Parts: 2, Headers: 1, Payload: true}
	if got := r.Work(10, 100); got != 2*partWork+110 {
		t.Errorf("work of %d", got)
	}
}
