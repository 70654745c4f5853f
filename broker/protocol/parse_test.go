package protocol

import (
	"errors"
	"strings"
	"testing"
)

var testLimits = Limits{ControlLine: 4096, Payload: 1 << 20}

func TestNextParses(t *testing.T) {
	for _, c := range []struct {
		name, input string
		want        flatOp
	}{
		{"connect", "CONNECT {\"a\":1}\r\n", flatOp{Verb: VerbConnect, JSON: `{"a":1}`}},
		{"connect, spaces around", "CONNECT \t {} \r\n", flatOp{Verb: VerbConnect, JSON: `{}`}},
		{"connect, no space, as nats-server", "CONNECT{}\r\n", flatOp{Verb: VerbConnect, JSON: `{}`}},
		{"ping", "PING\r\n", flatOp{Verb: VerbPing}},
		{"ping, bare LF", "PING\n", flatOp{Verb: VerbPing}},
		{"ping with junk, as nats-server", "PINGPONG x\r\n", flatOp{Verb: VerbPing}},
		{"pong", "pong\r\n", flatOp{Verb: VerbPong}},
		{"ok", "+ok\r\n", flatOp{Verb: VerbOK}},
		{"err", "-ERR 'Slow Consumer'\r\n", flatOp{Verb: VerbErr, Data: "'Slow Consumer'"}},
		{"info", "INFO {}\r\n", flatOp{Verb: VerbInfo, JSON: "{}"}},
		{"pub", "PUB a.b 5\r\nhello\r\n", flatOp{Verb: VerbPub, Subject: "a.b", Data: "hello"}},
		{"pub, empty", "PUB a 0\r\n\r\n", flatOp{Verb: VerbPub, Subject: "a"}},
		{"pub, reply", "PUB a r 2\r\nhi\r\n", flatOp{Verb: VerbPub, Subject: "a", Reply: "r", Data: "hi"}},
		{"pub, tabs and runs of spaces", "pUb\t\ta  \t r \t 2 \t\r\nhi\r\n", flatOp{Verb: VerbPub, Subject: "a", Reply: "r", Data: "hi"}},
		{"pub, bare LF after the control line", "PUB a 2\nhi\r\n", flatOp{Verb: VerbPub, Subject: "a", Data: "hi"}},
		{"pub, CRLF in the payload", "PUB a 4\r\n\r\n\r\n\r\n", flatOp{Verb: VerbPub, Subject: "a", Data: "\r\n\r\n"}},
		{"pub, leading zeros", "PUB a 000000002\r\nhi\r\n", flatOp{Verb: VerbPub, Subject: "a", Data: "hi"}},
		{"pub, wildcards are for others to judge", "PUB a.* 0\r\n\r\n", flatOp{Verb: VerbPub, Subject: "a.*"}},
		{"hpub", "HPUB a 12 14\r\nNATS/1.0\r\n\r\nhi\r\n", flatOp{Verb: VerbPub, HasHeader: true, Header: 12, Subject: "a", Data: "NATS/1.0\r\n\r\nhi"}},
		{"hpub, reply", "hpub a r 12 12\r\nNATS/1.0\r\n\r\n\r\n", flatOp{Verb: VerbPub, HasHeader: true, Header: 12, Subject: "a", Reply: "r", Data: "NATS/1.0\r\n\r\n"}},
		{"hpub, empty header", "HPUB a 0 2\r\nhi\r\n", flatOp{Verb: VerbPub, HasHeader: true, Subject: "a", Data: "hi"}},
		{"sub", "SUB a.> 12\r\n", flatOp{Verb: VerbSub, Subject: "a.>", SID: "12"}},
		{"sub, queue", "SUB a workers x-1\r\n", flatOp{Verb: VerbSub, Subject: "a", Queue: "workers", SID: "x-1"}},
		{"unsub", "UNSUB 12\r\n", flatOp{Verb: VerbUnsub, SID: "12"}},
		{"unsub, max", "UNSUB 12 100\r\n", flatOp{Verb: VerbUnsub, SID: "12", Max: 100}},
		{"unsub, a max that is none", "UNSUB 12 -1\r\n", flatOp{Verb: VerbUnsub, SID: "12"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var op Op
			n, need, err := Next([]byte(c.input+"PING\r\n"), testLimits, &op)
			if err != nil || n != len(c.input) || need != 0 {
				t.Fatalf("Next(%q) took %d of %d, needs %d, error %v", c.input, n, len(c.input), need, err)
			}
			if got := flatten(&op); got != c.want {
				t.Fatalf("Next(%q)\n got %+v\nwant %+v", c.input, got, c.want)
			}
			// Only the complete operation yields it, and no prefix is an error.
			for cut := range len(c.input) {
				n, need, err := Next([]byte(c.input[:cut]), testLimits, &op)
				if n != 0 || err != nil || need != 0 && need != len(c.input) {
					t.Fatalf("Next(%q) took %d, needs %d, error %v; the operation has %d bytes", c.input[:cut], n, need, err, len(c.input))
				}
			}
		})
	}
}

