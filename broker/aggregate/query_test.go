package aggregate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/carillon-mq/carillon/broker/filter"
)

func compiled(t rapid.TB, o Options) *Query {
	t.Helper()
	q, err := Compile(o)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// at returns a record with a payload that was stored so many seconds after 12:00.
func at(seconds float64, payload string, arguments ...any) *filter.Record {
	begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return &filter.Record{Subject: []byte("orders.x"), Data: fmt.Appendf(nil, payload, arguments...), Time: begin.Add(time.Duration(seconds * 1e9)).UnixNano()}
}

func added(t rapid.TB, q *Query, records ...*filter.Record) *Partial {
	t.Helper()
	p := q.NewPartial()
	for _, r := range records {
		if err := p.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// printed returns rows as text: start and end of each in seconds after 12:00, its key and results.
func printed(rows []Row) string {
	var lines []string
	for _, r := range rows {
		begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixNano()
		line := fmt.Sprintf("%g-%g", float64(r.Start-begin)/1e9, float64(r.End-begin)/1e9)
		for _, v := range append(append([]Value(nil), r.Keys...), r.Values...) {
			line += " " + v.String()
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// TestFunctionsOfAllKinds: each function's result is what a person computes by hand; what has no
// value is left out, and counted.
func TestFunctionsOfAllKinds(t *testing.T) {
	q := compiled(t, Options{
		Functions: `count(), count(json.n) as with_n, sum(json.n), mean(json.n), min(json.n), max(json.n), p50(json.n) as half, median(json.n), p99.9(json.n), distinct(json.user), min(json.user), max(time), sum(json.n * 2.0)`,
		By:        `json.region, size(json.tags) > 1 as tagged`,
	})
	p := added(t, q,
		at(0, `{"n": 0.1, "user": "a", "region": "eu", "tags": []}`),
		at(1, `{"n": 0.2, "user": "b", "region": "eu", "tags": []}`),
		at(2, `{"n": 1e999, "user": "a", "region": "eu", "tags": []}`), // no float64 holds it
		at(3, `{"n": null, "user": 7, "region": "eu", "tags": []}`),
		at(4, `{"n": 5, "user": {}, "region": null, "tags": [1, 2]}`), // null is a key
		at(5, `{"n": 5, "tags": []}`),
		at(6, `{"n": 5, "region": %q, "tags": []}`, strings.Repeat("x", maxKeyBytes)),
		at(7, `no JSON`),
	)
	const want = "4-4  true 1 1 5 5 5 5 5 5 5 0  2026-03-01T12:00:04Z 10\n" +
		"0-3 eu false 4 3 0.30000000000000004 0.15000000000000002 0.1 +Inf 0.1 0.1 0.2 3 7 2026-03-01T12:00:03Z 0.6000000000000001"
	got := p.Rows()
	if s := printed([]Row{got[1], got[0]}); s != want {
		t.Errorf("got\n%s\nwant\n%s", s, want)
	}
	if got := p.Totals(); got.Records != 8 || got.NoKey != 3 || got.NoTime != 0 {
		t.Errorf("%+v", got)
	}
	if names := strings.Join(append(q.Keys(), q.Columns()...), " "); !strings.HasPrefix(names, "json.region tagged count() with_n sum(json.n)") {
		t.Errorf("columns %s", names)
	}
	if err := q.Why(at(0, `{"n": 1, "user": "a", "tags": []}`)); err == nil || !strings.Contains(err.Error(), "json.region: no such key") {
		t.Error(err)
	}
	if err := q.Why(at(0, `{"n": "1", "user": "a", "region": 1, "tags": []}`)); err == nil || !strings.Contains(err.Error(), "json.n") {
		t.Error(err)
	}
	if err := q.Why(at(0, `{"n": 1, "user": "a", "region": 1, "tags": []}`)); err != nil {
		t.Error(err)
	}
}

// TestValuesAsJSON: what a program reads.
func TestValuesAsJSON(t *testing.T) {
	for want, v := range map[string]Value{
		"null": {}, "true": {Kind: Bool, Truth: true}, "18446744073709551615": {Kind: Count, Count: 1<<64 - 1}, "0.5": {Kind: Number, Number: 0.5},
		`"+Inf"`: {Kind: Number, Number: 1 / zero}, `"a\"�"`: {Kind: Text, Text: "a\"\xff"}, `"1970-01-01T00:00:01Z"`: {Kind: Time, Time: 1e9},
	} {
		if got, err := v.MarshalJSON(); err != nil || string(got) != want {
			t.Errorf("%s, want %s: %v", got, want, err)
		}
	}
}

var zero = 0.0

// TestWhatIsWrongWithAQueryIsSaid: with the column where it is, in the whole text.
func TestWhatIsWrongWithAQueryIsSaid(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "column 1: something is missing",
		"count(),":                       "column 9: something is missing",
		"count(), total":                 `column 10: "total" is no function`,
		"count(), avg(json.a)":           `column 10: there is no function "avg" (use count, sum, mean`,
		"count(), sum( )":                "column 10: sum of what?",
		"count(), sum(json.a +)":         "column 22: Syntax error",
		"count(),\n sum(json.é, \nnope)": "", // a comma within brackets is no function's
		"sum(totals)":                    "column 5: undeclared reference to 'totals'",
		"count(), count()":               `two columns would be named "count()"`,
		"count() as start":               `two columns would be named "start"`,
		"p0(json.a)":                     `there is no function "p0"`,
		"p100(json.a)":                   `there is no function "p100"`,
		"sum(json.a":                     "column 11: a bracket is not closed",
		"sum(json.a))":                   "column 12: a bracket closes",
		`sum(json["a)`:                   "column 10: the string does not end",
		"sum(headers)":                   "it is a map(string, string), and not a single value",
		"sum(" + strings.Repeat("json.a+", 200) + "1)":   "its name would have",
		strings.Repeat("count(json.a),", 32) + "count()": "33 functions, and the bound is 32",
		strings.Repeat(" ", maxText+1):                   "and the bound is 4096",
	} {
		if _, err := Compile(Options{Functions: text}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{`sum(json["a,(\"b"])`, `distinct(json.a + ',)') as x, p5(json[r"\"])`, `max("""a",""" + json.b)`} {
		if _, err := Compile(Options{Functions: text}); err != nil {
			t.Error(err)
		}
	}
	for want, o := range map[string]Options{
		`by "json.a, tot": column 9: undeclared`:                    {By: "json.a, tot"},
		`two columns would be named "json.a"`:                       {By: "json.a, json.a"},
		"9 keys, and the bound is 8":                                {By: "1,2,3,4,5,6,7,8,9"},
		`time "json.": column 6`:                                    {Time: "json."},
		"a window of 1ns (use 1ms to 175200h0m0s)":                  {Window: 1},
		"sessions have no window":                                   {Window: time.Second, Session: time.Second},
		"a slide without a window":                                  {Slide: time.Second},
		"records between two windows would be in none":              {Slide: time.Minute, Window: time.Second},
		"each record would be in 101 windows, and the bound is 100": {Slide: time.Second, Window: 101 * time.Second},
	} {
		o.Functions = "count()"
		if _, err := Compile(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", o, err, want)
		}
	}
}
