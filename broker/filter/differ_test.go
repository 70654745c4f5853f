package filter

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// FuzzJudge: our own nodes say of each record what cel-go says of it, and no input makes either of
// them panic, or take long.
func FuzzJudge(f *testing.F) {
	payloads := []string{
		string(order.Data), `{}`, `[]`, `null`, `{"a":{"b":1}}`, `{"a":{"b":{"c":"x"}},"a":{"b":2}}`, `{"a":[1,2,{"b":3}],"b":"\u0041\ud83d\ude00\ud83d"}`,
		`{"a":{"b":1 "c":2},"b":"x"}`, `{"a":{"b":1`, `{"a":tru,"b":-0.5e-3}`, `{"a":1e999,"b":-}`, `{"\u0061":1,"b":12345678901234567890}`, `{"a":"x\q\u12","b":{}}`,
		`{"a":0.000000000000001,"b":-0}`, `{"a":123456789012345,"b":1234567890123456.5}`, `{"a":01,"b":1.}`, `{"a":1 ,"b":"x" }`, `{ "b":"a much longer text than eight bytes\"", "a" : 7}`,
		`{"note":"\"","a":1,"b":"\\"}`, `{"x":{"y":"}{[]","Y":[_]},"a":1,"b":"x"}`, `{"a":1,"b":"x",`, `{"b":1,}`,
		`{"a":[1,{"b":],"b":1}`, `{"a":1,}`, `{,}`, `{"a":nul,"b":"1"}`, `{"a":0.1234567890123456,"b":9007199254740993}`,
	}
	for _, text := range []string{
		`json.a == 1`, `json.a.b == 1 && json.b != "x"`, `has(json.a.b) || has(json.b)`, `json.a.b.c in ["x", 1, null]`, `!(json.a > 0.5) || json.b <= "A"`,
		`json.b == -0.0005`, `json.a && json.b`, `has(json.a.b.c) == false`, `json.a.b.startsWith("x")`, `json["a"]["b"] < 3 || headers.X > "a"`,
		`"X" in headers && headers["X"].matches("^a+$")`, `subject in ["a.b", "x"] && time > timestamp("2026-01-01T00:00:00Z")`,
		`json.a == 1 || json.b == "x" || json.c > 2`, `json.b >= "x" && json.a <= 1.5 && json.a != 7`, `subject.contains("b") && json.b < "y" && headers.X == "aaa"`,
		`json.a > 0 && (json.b == "x" || json.a.b == 1)`, `json.a == null || json.b == true`, `1.5 <= json.a`, `json == 1`, `json.a.exists(x, x == 2)`, `json.a == json.b`, `json.a[0] == 1`,
	} {
		for _, p := range payloads {
			f.Add(text, []byte(p), "a.b", "NATS/1.0\r\nX: aaa\r\n\r\n", int64(1_800_000_000_000_000_000))
		}
	}
	f.Fuzz(func(t *testing.T, text string, data []byte, subject, header string, at int64) {
		if len(data) > 1<<12 || strings.Count(text, "(") > 20 {
			return // to be fast: these bounds are no part of what is compared
		}
		filter, err := Compile(text)
		if err != nil {
			return
		}
		r := &Record{Subject: []byte(subject), Header: []byte(header), Data: data, Time: at}
		theirs, why := filter.byProgram(r)
		if ours := filter.Judge(r); ours != theirs {
			t.Errorf("%s: our verdict of %q is %d, and cel-go's %d (%v)", text, data, ours, theirs, why)
		}
		if again := filter.Judge(r); again != theirs {
			t.Errorf("%s: our second verdict of %q is %d, and cel-go's %d", text, data, again, theirs)
		}
	})
}

// TestConditionsOfManyFormsSayWhatCelGoSays: comparisons in any order and nesting, of payloads that
// have the names in any order, lack some, or are broken or cut off anywhere.
func TestConditionsOfManyFormsSayWhatCelGoSays(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(all ...string) string { return all[random.IntN(len(all))] }
	var condition func(depth int) string
	condition = func(depth int) string {
		if depth > 0 && random.IntN(3) > 0 {
			join := pick(" && ", " || ")
			parts := make([]string, 2+random.IntN(3))
			for n := range parts {
				parts[n] = condition(depth - 1)
			}
			return pick("", "", "!") + "(" + strings.Join(parts, join) + ")"
		}
		of := pick("json.a", "json.b", "json.c", "json.a.b", "json.c.d", `json["a b"]`, "subject", "headers.X")
		constant := pick("1", "-2.5", "1e3", "0", `"x"`, `"much longer than a word"`, `""`, "true", "null")
		if of == "subject" || of == "headers.X" {
			constant = pick(`"a.b"`, `"aaa"`, `""`)
		}
		switch relation := pick("==", "!=", "<", "<=", ">", ">=", "has", "in"); {
		case relation == "has" && strings.HasPrefix(of, "json.") || relation == "has" && of == "headers.X":
			return "has(" + of + ")"
		case relation == "in":
			return of + " in [" + constant + `, "y"]`
		case relation == "has" || constant == "true" || constant == "null":
			return of + " == " + constant
		case random.IntN(4) == 0:
			return constant + " " + relation + " " + of
		default:
			return of + " " + relation + " " + constant
		}
	}
	var object func(depth int) string
	object = func(depth int) string {
		var members []string
		for range random.IntN(6) {
			v := pick("1", "-2.5", "1000", "1e3", "0", "-0.0", "12345678901234567890", "01", "1.", `"x"`, `"\u0078"`, `"much longer than a word"`, `"\\"`, `""`, "true", "null", "[1]", "nul", "")
			if depth > 0 && random.IntN(4) == 0 {
				v = object(depth - 1)
			}
			members = append(members, pick(`"a"`, `"b"`, `"c"`, `"d"`, `"a b"`, `"\u0061"`, `"other name"`)+pick(":", " : ")+v)
		}
		return "{" + strings.Join(members, pick(",", ", ", " ,\n")) + "}"
	}
	compared := 0
	for range 1000 {
		text := condition(2)
		f, err := Compile(text)
		if err != nil {
			continue
		}
		if f.direct == nil {
			t.Fatalf("%s is judged by cel-go", text)
		}
		judge := f.NewJudge()
		for range 100 {
			data := object(2)
			if random.IntN(5) == 0 {
				data = data[:random.IntN(len(data)+1)]
			}
			r := &Record{Subject: []byte("a.b"), Header: []byte("NATS/1.0\r\nX: aaa\r\n\r\n"), Data: []byte(data)}
			theirs, why := f.byProgram(r)
			if ours := f.Judge(r); ours != theirs {
				t.Fatalf("%s: our verdict of %q is %d, and cel-go's %d (%v)", text, data, ours, theirs, why)
			}
			if again := judge.Judge(r); again != theirs {
				t.Fatalf("%s: a Judge's verdict of %q is %d, want %d", text, data, again, theirs)
			}
			compared++
		}
	}
	if compared < 50_000 {
		t.Error(fmt.Sprint("only ", compared, " verdicts were compared"))
	}
}
