package bench

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

func TestPubAcksAsServersWriteThem(t *testing.T) {
	for text, want := range map[string]pubAck{
		`{"stream":"S", "seq":22}`:                         {stream: []byte("S"), sequence: 22},
		`{"stream":"a-b_c","seq":1}`:                       {stream: []byte("a-b_c"), sequence: 1},
		" { \"stream\" : \"S\" ,\n\t\"seq\" : 7 } ":        {stream: []byte("S"), sequence: 7},
		`{"stream":"S","seq":3,"duplicate":true}`:          {stream: []byte("S"), sequence: 3, duplicate: true},
		`{"type":"x","stream":"S","domain":"hub","seq":4}`: {stream: []byte("S"), sequence: 4},
		`{"stream":"\u0053","seq":5}`:                      {stream: []byte("S"), sequence: 5},
		`{"stream":"S","seq":18446744073709551615}`:        {stream: []byte("S"), sequence: 1<<64 - 1},
		`{"seq":6,"stream":"S"}`:                           {stream: []byte("S"), sequence: 6},
		`{"stream":"S","seq":8,"batch":"b","count":2}`:     {stream: []byte("S"), sequence: 8},
	} {
		got, err := readPubAck([]byte(text))
		if err != nil || string(got.stream) != string(want.stream) || got.sequence != want.sequence || got.duplicate != want.duplicate {
			t.Errorf("%s is read as %q %d %v, %v", text, got.stream, got.sequence, got.duplicate, err)
		}
	}
	for text, want := range map[string]string{
		"": "nobody answers", "+OK": "can't be read", `{"stream":"S","seq":`: "can't be read", `{"stream":"S","seq":1}x`: "can't be read",
		`{"stream":"S","seq":-1}`: "can't be read", `{"stream":"S","seq":99999999999999999999}`: "can't be read",
		`{"error":{"code":503,"err_code":10077,"description":"maximum bytes exceeded"}}`:                       "maximum bytes exceeded (10077)",
		`{"stream":"S","seq":1,"error":{"code":503,"err_code":10008,"description":"temporarily unavailable"}}`: "temporarily unavailable (10008)",
	} {
		if got, err := readPubAck([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is read as %+v, %v; want something about %q", text, got, err, want)
		}
	}
}

// FuzzReadPubAck: the short way and encoding/json never disagree.
func FuzzReadPubAck(f *testing.F) {
	f.Add(`{"stream":"S", "seq":22}`)
	f.Add(`{"stream":"S","seq":3,"duplicate":true}`)
	f.Add(`{"stream":"S\"","seq":007}`)
	f.Fuzz(func(t *testing.T, text string) {
		short, ok := scanPubAck([]byte(text))
		if !ok {
			return
		}
		// What is blank at its end only encoding/json sees.
		whole, err := readPubAck([]byte(text))
		if err != nil || string(whole.stream) != string(short.stream) || whole.sequence != short.sequence {
			t.Errorf("%q: %+v, and %+v, %v", text, short, whole, err)
		}
	})
}

func TestAckAccount(t *testing.T) {
	a := newAckAccount("S", 2, 1000, 100, 200)
	send := func(publisher int, at int64) {
		if _, ok := a.send(publisher, at); !ok {
			t.Fatal("a message is refused")
		}
	}
	answer := func(publisher, number, sequence int, at int64, first bool) {
		t.Helper()
		if got := a.answer(publisher, number, fmt.Appendf(nil, `{"stream":"S","seq":%d}`, sequence), at); got != first {
			t.Errorf("message %d of publisher %d: first answer %v", number, publisher, got)
		}
	}
	for at := range int64(4) {
		send(0, 90+at)
	}
	send(1, 95)
	answer(0, 0, 1, 99, true) // before what counts
	answer(0, 1, 2, 101, true)
	answer(0, 1, 2, 102, false) // again
	answer(0, 3, 5, 103, true)
	answer(0, 2, 4, 104, true)  // late, and right where it stands
	answer(1, 0, 3, 200, true)  // after what counts
	answer(1, 1, 6, 150, false) // never sent
	answer(2, 0, 6, 150, false) // no such publisher
	answer(-1, 0, 6, 150, false)
	if got, want := a.close(), (Acks{Published: 5, Acked: 5, Duplicated: 1, OutOfOrder: 1, Wrong: 3}); got != want {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if l := a.latency.summary(); l.Count != 3 || l.Min != 10 || l.Max != 12 {
		t.Errorf("latency %+v", l)
	}

	// On one connection a later message can't stand before an earlier one.
	a = newAckAccount("S", 1, 3, 0, 1000)
	send(0, 1)
	send(0, 1)
	send(0, 1)
	if _, ok := a.send(0, 1); ok {
		t.Error("more is sent than the limit allows")
	}
	answer(0, 0, 3, 2, true)
	answer(0, 1, 2, 2, true)
	if got := a.close(); got.Wrong != 1 || got.Unanswered != 1 || !strings.Contains(a.refusal.Error(), "sequence 2 was given to a message that was sent after that of 3") {
		t.Errorf("got %+v, %v", got, a.refusal)
	}
}

// TestAcksAllocateNothing: accounting an ack is on the measured path, so it must not allocate.
func TestAcksAllocateNothing(t *testing.T) {
	a := newAckAccount("bench-0", 1, 1<<20, 0, 1<<40)
	a.taken = make(bitmap, 1<<10)
	ack := []byte(`{"stream":"bench-0","seq":`)
	text := make([]byte, 0, 64)
	if n := testing.AllocsPerRun(10*chunkMessages, func() {
		number, _ := a.send(0, 5)
		text = append(strconv.AppendInt(append(text[:0], ack...), int64(number+1), 10), '}')
		a.answer(0, number, text, 9)
	}); n >= 1 { // but for a chunk now and then
		t.Errorf("%v allocations per message", n)
	}
	if a.acks.Wrong > 0 {
		t.Error(a.refusal)
	}
}

func TestNumbersInAcksAreParsed(t *testing.T) {
	for text, want := range map[string]int{"0": 0, "17": 17, "123456789": 123456789} {
		if got, ok := parseNumber([]byte(text)); !ok || got != want {
			t.Errorf("%q is %d, %v", text, got, ok)
		}
	}
	for _, wrong := range []string{"", "x", "1x", "-1", "99999999999999999999999999"} {
		if got, ok := parseNumber([]byte(wrong)); ok {
			t.Errorf("%q is %d", wrong, got)
		}
	}
}
