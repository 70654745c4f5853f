package session

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/websocket"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// unframed returns the payload of whole binary frames, and their sizes.
func unframed(t *testing.T, b []byte) (payload []byte, sizes []int) {
	t.Helper()
	for len(b) > 0 {
		n, at := int(b[1]), 2
		switch n {
		case 126:
			n, at = int(binary.BigEndian.Uint16(b[2:])), 4
		case 127:
			n, at = int(binary.BigEndian.Uint64(b[2:])), 10
		}
		if b[0] != 0x82 || at != websocket.HeaderSize(n) || len(b) < at+n {
			t.Fatalf("a frame begins with %x, and %d bytes are left", b[:min(len(b), 10)], len(b))
		}
		payload, sizes, b = append(payload, b[at:at+n]...), append(sizes, n), b[at+n:]
	}
	return payload, sizes
}

// TestFramesOfAnOutbox: whatever is in an outbox goes in frames of at most MaxFrame bytes, in
// order, and every reference to a slab is released when it is written.
func TestFramesOfAnOutbox(t *testing.T) {
	large := newSlab(8 << 20)
	for i := range large.buf {
		large.buf[i] = byte(i * 7)
	}
	edges := []int{1, 125, 126, 65535, 65536, websocket.MaxFrame - 1, websocket.MaxFrame, websocket.MaxFrame + 1, 2 * websocket.MaxFrame, 2*websocket.MaxFrame + 1}
	for round := range 300 {
		o := outbox{framed: true}
		var want []byte
		if round < len(edges) {
			want = large.buf[:edges[round]]
			o.write(want)
		}
		for range rand.IntN(8) * min(round/len(edges), 1) {
			head, size := strings.Repeat("h", 1+rand.IntN(30)), rand.IntN(1<<(1+rand.IntN(23)))
			data := large.buf[rand.IntN(len(large.buf)-size):][:size]
			if rand.IntN(2) == 0 {
				o.write(data)
				want = append(want, data...)
				continue
			}
			o.message([]byte(head), "1", []byte("\r\n"), data, large)
			want = append(append(append(append(want, head...), "1\r\n"...), data...), "\r\n"...)
		}
		o.frame()
		var got []byte
		for _, s := range o.segments {
			got = append(got, s.bytes...)
		}
		if len(got) != o.size {
			t.Fatalf("%d bytes count as %d", len(got), o.size)
		}
		payload, sizes := unframed(t, got)
		if !bytes.Equal(payload, want) {
			t.Fatalf("%d bytes came as %d in frames of %d", len(want), len(payload), sizes)
		}
		for i, n := range sizes {
			if n > websocket.MaxFrame || n < websocket.MaxFrame && i < len(sizes)-1 {
				t.Fatalf("frames of %d", sizes)
			}
		}
		o.write([]byte("more")) // the last chunk may have room
		if last := o.segments[len(o.segments)-1].bytes; !bytes.HasSuffix(last, []byte("more")) {
			t.Fatalf("a write after frames left %q", last)
		}
		o.reset()
		if n := large.refs.Load(); n != 1 {
			t.Fatalf("%d references are left", n)
		}
	}
}

// TestControlFramesGoBetweenFrames: a pong comes behind everything before it and is in no frame,
// the close frame comes last, and nothing follows it.
func TestControlFramesGoBetweenFrames(t *testing.T) {
	profile, err := limits.ForProfile(limits.DefaultProfile)
	testutil.Must(t, err)
	h := NewHub(Config{Profile: profile, Loops: 1})
	defer h.Close()
	near, far := net.Pipe()
	defer near.Close()
	c := newConn(h, 1, far, true)
	c.web.endWith(websocket.Protocol, "bad")
	c.web.endWith(websocket.Normal, "the second one does not count")
	send := func(kind entryKind, text string) entry {
		return entry{kind: kind, conn: c, msg: visible{Data: []byte(text)}}
	}
	all := []entry{
		send(sendUpgrade, "HTTP"), send(sendRaw, "a"), send(sendRaw, "b"), send(sendFrame, "<pong>"), send(sendRaw, "c"), send(sendFrame, "<pong>"), send(sendFrame, "<pong>"),
		send(sendRawAndClose, "-ERR"), send(sendRaw, "in time"), send(sendFrame, "<late>"), send(sendRaw, "late"),
	}
	h.loops[0].push(all, len(all), 0)
	h.loops[0].signal()
	testutil.Must(t, near.SetReadDeadline(time.Now().Add(testutil.Patience)))
	got, err := io.ReadAll(near)
	want := "HTTP\x82\x02ab<pong>\x82\x01c<pong><pong>\x82\x0b-ERRin time\x88\x05\x03\xeabad"
	if err != nil || string(got) != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

// nobody refuses every client.
type nobody struct{}

func (nobody) Nonce() bool { return false }
func (nobody) Again(*identity.Identity, *identity.Credential) *identity.Identity {
	return nil
}
func (nobody) Authenticate(context.Context, *Credentials) (*identity.Identity, *identity.Credential, error) {
	return nil, nil, errors.New("nobody may come in")
}

// TestPongsOfAClientThatNobodyKnowsDoNotPileUp: one waits for a client that pings on and on before
// CONNECT and reads nothing.
func TestPongsOfAClientThatNobodyKnowsDoNotPileUp(t *testing.T) {
	profile, err := limits.ForProfile(limits.DefaultProfile)
	testutil.Must(t, err)
	h := NewHub(Config{Profile: profile, Loops: 1, Auth: nobody{}})
	defer h.Close()
	var sent sync.WaitGroup
	defer sent.Wait()
	near, far := net.Pipe()
	defer near.Close()
	c := newConn(h, 1, far, true)
	ping := append([]byte{0x89, 0x80 | 125, 0, 0, 0, 0}, make([]byte, 125)...)
	const pings, pong = 2000, 127
	sent.Go(func() {
		for range pings {
			_, _ = near.Write(ping)
		}
	})
	for got := 0; got < pings*len(ping); got += c.readN {
		if err := c.web.fill(); err != nil {
			t.Fatal(err)
		}
		if n := c.pending.Load(); n > pong {
			t.Fatalf("%d bytes are pending", n)
		}
	}
	testutil.EventuallyTrue(t, "a pong waits", func() bool { return !c.web.answering.Load() && c.pending.Load() == pong })
}
