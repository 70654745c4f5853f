package session_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/session"
)

// circle is one publisher and n subscribers on bare sockets, so that only the hub is measured.
type circle struct {
	pub  net.Conn
	subs []net.Conn
	load []byte // messages to publish
	want int    // bytes that each subscriber receives per round
	left chan error
	goOn []chan int
}

func newCircle(t testing.TB, subscribers, messages, size int) *circle {
	_, address := newTestHub(t, nil)
	return newCircleOf(t, func() *wire { return dial(t, address, "") }, subscribers, messages, size)
}

// newTLSCircle is a circle over TLS.
func newTLSCircle(t testing.TB, subscribers, messages, size int) *circle {
	h := newTLSHub(t, session.TLS{First: session.FirstNo}, nil)
	config := h.client()
	return newCircleOf(t, func() *wire { return h.dial(config) }, subscribers, messages, size)
}

// newUserCircle returns a maker of circles of one user.
func newUserCircle(l identity.Limits) func(testing.TB, int, int, int) *circle {
	return func(t testing.TB, subscribers, messages, size int) *circle {
		h := newUsersHub(t, identity.User{Name: "ann", Limits: l})
		return newCircleOf(t, func() *wire { return h.dial("ann") }, subscribers, messages, size)
	}
}

// newWebCircle is a circle over WebSocket.
func newWebCircle(t testing.TB, subscribers, messages, size int) *circle {
	return newWebCircleOf(newWebHub(t, false, nil), t, subscribers, messages, size)
}

// newSecureWebCircle is a circle over WebSocket with TLS.
func newSecureWebCircle(t testing.TB, subscribers, messages, size int) *circle {
	return newWebCircleOf(newWebHub(t, true, nil), t, subscribers, messages, size)
}

func newWebCircleOf(h *webHub, t testing.TB, subscribers, messages, size int) *circle {
	c := newCircleOf(t, func() *wire { return h.dialWeb("") }, subscribers, messages, size)
	web := c.pub.(*webConn)
	c.load, c.pub = masked(0x82, c.load), web.Conn
	return c
}

func newCircleOf(t testing.TB, dial func() *wire, subscribers, messages, size int) *circle {
	c := &circle{left: make(chan error, subscribers)}
	body := strings.Repeat("x", size)
	c.load = []byte(strings.Repeat(fmt.Sprintf("PUB subject.a %d\r\n%s\r\n", size, body), messages))
	c.want = len(fmt.Sprintf("MSG subject.a 1 %d\r\n%s\r\n", size, body)) * messages
	for range subscribers {
		w := dial()
		w.send("SUB subject.a 1\r\n")
		w.sync()
		_ = w.conn.SetDeadline(time.Now().Add(10 * time.Minute))
		c.subs = append(c.subs, w.conn)
	}
	c.pub = dial().conn
	for _, s := range c.subs {
		again := make(chan int)
		c.goOn = append(c.goOn, again)
		go func() {
			buf := make([]byte, 64<<10)
			for n := range again {
				var err error
				for n > 0 && err == nil {
					var got int
					got, err = io.ReadAtLeast(s, buf[:min(n, len(buf))], 1)
					n -= got
				}
				c.left <- err
			}
		}()
	}
	t.Cleanup(func() {
		for _, again := range c.goOn {
			close(again)
		}
	})
	return c
}

// round publishes the load and waits until every subscriber has received it.
func (c *circle) round(t testing.TB) {
	for _, again := range c.goOn {
		again <- c.want
	}
	if _, err := c.pub.Write(c.load); err != nil {
		t.Fatal(err)
	}
	for range c.subs {
		if err := <-c.left; err != nil {
			t.Fatal(err)
		}
	}
}

func BenchmarkDelivery(b *testing.B) { benchmarkDelivery(b, newCircle) }

func BenchmarkUserDelivery(b *testing.B) { benchmarkDelivery(b, newUserCircle(identity.Limits{})) }

// BenchmarkLimitedDelivery has a user with limits that are never reached.
func BenchmarkLimitedDelivery(b *testing.B) {
	benchmarkDelivery(b, newUserCircle(identity.Limits{Messages: 1 << 40, Bytes: 1 << 50}))
}

// BenchmarkTLSDelivery includes what the clients spend on TLS.
func BenchmarkTLSDelivery(b *testing.B) { benchmarkDelivery(b, newTLSCircle) }

func BenchmarkWebSocketDelivery(b *testing.B) { benchmarkDelivery(b, newWebCircle) }

func benchmarkDelivery(b *testing.B, newCircle func(testing.TB, int, int, int) *circle) {
	for _, bc := range []struct{ subscribers, messages, size int }{{1, 1000, 128}, {8, 1000, 128}, {100, 100, 128}, {100, 1, 128}, {1000, 10, 128}, {1000, 1, 128}, {1, 10, 64 << 10}} {
		b.Run(fmt.Sprintf("%dx%dx%dB", bc.subscribers, bc.messages, bc.size), func(b *testing.B) {
			c := newCircle(b, bc.subscribers, bc.messages, bc.size)
			b.ReportAllocs()
			for b.Loop() {
				c.round(b)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*bc.messages*bc.subscribers), "ns/delivery")
		})
	}
}
