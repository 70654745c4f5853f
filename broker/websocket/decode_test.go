package websocket

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
)

// frame encodes a client's frame. first is its first byte.
func frame(first byte, payload string) []byte {
	return frameOf(first, payload, 0x80, len(payload))
}

// frameOf encodes a frame with any bit for the mask, and any announced length.
func frameOf(first byte, payload string, mask byte, length int) []byte {
	b := []byte{first}
	switch {
	case length < 126:
		b = append(b, mask|byte(length))
	case length < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, mask|126), uint16(length))
	default:
		b = binary.BigEndian.AppendUint64(append(b, mask|127), uint64(length))
	}
	key := [4]byte{byte(rand.Uint32()), byte(rand.Uint32()), byte(rand.Uint32()), byte(rand.Uint32())}
	if mask == 0 {
		key = [4]byte{}
	} else {
		b = append(b, key[:]...)
	}
	for i := range len(payload) {
		b = append(b, payload[i]^key[i%4])
	}
	return b
}

// pieces decodes input in pieces of the sizes that next returns.
func pieces(d *Decoder, input []byte, next func() int) (payload []byte, pongs [][]byte, err error) {
	for len(input) > 0 && err == nil {
		piece := bytes.Clone(input[:min(next(), len(input))])
		input = input[len(piece):]
		var n int
		n, err = d.Decode(piece)
		payload = append(payload, piece[:n]...)
		if pong := d.TakePong(); pong != nil {
			pongs = append(pongs, pong)
		}
	}
	return payload, pongs, err
}

func one() int { return 1 }
func all() int { return 1 << 30 }

// TestFramesOfAnySizeComeInPiecesOfAnySize: payloads of all sizes, in whole messages and fragments,
// as text and binary, with control frames between, come out as one stream.
func TestFramesOfAnySizeComeInPiecesOfAnySize(t *testing.T) {
	var input, want []byte
	for i := range 400 {
		payload := strings.Repeat("abcdefghijklm", 20)[:rand.IntN(260)]
		if i%50 == 0 {
			payload = strings.Repeat("0123456789", 7000)
		}
		want = append(want, payload...)
		opcode := byte(1 + rand.IntN(2))
		if rand.IntN(2) == 0 {
			input = append(input, frame(0x80|opcode, payload)...)
			continue
		}
		cut := rand.IntN(len(payload) + 1)
		input = append(input, frame(opcode, payload[:cut])...)
		input = append(input, frame(0x80|9+byte(rand.IntN(2)), "are you there?")...)
		input = append(input, frame(0, "")...)
		input = append(input, frame(0x80, payload[cut:])...)
	}
	for name, next := range map[string]func() int{"one": one, "all": all, "few": func() int { return 1 + rand.IntN(20) }, "many": func() int { return 1 + rand.IntN(9000) }} {
		got, _, err := pieces(new(Decoder), input, next)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes of %d came, %v", name, len(got), len(want), err)
		}
	}
}

func TestTheNewestPingIsAnswered(t *testing.T) {
	input := append(append(frame(0x89, "old"), frame(0x89, strings.Repeat("x", 125))...), frame(0x8a, "a pong")...)
	for name, next := range map[string]func() int{"one": one, "all": all} {
		_, pongs, err := pieces(new(Decoder), input, next)
		if want := "\x8a\x7d" + strings.Repeat("x", 125); err != nil || len(pongs) == 0 || string(pongs[len(pongs)-1]) != want {
			t.Errorf("%s: answered with %q, %v", name, pongs, err)
		}
	}
	d := new(Decoder)
	if _, pongs, _ := pieces(d, frame(0x89, ""), all); len(pongs) != 1 || string(pongs[0]) != "\x8a\x00" {
		t.Errorf("an empty ping is answered with %q", pongs)
	}
	if d.TakePong() != nil {
		t.Error("a pong comes twice")
	}
}