func TestNextRefuses(t *testing.T) {
	long := strings.Repeat("x", 4096)
	for _, c := range []struct {
		name, input, text string
	}{
		{"an unknown verb", "GET / HTTP/1.1\r\n", "Unknown Protocol Operation"},
		{"a verb gone wrong, before its line has ended", "PUX", "Unknown Protocol Operation"},
		{"a verb run on", "PUBLISH", "Unknown Protocol Operation"},
		{"a verb with no arguments at all", "SUB\r\n", "Unknown Protocol Operation"},
		{"an empty line", "\r\n", "Unknown Protocol Operation"},
		{"a leading space", " PING\r\n", "Unknown Protocol Operation"},
		{"a server's verb", "MSG a 1 0\r\n\r\n", "Unknown Protocol Operation"},
		{"a letter that only Unicode folds", "\u017fub a 1\r\n", "Unknown Protocol Operation"},
		{"pub: no size", "PUB a\r\n", "Parser Error"},
		{"pub: nothing", "PUB \r\n", "Parser Error"},
		{"pub: too many arguments", "PUB a b c 1\r\n", "Parser Error"},
		{"pub: many too many arguments", "PUB a b c d e f 1\r\n", "Parser Error"},
		{"pub: a negative size", "PUB a -1\r\n", "Parser Error"},
		{"pub: a signed size", "PUB a +1\r\n", "Parser Error"},
		{"pub: a size that is no number", "PUB a 1x\r\n", "Parser Error"},
		{"pub: a size that overflows", "PUB a 18446744073709551617\r\n", "Parser Error"},
		{"pub: a carriage return in the subject", "PUB a\rb 1\r\n", "Parser Error"},
		{"pub: over the limit, before any payload", "PUB a 1048577\r\n", "Maximum Payload Violation"},
		{"pub: payload longer than its size", "PUB a 1\r\nx!", "Unknown Protocol Operation"},
		{"pub: payload with a bare LF", "PUB a 1\r\nx\n", "Unknown Protocol Operation"},
		{"pub: payload with a lone CR", "PUB a 1\r\nx\rP", "Unknown Protocol Operation"},
		{"hpub: one size", "HPUB a 1\r\n", "Parser Error"},
		{"hpub: too many arguments", "HPUB a b c 1 1\r\n", "Parser Error"},
		{"hpub: header longer than total", "HPUB a 13 12\r\n", "Parser Error"},
		{"hpub: a negative header", "HPUB a -1 12\r\n", "Parser Error"},
		{"hpub: a bad total", "HPUB a 1 1.5\r\n", "Parser Error"},
		{"hpub: a carriage return", "HPUB a \r 1 1\r\n", "Parser Error"},
		{"hpub: over the limit", "HPUB a 12 1048577\r\n", "Maximum Payload Violation"},
		{"sub: no sid", "SUB a\r\n", "Parser Error"},
		{"sub: too many arguments", "SUB a b c d\r\n", "Parser Error"},
		{"sub: a carriage return", "SUB a\rb 1\r\n", "Parser Error"},
		{"unsub: no sid", "UNSUB \r\n", "Parser Error"},
		{"unsub: too many arguments", "UNSUB a b c\r\n", "Parser Error"},
		{"unsub: a carriage return", "UNSUB a\rb\r\n", "Parser Error"},
		{"a huge line that has not ended", "SUB " + long + "x", "maximum control line exceeded"},
		{"a huge line that has ended", "SUB " + long + " 1\r\n", "maximum control line exceeded"},
		{"a huge CONNECT", "CONNECT " + long, "maximum control line exceeded"},
		{"a huge PING", "PING" + long + "x", "maximum control line exceeded"},
		{"huge blanks", "PUB " + strings.Repeat(" ", 4097), "maximum control line exceeded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var op Op
			n, need, err := Next([]byte(c.input), testLimits, &op)
			var e *Error
			if !errors.As(err, &e) || e.Text() != c.text {
				t.Fatalf("Next(%.60q) = %d, %d, %v; want the error %q", c.input, n, need, err, c.text)
			}
			if !e.Closes() {
				t.Errorf("%v: the connection stays open, though the stream cannot be followed any further", e)
			}
			if n != 0 || need != 0 {
				t.Errorf("took %d bytes and needs %d beside an error", n, need)
			}
		})
	}
}

