package route

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/carillon-mq/carillon/broker/session"
)

// countingHub counts received messages.
type countingHub struct {
	link     atomic.Pointer[session.Link]
	received atomic.Int64
	total    int64
	done     chan struct{}
}

func (h *countingHub) Attach(l session.Link, _ string) (ClientSide, []session.Interest) {
	h.link.Store(&l)
	return h, nil
}
func (h *countingHub) SetInterest(session.Interest) {}
func (h *countingHub) Deliver(*session.Message, session.Reach) (full bool) {
	if h.received.Add(1) == h.total {
		close(h.done)
	}
	return false
}
func (h *countingHub) Flush()  {}
func (h *countingHub) Wait()   {}
func (h *countingHub) Detach() {}

// BenchmarkForward measures messages per second over one link on loopback, both ends in this
// process.
func BenchmarkForward(b *testing.B) {
	for _, secure := range []bool{false, true} {
		for _, size := range []int{128, 1 << 10, 16 << 10} {
			b.Run(fmt.Sprintf("tls=%v/bytes=%d", secure, size), func(b *testing.B) {
				var ca *authority
				if secure {
					ca = newAuthority(b)
				}
				from := &countingHub{}
				to := &countingHub{total: int64(b.N), done: make(chan struct{})}
				x := startNode(b, "a", ca, func(c *Config) { c.Hub = from })
				y := startNode(b, "b", ca, func(c *Config) { c.Hub = to })
				linkAll(b, x, y)
				link := *from.link.Load()
				m := session.Message{Subject: []byte("orders.eu.1"), Data: make([]byte, size)}
				queues := []string{"workers"}
				b.SetBytes(int64(size))
				b.ReportAllocs()
				b.ResetTimer()
				for range b.N {
					if link.Forward(&m, session.Reach{Plain: true, Queues: queues}) {
						link.Wait()
					}
				}
				<-to.done
				b.StopTimer()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
				x.Close()
				y.Close()
			})
		}
	}
}

func BenchmarkOutbox(b *testing.B) {
	o := newOutbox(1 << 20)
	o.release(nil)
	m := session.Message{Subject: []byte("orders.eu.1"), Data: make([]byte, 128)}
	b.ReportAllocs()
	for b.Loop() {
		o.forward(&m, session.Reach{Plain: true})
		if o.queued.bytes-o.written > 1<<20 {
			for c := o.take(); c != nil; {
				next := c.next
				o.wrote(c.used)
				c.free()
				c = next
			}
		}
	}
}