// TestWhatBreaksTheRulesEndsTheStream: with its status, at the same byte however it comes, and
// nothing is decoded behind it.
func TestWhatBreaksTheRulesEndsTheStream(t *testing.T) {
	good := frame(0x82, "good")
	for name, tc := range map[string]struct {
		bytes  []byte
		status Status
	}{
		"no mask":                           {frameOf(0x82, "x", 0, 1), Protocol},
		"first reserved bit":                {frame(0xc2, "x"), Protocol},
		"second reserved bit":               {frame(0xa2, "x"), Protocol},
		"third reserved bit":                {frame(0x92, "x"), Protocol},
		"opcode 3":                          {frame(0x83, "x"), Protocol},
		"opcode 7":                          {frame(0x87, "x"), Protocol},
		"opcode 11":                         {frame(0x8b, "x"), Protocol},
		"opcode 15":                         {frame(0x8f, "x"), Protocol},
		"fragmented ping":                   {frame(0x09, "x"), Protocol},
		"fragmented close":                  {frame(0x08, ""), Protocol},
		"long ping":                         {frame(0x89, strings.Repeat("x", 126)), Protocol},
		"ping of 70,000 bytes":              {frame(0x89, strings.Repeat("x", 70_000)), Protocol},
		"continuation of nothing":           {frame(0x80, "x"), Protocol},
		"continuation after the end":        {append(append(frame(0x02, ""), frame(0x80, "")...), frame(0x00, "x")...), Protocol},
		"message in a message":              {append(frame(0x01, ""), frame(0x82, "x")...), Protocol},
		"length beyond 63 bits":             {[]byte{0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4}, Protocol},
		"half a status":                     {frame(0x88, "\x03"), Protocol},
		"status 999":                        {frame(0x88, "\x03\xe7"), Protocol},
		"status 1005":                       {frame(0x88, "\x03\xed"), Protocol},
		"status 1015":                       {frame(0x88, "\x03\xf7"), Protocol},
		"status 2999":                       {frame(0x88, "\x0b\xb7"), Protocol},
		"status 5000":                       {frame(0x88, "\x13\x88"), Protocol},
		"a reason that is not UTF-8":        {frame(0x88, "\x03\xe8\xff\xfe"), InvalidText},
		"a reason that ends in a character": {frame(0x88, "\x03\xe8\xc3"), InvalidText},
	} {
		input := append(append(bytes.Clone(good), tc.bytes...), good...)
		for how, next := range map[string]func() int{"one": one, "all": all} {
			d := new(Decoder)
			got, _, err := pieces(d, input, next)
			end := (*End)(nil)
			if !errors.As(err, &end) || end.Status != tc.status || end.ByClient || end.Text == "" || string(got) != "good" {
				t.Errorf("%s, %s: %q, %v", name, how, got, err)
			}
			again := bytes.Clone(good)
			if n, err := d.Decode(again); n != 0 || err != error(end) {
				t.Errorf("%s, %s: goes on after the end: %d, %v", name, how, n, err)
			}
		}
	}
}

func TestAClientCloses(t *testing.T) {
	for payload, want := range map[string]Status{"": NoStatus, "\x03\xe8": Normal, "\x03\xe9bye": GoingAway, "\x0b\xb8": 3000, "\x13\x87ü": 4999} {
		got, _, err := pieces(new(Decoder), append(frame(0x82, "last"), frame(0x88, payload)...), one)
		end := (*End)(nil)
		if !errors.As(err, &end) || !end.ByClient || end.Status != want || string(got) != "last" {
			t.Errorf("%q: %q, %v", payload, got, err)
		}
	}
}

func TestACloseFrameIsAtMostAControlFrame(t *testing.T) {
	for _, text := range []string{"", "short", strings.Repeat("x", 123), strings.Repeat("x", 500), strings.Repeat("ü", 100), "x" + strings.Repeat("ü", 100)} {
		f := AppendClose(nil, TooBig, text)
		masked := frame(0x88, string(f[2:]))
		_, err := new(Decoder).Decode(masked)
		end := (*End)(nil)
		if !errors.As(err, &end) || !end.ByClient || end.Status != TooBig || int(f[1]) != len(f)-2 || len(f) > 127 {
			t.Errorf("%q: %q, %v", text, f, err)
		}
	}
	if f := AppendClose(nil, NoStatus, "text"); string(f) != "\x88\x00" {
		t.Errorf("without a status: %q", f)
	}
}