func TestControlLineLimitIsExact(t *testing.T) {
	lim := Limits{ControlLine: 10, Payload: 10}
	var op Op
	for _, end := range []string{"\n", "\r\n"} {
		if n, _, err := Next([]byte("SUB 12345678 1"+end), lim, &op); n == 0 || err != nil {
			t.Errorf("a line of just the limit, ended by %q: took %d, error %v", end, n, err)
		}
		if _, _, err := Next([]byte("SUB 123456789 1"+end), lim, &op); !errors.Is(err, ErrMaxControlLine) {
			t.Errorf("a line of one more than the limit, ended by %q: error %v", end, err)
		}
	}
	if _, _, err := Next([]byte("SUB 12345678 1\r"), lim, &op); err != nil {
		t.Errorf("the CR of a line's end was counted: %v", err)
	}
	// Without a limit of its own, a stream has the limit that clients expect.
	if _, _, err := Next([]byte("SUB "+strings.Repeat("x", 4096)), Limits{}, &op); err != nil {
		t.Errorf("4096 bytes: %v", err)
	}
	if _, _, err := Next([]byte("SUB "+strings.Repeat("x", 4097)), Limits{}, &op); !errors.Is(err, ErrMaxControlLine) {
		t.Errorf("4097 bytes: error %v", err)
	}
}

func TestNeedSizesTheReadersBuffer(t *testing.T) {
	var op Op
	head := "HPUB a 4 1000\r\n"
	n, need, err := Next([]byte(head), testLimits, &op)
	if n != 0 || err != nil || need != len(head)+1000+2 {
		t.Fatalf("took %d, needs %d, error %v; want to need %d", n, need, err, len(head)+1002)
	}
	whole := head + strings.Repeat("x", 1000) + "\r\n"
	if n, need, err = Next([]byte(whole), testLimits, &op); n != len(whole) || need != 0 || err != nil {
		t.Fatalf("with what it needed: took %d of %d, needs %d, error %v", n, len(whole), need, err)
	}
}

// TestAppendingToASliceOverwritesNothing: appending to a slice of an Op must not overwrite what
// follows it in the reader's buffer.
func TestAppendingToASliceOverwritesNothing(t *testing.T) {
	var op Op
	if _, _, err := Next([]byte("HPUB subject reply 1 5\r\nhello\r\n"), testLimits, &op); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"subject": op.Subject, "reply": op.Reply, "data": op.Data} {
		if cap(b) != len(b) {
			t.Errorf("appending to the %s %q would overwrite the buffer", name, b)
		}
	}
}

func TestNextAllocatesNothing(t *testing.T) {
	for _, input := range []string{
		"PUB a.b.c 5\r\nhello\r\n", "PUB a r 5\r\nhello\r\n", "HPUB a 12 14\r\nNATS/1.0\r\n\r\nhi\r\n",
		"SUB a q 1\r\n", "UNSUB 1 5\r\n", "PING\r\n", "CONNECT {}\r\n",
		"PUB a 5\r\nhel", "PUB a", "PUB a -1\r\n", "nonsense", "PUB a 99999999\r\n",
	} {
		buf := []byte(input)
		var op Op
		if allocs := testing.AllocsPerRun(100, func() { _, _, _ = Next(buf, testLimits, &op) }); allocs != 0 {
			t.Errorf("Next(%q) allocates %v times", input, allocs)
		}
	}
}

func BenchmarkNext(b *testing.B) {
	for _, c := range []struct{ name, op string }{
		{"pub 128 B", "PUB bench.subject.1 128\r\n" + strings.Repeat("x", 128) + "\r\n"},
		{"pub 128 B, reply", "PUB bench.subject.1 _INBOX.abcdefghijklmnopqrstuv.wxyz 128\r\n" + strings.Repeat("x", 128) + "\r\n"},
		{"hpub 128 B", "HPUB bench.subject.1 30 128\r\n" + strings.Repeat("x", 128) + "\r\n"},
		{"pub 16 KiB", "PUB bench.subject.1 16384\r\n" + strings.Repeat("x", 16384) + "\r\n"},
		{"sub", "SUB bench.subject.1 12\r\n"},
		{"ping", "PING\r\n"},
	} {
		b.Run(c.name, func(b *testing.B) {
			// As in a reader's buffer, further operations follow.
			buf := []byte(strings.Repeat(c.op, 1+65536/len(c.op)))
			at := 0
			var op Op
			b.ReportAllocs()
			b.SetBytes(int64(len(c.op)))
			for b.Loop() {
				n, _, err := Next(buf[at:], testLimits, &op)
				if n != len(c.op) || err != nil {
					b.Fatal(n, err)
				}
				if at += n; at == len(buf) {
					at = 0
				}
			}
		})
	}
}
