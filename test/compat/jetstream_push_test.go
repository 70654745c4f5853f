package compat

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// legacy returns the older JetStream API of nats.go, which has push consumers, on the connection of
// a new application.
func (s *site) legacy(t *testing.T) nats.JetStreamContext {
	t.Helper()
	return older(t, s.client(t).Conn())
}

func older(t *testing.T, nc *nats.Conn) nats.JetStreamContext {
	t.Helper()
	js, err := nc.JetStream(nats.MaxWait(patience))
	testutil.Must(t, err)
	return js
}

// received collects payloads.
type received struct {
	mu  sync.Mutex
	all []string
}

func (r *received) add(m *nats.Msg) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, string(m.Data))
}

func (r *received) texts() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

// become waits until exactly these payloads were received, in this order.
func (r *received) become(t *testing.T, what string, want []string) {
	t.Helper()
	testutil.EventuallyTrue(t, what, func() bool { return len(r.texts()) >= len(want) })
	equalTexts(t, what, r.texts(), want)
}

// next receives n messages of a subscription.
func next(t *testing.T, sub *nats.Subscription, n int) (all []*nats.Msg) {
	t.Helper()
	for i := range n {
		m, err := sub.NextMsg(patience)
		if err != nil {
			t.Fatalf("message %d of %d: %v", i+1, n, err)
		}
		all = append(all, m)
	}
	return all
}

func payloads(messages []*nats.Msg) (all []string) {
	for _, m := range messages {
		all = append(all, string(m.Data))
	}
	return all
}

