package compat

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/broker"
	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/coordinator"
	"github.com/carillon-mq/carillon/internal/testutil"
	"github.com/carillon-mq/carillon/internal/testutil/brokers"
)

// member is one of several brokers of a cluster in this process.
type member struct {
	address string
	stop    func() // ends it as SIGTERM does
}

func (m *member) url() string { return "nats://" + m.address }

// startBrokers runs brokers and their coordinator until the test ends.
func startBrokers(t *testing.T, count int) []*member {
	t.Helper()
	local, _ := brokers.Coordinator(t)
	members := make([]*member, count)
	for i := range members {
		members[i] = startBroker(t, local, i, t.TempDir())
	}
	return members
}

// startStandalone starts a broker that links to no others.
func startStandalone(t *testing.T) *member {
	t.Helper()
	local, _ := brokers.Coordinator(t)
	return runBroker(t, broker.Config{Name: "compat-0", Data: t.TempDir(), Endpoints: local.Endpoints(), Route: broker.Address{Listen: brokers.NoRoutes}})
}

// startBroker runs the broker with the volume data until it is stopped or the test ends.
func startBroker(t *testing.T, local *coordinator.Local, i int, data string) *member {
	t.Helper()
	return runBroker(t, broker.Config{Name: fmt.Sprintf("compat-%d", i), Data: data, Endpoints: local.Endpoints()})
}

func runBroker(t *testing.T, config broker.Config) *member {
	t.Helper()
	config.Cluster, config.LameDuck = "test/compat", 200*time.Millisecond
	m := &member{}
	m.address, m.stop = brokers.Run(t, limits.DefaultProfile, config)
	return m
}

func join(t testing.TB, m *member, options ...nats.Option) *nats.Conn {
	t.Helper()
	options = append([]nats.Option{
		nats.Timeout(patience),
		nats.ReconnectWait(10 * time.Millisecond),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			t.Errorf("client error (subscription %v): %v", sub, err)
		}),
	}, options...)
	nc, err := nats.Connect(m.url(), options...)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// settle waits until the subscriber's interest is known to the publishers' brokers. Interest is
// propagated in order, so a probe that arrives proves it for all earlier subscriptions.
func settle(t testing.TB, subscriber *nats.Conn, publishers ...*nats.Conn) {
	t.Helper()
	for _, publisher := range publishers {
		probe, err := subscriber.SubscribeSync(nats.NewInbox())
		testutil.Must(t, err)
		flush(t, subscriber)
		testutil.EventuallyTrue(t, "interest has reached the publisher's broker", func() bool {
			testutil.Must(t, publisher.Publish(probe.Subject, nil))
			_, err := probe.NextMsg(5 * time.Millisecond)
			return err == nil
		})
		testutil.Must(t, probe.Unsubscribe())
	}
}

// TestHammerAcrossBrokers: the guarantees within one broker hold across brokers: every message of
// each publisher is received once and in order, and by one member of each group.
func TestHammerAcrossBrokers(t *testing.T) {
	members := startBrokers(t, 3)
	const publishers, each = 6, 2000
	var pubs []*nats.Conn
	for p := range publishers {
		pubs = append(pubs, join(t, members[p%3]))
	}
	var plain []*ledger
	var grouped sync.Map
	var groupCount atomic.Int64
	var perBroker [3]atomic.Int64
	for i := range 6 {
		nc := join(t, members[i%3])
		l := &ledger{}
		plain = append(plain, l)
		sub, err := nc.Subscribe([]string{"hammer.*", "hammer.>"}[i%2], func(m *nats.Msg) { l.record(m.Data) })
		testutil.Must(t, err)
		testutil.Must(t, sub.SetPendingLimits(-1, -1))
		sub, err = nc.QueueSubscribe("hammer.*", "group", func(m *nats.Msg) {
			if _, twice := grouped.LoadOrStore(string(m.Data[:12]), true); twice {
				t.Errorf("a message reached the group twice: %x", m.Data[:12])
			}
			groupCount.Add(1)
			perBroker[i%3].Add(1)
		})
		testutil.Must(t, err)
		testutil.Must(t, sub.SetPendingLimits(-1, -1))
		settle(t, nc, pubs[:3]...)
	}
	var work sync.WaitGroup
	for p, nc := range pubs {
		work.Go(func() {
			for seq := range uint64(each) {
				size := 100
				if seq%100 == 0 {
					size = 64 << 10
				}
				if err := nc.Publish(fmt.Sprintf("hammer.%d", seq%3), stamp(p, seq, size)); err != nil {
					t.Errorf("publish: %v", err)
					return
				}
			}
			if err := nc.FlushTimeout(patience); err != nil {
				t.Errorf("flush: %v", err)
			}
		})
	}
	work.Wait()
	for i, l := range plain {
		testutil.EventuallyTrue(t, fmt.Sprintf("subscriber %d has all messages", i), func() bool { return l.count.Load() >= publishers*each })
		if l.wrong != "" || l.count.Load() != publishers*each {
			t.Errorf("subscriber %d has %d messages, want %d; %s", i, l.count.Load(), publishers*each, l.wrong)
		}
	}
	testutil.EventuallyTrue(t, "the group has all messages", func() bool { return groupCount.Load() >= publishers*each })
	if groupCount.Load() != publishers*each {
		t.Errorf("the group has %d messages, want %d", groupCount.Load(), publishers*each)
	}
	for i := range perBroker {
		if perBroker[i].Load() == 0 {
			t.Errorf("the group's members at broker %d had nothing to do", i)
		}
	}
}