func TestDecodingAllocatesNothing(t *testing.T) {
	input := append(frame(0x02, strings.Repeat("x", 5000)), frame(0x80, "y")...)
	input = append(input, frame(0x82, strings.Repeat("z", 100))...)
	// What is announced is not allocated.
	huge := frameOf(0x82, "abc", 0x80, 1<<62)
	b, d := make([]byte, len(input)), new(Decoder)
	if n := testing.AllocsPerRun(100, func() {
		copy(b, input)
		if n, err := d.Decode(b); n != 5101 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
	if n, err := d.Decode(bytes.Clone(huge)); n != 3 || err != nil || d.left != 1<<62-3 {
		t.Errorf("of a huge frame %d bytes came and %d are left, %v", n, d.left, err)
	}
	if n := testing.AllocsPerRun(10, func() {
		d := new(Decoder)
		copy(b, huge)
		_, _ = d.Decode(b[:len(huge)])
	}); n > 0 {
		t.Errorf("%v allocations for a huge frame", n)
	}
}

// naive decodes as simply as can be: it has all bytes, and copies.
func naive(b []byte) (payload []byte, pong []byte, end bool) {
	incomplete := false
	for {
		if len(b) < 2 {
			return payload, pong, false
		}
		first, second := b[0], b[1]
		opcode, length, at := first&15, uint64(second&127), 2
		final, control := first&128 != 0, opcode >= 8
		ok := first&0x70 == 0 && second&128 != 0 && (opcode <= 2 || opcode >= 8 && opcode <= 10)
		if control {
			ok = ok && final && length <= 125
		} else {
			ok = ok && (opcode == 0) == incomplete
		}
		if !ok {
			return payload, pong, true
		}
		if length >= 126 {
			size := 2
			if length == 127 {
				size = 8
			}
			if len(b) < at+size {
				return payload, pong, false
			}
			length = 0
			for _, digit := range b[at : at+size] {
				length = length<<8 | uint64(digit)
			}
			at += size
		}
		if len(b) < at+4 {
			return payload, pong, false
		}
		if length >= 1<<63 {
			return payload, pong, true
		}
		key := b[at : at+4]
		b = b[at+4:]
		n := int(min(length, uint64(len(b))))
		var plain []byte
		for i := range n {
			plain = append(plain, b[i]^key[i%4])
		}
		b = b[n:]
		whole := uint64(n) == length
		switch {
		case !control:
			payload = append(payload, plain...)
			incomplete = !final || incomplete && !whole
		case !whole:
			return payload, pong, false
		case opcode == 8:
			return payload, pong, true
		case opcode == 9:
			pong = append([]byte{0x8a, byte(n)}, plain...)
		}
		if !whole {
			return payload, pong, false
		}
	}
}

// FuzzDecode decodes anything in pieces of any size. It comes to what a naive decoder says of the
// whole.
func FuzzDecode(f *testing.F) {
	f.Add(frame(0x82, "PUB a 2\r\nhi\r\n"), uint64(1))
	f.Add(append(frame(0x01, "PUB a"), append(frame(0x89, "?"), frame(0x80, " 2\r\nhi\r\n")...)...), uint64(2))
	f.Add(frame(0x82, strings.Repeat("PING\r\n", 40)), uint64(3))
	f.Add(frame(0x82, strings.Repeat("PING\r\n", 12_000)), uint64(4))
	f.Add(append(frame(0x82, "x"), frame(0x88, "\x03\xe8bye")...), uint64(5))
	f.Add(frameOf(0x82, "x", 0, 1), uint64(6))
	f.Add(frameOf(0x82, "x", 0x80, 1<<62), uint64(7))
	f.Add([]byte{0x82, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4}, uint64(8))
	f.Add(frame(0x8f, "x"), uint64(9))
	f.Add(frame(0xc2, "x"), uint64(10))
	f.Fuzz(func(t *testing.T, input []byte, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 0))
		most := 1 + random.IntN(300)
		got, pongs, err := pieces(new(Decoder), input, func() int { return 1 + random.IntN(most) })
		want, pong, end := naive(input)
		if !bytes.Equal(got, want) || (err != nil) != end {
			t.Fatalf("decoded %q, %v; want %q, end %v", got, err, want, end)
		}
		var last []byte
		if len(pongs) > 0 {
			last = pongs[len(pongs)-1]
		}
		if !bytes.Equal(last, pong) {
			t.Fatalf("answered pings with %q, want %q", last, pong)
		}
		if whole, _, errWhole := pieces(new(Decoder), input, all); !bytes.Equal(whole, want) || (errWhole == nil) != (err == nil) {
			t.Fatalf("in one piece: %q, %v", whole, errWhole)
		}
	})
}

func TestHeadersOfEverySize(t *testing.T) {
	for _, n := range []int{1, 125, 126, 127, 255, 256, 65535, 65536, MaxFrame} {
		b := make([]byte, HeaderSize(n), HeaderSize(n)+n)
		PutHeader(b, n)
		if b[1] >= 0x80 {
			t.Fatal("masked")
		}
		b[1] |= 0x80
		b = append(append(b, 0, 0, 0, 0), make([]byte, n)...)
		d := new(Decoder)
		if got, err := d.Decode(b); err != nil || got != n || d.inPayload || d.incomplete {
			t.Errorf("%d bytes: %d, %v", n, got, err)
		}
	}
}