var pushStories = []story{
	{"js.Subscribe, as tutorials begin", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		fill(t, s.client(t), name+".x", 3)
		js := s.legacy(t)
		var got received
		sub, err := js.Subscribe(name+".x", got.add)
		testutil.Must(t, err)
		got.become(t, "what was there", count(1, 3))
		_, err = s.legacy(t).Publish(name+".x", []byte("4"))
		testutil.Must(t, err)
		got.become(t, "what came", count(1, 4))
		info, err := sub.ConsumerInfo()
		testutil.Must(t, err)
		equal(t, "durable", info.Config.Durable, "")
		equal(t, "bound", info.PushBound, true)
		equal(t, "max waiting", info.Config.MaxWaiting, 0)
		testutil.EventuallyTrue(t, "all are acknowledged", func() bool {
			info, err := sub.ConsumerInfo()
			testutil.Must(t, err)
			return info.AckFloor.Stream == 4 && info.NumAckPending == 0
		})
		testutil.Must(t, sub.Unsubscribe()) // which deletes the consumer
		testutil.EventuallyTrue(t, "it is gone", func() bool {
			_, err := js.ConsumerInfo(name, info.Name)
			return errors.Is(err, nats.ErrConsumerNotFound)
		})
	}},

	{"a push consumer whose subscriber goes is deleted", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		nc := s.client(t).Conn()
		sub, err := older(t, nc).SubscribeSync(name+".x", nats.InactiveThreshold(300*time.Millisecond))
		testutil.Must(t, err)
		info, err := sub.ConsumerInfo()
		testutil.Must(t, err)
		nc.Close()
		js := s.legacy(t)
		testutil.EventuallyTrue(t, "it is gone", func() bool {
			_, err := js.ConsumerInfo(name, info.Name)
			return errors.Is(err, nats.ErrConsumerNotFound)
		})
	}},

	{"a durable push consumer goes on where it stood", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		fill(t, s.client(t), name+".x", 10)
		js, nc := s.legacy(t), s.client(t).Conn()
		_, err := js.AddConsumer(name, &nats.ConsumerConfig{
			Durable: "d", DeliverSubject: nats.NewInbox(), AckPolicy: nats.AckExplicitPolicy, MaxAckPending: 5, AckWait: time.Minute,
		})
		testutil.Must(t, err)
		info, err := js.ConsumerInfo(name, "d")
		testutil.Must(t, err)
		equal(t, "bound before anybody subscribed", info.PushBound, false)
		sub, err := older(t, nc).SubscribeSync("", nats.Bind(name, "d"), nats.ManualAck())
		testutil.Must(t, err)
		all := next(t, sub, 5)
		equalTexts(t, "the first five", payloads(all), count(1, 5))
		if _, err := sub.NextMsg(soon / 4); !errors.Is(err, nats.ErrTimeout) {
			t.Errorf("beyond max_ack_pending: %v", err)
		}
		for _, m := range all[:3] {
			testutil.Must(t, m.AckSync(nats.AckWait(patience)))
		}
		equalTexts(t, "after three acks", payloads(next(t, sub, 3)), count(6, 8))
		if _, err := js.SubscribeSync("", nats.Bind(name, "d")); err == nil || !strings.Contains(err.Error(), "already bound") {
			t.Errorf("bound twice: %v", err)
		}
		nc.Close()
		testutil.EventuallyTrue(t, "nobody is subscribed", func() bool {
			info, err := js.ConsumerInfo(name, "d")
			testutil.Must(t, err)
			return !info.PushBound && info.NumAckPending == 5 && info.AckFloor.Stream == 3
		})
		again, err := js.SubscribeSync("", nats.Bind(name, "d"), nats.ManualAck())
		testutil.Must(t, err)
		testutil.EventuallyTrue(t, "it is bound again", func() bool {
			info, err := again.ConsumerInfo()
			testutil.Must(t, err)
			return info.PushBound
		})
	}},

	{"a queue group shares a push consumer", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		const n = 200
		var got received
		for range 4 {
			_, err := s.legacy(t).QueueSubscribe(name+".x", "workers", got.add, nats.Durable("shared"))
			testutil.Must(t, err)
		}
		fill(t, s.client(t), name+".x", n)
		testutil.EventuallyTrue(t, "all are received", func() bool { return len(got.texts()) >= n })
		js := s.legacy(t)
		testutil.EventuallyTrue(t, "all are acknowledged", func() bool {
			info, err := js.ConsumerInfo(name, "shared")
			testutil.Must(t, err)
			return info.AckFloor.Stream == n && info.PushBound
		})
		all := got.texts()
		slices.Sort(all)
		want := count(1, n)
		slices.Sort(want)
		equalTexts(t, "each once", all, want)
		if _, err := js.SubscribeSync(name+".x", nats.Durable("shared")); err == nil {
			t.Error("it was subscribed to without its queue group")
		}
	}},

	{"an ordered push consumer", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		const n = 500
		fill(t, s.client(t), name+".x", n)
		js := s.legacy(t)
		var got received
		sub, err := js.Subscribe(name+".x", got.add, nats.OrderedConsumer(), nats.IdleHeartbeat(200*time.Millisecond))
		testutil.Must(t, err)
		got.become(t, "all", count(1, n))
		info, err := sub.ConsumerInfo()
		testutil.Must(t, err)
		equal(t, "flow control", info.Config.FlowControl, true)
		equal(t, "heartbeat", info.Config.Heartbeat, 200*time.Millisecond)
		equal(t, "ack policy", info.Config.AckPolicy, nats.AckNonePolicy)
		// It is deleted behind the client's back, which misses the heartbeats and makes another.
		testutil.Eventually(t, "it is deleted", func() error { // a client that waited for heartbeats has another one
			if info, err = sub.ConsumerInfo(); err != nil {
				return err
			}
			return s.legacy(t).DeleteConsumer(name, info.Name)
		})
		other := s.client(t)
		for i := n + 1; i <= n+10; i++ {
			_, err := other.Publish(within(t), name+".x", fmt.Append(nil, i))
			testutil.Must(t, err)
		}
		got.become(t, "all, once and in order", count(1, n+10))
	}},

	{"a push consumer on a channel, with acks of all before", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		fill(t, s.client(t), name+".x", 20)
		messages := make(chan *nats.Msg, 64)
		sub, err := s.legacy(t).ChanSubscribe(name+".x", messages, nats.AckAll(), nats.MaxAckPending(10), nats.AckWait(time.Minute))
		testutil.Must(t, err)
		var all []*nats.Msg
		for range 10 {
			select {
			case m := <-messages:
				all = append(all, m)
			case <-time.After(patience):
				t.Fatal("nothing comes")
			}
		}
		equalTexts(t, "the first ten", payloads(all), count(1, 10))
		testutil.Must(t, all[6].AckSync(nats.AckWait(patience)))
		for range 7 {
			select {
			case m := <-messages:
				all = append(all, m)
			case <-time.After(patience):
				t.Fatal("nothing comes after the ack")
			}
		}
		equalTexts(t, "as many as were acknowledged", payloads(all), count(1, 17))
		info, err := sub.ConsumerInfo()
		testutil.Must(t, err)
		equal(t, "ack floor", info.AckFloor.Stream, 7)
		equal(t, "pending", info.NumAckPending, 10)
	}},

	{"flow control holds messages back from a slow reader", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		const n = 400
		sub := s.slowReader(t, name+".x", n, func(i int) (subject, text string) { return name + ".x", fmt.Sprint(i + 1) })
		for i, m := range next(t, sub, n) {
			if text := strings.TrimRight(string(m.Data), "\x00"); text != fmt.Sprint(i+1) {
				t.Fatalf("message %d is %s", i+1, text)
			}
		}
	}},

	{"a client notices that its push consumer is gone", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		problems := make(chan error, 16)
		nc, err := nats.Connect(s.urls[0], nats.Timeout(patience), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { problems <- err }))
		testutil.Must(t, err)
		defer nc.Close()
		sub, err := older(t, nc).SubscribeSync(name+".x", nats.IdleHeartbeat(soon)) // a client misses two of them
		testutil.Must(t, err)
		info, err := sub.ConsumerInfo()
		testutil.Must(t, err)
		select { // heartbeats are in time
		case err := <-problems:
			t.Errorf("while it is there: %v", err)
		case <-time.After(3 * soon):
		}
		testutil.Must(t, s.legacy(t).DeleteConsumer(name, info.Name))
		select {
		case err := <-problems:
			if !errors.Is(err, nats.ErrConsumerNotActive) {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Error("no heartbeats are missed")
		}
	}},

	{"a push consumer delivers until its maximum, after its backoff", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		js := s.legacy(t)
		sub, err := js.SubscribeSync(name+".x", nats.ManualAck(), nats.MaxDeliver(3), nats.BackOff([]time.Duration{100 * time.Millisecond, 200 * time.Millisecond}))
		testutil.Must(t, err)
		began := time.Now()
		fill(t, s.client(t), name+".x", 1)
		for i, m := range next(t, sub, 3) {
			about, err := m.Metadata()
			testutil.Must(t, err)
			equal(t, "delivered", about.NumDelivered, uint64(i+1))
		}
		if took := time.Since(began); took < 300*time.Millisecond {
			t.Errorf("three deliveries took %v", took)
		}
		if _, err := sub.NextMsg(soon); !errors.Is(err, nats.ErrTimeout) {
			t.Errorf("a fourth time: %v", err)
		}
	}},

	{"headers only, the last of each subject, to a subject that was chosen", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		js := s.client(t)
		for _, of := range []string{"a", "b", "a"} {
			fill(t, js, name+"."+of, 3)
		}
		to := s.name("chosen")
		sub, err := s.legacy(t).SubscribeSync(name+".*", nats.DeliverSubject(to), nats.DeliverLastPerSubject(), nats.HeadersOnly(), nats.AckNone())
		testutil.Must(t, err)
		for i, m := range next(t, sub, 2) {
			equal(t, "subject", m.Subject, name+"."+[]string{"b", "a"}[i])
			equal(t, "size", m.Header.Get("Nats-Msg-Size"), "1")
			equal(t, "payload", len(m.Data), 0)
		}
		info, err := sub.ConsumerInfo()
		testutil.Must(t, err)
		equal(t, "deliver subject", info.Config.DeliverSubject, to)
	}},

	{"push consumers that cannot be", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		js := s.client(t)
		nc := js.Conn()
		legacy := older(t, nc)
		for _, wrong := range []struct {
			code   nats.ErrorCode
			config nats.ConsumerConfig
		}{
			{10079, nats.ConsumerConfig{DeliverSubject: "a.*"}},
			{10112, nats.ConsumerConfig{DeliverSubject: "a..b"}},
			{10081, nats.ConsumerConfig{DeliverSubject: name + ".x"}},
			{10080, nats.ConsumerConfig{DeliverSubject: "a", MaxWaiting: 3}},
			{10082, nats.ConsumerConfig{DeliverSubject: "a", MaxAckPending: 3, AckPolicy: nats.AckNonePolicy}},
			{10083, nats.ConsumerConfig{DeliverSubject: "a", Heartbeat: time.Millisecond}},
			{10108, nats.ConsumerConfig{DeliverSubject: "a", FlowControl: true}},
			{10086, nats.ConsumerConfig{RateLimit: 1}},
			{10088, nats.ConsumerConfig{Heartbeat: time.Second}},
			{10089, nats.ConsumerConfig{FlowControl: true}},
		} {
			wrong.config.Durable = "d"
			if wrong.config.AckPolicy == nats.AckNonePolicy && wrong.code != 10082 {
				wrong.config.AckPolicy = nats.AckExplicitPolicy
			}
			_, err := legacy.AddConsumer(name, &wrong.config)
			var refused *nats.APIError
			if !errors.As(err, &refused) || refused.ErrorCode != wrong.code {
				t.Errorf("%+v: %v, want %d", wrong.config, err, wrong.code)
			}
		}
		config := nats.ConsumerConfig{Durable: "d", DeliverSubject: s.name("to"), AckPolicy: nats.AckExplicitPolicy}
		_, err := legacy.AddConsumer(name, &config)
		testutil.Must(t, err)
		_, err = legacy.AddConsumer(name, &config)
		testutil.Must(t, err) // the same again
		m, err := nc.Request("$JS.API.CONSUMER.MSG.NEXT."+name+".d", nil, patience)
		testutil.Must(t, err)
		equal(t, "status of a pull", m.Header.Get("Status")+" "+m.Header.Get("Description"), "409 Consumer is push based")
		moved := config
		moved.DeliverSubject = s.name("elsewhere")
		_, err = legacy.UpdateConsumer(name, &moved)
		testutil.Must(t, err) // nobody is subscribed
		sub, err := nc.SubscribeSync(moved.DeliverSubject)
		testutil.Must(t, err)
		testutil.EventuallyTrue(t, "it is bound", func() bool {
			info, err := legacy.ConsumerInfo(name, "d")
			testutil.Must(t, err)
			return info.PushBound
		})
		fill(t, js, name+".x", 1)
		equalTexts(t, "at the new subject", payloads(next(t, sub, 1)), count(1, 1))
		for _, change := range []struct {
			code   nats.ErrorCode
			change func(*nats.ConsumerConfig)
		}{
			{10013, func(c *nats.ConsumerConfig) { c.DeliverSubject = config.DeliverSubject }},
			{10012, func(c *nats.ConsumerConfig) { c.DeliverSubject, c.MaxWaiting = "", 512 }},
			{10012, func(c *nats.ConsumerConfig) { c.Heartbeat = time.Second }},
			{10012, func(c *nats.ConsumerConfig) { c.FlowControl, c.Heartbeat = true, time.Second }},
		} {
			to := moved
			change.change(&to)
			_, err := legacy.UpdateConsumer(name, &to)
			var refused *nats.APIError
			if !errors.As(err, &refused) || refused.ErrorCode != change.code {
				t.Errorf("%+v: %v, want %d", to, err, change.code)
			}
		}
	}},
}