// TestFirstRequestAcrossBrokers: a client that has just connected can send a request at once: its
// interest in the answer and the request keep their order.
func TestFirstRequestAcrossBrokers(t *testing.T) {
	members := startBrokers(t, 2)
	server := join(t, members[1])
	_, err := server.Subscribe("help", func(m *nats.Msg) { _ = m.Respond(m.Data) })
	testutil.Must(t, err)
	settle(t, server, join(t, members[0]))
	for i := range 40 {
		nc := join(t, members[0])
		text := fmt.Sprint(i)
		m, err := nc.Request("help", []byte(text), patience)
		if err != nil || string(m.Data) != text {
			t.Fatalf("request %d: %v, %v", i, m, err)
		}
		nc.Close()
	}
}

func TestARequestWithoutRespondersAcrossBrokers(t *testing.T) {
	members := startBrokers(t, 2)
	client, server := join(t, members[0]), join(t, members[1])
	if _, err := client.Request("help", nil, patience); !errors.Is(err, nats.ErrNoResponders) {
		t.Fatalf("with nobody anywhere: %v", err)
	}
	sub, err := server.QueueSubscribe("help", "q", func(m *nats.Msg) { _ = m.Respond(nil) })
	testutil.Must(t, err)
	settle(t, server, client)
	if _, err := client.Request("help", nil, patience); err != nil {
		t.Fatalf("with somebody at the other broker: %v", err)
	}
	testutil.Must(t, sub.Unsubscribe())
	settle(t, server, client)
	if _, err := client.Request("help", nil, patience); !errors.Is(err, nats.ErrNoResponders) {
		t.Fatalf("after he has gone: %v", err)
	}
}

func TestMessagesArriveWholeAcrossBrokers(t *testing.T) {
	members := startBrokers(t, 2)
	pub, nc := join(t, members[0]), join(t, members[1])
	sub, err := nc.SubscribeSync("whole.>")
	testutil.Must(t, err)
	settle(t, nc, pub)
	data := make([]byte, pub.MaxPayload()-1000)
	for i := range data {
		data[i] = byte(i * 7 >> 3)
	}
	for _, size := range []int{0, 1, 4096, 1 << 20, len(data)} {
		out := &nats.Msg{Subject: "whole.x", Reply: "answer.here", Header: nats.Header{"Key": {"a", "b"}}, Data: data[:size]}
		testutil.Must(t, pub.PublishMsg(out))
		in := receive(t, sub)
		if in.Subject != out.Subject || in.Reply != out.Reply || !slices.Equal(in.Header.Values("Key"), []string{"a", "b"}) || !bytes.Equal(in.Data, out.Data) {
			t.Fatalf("with %d bytes: arrived with %d, on %s, reply %s, headers %v", size, len(in.Data), in.Subject, in.Reply, in.Header)
		}
	}
}

func TestMaximumAcrossBrokers(t *testing.T) {
	members := startBrokers(t, 2)
	pub, nc := join(t, members[0]), join(t, members[1])
	for _, queue := range []string{"", "q"} {
		sub, err := nc.QueueSubscribeSync("max", queue)
		testutil.Must(t, err)
		testutil.Must(t, sub.AutoUnsubscribe(3))
		settle(t, nc, pub)
		for range 10 {
			testutil.Must(t, pub.Publish("max", nil))
		}
		for range 3 {
			receive(t, sub)
		}
		if _, err := sub.NextMsg(time.Millisecond); !errors.Is(err, nats.ErrMaxMessages) {
			t.Errorf("queue %q: after the last: %v", queue, err)
		}
		settle(t, nc, pub)
		testutil.EventuallyTrue(t, "the publisher's broker knows that nobody listens", func() bool {
			_, err := pub.Request("max", nil, time.Second) // a request that precedes the news is lost
			return errors.Is(err, nats.ErrNoResponders)
		})
	}
}

// TestBrokerLeaves: a broker that leaves sends its clients to other brokers, where they continue.
func TestBrokerLeaves(t *testing.T) {
	members := startBrokers(t, 3)
	reconnected := make(chan struct{}, 1)
	nc := join(t, members[0], nats.ReconnectHandler(func(*nats.Conn) { reconnected <- struct{}{} }))
	sub, err := nc.SubscribeSync("news")
	testutil.Must(t, err)
	flush(t, nc)
	testutil.EventuallyTrue(t, "the client knows all brokers", func() bool { return len(nc.Servers()) == 3 })
	members[0].stop()
	wait(t, "the client is elsewhere", reconnected)
	if nc.ConnectedAddr() == members[0].address {
		t.Errorf("it is still with %s", nc.ConnectedAddr())
	}
	testutil.EventuallyTrue(t, "the client has forgotten the broker that left", func() bool {
		return !slices.Contains(nc.DiscoveredServers(), members[0].url())
	})
	for _, m := range members[1:] {
		pub := join(t, m)
		settle(t, nc, pub)
		testutil.Must(t, pub.Publish("news", []byte(m.address)))
		if got := receive(t, sub); string(got.Data) != m.address {
			t.Errorf("received %q, want %q", got.Data, m.address)
		}
	}
}
