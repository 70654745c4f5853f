package compat

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// shardedStream creates a Topic of three shards with subjects NAME.>.
func (s *site) shardedStream(t *testing.T, settings string) string {
	t.Helper()
	name, js := s.name("w"), s.client(t)
	request := fmt.Sprintf(`{"stream":{"subjects":["%s.>"]%s},"shards":3}`, name, settings)
	testutil.Eventually(t, "the topic is made", func() error {
		m, err := js.Conn().Request("$CARILLON.API.TOPIC.CREATE."+name, []byte(request), patience)
		if err == nil && strings.Contains(string(m.Data), `"error"`) {
			err = errors.New(string(m.Data))
		}
		return err
	})
	testutil.Eventually(t, "all shards are served", func() error {
		_, err := js.Stream(within(t), name)
		return err
	})
	return name
}

// bySubject collects the payloads of each subject.
type bySubject struct {
	mu  sync.Mutex
	all map[string][]string
	n   int
}

func (b *bySubject) add(m *nats.Msg) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all == nil {
		b.all = map[string][]string{}
	}
	b.all[m.Subject] = append(b.all[m.Subject], string(m.Data))
	b.n++
}

func (b *bySubject) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.n
}

// become waits until each of some subjects has the messages from 1 to each, once and in order.
func (b *bySubject) become(t *testing.T, what, name string, subjects, each int) {
	t.Helper()
	testutil.EventuallyTrue(t, what, func() bool { return b.count() >= subjects*each })
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range subjects {
		equalTexts(t, fmt.Sprintf("%s, subject %d", what, i), b.all[fmt.Sprintf("%s.%d", name, i)], count(1, each))
	}
}

// fillEach publishes messages from first to last on each of some subjects.
func (s *site) fillEach(t *testing.T, name string, subjects, first, last int) {
	t.Helper()
	js := s.client(t)
	for i := first; i <= last; i++ {
		for of := range subjects {
			_, err := js.Publish(within(t), fmt.Sprintf("%s.%d", name, of), []byte(strconv.Itoa(i)))
			testutil.Must(t, err)
		}
	}
}

