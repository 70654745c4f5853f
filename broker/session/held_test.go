//go:build !race

package session

import (
	"fmt"
	"net"
	"runtime"
	"testing"

	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestPendingBytesHoldWhatCounts: clients that read nothing are sent messages one by one, each in a
// slab and a flush of its own. What the bounds of slow consumers count is the memory that the heap
// has grown by, whatever the size of the messages, and not much more than the bytes to send. When
// the clients have gone, nothing counts.
func TestPendingBytesHoldWhatCounts(t *testing.T) {
	for _, c := range []struct{ size, messages int }{{16, 100_000}, {128, 40_000}, {4 << 10, 2000}, {64 << 10, 200}} {
		t.Run(fmt.Sprintf("%d bytes", c.size), func(t *testing.T) {
			profile, err := limits.ForProfile(limits.DefaultProfile)
			testutil.Must(t, err)
			h := NewHub(Config{Profile: profile, Loops: 1})
			defer h.Close()
			l := h.loops[0]
			var conns []*Conn
			for i := range 1 {
				near, far := net.Pipe() // which holds nothing
				defer near.Close()
				conns = append(conns, newConn(h, uint64(i), far, false))
			}
			heap := func() int64 {
				var m runtime.MemStats
				for range 3 { // also what is pooled
					runtime.GC()
				}
				runtime.ReadMemStats(&m)
				return int64(m.HeapAlloc)
			}
			before := heap()
			for range c.messages {
				e := entry{from: newSlab(c.size + 20)}
				e.msg = visible{Subject: e.from.buf[4:5], Data: e.from.buf[20 : 20+c.size]}
				l.mu.Lock()
				l.encode(&e.msg)
				for _, conn := range conns {
					l.deliver(&Sub{conn: conn, sid: "1"}, &e)
					conn.flush()
				}
				clear(l.dirty)
				l.dirty = l.dirty[:0]
				l.mu.Unlock()
				e.from.Release()
			}
			grown, s := heap()-before, h.Stats()
			t.Logf("%d bytes to send, %d counted, the heap has grown by %d", s.PendingBytes, s.HeldBytes, grown)
			if ratio := float64(grown) / float64(s.HeldBytes); ratio > 1.3 || ratio < 0.8 {
				t.Errorf("the heap has grown by %.2f times what is counted", ratio)
			}
			most := 1.1
			if c.size >= parkedShare {
				most = 2.1
			}
			if ratio := float64(s.HeldBytes) / float64(s.PendingBytes); ratio > most || ratio < 1 {
				t.Errorf("%.2f times the bytes to send are counted", ratio)
			}
			conns[0].close(ClientClosed)
			testutil.EventuallyTrue(t, "nothing counts", func() bool { s := h.Stats(); return s.PendingBytes == 0 && s.HeldBytes == 0 })
		})
	}
}
