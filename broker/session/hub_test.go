package session_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/internal/testutil"
)

func newTestHub(t testing.TB, change func(*session.Config)) (*session.Hub, string) {
	t.Helper()
	profile, err := limits.ForProfile(limits.DefaultProfile)
	if err != nil {
		t.Fatal(err)
	}
	config := session.Config{ServerID: "ID", ServerName: "test", Version: "2.12.0-test", Profile: profile, Loops: 2}
	if change != nil {
		change(&config)
	}
	h := session.NewHub(config)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- h.Serve(ln) }()
	t.Cleanup(func() {
		h.Close()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return h, ln.Addr().String()
}

// wire speaks the client protocol by hand.
type wire struct {
	t    testing.TB
	conn net.Conn
	in   *bufio.Reader
}

func dial(t testing.TB, address, options string) *wire {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	c := &wire{t: t, conn: conn, in: bufio.NewReader(conn)}
	c.greet(options)
	return c
}

func (c *wire) greet(options string) {
	c.t.Helper()
	if got := c.line(); !strings.HasPrefix(got, "INFO {") {
		c.t.Fatalf("greeted with %q", got)
	}
	c.send("CONNECT {\"verbose\":false,\"headers\":true,\"no_responders\":true%s}\r\n", options)
	c.sync()
}

func (c *wire) send(format string, args ...any) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.conn, format, args...); err != nil {
		c.t.Fatal(err)
	}
}

func (c *wire) line() string {
	c.t.Helper()
	c.conn.SetReadDeadline(time.Now().Add(testutil.Patience))
	line, err := c.in.ReadString('\n')
	if err != nil {
		c.t.Fatalf("read: %v (after %.80q)", err, line)
	}
	return strings.TrimSuffix(line, "\r\n")
}

func (c *wire) expect(lines ...string) {
	c.t.Helper()
	for _, want := range lines {
		if got := c.line(); got != want {
			c.t.Fatalf("got %.200q, want %.200q", got, want)
		}
	}
}

// sync waits until the server has handled everything that was sent.
func (c *wire) sync() {
	c.t.Helper()
	c.send("PING\r\n")
	c.expect("PONG")
}

func TestMain(m *testing.M) { testutil.RunWithoutLeaks(m) }

func TestMaximumCountsFromTheBeginning(t *testing.T) {
	for _, tc := range []struct{ name, options, queue string }{
		{"plain", "", ""},
		{"queue group", "", "workers "},
		{"no echo", `,"echo":false`, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, address := newTestHub(t, nil)
			sub, pub := dial(t, address, tc.options), dial(t, address, "")
			sub.send("SUB a %s1\r\n", tc.queue)
			sub.sync()
			pub.send("PUB a 1\r\n1\r\nPUB a 1\r\n2\r\n")
			pub.sync()
			sub.send("UNSUB 1 3\r\n")
			sub.expect("MSG a 1 1", "1", "MSG a 1 1", "2")
			sub.sync()
			pub.send("SUB r 9\r\nPUB a 1\r\n3\r\nPUB a r 1\r\n4\r\n")
			sub.expect("MSG a 1 1", "3")
			pub.expect("HMSG r 9 33 33", "NATS/1.0 503", "Nats-Subject: a", "", "")
			sub.send("SUB b 1\r\n") // the sid is free again
			sub.sync()
			pub.send("PUB b 1\r\nx\r\n")
			sub.expect("MSG b 1 1", "x")
		})
	}
}

// TestUnsubscribingAloneHoldsNobodyUp: ends of subscriptions are queued behind the messages that
// matched before them, and no message comes to wake the sender loop.
func TestUnsubscribingAloneHoldsNobodyUp(t *testing.T) {
	_, address := newTestHub(t, func(c *session.Config) { c.Loops = 1 })
	c := dial(t, address, "")
	const once = 1000
	text := strings.Builder{}
	for n := range once {
		fmt.Fprintf(&text, "SUB a.%d 1\r\nUNSUB 1\r\n", n)
	}
	for range 8 * limits.LoopDeliveries / once {
		c.send("%s", text.String())
	}
	c.sync()
}

func TestMessagesMatchedBeforeUnsubArrive(t *testing.T) {
	_, address := newTestHub(t, nil)
	sub, pub := dial(t, address, ""), dial(t, address, "")
	sub.send("SUB a 1\r\n")
	sub.sync()
	const n = 1000
	pub.send("%s", strings.Repeat("PUB a 1\r\nx\r\n", n))
	pub.sync()
	sub.send("UNSUB 1\r\nPING\r\n")
	for range n {
		sub.expect("MSG a 1 1", "x")
	}
	sub.expect("PONG")
}

func TestLargePayloadsInAllSizes(t *testing.T) {
	_, address := newTestHub(t, nil)
	sub, pub := dial(t, address, ""), dial(t, address, "")
	sub.send("SUB a 1\r\n")
	sub.sync()
	for _, size := range []int{0, 1, 1000, 4095, 4096, 16 << 10, 65535, 65536, 100_000, 1 << 20, 8 << 20} {
		body := strings.Repeat("0123456789abcdef", size/16+1)[:size]
		go fmt.Fprintf(pub.conn, "PUB a %d\r\n%s\r\n", size, body)
		sub.expect(fmt.Sprintf("MSG a 1 %d", size))
		got := make([]byte, size+2)
		sub.conn.SetReadDeadline(time.Now().Add(testutil.Patience))
		if _, err := io.ReadFull(sub.in, got); err != nil {
			t.Fatal(err)
		}
		if string(got) != body+"\r\n" {
			t.Fatalf("%d bytes arrived changed", size)
		}
		pub.sync()
	}
}

