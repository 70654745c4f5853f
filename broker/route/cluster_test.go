package route

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// broker is a complete core node: real clients on one port, real links on another.
type broker struct {
	*testNode
	hub *session.Hub
	url string
}

func startBroker(t testing.TB, id string, ca *authority) *broker {
	t.Helper()
	profile, err := limits.ForProfile(limits.DefaultProfile)
	if err != nil {
		t.Fatal(err)
	}
	b := &broker{hub: session.NewHub(session.Config{ServerID: id, ServerName: "main-" + id, Version: "2.12.0-test", Cluster: "main", Profile: profile, Loops: 2})}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.url = "nats://" + listener.Addr().String()
	served := make(chan error, 1)
	go func() { served <- b.hub.Serve(listener) }()
	t.Cleanup(func() {
		b.hub.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	b.testNode = startNode(t, id, ca, func(c *Config) { c.Hub = Clients(b.hub) })
	return b
}

func (b *broker) connect(t testing.TB) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(b.url, nats.NoReconnect(), nats.Timeout(testutil.Patience))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// knows waits until b has the given interest from another broker.
func (b *broker) knows(t testing.TB, id string, patterns, groups int64) {
	t.Helper()
	testutil.EventuallyTrue(t, fmt.Sprintf("%s knows %d patterns and %d groups of %s", b.config.ID, patterns, groups, id), func() bool {
		p := b.peerOf(id)
		return p.Up && p.Patterns == patterns && p.Groups == groups
	})
}

// collector keeps the messages of a subscription, in order.
type collector struct {
	mu  sync.Mutex
	got []string
}

func (c *collector) take(m *nats.Msg) {
	c.mu.Lock()
	c.got = append(c.got, m.Header.Get("From")+" "+string(m.Data))
	c.mu.Unlock()
}

func (c *collector) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.got)
}

// TestAClusterIsOneBrokerToItsClients checks four rules:
//
//  1. Each plain subscriber gets each message once, in the order of each publisher.
//  2. Each queue group gets each message once in the whole cluster.
//  3. A broker that dies takes only its own clients along.
//  4. Its replacement joins the cluster.
func TestAClusterIsOneBrokerToItsClients(t *testing.T) {
	const each = 2000
	ca := newAuthority(t)
	brokers := []*broker{startBroker(t, "a", ca), startBroker(t, "b", ca), startBroker(t, "c", ca)}
	nodes := func() (all []*testNode) {
		for _, b := range brokers {
			all = append(all, b.testNode)
		}
		return all
	}
	linkAll(t, nodes()...)

	var plain, workers, others []*collector
	subscribe := func(b *broker) {
		nc := b.connect(t)
		for range 2 {
			p, w := &collector{}, &collector{}
			plain, workers = append(plain, p), append(workers, w)
			for _, s := range []func() (*nats.Subscription, error){
				func() (*nats.Subscription, error) { return nc.Subscribe("load.*", p.take) },
				func() (*nats.Subscription, error) { return nc.QueueSubscribe("load.>", "workers", w.take) },
			} {
				if _, err := s(); err != nil {
					t.Fatal(err)
				}
			}
		}
		o := &collector{}
		others = append(others, o)
		if _, err := nc.QueueSubscribe("load.*", "others", o.take); err != nil {
			t.Fatal(err)
		}
		if err := nc.FlushTimeout(testutil.Patience); err != nil {
			t.Fatal(err)
		}
	}
	settle := func() {
		for _, x := range brokers {
			for _, y := range brokers {
				if x != y {
					x.knows(t, y.config.ID, 1, 2)
				}
			}
		}
	}
	load := func(round string) {
		var publishers sync.WaitGroup
		for _, b := range brokers {
			nc := b.connect(t)
			publishers.Go(func() {
				for i := range each {
					m := nats.NewMsg("load." + b.config.ID)
					m.Header.Set("From", round+b.config.ID)
					m.Data = fmt.Appendf(nil, "%06d", i)
					if err := nc.PublishMsg(m); err != nil {
						t.Error(err)
					}
				}
				if err := nc.FlushTimeout(testutil.Patience); err != nil {
					t.Error(err)
				}
			})
		}
		publishers.Wait()
	}
	check := func(round string) {
		t.Helper()
		total := each * len(brokers)
		count := func(cs []*collector) (n int) {
			for _, c := range cs {
				n += len(c.all())
			}
			return n
		}
		testutil.EventuallyTrue(t, "all is delivered", func() bool {
			return count(plain) >= len(plain)*total && count(workers) >= total && count(others) >= total
		})
		for i, c := range plain {
			next := make(map[string]int)
			for _, got := range c.all() {
				from, number, _ := strings.Cut(got, " ")
				if want := fmt.Sprintf("%06d", next[from]); number != want {
					t.Fatalf("plain subscriber %d: got %s, want %s", i, got, want)
				}
				next[from]++
			}
			if len(next) != len(brokers) {
				t.Errorf("plain subscriber %d heard of %v", i, next)
			}
		}
		for name, group := range map[string][]*collector{"workers": workers, "others": others} {
			seen := make(map[string]int)
			busy := 0
			for _, c := range group {
				if len(c.all()) > 0 {
					busy++
				}
				for _, got := range c.all() {
					if seen[got]++; seen[got] > 1 {
						t.Fatalf("group %s got %s twice", name, got)
					}
				}
			}
			if len(seen) != total || busy != len(group) {
				t.Errorf("%s: group %s got %d of %d messages, at %d of its %d members", round, name, len(seen), total, busy, len(group))
			}
		}
		for _, c := range slices.Concat(plain, workers, others) {
			c.mu.Lock()
			c.got = nil
			c.mu.Unlock()
		}
	}

	for _, b := range brokers {
		subscribe(b)
	}
	settle()
	load("first.")
	check("with three brokers")

	dead := brokers[1]
	dead.Mesh.Close()
	dead.hub.Close()
	brokers = []*broker{brokers[0], brokers[2]}
	plain, workers, others = slices.Delete(plain, 2, 4), slices.Delete(workers, 2, 4), slices.Delete(others, 1, 2)
	for _, b := range brokers {
		testutil.EventuallyTrue(t, "the dead broker's interest is gone", func() bool { return !b.peerOf("b").Up && b.peerOf("b").Patterns == 0 })
	}
	load("second.")
	check("with one broker dead")

	again := startBroker(t, "b", ca)
	brokers = append(brokers, again)
	linkAll(t, nodes()...)
	subscribe(again)
	settle()
	load("third.")
	check("with the dead one replaced")
}