var shardedPushStories = []story{
	{"js.Subscribe, as tutorials begin", func(t *testing.T, s *site) {
		name := s.shardedStream(t, "")
		s.fillEach(t, name, 8, 1, 10)
		js := s.legacy(t)
		var got bySubject
		sub, err := js.Subscribe(name+".>", got.add)
		testutil.Must(t, err)
		if pending, err := sub.InitialConsumerPending(); err != nil || pending != 80 {
			t.Errorf("%d messages are pending in the beginning (%v)", pending, err)
		}
		got.become(t, "what was there", name, 8, 10)
		s.fillEach(t, name, 8, 11, 15)
		got.become(t, "what came", name, 8, 15)
		info, err := sub.ConsumerInfo()
		testutil.Must(t, err)
		equal(t, "stream", info.Stream, name)
		equal(t, "durable", info.Config.Durable, "")
		equal(t, "bound", info.PushBound, true)
		testutil.EventuallyTrue(t, "all are acknowledged", func() bool {
			info, err := sub.ConsumerInfo()
			testutil.Must(t, err)
			return info.AckFloor.Consumer == 120 && info.NumAckPending == 0 && info.NumPending == 0
		})
		testutil.Must(t, sub.Unsubscribe()) // which deletes the consumer
		testutil.EventuallyTrue(t, "it is gone", func() bool {
			_, err := js.ConsumerInfo(name, info.Name)
			return errors.Is(err, nats.ErrConsumerNotFound)
		})
	}},

	{"a push consumer whose subscriber goes is deleted", func(t *testing.T, s *site) {
		name := s.shardedStream(t, "")
		nc := s.client(t).Conn()
		sub, err := older(t, nc).SubscribeSync(name+".x", nats.InactiveThreshold(300*time.Millisecond))
		testutil.Must(t, err)
		info, err := sub.ConsumerInfo()
		testutil.Must(t, err)
		js := s.legacy(t)
		if _, err := sub.NextMsg(soon); !errors.Is(err, nats.ErrTimeout) {
			t.Errorf("without a message: %v", err)
		}
		_, err = js.ConsumerInfo(name, info.Name) // it is in use without one, too
		testutil.Must(t, err)
		nc.Close()
		testutil.EventuallyTrue(t, "it is gone", func() bool {
			_, err := js.ConsumerInfo(name, info.Name)
			return errors.Is(err, nats.ErrConsumerNotFound)
		})
	}},

	// Clients compare the sequence in each heartbeat with that of the last message, and report a
	// difference as an error, which fails the story.
	{"sequences have no gaps, and heartbeats have the last one", func(t *testing.T, s *site) {
		const beat = 500 * time.Millisecond // a client misses two of them
		name := s.shardedStream(t, "")
		js, to := s.legacy(t), s.name("to")
		raw := s.client(t).Conn()
		messages := make(chan *nats.Msg, 4096)
		_, err := raw.ChanSubscribe(to, messages)
		testutil.Must(t, err)
		flush(t, raw)
		_, err = js.AddConsumer(name, &nats.ConsumerConfig{
			Durable: "beating", DeliverSubject: to, AckPolicy: nats.AckNonePolicy, Heartbeat: beat, FlowControl: true,
		})
		testutil.Must(t, err)
		var got bySubject
		_, err = js.Subscribe(name+".>", got.add, nats.IdleHeartbeat(beat), nats.EnableFlowControl())
		testutil.Must(t, err)
		last, beats, most := uint64(0), 0, uint64(0)
		take := func(want uint64, wantBeats int) {
			t.Helper()
			beats = 0
			for late := time.After(patience); last < want || beats < wantBeats; {
				select {
				case m := <-messages:
					if m.Header.Get("Status") == "100" && m.Reply != "" {
						testutil.Must(t, m.Respond(nil))
						continue
					}
					if of := m.Header.Get("Nats-Last-Consumer"); of != "" {
						beats++
						equal(t, "sequence in a heartbeat", of, strconv.FormatUint(last, 10))
						continue
					}
					about, err := m.Metadata()
					testutil.Must(t, err)
					equal(t, "sequence of a message", about.Sequence.Consumer, last+1)
					last, most = about.Sequence.Consumer, max(most, about.NumPending)
					if !strings.HasPrefix(about.Stream, name+"--") {
						t.Errorf("a message is of stream %s", about.Stream)
					}
					if last == want && about.NumPending != 0 {
						t.Errorf("the last message says that %d are pending", about.NumPending)
					}
				case <-late:
					t.Fatalf("at sequence %d of %d, with %d heartbeats", last, want, beats)
				}
			}
		}
		for round := range 4 {
			s.fillEach(t, name, 9, 5*round+1, 5*round+5)
			take(uint64(45*(round+1)), 3)
		}
		got.become(t, "the other one", name, 9, 20)
		info, err := js.ConsumerInfo(name, "beating")
		testutil.Must(t, err)
		equal(t, "delivered", info.Delivered.Consumer, last)
	}},

	{"a durable push consumer goes on where it stood", func(t *testing.T, s *site) {
		name := s.shardedStream(t, "")
		s.fillEach(t, name, 6, 1, 5)
		js, nc := s.legacy(t), s.client(t).Conn()
		_, err := js.AddConsumer(name, &nats.ConsumerConfig{
			Durable: "d", DeliverSubject: nats.NewInbox(), AckPolicy: nats.AckExplicitPolicy, AckWait: time.Minute,
		})
		testutil.Must(t, err)
		info, err := js.ConsumerInfo(name, "d")
		testutil.Must(t, err)
		equal(t, "bound before anybody subscribed", info.PushBound, false)
		equal(t, "pending before anybody subscribed", info.NumPending, 30)
		var got bySubject
		sub, err := older(t, nc).SubscribeSync("", nats.Bind(name, "d"), nats.ManualAck())
		testutil.Must(t, err)
		for _, m := range next(t, sub, 30) {
			got.add(m)
			testutil.Must(t, m.AckSync(nats.AckWait(patience)))
		}
		if _, err := js.SubscribeSync("", nats.Bind(name, "d")); err == nil || !strings.Contains(err.Error(), "already bound") {
			t.Errorf("bound twice: %v", err)
		}
		nc.Close()
		testutil.EventuallyTrue(t, "nobody is subscribed", func() bool {
			info, err := js.ConsumerInfo(name, "d")
			testutil.Must(t, err)
			return !info.PushBound && info.NumAckPending == 0
		})
		s.fillEach(t, name, 6, 6, 8) // which nobody gets
		again, err := js.SubscribeSync("", nats.Bind(name, "d"), nats.ManualAck())
		testutil.Must(t, err)
		for _, m := range next(t, again, 18) {
			got.add(m)
			about, err := m.Metadata()
			testutil.Must(t, err)
			equal(t, "deliveries", about.NumDelivered, 1)
		}
		got.become(t, "each once", name, 6, 8)
	}},

	{"a queue group shares a push consumer", func(t *testing.T, s *site) {
		name := s.shardedStream(t, "")
		const subjects, each = 10, 30
		var mu sync.Mutex
		var all []string
		members := 0
		for range 6 {
			first := true
			_, err := s.legacy(t).QueueSubscribe(name+".>", "workers", func(m *nats.Msg) {
				mu.Lock()
				defer mu.Unlock()
				if first {
					first = false
					members++
				}
				all = append(all, m.Subject+" "+string(m.Data))
			}, nats.Durable("shared"))
			testutil.Must(t, err)
		}
		s.fillEach(t, name, subjects, 1, each)
		js := s.legacy(t)
		testutil.EventuallyTrue(t, "all are acknowledged", func() bool {
			info, err := js.ConsumerInfo(name, "shared")
			testutil.Must(t, err)
			return info.AckFloor.Consumer == subjects*each && info.PushBound
		})
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(all)
		equal(t, "received", len(all), subjects*each)
		equal(t, "received, each once", len(slices.Compact(all)), subjects*each)
		if members < 2 {
			t.Errorf("%d members got something", members)
		}
		if _, err := js.SubscribeSync(name+".>", nats.Durable("shared")); err == nil {
			t.Error("it was subscribed to without its queue group")
		}
	}},

	{"flow control holds messages back from a slow reader", func(t *testing.T, s *site) {
		name := s.shardedStream(t, "")
		const n = 400
		sub := s.slowReader(t, name+".>", n, func(i int) (subject, text string) { return fmt.Sprintf("%s.%d", name, i%8), fmt.Sprint(i/8 + 1) })
		var got bySubject
		for _, m := range next(t, sub, n) {
			m.Data = []byte(strings.TrimRight(string(m.Data), "\x00"))
			got.add(m)
		}
		got.become(t, "all", name, 8, n/8)
	}},

	{"a rate limit holds for all shards together", func(t *testing.T, s *site) {
		name := s.shardedStream(t, "")
		s.fillEach(t, name, 9, 1, 10)
		began := time.Now()
		// 90 messages of some 80 bytes take a second and more.
		sub, err := s.legacy(t).SubscribeSync(name+".>", nats.RateLimit(50_000), nats.AckNone())
		testutil.Must(t, err)
		var got bySubject
		for _, m := range next(t, sub, 90) {
			got.add(m)
		}
		if took := time.Since(began); took < 800*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		got.become(t, "all", name, 9, 10)
	}},

	{"a push consumer delivers until its maximum, after its backoff, and what is refused at once", func(t *testing.T, s *site) {
		name := s.shardedStream(t, "")
		sub, err := s.legacy(t).SubscribeSync(name+".>", nats.ManualAck(), nats.MaxDeliver(3), nats.BackOff([]time.Duration{100 * time.Millisecond, 200 * time.Millisecond}))
		testutil.Must(t, err)
		s.fillEach(t, name, 5, 1, 1)
		times := map[string]int{}
		for i, m := range next(t, sub, 15) {
			times[m.Subject]++
			about, err := m.Metadata()
			testutil.Must(t, err)
			equal(t, "sequence", about.Sequence.Consumer, uint64(i+1))
			equal(t, "delivered", about.NumDelivered, uint64(times[m.Subject]))
		}
		if m, err := sub.NextMsg(soon); !errors.Is(err, nats.ErrTimeout) {
			t.Errorf("a fourth time: %v %v", m, err)
		}
		other, err := s.legacy(t).SubscribeSync(name+".3", nats.ManualAck(), nats.AckWait(time.Minute))
		testutil.Must(t, err)
		testutil.Must(t, next(t, other, 1)[0].Nak())
		testutil.Must(t, next(t, other, 1)[0].AckSync(nats.AckWait(patience)))
	}},

	{"headers only, the last of each subject, to a subject that was chosen", func(t *testing.T, s *site) {
		name := s.shardedStream(t, "")
		s.fillEach(t, name, 7, 1, 3)
		to := s.name("chosen")
		sub, err := s.legacy(t).SubscribeSync(name+".*", nats.DeliverSubject(to), nats.DeliverLastPerSubject(), nats.HeadersOnly(), nats.AckNone())
		testutil.Must(t, err)
		seen := map[string]bool{}
		for _, m := range next(t, sub, 7) {
			seen[m.Subject] = true
			equal(t, "size", m.Header.Get("Nats-Msg-Size"), "1")
			equal(t, "payload", len(m.Data), 0)
		}
		equal(t, "subjects", len(seen), 7)
		info, err := sub.ConsumerInfo()
		testutil.Must(t, err)
		equal(t, "deliver subject", info.Config.DeliverSubject, to)
	}},

	{"acks of all before, and max_ack_pending, hold in each shard", func(t *testing.T, s *site) {
		name := s.shardedStream(t, "")
		s.fillEach(t, name, 1, 1, 20) // of one shard
		messages := make(chan *nats.Msg, 64)
		_, err := s.legacy(t).ChanSubscribe(name+".>", messages, nats.AckAll(), nats.MaxAckPending(10), nats.AckWait(time.Minute))
		testutil.Must(t, err)
		var all []*nats.Msg
		take := func(n int) {
			t.Helper()
			for range n {
				select {
				case m := <-messages:
					all = append(all, m)
				case <-time.After(patience):
					t.Fatal("nothing comes")
				}
			}
		}
		take(10)
		testutil.Must(t, all[6].AckSync(nats.AckWait(patience)))
		take(7)
		equalTexts(t, "as many as were acknowledged", payloads(all), count(1, 17))
	}},

	{"the deliver subject changes while nobody is subscribed", func(t *testing.T, s *site) {
		name := s.shardedStream(t, "")
		js, nc := s.legacy(t), s.client(t).Conn()
		config := nats.ConsumerConfig{Durable: "d", DeliverSubject: s.name("to"), AckPolicy: nats.AckExplicitPolicy, AckWait: time.Hour}
		_, err := js.AddConsumer(name, &config)
		testutil.Must(t, err)
		for _, stream := range []string{name, name + "--0", name + "--1"} {
			m, err := nc.Request("$JS.API.CONSUMER.MSG.NEXT."+stream+".d", nil, patience)
			testutil.Must(t, err)
			equal(t, "status of a pull from "+stream, m.Header.Get("Status")+" "+m.Header.Get("Description"), "409 Consumer is push based")
		}
		sub := subscribe(t, nc, config.DeliverSubject)
		s.fillEach(t, name, 6, 1, 1)
		next(t, sub, 6)
		moved := config
		moved.DeliverSubject = s.name("elsewhere")
		_, err = js.UpdateConsumer(name, &moved)
		var refused *nats.APIError
		if !errors.As(err, &refused) || refused.ErrorCode != 10013 {
			t.Errorf("while somebody is subscribed: %v", err)
		}
		testutil.Must(t, sub.Unsubscribe())
		flush(t, nc)
		testutil.Eventually(t, "it changes", func() error {
			_, err := js.UpdateConsumer(name, &moved)
			return err
		})
		sub = subscribe(t, nc, moved.DeliverSubject)
		for _, m := range next(t, sub, 6) {
			about, err := m.Metadata()
			testutil.Must(t, err)
			equal(t, "deliveries", about.NumDelivered, 2)
		}
	}},

	{"push consumers that cannot be", func(t *testing.T, s *site) {
		name := s.shardedStream(t, "")
		js := s.legacy(t)
		for says, options := range map[string][]nats.SubOpt{
			"an ordered consumer":    {nats.OrderedConsumer()},
			"starts at a sequence":   {nats.StartSequence(3)},
			"3 shards, each with se": {nats.StartSequence(3), nats.Durable("d")},
		} {
			_, err := js.SubscribeSync(name+".>", options...)
			if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), name+"--0 to "+name+"--2") {
				t.Errorf("%v, want %q", err, says)
			}
		}
		// A shard's stream has ordered ones.
		s.fillEach(t, name, 6, 1, 5)
		info, err := js.StreamInfo(name + "--1")
		testutil.Must(t, err)
		sub, err := js.SubscribeSync(name+".>", nats.BindStream(name+"--1"), nats.OrderedConsumer())
		testutil.Must(t, err)
		for i, m := range next(t, sub, int(info.State.Msgs)) {
			about, err := m.Metadata()
			testutil.Must(t, err)
			equal(t, "sequence", about.Sequence.Stream, uint64(i+1))
		}
	}},
}

// TestPushConsumersOfSeveralShards tells the stories of push consumers of a Topic with three shards
// on three brokers.
func TestPushConsumersOfSeveralShards(t *testing.T) {
	s := brokerSite(t, 3)
	for _, story := range shardedPushStories {
		t.Run(story.name, func(t *testing.T) { story.tell(t, s) })
	}
}
