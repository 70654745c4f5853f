package compat

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// beside is how many parallel tests run at once, each with brokers of its own. Most of their time
// they wait for acknowledgements, heartbeats and elections. Tests that count goroutines or memory,
// or in which a second must not pass between two steps, are not parallel.
const beside = 4

// TestMain allows one goroutine of nats.go v1.55.0 to stay: a put into an object store that ends
// before the goroutine that it began has run takes away the channel by which that one ends.
func TestMain(m *testing.M) {
	testutil.RunBeside(beside)
	testutil.RunWithoutLeaks(m, goleak.IgnoreTopFunction("github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect"))
}

// patience bounds every wait of a test. A passing test never waits that long.
const patience = testutil.Patience

// node is a broker in this process.
type node struct {
	*session.Hub
	address string
	stop    func() // also called at the end of the test
}

func startNode(t testing.TB, change func(*session.Config)) *node {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	profile, err := limits.ForProfile(limits.DefaultProfile)
	if err != nil {
		t.Fatal(err)
	}
	config := session.Config{
		ServerID: "compat-" + ln.Addr().String(), ServerName: "compat", Version: "2.12.0-compat",
		Advertise: ln.Addr().String(), Profile: profile,
	}
	if change != nil {
		change(&config)
	}
	n := &node{Hub: session.NewHub(config), address: ln.Addr().String()}
	served := make(chan error, 1)
	go func() { served <- n.Serve(ln) }()
	n.stop = sync.OnceFunc(func() {
		n.Close()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	t.Cleanup(n.stop)
	return n
}

func (n *node) url() string { return "nats://" + n.address }

// connect returns an application's client. Unexpected errors fail the test.
func connect(t testing.TB, n *node, options ...nats.Option) *nats.Conn {
	t.Helper()
	options = append([]nats.Option{
		nats.Timeout(patience),
		nats.ReconnectWait(10 * time.Millisecond),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			t.Errorf("client error (subscription %v): %v", sub, err)
		}),
	}, options...)
	nc, err := nats.Connect(n.url(), options...)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func flush(t testing.TB, conns ...*nats.Conn) {
	t.Helper()
	for _, nc := range conns {
		if err := nc.FlushTimeout(patience); err != nil {
			t.Fatalf("flush: %v", err)
		}
	}
}

func subscribe(t testing.TB, nc *nats.Conn, subject string) *nats.Subscription {
	t.Helper()
	sub, err := nc.SubscribeSync(subject)
	if err != nil {
		t.Fatalf("subscribe to %s: %v", subject, err)
	}
	flush(t, nc)
	return sub
}

func receive(t testing.TB, sub *nats.Subscription) *nats.Msg {
	t.Helper()
	m, err := sub.NextMsg(patience)
	if err != nil {
		t.Fatalf("receive on %s: %v", sub.Subject, err)
	}
	return m
}

// receivesNothing fails if the subscription has a message: a message in flight would precede the
// answer to the client's PING.
func receivesNothing(t testing.TB, nc *nats.Conn, sub *nats.Subscription) {
	t.Helper()
	flush(t, nc)
	if m, err := sub.NextMsg(time.Millisecond); err == nil {
		t.Fatalf("%s received %q, which was not for it", sub.Subject, m.Data)
	}
}

// wait waits for n signals.
func wait(t testing.TB, what string, signal <-chan struct{}) {
	t.Helper()
	select {
	case <-signal:
	case <-time.After(patience):
		t.Fatalf("still not after %v: %s", patience, what)
	}
}

// socket is a client without a library, which may violate the protocol.
type socket struct {
	net.Conn
	t testing.TB
}

func dialSocket(t testing.TB, n *node) *socket {
	t.Helper()
	conn, err := net.DialTimeout("tcp", n.address, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &socket{conn, t}
}

// say sends as much as the other side accepts. A partial write is not an error.
func (s *socket) say(format string, args ...any) {
	s.t.Helper()
	testutil.Must(s.t, s.SetWriteDeadline(time.Now().Add(patience)))
	_, _ = fmt.Fprintf(s, format, args...)
}

// rest reads until the connection ends.
func (s *socket) rest() string { return s.until("") }

// until reads until the data ends with end, or until the connection ends.
func (s *socket) until(end string) string {
	s.t.Helper()
	testutil.Must(s.t, s.SetReadDeadline(time.Now().Add(patience)))
	var got []byte
	buf := make([]byte, 64<<10)
	for {
		n, err := s.Read(buf)
		got = append(got, buf[:n]...)
		if end != "" && bytes.HasSuffix(got, []byte(end)) {
			return string(got)
		}
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				s.t.Fatalf("after %v there is only %.300q", patience, got)
			}
			return string(got)
		}
	}
}
