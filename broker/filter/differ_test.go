package filter

import (
	"strings"
	"testing"
)

// FuzzJudge: our own nodes say of each record what cel-go says of it, and no input makes either of
// them panic, or take long.
func FuzzJudge(f *testing.F) {
	payloads := []string{
		string(order.Data), `{}`, `[]`, `null`, `{"a":{"b":1}}`, `{"a":{"b":{"c":"x"}},"a":{"b":2}}`, `{"a":[1,2,{"b":3}],"b":"\u0041\ud83d\ude00\ud83d"}`,
		`{"a":{"b":1 "c":2},"b":"x"}`, `{"a":{"b":1`, `{"a":tru,"b":-0.5e-3}`, `{"a":1e999,"b":-}`, `{"\u0061":1,"b":12345678901234567890}`, `{"a":"x\q\u12","b":{}}`,
		`{"a":[1,{"b":],"b":1}`, `{"a":1,}`, `{,}`, `{"a":nul,"b":"1"}`, `{"a":0.1234567890123456,"b":9007199254740993}`,
	}
	for _, text := range []string{
		`json.a == 1`, `json.a.b == 1 && json.b != "x"`, `has(json.a.b) || has(json.b)`, `json.a.b.c in ["x", 1, null]`, `!(json.a > 0.5) || json.b <= "A"`,
		`json.b == -0.0005`, `json.a && json.b`, `has(json.a.b.c) == false`, `json.a.b.startsWith("x")`, `json["a"]["b"] < 3 || headers.X > "a"`,
		`"X" in headers && headers["X"].matches("^a+$")`, `subject in ["a.b", "x"] && time > timestamp("2026-01-01T00:00:00Z")`,
		`json.a == null || json.b == true`, `1.5 <= json.a`, `json == 1`, `json.a.exists(x, x == 2)`, `json.a == json.b`, `json.a[0] == 1`,
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
