package filter

import (
	"math"
	"strings"
	"testing"
	"time"
)

// same reports whether two values are equal. NaN equals itself.
func (v Value) same(w Value) bool {
	return v.Kind == w.Kind && v.Truth == w.Truth && v.Time == w.Time && string(v.Text) == string(w.Text) &&
		(v.Number == w.Number || math.IsNaN(v.Number) && math.IsNaN(w.Number))
}

// TestAnExpressionHasAValue: of each kind, and no value where a record has none. Paths, the subject
// and the time are read by our own nodes.
func TestAnExpressionHasAValue(t *testing.T) {
	const ours, theirs = true, false
	number := func(n float64) Value { return Value{Kind: Number, Number: n} }
	text := func(s string) Value { return Value{Kind: Text, Text: []byte(s)} }
	for _, c := range []struct {
		text   string
		want   Value
		direct bool
	}{
		{`json.total`, number(120.5), ours},
		{`json["region"]`, text("eu"), ours},
		{`json.customer.name`, text(`Zoë "Z"`), ours},
		{`json.paid`, Value{Kind: Bool, Truth: true}, ours},
		{`json.note`, Value{Kind: Null}, ours},
		{`subject`, text("orders.eu.42"), ours},
		{`time`, Value{Kind: Time, Time: order.Time}, ours},
		{`headers.Shop`, text("paris"), ours},
		{`json.total > 100`, Value{Kind: Bool, Truth: true}, ours},
		{`json.missing`, Value{}, ours},
		{`json.items`, Value{}, ours},
		{`json.customer`, Value{}, ours},
		{`headers.Missing`, Value{}, ours},
		{`json.total * 2.0`, number(241), theirs},
		{`size(json.items)`, number(2), theirs},
		{`json.items[0].sku`, text("a-1"), theirs},
		{`json.total > 100.0 ? "much" : "little"`, text("much"), theirs},
		{`time - timestamp("2026-03-01T11:59:00Z")`, number(60), theirs},
		{`timestamp("2026-03-01T12:00:00Z")`, Value{Kind: Time, Time: order.Time}, theirs},
		{`timestamp("0001-03-01T12:00:00Z")`, Value{}, theirs},
		{`json.missing + 1.0`, Value{}, theirs},
		{`uint(7)`, number(7), theirs},
		{`bytes(json.region)`, text("eu"), theirs},
	} {
		e, err := CompileExpression(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if got := e.Value(&order); !got.same(c.want) || (e.direct != nil) != c.direct || e.String() != c.text {
			t.Errorf("%s is %+v, want %+v, by our nodes: %v", c.text, got, c.want, e.direct != nil)
		}
		if err := e.Why(&order); (err != nil) != (c.want.Kind == None) {
			t.Errorf("%s: %v", c.text, err)
		}
	}
	for text, want := range map[string]string{
		" ":        "it is empty",
		"json.a +": "column 9",
		"[1]":      "it is a list(int), and not a single value",
		"headers":  "not a single value",
		"total":    "undeclared reference to 'total'",
		`json.all(a, json.all(b, json.all(c, c == a)))`: "a record may cost",
	} {
		if _, err := CompileExpression(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// FuzzValue: our own nodes have the values of cel-go.
func FuzzValue(f *testing.F) {
	for _, text := range []string{`json.a`, `json.a.b`, `json["a"]`, `json.a == 1`, `has(json.a)`, `headers.X`, `subject`, `time`, `json.a + json.b`, `json`, `json.a[0]`} {
		for _, payload := range []string{`{"a":1}`, `{"a":{"b":"x\u0041"}}`, `{"a":[1,2]}`, `{"a":tru}`, `{"a":1e999,"b":-0.5}`, `{"a":null`, `[1]`, `7`, `"x"`} {
			f.Add(text, []byte(payload))
		}
	}
	f.Fuzz(func(t *testing.T, text string, data []byte) {
		if len(data) > 1<<12 || strings.Count(text, "(") > 20 {
			return
		}
		e, err := CompileExpression(text)
		if err != nil {
			return
		}
		r := &Record{Subject: []byte("a.b"), Header: []byte("NATS/1.0\r\nX: aaa\r\n\r\n"), Data: data, Time: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()}
		theirs, why := e.byProgram(r)
		if ours := e.Value(r); !ours.same(theirs) {
			t.Errorf("%s: our value of %q is %+v, and cel-go's %+v (%v)", text, data, ours, theirs, why)
		}
	})
}
