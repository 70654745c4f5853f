package compat

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/broker"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/coordinator"
	"github.com/carillon-mq/carillon/internal/testutil"
	"github.com/carillon-mq/carillon/internal/testutil/brokers"
)

// loopback is where the endpoints of these tests are.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// endpoint is an HTTP server that keeps what it gets.
type endpoint struct {
	*httptest.Server
	mu     sync.Mutex
	got    map[string]int // bodies: how often
	order  map[string][]string
	status func(body string, times int) int // nil: 200
}

func startEndpoint(t *testing.T) *endpoint {
	e := &endpoint{got: map[string]int{}, order: map[string][]string{}}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		e.mu.Lock()
		defer e.mu.Unlock()
		e.got[string(body)]++
		if e.status != nil {
			if status := e.status(string(body), e.got[string(body)]); status != http.StatusOK {
				w.WriteHeader(status)
				_, _ = io.WriteString(w, "not "+string(body))
				return
			}
		}
		subject := r.Header.Get("Ce-Subject")
		e.order[subject] = append(e.order[subject], string(body))
	}))
	t.Cleanup(e.Close)
	return e
}

func (e *endpoint) answer(status func(body string, times int) int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.status = status
}

// has reports whether it took so many different messages.
func (e *endpoint) has(n int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	taken := map[string]bool{}
	for _, all := range e.order {
		for _, body := range all {
			taken[body] = true
		}
	}
	return len(taken) >= n
}

// pushing is brokers that may push to this machine, and what declares Subscriptions.
type pushing struct {
	t       *testing.T
	local   *coordinator.Local
	members []*member
	data    []string
	store   *coordination.Client
	nc      *nats.Conn
	js      jetstream.JetStream
}

func startPushing(t *testing.T, count int) *pushing {
	t.Helper()
	p := &pushing{t: t}
	p.local, _ = brokers.Coordinator(t)
	for i := range count {
		p.data = append(p.data, t.TempDir())
		p.members = append(p.members, p.start(i))
	}
	var err error
	p.store, err = coordination.Open(coordination.Config{Endpoints: p.local.Endpoints(), Cluster: "test/compat"})
	testutil.Must(t, err)
	t.Cleanup(func() { p.store.Close() })
	p.connect()
	return p
}

func (p *pushing) start(i int) *member {
	config := broker.Config{Name: fmt.Sprintf("compat-%d", i), Data: p.data[i], Endpoints: p.local.Endpoints(), PushAllow: loopback}
	return runBroker(p.t, config)
}

func (p *pushing) connect() {
	var urls []string
	for _, m := range p.members {
		urls = append(urls, m.url())
	}
	nc, err := nats.Connect(strings.Join(urls, ","), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond), nats.Timeout(patience))
	testutil.Must(p.t, err)
	p.t.Cleanup(nc.Close)
	p.nc = nc
	p.js, err = jetstream.New(nc)
	testutil.Must(p.t, err)
}

// topic creates a Topic.
func (p *pushing) topic(name string, shards, replicas int) {
	p.t.Helper()
	testutil.Eventually(p.t, "the topic is created", func() error {
		_, err := p.store.CreateTopic(p.t.Context(), name, coordination.TopicSpec{Subjects: []string{name + ".>"}, Shards: shards, Replicas: replicas}, coordination.Owner{Kind: coordination.ClientOwner})
		return err
	})
}

func (p *pushing) declare(topic, name string, spec coordination.SubscriptionSpec) {
	p.t.Helper()
	spec.Start.From = coordination.FromEarliest
	_, err := p.store.CreateSubscription(p.t.Context(), topic, name, spec, coordination.Owner{Kind: coordination.ClientOwner})
	testutil.Must(p.t, err)
}

func (p *pushing) publish(subject, body string) {
	p.t.Helper()
	testutil.Eventually(p.t, "it is published", func() error {
		ctx, cancel := context.WithTimeout(p.t.Context(), patience)
		defer cancel()
		_, err := p.js.Publish(ctx, subject, []byte(body), jetstream.WithMsgID(subject+body))
		return err
	})
}

func quick(url string) coordination.SubscriptionSpec {
	return coordination.SubscriptionSpec{
		Push: &coordination.Push{URL: url, Timeout: patience},
		Ack:  coordination.Ack{Backoff: []time.Duration{time.Millisecond}},
	}
}

