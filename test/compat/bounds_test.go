package compat

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/login"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/internal/testutil"
)

func TestPayloadsUpToTheLimit(t *testing.T) {
	n := startNode(t, nil)
	pub, nc := connect(t, n), connect(t, n)
	sub := subscribe(t, nc, "big")
	limit := int(pub.MaxPayload())
	if limit < 1<<20 {
		t.Fatalf("max_payload is %d, less than that of nats-server", limit)
	}
	data := make([]byte, limit)
	for i := range data {
		data[i] = byte(i * 7 >> 3)
	}
	for _, size := range []int{0, 1, 4096, 65536, 1 << 20, limit - 1, limit} {
		testutil.Must(t, pub.Publish("big", data[:size]))
		if m := receive(t, sub); !bytes.Equal(m.Data, data[:size]) {
			t.Fatalf("%d bytes arrived as %d others", size, len(m.Data))
		}
	}
	if err := pub.Publish("big", append(data, 0)); !errors.Is(err, nats.ErrMaxPayload) {
		t.Errorf("the client does not know the limit: %v", err)
	}
}

// TestPayloadOverTheLimit: a client that exceeds the limit loses its connection and gets the
// reason.
func TestPayloadOverTheLimit(t *testing.T) {
	n := startNode(t, func(c *session.Config) { c.Profile.Payload = 1000 })
	s := dialSocket(t, n)
	s.say("CONNECT {\"verbose\":false}\r\nPUB a 1001\r\n%s\r\n", strings.Repeat("x", 1001))
	if got := s.rest(); !strings.HasSuffix(got, "-ERR 'Maximum Payload Violation'\r\n") {
		t.Errorf("received %q", got)
	}
}

func TestManySubscriptions(t *testing.T) {
	n := startNode(t, nil)
	pub, nc := connect(t, n), connect(t, n)
	const subs = 20_000
	got := make(chan int, subs)
	all := make([]*nats.Subscription, subs)
	for i := range subs {
		var err error
		all[i], err = nc.Subscribe(fmt.Sprintf("many.%d", i), func(*nats.Msg) { got <- i })
		testutil.Must(t, err)
	}
	flush(t, nc)
	for i := range subs {
		testutil.Must(t, pub.Publish(fmt.Sprintf("many.%d", i), nil))
	}
	flush(t, pub)
	seen := make(map[int]bool, subs)
	for range subs {
		select {
		case i := <-got:
			if seen[i] {
				t.Fatalf("subscription %d has had its message twice", i)
			}
			seen[i] = true
		case <-time.After(patience):
			t.Fatalf("%d of %d subscriptions have had their message", len(seen), subs)
		}
	}
	for _, sub := range all {
		testutil.Must(t, sub.Unsubscribe())
	}
	flush(t, nc)
	if left := n.Stats().Subscriptions; left != 0 {
		t.Errorf("%d subscriptions are left", left)
	}
}

func TestTooManySubscriptions(t *testing.T) {
	n := startNode(t, nil)
	s := dialSocket(t, n)
	s.say("CONNECT {\"verbose\":false}\r\n")
	var b strings.Builder
	for i := range limits.SubscriptionsPerConnection + 1 {
		fmt.Fprintf(&b, "SUB a.%d %d\r\n", i, i)
	}
	s.say("%s", b.String())
	s.say("PUB a.%d 1\r\nx\r\nPUB a.0 1\r\ny\r\nPING\r\n", limits.SubscriptionsPerConnection)
	want := "-ERR 'maximum subscriptions exceeded'\r\nMSG a.0 0 1\r\ny\r\nPONG\r\n"
	if got := s.until("PONG\r\n"); !strings.HasSuffix(got, "\r\n"+want) {
		t.Errorf("received %q, want %q", got, want)
	}
	s.Close()
	testutil.EventuallyTrue(t, "nothing is left of them", func() bool { return n.Stats().Subscriptions == 0 })
}

func TestAuthorization(t *testing.T) {
	for _, c := range []struct {
		name         string
		auth         login.Single
		right, wrong nats.Option
	}{
		{"user", login.Single{User: "ann", Password: "s3cret"}, nats.UserInfo("ann", "s3cret"), nats.UserInfo("ann", "secret")},
		{"token", login.Single{Token: "t0ken"}, nats.Token("t0ken"), nats.Token("token")},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := startNode(t, func(config *session.Config) { config.Auth = c.auth })
			nc := connect(t, n, c.right)
			testutil.Must(t, nc.Publish("a", nil))
			flush(t, nc)
			for _, option := range []nats.Option{c.wrong, nats.Name("says nothing")} {
				if _, err := nats.Connect(n.url(), option, nats.Timeout(patience)); !errors.Is(err, nats.ErrAuthorization) {
					t.Errorf("with the wrong word: %v", err)
				}
			}
		})
	}
}

func TestTooManyConnections(t *testing.T) {
	n := startNode(t, func(c *session.Config) { c.Profile.Connections = 3 })
	for range 3 {
		connect(t, n)
	}
	if got := dialSocket(t, n).rest(); !strings.HasSuffix(got, "-ERR 'maximum connections exceeded'\r\n") {
		t.Errorf("the fourth of three is told %q", got)
	}
	if _, err := nats.Connect(n.url()); err == nil {
		t.Error("the fourth of three was taken")
	}
}

// TestSlowApplication: nats.go drops messages that its application does not take in time, and
// reports it. The broker is not affected.
func TestSlowApplication(t *testing.T) {
	n := startNode(t, nil)
	slow := make(chan struct{}, 1)
	nc := connect(t, n, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if errors.Is(err, nats.ErrSlowConsumer) {
			select {
			case slow <- struct{}{}:
			default:
			}
		}
	}))
	sub := subscribe(t, nc, "fast")
	testutil.Must(t, sub.SetPendingLimits(10, -1))
	pub := connect(t, n)
	for range 100 {
		testutil.Must(t, pub.Publish("fast", nil))
	}
	flush(t, pub, nc)
	wait(t, "the client is told", slow)
	if dropped, _ := sub.Dropped(); dropped != 90 {
		t.Errorf("%d messages were dropped, want 90", dropped)
	}
	if s := n.Stats(); s.SlowConsumers() != 0 || s.Connections != 2 {
		t.Errorf("the broker has closed somebody: %+v", s)
	}
}