func TestRequestsCrossTheClusterOnTheirFirstMessage(t *testing.T) {
	ca := newAuthority(t)
	a, b := startBroker(t, "a", ca), startBroker(t, "b", ca)
	linkAll(t, a.testNode, b.testNode)
	service := b.connect(t)
	sub, err := service.QueueSubscribe("echo", "q", func(m *nats.Msg) { _ = m.Respond(m.Data) })
	if err != nil {
		t.Fatal(err)
	}
	if err := service.FlushTimeout(testutil.Patience); err != nil {
		t.Fatal(err)
	}
	a.knows(t, "b", 0, 1)
	// A new connection each time, so that b learns of its inbox just before the request.
	for i := range 200 {
		nc, err := nats.Connect(a.url, nats.NoReconnect(), nats.Timeout(testutil.Patience))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), testutil.Patience)
		m, err := nc.RequestWithContext(ctx, "echo", fmt.Append(nil, i))
		cancel()
		nc.Close()
		if err != nil || string(m.Data) != fmt.Sprint(i) {
			t.Fatalf("request %d: %v, %v", i, m, err)
		}
	}
	b.knows(t, "a", 0, 0)
	if err := sub.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	if err := service.FlushTimeout(testutil.Patience); err != nil {
		t.Fatal(err)
	}
	a.knows(t, "b", 0, 0)
	if _, err := a.connect(t).Request("echo", nil, testutil.Patience); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("with nobody there: %v", err)
	}
}

// BenchmarkAcross measures a publisher and a subscriber at one broker, and at two that are linked
// by TLS. The difference is what the link costs. All of it runs in this process.
func BenchmarkAcross(b *testing.B) {
	for _, linked := range []bool{false, true} {
		b.Run(fmt.Sprintf("linked=%v", linked), func(b *testing.B) {
			ca := newAuthority(b)
			near, far := startBroker(b, "a", ca), startBroker(b, "b", ca)
			linkAll(b, near.testNode, far.testNode)
			at := near
			if linked {
				at = far
			}
			done := make(chan struct{})
			received := 0
			subscriber := at.connect(b)
			sub, err := subscriber.Subscribe("load", func(*nats.Msg) {
				if received++; received == b.N {
					close(done)
				}
			})
			if err != nil {
				b.Fatal(err)
			}
			if err := sub.SetPendingLimits(-1, -1); err != nil {
				b.Fatal(err)
			}
			if err := subscriber.FlushTimeout(testutil.Patience); err != nil {
				b.Fatal(err)
			}
			if linked {
				near.knows(b, "b", 1, 0)
			}
			publisher := near.connect(b)
			payload := make([]byte, 128)
			b.ResetTimer()
			for range b.N {
				if err := publisher.Publish("load", payload); err != nil {
					b.Fatal(err)
				}
			}
			if err := publisher.FlushTimeout(testutil.Patience); err != nil {
				b.Fatal(err)
			}
			<-done
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
		})
		b.Run(fmt.Sprintf("linked=%v/request", linked), func(b *testing.B) {
			ca := newAuthority(b)
			near, far := startBroker(b, "a", ca), startBroker(b, "b", ca)
			linkAll(b, near.testNode, far.testNode)
			at := near
			if linked {
				at = far
			}
			service := at.connect(b)
			if _, err := service.Subscribe("echo", func(m *nats.Msg) { _ = m.Respond(m.Data) }); err != nil {
				b.Fatal(err)
			}
			if err := service.FlushTimeout(testutil.Patience); err != nil {
				b.Fatal(err)
			}
			if linked {
				near.knows(b, "b", 1, 0)
			}
			client := near.connect(b)
			payload := make([]byte, 128)
			b.ResetTimer()
			for range b.N {
				if _, err := client.Request("echo", payload, testutil.Patience); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
