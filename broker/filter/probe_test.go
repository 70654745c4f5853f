package filter

import (
	"fmt"
	"testing"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestWhatAProbeExcludesIsJudgedAndDoesNotMatch: for conditions and payloads of all kinds, a record
// whose hash is none of the constants' has the verdict No; and never Failed.
func TestWhatAProbeExcludesIsJudgedAndDoesNotMatch(t *testing.T) {
	values := []string{`"eu"`, `"us"`, `"\u0065u"`, `"e\\u"`, "1", "1.0", "-0", "0", "1e400", "NaN", "true", "null", "{}", `{"b":"eu"}`, `[1`, `["eu"]`, `"eu`, ""}
	var payloads []string
	for _, v := range values {
		for _, w := range []string{`"x"`, "2", "{", "3"} {
			payloads = append(payloads, fmt.Sprintf(`{"a":%s,"z":%s}`, v, w), fmt.Sprintf(`{"z":%s,"a":%s}`, w, v), fmt.Sprintf(`{"a":%s,"a":"eu"`, v))
		}
		payloads = append(payloads, v)
	}
	excluded, judged := 0, 0
	for _, text := range []string{
		`json.a == "eu"`, `"eu" == json.a`, `json.a in ["eu", 1, 0]`, `json.a == 1 && json.z > 1.0`, `json.z == 3 && json.a == "eu"`,
		`json.a.b == "eu" && has(json.z)`, `json["a"] == 0.0`, `(json.a == "eu" && json.z == 2) && headers.N == "x"`,
		`headers.N == "x" && json.a == "eu"`, `"N" in headers && headers.N == "y"`, `json.a == "eu" && !(json.z == 2 || json.q == 1)`,
	} {
		f, err := Compile(text)
		testutil.Must(t, err)
		p := f.NewProbe()
		if p == nil {
			t.Fatalf("%s: no probe", text)
		}
		for _, header := range []string{"", "NATS/1.0\r\nN: x\r\n\r\n", "NATS/1.0\r\nO: x\r\n\r\n"} {
			for _, payload := range payloads {
				r := Record{Header: []byte(header), Data: []byte(payload)}
				hash, ok := p.Hash(&r)
				wanted := false
				for _, h := range p.Hashes() {
					wanted = wanted || h == hash
				}
				verdict := f.Judge(&r)
				if judged++; ok && !wanted {
					if excluded++; verdict != No || f.Why(&r) != nil {
						t.Errorf("%s excludes %q %s, whose verdict is %d: %v", text, header, payload, verdict, f.Why(&r))
					}
				}
			}
		}
	}
	if excluded < judged/10 {
		t.Errorf("%d of %d are excluded", excluded, judged)
	}
	for _, text := range []string{`json.a == "eu" || json.z == 1`, `json.a != "eu"`, `json.a == true`, `json.a == json.z`, `subject == "eu"`, `json.a == "eu" && json.z.contains("x")`, `json.a == "eu" && json.l.exists(i, i == 1)`} {
		f, err := Compile(text)
		testutil.Must(t, err)
		if f.NewProbe() != nil {
			t.Errorf("%s has a probe", text)
		}
	}
	paths := map[string]bool{}
	for _, text := range []string{`json.a.b == 1`, `json["a.b"] == 1`, `json["a\".\"b"] == 1`, `headers.a == "1"`, `json.a == 1`} {
		f, err := Compile(text)
		testutil.Must(t, err)
		paths[f.NewProbe().Path()] = true
	}
	if len(paths) != 5 {
		t.Errorf("%v", paths)
	}
}