func TestClientThatNeverReadsIsClosedAloneWithinItsBound(t *testing.T) {
	h, address := newTestHub(t, func(c *session.Config) { c.Profile.Pending = 1 << 20 })
	idle, good, pub := dial(t, address, ""), dial(t, address, ""), dial(t, address, "")
	idle.send("SUB a 1\r\n")
	idle.sync()
	good.send("SUB a 1\r\n")
	good.sync()
	const n, size = 4000, 8 << 10
	body := strings.Repeat("x", size)
	for range n { // no faster than the subscriber reads
		pub.send("PUB a %d\r\n%s\r\n", size, body)
		good.expect(fmt.Sprintf("MSG a 1 %d", size), body)
	}
	deadline := time.Now().Add(testutil.Patience)
	for h.Stats().SlowConsumers() != 1 || h.Stats().PendingBytes != 0 {
		if time.Now().After(deadline) {
			t.Fatalf("stats: %+v", h.Stats())
		}
		time.Sleep(time.Millisecond)
	}
}

// TestSubscriptionsAreBoundedInTokensAndBytes: a client that subscribes to many long patterns takes
// no more than its part of what subscriptions may take, and others still subscribe.
func TestSubscriptionsAreBoundedInTokensAndBytes(t *testing.T) {
	const most = 4 << 20
	h, address := newTestHub(t, func(c *session.Config) { c.Profile.Interest = most })
	greedy, other := dial(t, address, ""), dial(t, address, "")
	longest := strings.Repeat(".x", limits.PatternTokens-1)
	greedy.send("SUB a%s 0\r\nUNSUB 0\r\nSUB a%s.x 0\r\n", longest, longest)
	greedy.expect(fmt.Sprintf(`-ERR 'Permissions Violation for Subscription to "a%s.x", too many tokens'`, longest))
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range 1000 {
		greedy.send("SUB %d%s %d\r\n", i, longest, i)
	}
	refused := 0
	greedy.send("PING\r\n")
	for line := greedy.line(); line != "PONG"; line = greedy.line() {
		if line != "-ERR 'maximum subscriptions exceeded'" {
			t.Fatal(line)
		}
		refused++
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	is := h.Stats()
	if is.InterestBytes > most/2 || is.InterestBytes < most/2-100_000 || is.Subscriptions != 1000-refused {
		t.Errorf("%d bytes, %d subscriptions, %d refused", is.InterestBytes, is.Subscriptions, refused)
	}
	if took := int64(after.HeapInuse) - int64(before.HeapInuse); took > most {
		t.Errorf("they took %d bytes, counted as %d", took, is.InterestBytes)
	}
	other.send("SUB a.b 1\r\n")
	other.sync()
	greedy.conn.Close()
	testutil.EventuallyTrue(t, "theirs is free again", func() bool { return h.Stats().Subscriptions == 1 })
	other.send("UNSUB 1\r\n")
	other.sync()
	if n := h.Stats().InterestBytes; n != 0 {
		t.Errorf("%d bytes are left of nothing", n)
	}
}

// TestALongPatternCountsUntilItsLastSubscriptionEnds: the one that paid for the nodes ends, and
// another one keeps them.
func TestALongPatternCountsUntilItsLastSubscriptionEnds(t *testing.T) {
	const most = 4 << 20
	h, address := newTestHub(t, func(c *session.Config) { c.Profile.Interest = most })
	greedy := dial(t, address, "")
	longest := strings.Repeat(".x", limits.PatternTokens-1)
	for i := range 500 {
		greedy.send("SUB %d%s a%d\r\nSUB %d%s b%d\r\nUNSUB a%d\r\n", i, longest, i, i, longest, i, i)
	}
	greedy.send("PING\r\n")
	for line := greedy.line(); line != "PONG"; line = greedy.line() {
		if line != "-ERR 'maximum subscriptions exceeded'" {
			t.Fatal(line)
		}
	}
	// Each pattern takes 38 kB.
	if is := h.Stats(); is.Subscriptions > most/38_000 || is.InterestBytes > most || is.InterestBytes < int64(is.Subscriptions)*38_000 {
		t.Errorf("%d patterns count %d bytes", is.Subscriptions, is.InterestBytes)
	}
	greedy.conn.Close()
	testutil.EventuallyTrue(t, "nothing is left", func() bool { return h.Stats().InterestBytes == 0 })
}

// TestQueueGroupsOnOnePatternAreBounded, since each publish looks at all of them.
func TestQueueGroupsOnOnePatternAreBounded(t *testing.T) {
	_, address := newTestHub(t, nil)
	c := dial(t, address, "")
	for i := range limits.GroupsPerPattern {
		c.send("SUB a group%d %d\r\n", i, i)
	}
	c.sync()
	c.send("SUB a one-more x\r\n")
	c.expect("-ERR 'maximum subscriptions exceeded'")
	c.send("SUB a group7 x\r\nSUB b one-more y\r\nUNSUB 1\r\nSUB a one-more z\r\n")
	c.sync()
}