// TestASubscriptionIsPushed: what is published is posted, in the order of each subject, also from
// several shards, and nothing is left pending. Nobody can pull meanwhile.
func TestASubscriptionIsPushed(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 3} {
		t.Run(strconv.Itoa(shards), func(t *testing.T) {
			p, e := startPushing(t, 1), startEndpoint(t)
			p.topic("orders", shards, 1)
			for n := range 50 {
				p.publish(fmt.Sprintf("orders.%d", n%5), strconv.Itoa(n))
			}
			e.answer(func(body string, times int) int {
				if times == 1 && strings.HasSuffix(body, "7") {
					return http.StatusInternalServerError
				}
				return http.StatusOK
			})
			p.declare("orders", "billing", quick(e.URL))
			for n := 50; n < 100; n++ {
				p.publish(fmt.Sprintf("orders.%d", n%5), strconv.Itoa(n))
			}
			testutil.EventuallyTrue(t, "all is there", func() bool { return e.has(100) })
			for subject := range 5 {
				for i, body := range e.order[fmt.Sprintf("orders.%d", subject)] {
					if want := strconv.Itoa(5*i + subject); body != want {
						t.Fatalf("message %d of orders.%d is %s, want %s", i, subject, body, want)
					}
				}
			}
			if shards > 1 {
				return
			}
			testutil.EventuallyTrue(t, "nothing is pending", func() bool {
				c, err := p.js.Consumer(t.Context(), "orders", "billing")
				return err == nil && c.CachedInfo().NumAckPending == 0 && c.CachedInfo().AckFloor.Stream == 100
			})
			c, err := p.js.Consumer(t.Context(), "orders", "billing")
			testutil.Must(t, err)
			if m, err := c.Next(jetstream.FetchMaxWait(patience)); err == nil || !strings.Contains(err.Error(), "push") {
				t.Errorf("a client pulled %v, %v", m, err)
			}
		})
	}
}

// TestPushesOutliveTheirLeader: whatever broker ends, each message is posted.
func TestPushesOutliveTheirLeader(t *testing.T) {
	t.Parallel()
	p, e := startPushing(t, 3), startEndpoint(t)
	p.topic("orders", 1, 3)
	p.declare("orders", "billing", quick(e.URL))
	for n := range 150 {
		if n > 0 && n%50 == 0 {
			i := n/50 - 1
			p.members[i].stop()
			p.publish("orders.x", fmt.Sprint("meanwhile ", n))
			p.members[i] = p.start(i)
			p.connect()
		}
		p.publish(fmt.Sprintf("orders.%d", n%5), strconv.Itoa(n))
	}
	testutil.EventuallyTrue(t, "all is there", func() bool { return e.has(152) })
	for subject := range 5 { // once more each, perhaps, but never before an earlier one was there
		last := -1
		for _, body := range e.order[fmt.Sprintf("orders.%d", subject)] {
			n, _ := strconv.Atoi(body)
			if n > last+5 {
				t.Errorf("%d came after %d", n, last)
			}
			last = max(last, n)
		}
	}
}

// TestWhatAnEndpointRefusesIsADeadLetter: after its last attempt a message goes where dead letters
// go, with the endpoint's last answer. Others of its subject follow it.
func TestWhatAnEndpointRefusesIsADeadLetter(t *testing.T) {
	p, e := startPushing(t, 1), startEndpoint(t)
	p.topic("orders", 1, 1)
	p.topic("dead", 1, 1)
	e.answer(func(body string, _ int) int {
		if body == "bad" {
			return http.StatusUnprocessableEntity
		}
		return http.StatusOK
	})
	spec := quick(e.URL)
	spec.DeadLetter, spec.Ack.MaxDeliver = "dead", 3
	p.declare("orders", "billing", spec)
	p.publish("orders.a", "bad")
	p.publish("orders.a", "good")
	testutil.EventuallyTrue(t, "the good one is there", func() bool { return e.has(1) })
	s, err := p.js.Stream(t.Context(), "dead")
	testutil.Must(t, err)
	var m *jetstream.RawStreamMsg
	testutil.Eventually(t, "the dead letter is stored", func() error {
		m, err = s.GetMsg(t.Context(), 1)
		return err
	})
	if h := m.Header; h.Get("Carillon-Dead-Attempts") != "3" || h.Get("Carillon-Dead-Answer") != "422 Unprocessable Entity: not bad" || h.Get("Carillon-Dead-Reason") != "MaxDeliver" {
		t.Errorf("the dead letter has %v", h)
	}
}

// TestARestartKeepsWhatWasPushed: a broker that was stopped in order pushes nothing again that had
// an answer, and goes on with the rest.
func TestARestartKeepsWhatWasPushed(t *testing.T) {
	t.Parallel()
	p, e := startPushing(t, 1), startEndpoint(t)
	p.topic("orders", 1, 1)
	p.declare("orders", "billing", quick(e.URL))
	for n := range 20 {
		p.publish("orders.a", strconv.Itoa(n))
	}
	testutil.EventuallyTrue(t, "all is there", func() bool { return e.has(20) })
	p.members[0].stop()
	p.members[0] = p.start(0)
	p.connect()
	p.publish("orders.a", "20")
	testutil.EventuallyTrue(t, "the new one is there", func() bool { return e.has(21) })
	for body, times := range e.got {
		if times != 1 {
			t.Errorf("%s was posted %d times", body, times)
		}
	}
}
