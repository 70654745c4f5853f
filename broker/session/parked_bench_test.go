package session

import (
	"io"
	"net"
	"testing"

	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// BenchmarkParked writes what 64 messages of 40 KiB leave parked, each of which lies in its slab
// between two lines.
func BenchmarkParked(b *testing.B) {
	profile, err := limits.ForProfile(limits.DefaultProfile)
	testutil.Must(b, err)
	h := NewHub(Config{Profile: profile, Loops: 1})
	defer h.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testutil.Must(b, err)
	defer listener.Close()
	near, err := net.Dial("tcp", listener.Addr().String())
	testutil.Must(b, err)
	far, err := listener.Accept()
	testutil.Must(b, err)
	defer far.Close()
	go func() { _, _ = io.Copy(io.Discard, near) }()
	c := newConn(h, 1, far, false)
	var slabs []*slab
	for range 64 {
		slabs = append(slabs, newSlab(40<<10))
	}
	b.SetBytes(64 * 40 << 10)
	for b.Loop() {
		var out outbox
		for _, s := range slabs {
			out.message([]byte("MSG a "), "1", []byte(" 40960\r\n"), s.buf[:40<<10], s)
		}
		c.parking.Lock()
		n := out.size
		out.joinTo(&c.waiting)
		c.addPending(n, c.waiting.held)
		c.parking.Unlock()
		c.hub.parked.Add(1)
		c.unpark()
	}
}
