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

// TestHashesOfAProbeStayTheSame: they are in files. Those of another key are different.
func TestHashesOfAProbeStayTheSame(t *testing.T) {
	text := []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}
	// The example of the paper that defines SipHash.
	if got := sipHash(0x0706050403020100, 0x0f0e0d0c0b0a0908, text); got != 0xa129ca6149be45e5 {
		t.Errorf("the hash is %#x", got)
	}
	f, err := Compile(`json.a in ["eu", "", 12.5, -0.0]`)
	testutil.Must(t, err)
	p := f.NewProbe()
	p.SetKey(7)
	if got, want := fmt.Sprintf("%x", p.Hashes()), "[6301f3ac5b564ebf 2b074ff9802900fa c6940ad563eeaded 8081f549c31a8e63]"; got != want || p.Path() != `json."a"` {
		t.Errorf("%s: %s", p.Path(), got)
	}
	for n, value := range []string{`"eu"`, `""`, "12.5", "0"} {
		is := &Record{Data: []byte(`{"a":` + value + `}`)}
		hash, ok := p.Hash(is)
		p.SetKey(8)
		other, _ := p.Hash(is)
		p.SetKey(7)
		if !ok || hash != p.Hashes()[n] || hash == other {
			t.Errorf("%s: %x and %x", value, hash, other)
		}
	}
}