// TestAPushConsumerOutlivesItsLeader: after its leader has gone, the next one delivers what was not
// acknowledged, to a client that did nothing.
func TestAPushConsumerOutlivesItsLeader(t *testing.T) {
	t.Parallel()
	members := startBrokers(t, 3)
	s := &site{urls: []string{members[0].url()}}
	js := s.client(t)
	testutil.Eventually(t, "the client's broker knows the others", func() error {
		config := jetstream.StreamConfig{Name: s.name("first"), Subjects: []string{s.name("first")}, Replicas: 3}
		_, err := js.CreateStream(within(t), config)
		return err
	})
	name := ""
	leads := 0
	for leads == 0 { // until another broker than the client's leads
		name = s.stream(t, func(c *jetstream.StreamConfig) { c.Replicas = 3 })
		stream, err := js.Stream(within(t), name)
		testutil.Must(t, err)
		_, err = fmt.Sscanf(stream.CachedInfo().Cluster.Leader, "compat-%d", &leads)
		testutil.Must(t, err)
	}
	var mu sync.Mutex
	times := map[string]int{}
	_, err := s.legacy(t).Subscribe(name+".x", func(m *nats.Msg) {
		if m.AckSync(nats.AckWait(patience)) != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		times[string(m.Data)]++
	}, nats.Durable("d"), nats.ManualAck(), nats.AckWait(30*time.Second))
	testutil.Must(t, err)
	all := func(n int) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(times) == n
		}
	}
	fill(t, js, name+".x", 50)
	testutil.EventuallyTrue(t, "all are received", all(50))
	members[leads].stop()
	for i := 51; i <= 100; i++ {
		_, err := js.Publish(within(t), name+".x", fmt.Append(nil, i))
		testutil.Must(t, err)
	}
	testutil.EventuallyTrue(t, "what came afterwards is received, too", all(100))
	mu.Lock()
	defer mu.Unlock()
	for data, n := range times {
		if n != 1 {
			t.Errorf("message %s was acknowledged, and came %d times", data, n)
		}
	}
}

