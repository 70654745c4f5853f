package filter

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// order is a record as a shop publishes it.
var order = Record{
	Subject: []byte("orders.eu.42"),
	Header:  []byte("NATS/1.0\r\nShop: paris\r\nShop: lyon\r\nPriority: 7\r\n\r\n"),
	Data: []byte(`{"id": 42, "region": "eu", "total": 120.5, "paid": true, "note": null, "customer": {"name": "Zo\u00eb \"Z\"", "tags": ["new", "vip"]},` +
		` "items": [{"sku": "a-1", "price": 20.25, "count": 2}, {"sku": "b-7", "price": 80, "count": 1}], "a.b": "dotted", "id": "twice"}`),
	Time: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixNano(),
}

func compiled(t testing.TB, text string) *Filter {
	t.Helper()
	f, err := Compile(text)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestRecordsAreJudgedByTheirContent: each condition says what a person expects of it, and those of
// the usual forms are judged by our own nodes.
func TestRecordsAreJudgedByTheirContent(t *testing.T) {
	const ours, theirs = true, false
	for _, c := range []struct {
		text   string
		want   Verdict
		direct bool
	}{
		{`json.total > 100.0 && json.region == 'eu'`, Yes, ours},
		{`json.total > 100 && json.region == 'us'`, No, ours},
		{`json.total >= 120.5`, Yes, ours},
		{`json.total < 120.5`, No, ours},
		{`100 < json.total`, Yes, ours},
		{`json.id == 42`, Yes, ours}, // the first one of two
		{`json.id != 42u`, No, ours},
		{`json.paid`, Yes, ours},
		{`!json.paid || json.paid == true`, Yes, ours},
		{`json.note == null`, Yes, ours},
		{`json.customer.name == "Zoë \"Z\""`, Yes, ours},
		{`json["a.b"] == "dotted"`, Yes, ours},
		{`json.customer["name"].startsWith("Zo")`, Yes, ours},
		{`has(json.customer.name) && !has(json.customer.age)`, Yes, ours},
		{`has(json.customer)`, Yes, ours},
		{`subject == "orders.eu.42"`, Yes, ours},
		{`subject.startsWith("orders.") && subject.endsWith(".42") && subject.contains(".eu.")`, Yes, ours},
		{`subject.matches("^orders\\.[a-z]+\\.[0-9]+$")`, Yes, ours},
		{`headers.Shop == "paris"`, Yes, ours}, // the first of two values
		{`headers["Priority"] in ["6", "7"]`, Yes, ours},
		{`"Shop" in headers && !has(headers.shop)`, Yes, ours},
		{`json.region in ["us", "eu"] && json.id in [1, 42]`, Yes, ours},
		{`time >= timestamp("2026-03-01T12:00:00Z") && time < timestamp("2026-03-01T13:00:00+01:00")`, No, ours},
		{`time.getHours() == 12`, Yes, theirs},
		{`json.customer.tags.exists(t, t == "vip")`, Yes, theirs},
		{`"vip" in json.customer.tags`, Yes, theirs},
		{`json.items.all(i, i.price < 100.0) && json.items[1].sku == "b-7"`, Yes, theirs},
		{`size(json.items) == 2 && size(headers) == 2`, Yes, theirs},
		{`json.items[0] == {"sku": "a-1", "price": 20.25, "count": 2}`, Yes, theirs},
		{`"customer" in json && json.exists(name, name == "paid")`, Yes, theirs},
		{`json.total * 2.0 > 240.0 ? true : false`, Yes, theirs},
		{`headers.exists(name, headers[name] == "7")`, Yes, theirs},
		{`int(headers.Priority) > 5`, Yes, theirs},
		{`true`, Yes, theirs},
		// What is missing, or of another type, fails; and only if nothing else decides.
		{`json.missing == 1`, Failed, ours},
		{`json.missing == 1 || json.paid`, Yes, ours},
		{`json.missing == 1 && json.region == "us"`, No, ours},
		{`json.region > 5`, Failed, ours},
		{`json.region == 5`, No, ours},
		{`json.total`, Failed, ours},
		{`!json.total`, Failed, ours},
		{`json.customer == "x"`, No, ours},
		{`json.customer > "x"`, Failed, ours},
		{`has(json.region.name)`, No, ours},
		{`has(json.missing.name)`, Failed, ours},
		{`has(json.items.name)`, Failed, ours},
		{`headers.Missing == ""`, Failed, ours},
		{`json.items[7].sku == "x"`, Failed, theirs},
	} {
		f := compiled(t, c.text)
		if got := f.Judge(&order); got != c.want {
			t.Errorf("%s: the verdict is %d, want %d (%v)", c.text, got, c.want, f.Why(&order))
		}
		if (f.direct != nil) != c.direct {
			t.Errorf("%s: judged by our nodes: %v", c.text, f.direct != nil)
		}
		if err := f.Why(&order); (err != nil) != (c.want == Failed) {
			t.Errorf("%s: the reason is %v", c.text, err)
		}
	}
}

// TestAPayloadIsReadAsFarAsNeeded: what is behind the last value that a condition needs may be
// anything, and what is before it may not.
func TestAPayloadIsReadAsFarAsNeeded(t *testing.T) {
	for _, c := range []struct {
		data string
		want Verdict
	}{
		{`{"a":1,"b":2}`, Yes},
		{" {\n\t\"b\" : 2 , \"a\" : 1 } ", Yes},
		{`{"a":1,"b":2,`, Yes},
		{`{"x":[[{"y":"]}"}]],"a":1,"b":2`, Yes},
		{`{"x":"\"a\":","a":1.0e0,"b":2}`, Yes},
		{`{"a":2,"b":2,"a":1}`, No},
		{`{"a":1}`, Failed},
		{`{"a":1,"b"}`, Failed},
		{`{"a":1 "b":2}`, Failed},
		{`{"a":01,"b":2}`, Failed},
		{`{"a":+1,"b":2}`, Failed},
		{`{"a":0x1,"b":2}`, Failed},
		{`{"a":1,"b":2_0}`, Failed},
		{`{"x":` + strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1) + `,"a":1,"b":2}`, Failed},
		{`[{"a":1,"b":2}]`, Failed},
		{`"a"`, Failed},
		{`hello`, Failed},
		{``, Failed},
	} {
		f := compiled(t, `json.a == 1 && json.b == 2`)
		if got := f.Judge(&Record{Data: []byte(c.data)}); got != c.want {
			t.Errorf("%s: the verdict is %d, want %d", c.data, got, c.want)
		}
		if got, _ := f.byProgram(&Record{Data: []byte(c.data)}); got != c.want {
			t.Errorf("%s: cel-go's verdict is %d, want %d", c.data, got, c.want)
		}
	}
}

