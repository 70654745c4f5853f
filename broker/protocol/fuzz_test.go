package protocol

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
)

// fuzzLimits are small, so that short inputs reach them.
var fuzzLimits = Limits{ControlLine: 40, Payload: 50}

// FuzzNext compares Next with the reference parser, fed in one piece and in random pieces.
func FuzzNext(f *testing.F) {
	for _, seed := range []string{
		"CONNECT {\"verbose\":false}\r\nPING\r\n",
		"PUB a 5\r\nhello\r\nPUB a b 0\r\n\r\n",
		"HPUB a 12 14\r\nNATS/1.0\r\n\r\nhi\r\nHPUB a r 12 12\r\nNATS/1.0\r\n\r\n\r\n",
		"SUB a 1\r\nSUB a.* q 2\r\nUNSUB 1\r\nUNSUB 2 10\r\n",
		"pub\ta \t 1\nx\r\nPiNg junk\nPONG\r\n+OK\r\n-ERR 'x'\r\nINFO {}\r\n",
		"PUB a 51\r\n", "PUB a -1\r\n", "PUB a 99999999999999999999\r\n", "HPUB a 5 4\r\n", "PUB a 1\r\nxx\r\n",
		"PUB a\rb 1\r\nx\r\n", "PUB \r\n", "PUB\r\n", "UNSUB 1 x\r\n", "\r\n", "GET / HTTP/1.1\r\n\r\n",
		"SUB " + strings.Repeat("a", 50),
		"PING" + strings.Repeat(" ", 41) + "\r\n",
		"PING" + strings.Repeat(" ", 40) + "\r\n",
	} {
		f.Add([]byte(seed), uint64(1))
	}
	f.Fuzz(func(t *testing.T, input []byte, seed uint64) {
		wantOps, wantRest, wantErr := reference(string(input), fuzzLimits)
		want := result{wantOps, wantRest, wantErr}
		whole := feed(t, input, func(left int) int { return left })
		whole.compare(t, "in one piece", want)
		random := rand.New(rand.NewPCG(seed, 0))
		split := feed(t, input, func(left int) int { return 1 + random.IntN(min(left, 12)) })
		// In pieces, an error may be detected before the rest of the input arrives.
		if want.err != "" {
			want.rest, split.rest = "", ""
		}
		split.compare(t, "in pieces", want)
	})
}

// result is the outcome of a stream: its operations, and the bytes and the error that ended it.
type result struct {
	ops  []flatOp
	rest string
	err  string
}

func (r result) compare(t *testing.T, how string, want result) {
	t.Helper()
	for i := range min(len(r.ops), len(want.ops)) {
		if r.ops[i] != want.ops[i] {
			t.Fatalf("%s: operation %d is\n%+v, want\n%+v", how, i, r.ops[i], want.ops[i])
		}
	}
	if len(r.ops) != len(want.ops) || r.rest != want.rest || r.err != want.err {
		t.Fatalf("%s: %d operations, rest %q, error %q; want %d, %q, %q",
			how, len(r.ops), r.rest, r.err, len(want.ops), want.rest, want.err)
	}
}

// feed passes input to Next as a connection's reader does: it appends a piece, takes all complete
// operations, and keeps the rest. piece returns the size of the next piece.
func feed(t *testing.T, input []byte, piece func(left int) int) (r result) {
	t.Helper()
	var buf []byte
	for len(input) > 0 {
		n := piece(len(input))
		buf, input = append(buf, input[:n]...), input[n:]
		for len(buf) > 0 {
			var op Op
			before := bytes.Clone(buf)
			n, need, err := Next(buf, fuzzLimits, &op)
			if !bytes.Equal(buf, before) {
				t.Fatalf("Next changed its input %q to %q", before, buf)
			}
			if err != nil {
				var e *Error
				if !errors.As(err, &e) || n != 0 || need != 0 {
					t.Fatalf("Next(%q) = %d, %d, %#v; want 0, 0 and an *Error", buf, n, need, err)
				}
				r.rest, r.err = string(buf), e.Text()
				return r
			}
			if n == 0 {
				if need != 0 && (need <= len(buf) || need > len(buf)+fuzzLimits.Payload+2) {
					t.Fatalf("Next(%q) needs %d bytes and has %d", buf, need, len(buf))
				}
				break
			}
			if n > len(buf) || need != 0 {
				t.Fatalf("Next(%q) took %d, needs %d", buf, n, need)
			}
			r.ops = append(r.ops, flatten(&op))
			buf = buf[n:]
		}
	}
	r.rest = string(buf)
	return r
}