// slowReader publishes messages of 100 KiB that begin with a text, and returns the subscription of
// a client that has flow control and does not read, once the server has stopped sending. It fails
// if half of the messages were sent by then.
func (s *site) slowReader(t *testing.T, subject string, n int, message func(i int) (subject, text string)) *nats.Subscription {
	t.Helper()
	publisher := s.client(t)
	for i := range n {
		to, text := message(i)
		data := make([]byte, 100<<10)
		copy(data, text)
		_, err := publisher.PublishAsync(to, data)
		testutil.Must(t, err)
	}
	select {
	case <-publisher.PublishAsyncComplete():
	case <-time.After(patience):
		t.Fatal("not everything is published")
	}
	sub, err := s.legacy(t).SubscribeSync(subject, nats.EnableFlowControl(), nats.IdleHeartbeat(time.Minute), nats.AckNone())
	testutil.Must(t, err)
	testutil.Must(t, sub.SetPendingLimits(-1, -1))
	var held uint64
	testutil.EventuallyTrue(t, "it stalls", func() bool {
		info, err := sub.ConsumerInfo()
		testutil.Must(t, err)
		_, bytes, err := sub.Pending()
		testutil.Must(t, err)
		stalled := bytes > 0 && held == info.Delivered.Consumer
		held = info.Delivered.Consumer
		return stalled
	})
	if held >= uint64(n)/2 {
		t.Errorf("%d of %d messages were sent to a client that does not read", held, n)
	}
	return sub
}
