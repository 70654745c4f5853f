package session

import (
	"bytes"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/carillon-mq/carillon/broker/websocket"
)

// TestParkedFramesArriveInOrder: whatever a socket takes of each write, and however what is parked
// is joined and written, the client gets whole frames with all bytes in order, and pongs between
// them.
func TestParkedFramesArriveInOrder(t *testing.T) {
	large := newSlab(1 << 20)
	for i := range large.buf {
		large.buf[i] = byte(i*7 + i>>8)
	}
	rapid.Check(t, func(t *rapid.T) {
		out, waiting, writing := outbox{framed: true}, outbox{}, outbox{}
		var want, socket []byte
		pongs := 0
		take := func(o *outbox, n int) {
			for _, s := range o.segments {
				part := s.bytes[:min(n, len(s.bytes))]
				socket, n = append(socket, part...), n-len(part)
			}
		}
		accept := func(o *outbox) {
			n := rapid.IntRange(0, o.size).Draw(t, "accepted")
			take(o, n)
			o.consume(n)
		}
		push := func() {
			if waiting.empty() && writing.empty() {
				accept(&out)
			}
			if !out.empty() {
				out.joinTo(&waiting)
			}
		}
		size := rapid.OneOf(rapid.IntRange(1, 300), rapid.IntRange(1, 200_000))
		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) {
				data := large.buf[:size.Draw(t, "size")]
				out.write(data)
				want = append(want, data...)
			},
			"message": func(t *rapid.T) {
				n := size.Draw(t, "size")
				from := large
				if n*4 < len(large.buf) && rapid.Bool().Draw(t, "small slab") {
					from = newSlab(n)
					copy(from.buf, large.buf)
					defer from.Release()
				}
				out.message([]byte("MSG a "), "1", fmt.Appendf(nil, " %d\r\n", n), from.buf[:n], from)
				want = append(fmt.Appendf(want, "MSG a 1 %d\r\n", n), large.buf[:n]...)
				want = append(want, crlf...)
			},
			"flush": func(t *rapid.T) {
				out.frame()
				push()
			},
			"pong": func(t *rapid.T) {
				out.frame()
				push()
				out.write([]byte{0x8a, 1, 'x'})
				pongs++
				push()
			},
			"unpark": func(t *rapid.T) {
				if writing.empty() {
					waiting.moveTo(&writing)
				}
				accept(&writing)
			},
		})
		out.frame()
		push()
		for _, o := range []*outbox{&writing, &waiting} {
			take(o, o.size)
			o.reset()
		}
		var got []byte
		for b := socket; len(b) > 0; {
			if b[0] == 0x8a {
				pongs--
				b = b[3:]
				continue
			}
			n, at := int(b[1]), 2
			switch n {
			case 126:
				n, at = int(b[2])<<8|int(b[3]), 4
			case 127:
				n, at = int(b[6])<<24|int(b[7])<<16|int(b[8])<<8|int(b[9]), 10
			}
			if b[0] != 0x82 || n > websocket.MaxFrame || len(b) < at+n {
				t.Fatalf("a frame begins with %x, and %d bytes are left", b[:min(len(b), 10)], len(b))
			}
			got, b = append(got, b[at:at+n]...), b[at+n:]
		}
		if pongs != 0 || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes arrived, want %d; %d pongs are missing", len(got), len(want), pongs)
		}
	})
	if refs := large.refs.Load(); refs != 1 {
		t.Errorf("%d references are left", refs)
	}
}