// TestWhatIsNoFilterIsRefusedWithTheReason: a person can mend the expression by the error alone.
func TestWhatIsNoFilterIsRefusedWithTheReason(t *testing.T) {
	for text, want := range map[string]string{
		``:                                 "it is empty",
		`json.total >`:                     "column ",
		"json.a == 1 &&\n total > 5":       "line 2, column 2: undeclared",
		`total > 5`:                        `undeclared reference to 'total'`,
		`subject`:                          "it is a string, and not a condition",
		`subject > 5`:                      "no matching overload",
		`subject.matches(headers.Pattern)`: "the pattern of matches has to be written in the expression",
		`subject.matches("(")`:             "invalid matches argument",
		`time > timestamp("yesterday")`:    "invalid timestamp argument",
		strings.Repeat("!", 5000) + "true": "the bound is 4096",
		strings.Repeat("(", 500) + "true":  "",
		`json.a.exists(x, json.b.exists(y, x == y))`:                    "neither pass over another list",
		`json.a.map(x, json.a.map(y, json.a)).size() > 5`:               "nor compare two values of the message",
		`subject.matches("` + strings.Repeat("(a{9}|b{9})", 100) + `")`: "",
		strings.Repeat(`json.a == 1 || `, 250) + `json.b == 2`:          "",
	} {
		f, err := Compile(text)
		if err == nil {
			t.Errorf("%.60s: it is taken as %v", text, f)
		} else if !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "filter ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.60s: the error is %v", text, err)
		}
	}
}

// TestJudgingAllocatesNothing: by our own nodes.
func TestJudgingAllocatesNothing(t *testing.T) {
	for _, text := range []string{
		`json.total > 100.0 && json.region == 'eu'`,
		`headers.Shop == "paris" && subject.startsWith("orders.") && json.region in ["us", "eu"]`,
		`has(json.customer.name) && json.missing == 1`,
	} {
		f := compiled(t, text)
		if n := testing.AllocsPerRun(1000, func() { f.Judge(&order) }); n > 0 {
			t.Errorf("%s: %v allocations", text, n)
		}
	}
}

// TestValuesOfOnePayloadAreBounded: in lists and objects together, however they are nested. Names
// are found in objects of any size.
func TestValuesOfOnePayloadAreBounded(t *testing.T) {
	list := func(n int) string { return "[" + strings.Repeat("1,", n-1) + "1]" }
	many := `{"a":` + list(maxElements-1) + `,"b":[` + list(1) + `],"c":2,"d":{` + strings.Repeat(`"x":1,`, maxElements) + `"y":1}}`
	for text, want := range map[string]Verdict{
		`json.a.exists(x, x == 2)`:                               No,
		`json.a.exists(x, x == 2) || json.c == 3`:                No,
		`json.a.exists(x, x == 2) || json.b.exists(x, x == [2])`: Failed, // its elements are too many
		`json.c == 2 && json.d.y == 1 && has(json.d.x)`:          Yes,
		`json.d.exists(name, name == "z")`:                       Failed,
		`json.exists(name, name == "c")`:                         Failed,
	} {
		f := compiled(t, text)
		r := &Record{Data: []byte(many)}
		if got := f.Judge(r); got != want {
			t.Errorf("%s: the verdict is %d, want %d (%v)", text, got, want, f.Why(r))
		}
		if err := f.Why(r); want == Failed && !strings.Contains(err.Error(), "more than 65536 elements") {
			t.Errorf("%s: the reason is %v", text, err)
		}
	}
}

func BenchmarkJudge(b *testing.B) {
	data := []byte(fmt.Sprintf(`{"id": "%s", "shop": "paris-12", "region": "eu", "customer": {"id": 1234567, "vip": false}, "total": 120.5, "currency": "EUR", "lines": 3, "note": %q}`,
		strings.Repeat("0123456789", 3), strings.Repeat("x", 30)))
	r := Record{Subject: []byte("orders.eu.42"), Data: data, Header: order.Header}
	for _, text := range []string{
		`json.total > 100.0 && json.region == 'eu'`,
		`json.region == 'us'`,
		`subject.startsWith("orders.eu.")`,
		`headers.Priority == "7"`,
		`json.lines > 2.0 ? json.region == 'eu' : false`,
	} {
		f := compiled(b, text)
		b.Run(text, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				f.Judge(&r)
			}
		})
	}
}
