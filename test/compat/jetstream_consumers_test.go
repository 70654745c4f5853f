package compat

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// consumer creates a consumer, for a story that goes on with another client.
func (s *site) consumer(t *testing.T, stream string, config jetstream.ConsumerConfig) jetstream.Consumer {
	t.Helper()
	made, err := s.client(t).CreateConsumer(within(t), stream, config)
	if err != nil {
		t.Fatalf("create a consumer of %s: %v", stream, err)
	}
	found, err := s.client(t).Consumer(within(t), stream, made.CachedInfo().Name)
	testutil.Must(t, err)
	return found
}

// standing waits until a consumer's info satisfies ok.
func standing(t *testing.T, what string, c jetstream.Consumer, ok func(*jetstream.ConsumerInfo) bool) {
	t.Helper()
	var last *jetstream.ConsumerInfo
	defer func() {
		if t.Failed() {
			t.Logf("it stands at %+v", last)
		}
	}()
	testutil.EventuallyTrue(t, what, func() bool {
		info, err := c.Info(within(t))
		testutil.Must(t, err)
		last = info
		return ok(info)
	})
}

var consumerStories = []story{
	{"a consumer is made, found, changed and deleted", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		js, other := s.client(t), s.client(t)
		config := jetstream.ConsumerConfig{Durable: "worker", Description: "works", FilterSubject: name + ".a", Metadata: map[string]string{"k": "v"}}
		if _, err := js.Consumer(within(t), name, "worker"); !errors.Is(err, jetstream.ErrConsumerNotFound) {
			t.Errorf("before it is made: %v", err)
		}
		if _, err := js.UpdateConsumer(within(t), name, config); !errors.Is(err, jetstream.ErrConsumerDoesNotExist) {
			t.Errorf("changed before it is made: %v", err)
		}
		made, err := js.CreateConsumer(within(t), name, config)
		testutil.Must(t, err)
		is := made.CachedInfo()
		equal(t, "stream", is.Stream, name)
		equal(t, "name", is.Name, "worker")
		equal(t, "durable", is.Config.Durable, "worker")
		equal(t, "filter", is.Config.FilterSubject, name+".a")
		equal(t, "ack policy", is.Config.AckPolicy, jetstream.AckExplicitPolicy)
		equal(t, "ack wait", is.Config.AckWait, 30*time.Second)
		equal(t, "deliver policy", is.Config.DeliverPolicy, jetstream.DeliverAllPolicy)
		equal(t, "max deliver", is.Config.MaxDeliver, -1)
		equal(t, "max ack pending", is.Config.MaxAckPending, 1000)
		equal(t, "max waiting", is.Config.MaxWaiting, 512)
		equal(t, "k", is.Config.Metadata["k"], "v")
		equal(t, "delivered", is.Delivered.Consumer, 0)
		if is.Created.IsZero() || time.Since(is.Created) > time.Minute {
			t.Errorf("created %v", is.Created)
		}

		if _, err := other.CreateConsumer(within(t), name, config); err != nil {
			t.Errorf("the same again: %v", err)
		}
		config.AckWait = time.Minute
		if _, err := other.CreateConsumer(within(t), name, config); !errors.Is(err, jetstream.ErrConsumerExists) {
			t.Errorf("another one of that name: %v", err)
		}
		changed, err := other.CreateOrUpdateConsumer(within(t), name, config)
		testutil.Must(t, err)
		equal(t, "ack wait of the changed", changed.CachedInfo().Config.AckWait, time.Minute)
		config.AckPolicy = jetstream.AckNonePolicy
		_, err = other.UpdateConsumer(within(t), name, config)
		equal(t, "other ack policy", number(err), jetstream.ErrorCode(10012))

		found, err := other.Consumer(within(t), name, "worker")
		testutil.Must(t, err)
		equal(t, "what is found", found.CachedInfo().Config.AckWait, time.Minute)
		testutil.Must(t, js.DeleteConsumer(within(t), name, "worker"))
		if _, err := other.Consumer(within(t), name, "worker"); !errors.Is(err, jetstream.ErrConsumerNotFound) {
			t.Errorf("after it was deleted: %v", err)
		}
		if err := js.DeleteConsumer(within(t), name, "worker"); !errors.Is(err, jetstream.ErrConsumerNotFound) {
			t.Errorf("deleted twice: %v", err)
		}
		if _, err := js.CreateConsumer(within(t), s.name("nowhere"), config); !errors.Is(err, jetstream.ErrStreamNotFound) {
			t.Errorf("of a stream that isn't there: %v", err)
		}
	}},

	{"a consumer becomes durable", func(t *testing.T, s *site) {
		const unusedFor = 5 * time.Second // longer than the steps until it is durable take
		js := s.client(t)
		name := s.stream(t, nil)
		fill(t, js, name+".a", 5)
		config := jetstream.ConsumerConfig{Name: "c", AckPolicy: jetstream.AckExplicitPolicy, InactiveThreshold: unusedFor}
		c, err := js.CreateOrUpdateConsumer(within(t), name, config)
		testutil.Must(t, err)
		before, err := c.Info(within(t))
		testutil.Must(t, err)
		equal(t, "durable at first", before.Config.Durable, "")
		batch, err := c.Fetch(3, jetstream.FetchMaxWait(patience))
		testutil.Must(t, err)
		var got []jetstream.Msg
		for m := range batch.Messages() {
			got = append(got, m)
		}
		equal(t, "messages", len(got), 3)
		testutil.Must(t, got[0].DoubleAck(within(t)))
		testutil.Must(t, got[2].DoubleAck(within(t)))
		config.Durable, config.InactiveThreshold, config.Description = "c", 0, "kept"
		other := s.client(t)
		c, err = other.CreateOrUpdateConsumer(within(t), name, config)
		testutil.Must(t, err)
		is, err := c.Info(within(t))
		testutil.Must(t, err)
		equal(t, "durable", is.Config.Durable, "c")
		equal(t, "description", is.Config.Description, "kept")
		equal(t, "created", is.Created.Equal(before.Created), true)
		equal(t, "delivered", is.Delivered.Stream, uint64(3))
		equal(t, "ack floor", is.AckFloor.Stream, uint64(1))
		equal(t, "pending acks", is.NumAckPending, 1)
		equal(t, "pending", is.NumPending, uint64(2))
		testutil.Must(t, got[1].DoubleAck(within(t))) // an ack of before
		unused, err := js.CreateConsumer(within(t), name, jetstream.ConsumerConfig{Name: "unused", InactiveThreshold: unusedFor})
		testutil.Must(t, err)
		testutil.EventuallyTrue(t, "a consumer without a durable name goes", func() bool {
			_, err := unused.Info(within(t))
			return errors.Is(err, jetstream.ErrConsumerNotFound)
		})
		batch, err = c.Fetch(2, jetstream.FetchMaxWait(patience))
		testutil.Must(t, err)
		var next []string
		for m := range batch.Messages() {
			testutil.Must(t, m.DoubleAck(within(t)))
			next = append(next, string(m.Data()))
		}
		equalTexts(t, "the rest", next, []string{"4", "5"})
		again, err := js.CreateOrUpdateConsumer(within(t), name, config)
		testutil.Must(t, err)
		equal(t, "ack floor", again.CachedInfo().AckFloor.Stream, uint64(5))
		testutil.Must(t, js.DeleteConsumer(within(t), name, "c"))
		_, err = js.Consumer(within(t), name, "c")
		equal(t, "deleted", errors.Is(err, jetstream.ErrConsumerNotFound), true)
	}},
	{"a durable consumer is changed by its name", func(t *testing.T, s *site) {
		js, name := s.client(t), s.stream(t, nil)
		_, err := js.CreateConsumer(within(t), name, jetstream.ConsumerConfig{Name: "worker", Durable: "worker", MaxDeliver: 10})
		testutil.Must(t, err)
		for n, change := range []func(context.Context, string, jetstream.ConsumerConfig) (jetstream.Consumer, error){js.UpdateConsumer, js.CreateOrUpdateConsumer} {
			changed, err := change(within(t), name, jetstream.ConsumerConfig{Name: "worker", MaxDeliver: 20 + n})
			testutil.Must(t, err)
			is := changed.CachedInfo().Config
			equal(t, "max deliver", is.MaxDeliver, 20+n)
			if !s.peer { // nats-server's is not durable any more
				equal(t, "durable", is.Durable, "worker")
				equal(t, "inactive threshold", is.InactiveThreshold, 0)
			}
		}
	}},
	{"a consumer made again begins anew", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		fill(t, s.client(t), name+".x", 3)
		js := s.client(t)
		for range 3 {
			c, err := js.CreateConsumer(within(t), name, jetstream.ConsumerConfig{Durable: "d"})
			testutil.Must(t, err)
			batch, err := c.Fetch(3)
			all := take(t, batch, err)
			equalTexts(t, "messages", texts(all), count(1, 3))
			testutil.Must(t, all[2].DoubleAck(within(t)))
			testutil.Must(t, js.DeleteConsumer(within(t), name, "d"))
		}
	}},

	{"consumers are named and listed", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		js := s.client(t)
		for i := range 3 {
			_, err := js.CreateConsumer(within(t), name, jetstream.ConsumerConfig{Durable: fmt.Sprintf("d%d", i)})
			testutil.Must(t, err)
		}
		_, err := js.CreateConsumer(within(t), name, jetstream.ConsumerConfig{Name: "e", InactiveThreshold: time.Minute})
		testutil.Must(t, err)
		stream, err := s.client(t).Stream(within(t), name)
		testutil.Must(t, err)
		equal(t, "consumers of the stream", stream.CachedInfo().State.Consumers, 4)
		var names, listed []string
		list := stream.ConsumerNames(within(t))
		for n := range list.Name() {
			names = append(names, n)
		}
		testutil.Must(t, list.Err())
		slices.Sort(names)
		equalTexts(t, "names", names, []string{"d0", "d1", "d2", "e"})
		infos := stream.ListConsumers(within(t))
		for info := range infos.Info() {
			listed = append(listed, info.Name)
		}
		testutil.Must(t, infos.Err())
		slices.Sort(listed)
		equalTexts(t, "listed", listed, names)
	}},

	{"what a stream allows its consumers", func(t *testing.T, s *site) {
		name := s.stream(t, func(c *jetstream.StreamConfig) {
			c.MaxConsumers = 2
			c.ConsumerLimits = jetstream.StreamConsumerLimits{MaxAckPending: 10, InactiveThreshold: time.Minute}
		})
		js := s.client(t)
		c, err := js.CreateConsumer(within(t), name, jetstream.ConsumerConfig{Durable: "a"})
		testutil.Must(t, err)
		equal(t, "max ack pending", c.CachedInfo().Config.MaxAckPending, 10)
		_, err = js.CreateConsumer(within(t), name, jetstream.ConsumerConfig{Durable: "greedy", MaxAckPending: 11})
		equal(t, "more than it may", number(err), jetstream.ErrorCode(10121))
		_, err = js.CreateConsumer(within(t), name, jetstream.ConsumerConfig{Name: "b"})
		testutil.Must(t, err)
		if _, err := js.CreateConsumer(within(t), name, jetstream.ConsumerConfig{Durable: "c"}); !errors.Is(err, jetstream.ErrMaximumConsumersLimit) {
			t.Errorf("one too many: %v", err)
		}
	}},

	{"a consumer that nobody uses goes", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		js := s.client(t) // another client might come too late to find them
		c, err := js.CreateConsumer(within(t), name, jetstream.ConsumerConfig{Name: "idle", InactiveThreshold: 300 * time.Millisecond})
		testutil.Must(t, err)
		d, err := js.CreateConsumer(within(t), name, jetstream.ConsumerConfig{Durable: "idle-too", InactiveThreshold: 300 * time.Millisecond})
		testutil.Must(t, err)
		kept := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "kept"})
		testutil.EventuallyTrue(t, "both are gone", func() bool {
			_, one := c.Info(within(t))
			_, two := d.Info(within(t))
			return errors.Is(one, jetstream.ErrConsumerNotFound) && errors.Is(two, jetstream.ErrConsumerNotFound)
		})
		if _, err := kept.Info(within(t)); err != nil {
			t.Errorf("the one that set no threshold: %v", err)
		}
	}},

	{"where a consumer begins", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		js := s.client(t)
		fill(t, js, name+".a", 3)
		fill(t, js, name+".b", 3)
		// The brokers give messages their times. Several may have the same.
		stream, err := js.Stream(within(t), name)
		testutil.Must(t, err)
		fourth, err := stream.GetMsg(within(t), 4)
		testutil.Must(t, err)
		var since []string
		for n := range uint64(6) {
			m, err := stream.GetMsg(within(t), n+1)
			testutil.Must(t, err)
			if !m.Time.Before(fourth.Time) {
				since = append(since, string(m.Data))
			}
		}
		for _, start := range []struct {
			what   string
			config jetstream.ConsumerConfig
			want   []string
		}{
			{"all", jetstream.ConsumerConfig{}, []string{"1", "2", "3", "1", "2", "3", "new"}},
			{"last", jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverLastPolicy}, []string{"3", "new"}},
			{"new", jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverNewPolicy}, []string{"new"}},
			{"sequence", jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: 5}, []string{"2", "3", "new"}},
			{"time", jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &fourth.Time}, append(since, "new")},
		} {
			c := s.consumer(t, name, start.config)
			defer func() {
				batch, err := c.Fetch(len(start.want))
				equalTexts(t, start.what, texts(take(t, batch, err)), start.want)
			}()
		}
		_, err = js.Publish(within(t), name+".c", []byte("new"))
		testutil.Must(t, err)
	}},

	{"a consumer filters", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		js := s.client(t)
		for i := range 4 {
			for _, of := range []string{"a", "b", "c"} {
				_, err := js.Publish(within(t), name+"."+of, fmt.Appendf(nil, "%s%d", of, i))
				testutil.Must(t, err)
			}
		}
		one := s.consumer(t, name, jetstream.ConsumerConfig{FilterSubject: name + ".b"})
		equal(t, "pending", one.CachedInfo().NumPending, 4)
		batch, err := one.FetchNoWait(10)
		equalTexts(t, "one subject", texts(take(t, batch, err)), []string{"b0", "b1", "b2", "b3"})
		two := s.consumer(t, name, jetstream.ConsumerConfig{FilterSubjects: []string{name + ".a", name + ".c"}})
		batch, err = two.FetchNoWait(10)
		equalTexts(t, "two subjects", texts(take(t, batch, err)), []string{"a0", "c0", "a1", "c1", "a2", "c2", "a3", "c3"})
	}},

	{"headers only", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		js := s.client(t)
		_, err := js.PublishMsg(within(t), &nats.Msg{Subject: name + ".x", Data: []byte("12345"), Header: nats.Header{"Colour": {"blue"}}})
		testutil.Must(t, err)
		c := s.consumer(t, name, jetstream.ConsumerConfig{HeadersOnly: true})
		m, err := c.Next(jetstream.FetchMaxWait(patience))
		testutil.Must(t, err)
		equal(t, "payload", len(m.Data()), 0)
		equal(t, "colour", m.Headers().Get("Colour"), "blue")
		equal(t, "size", m.Headers().Get("Nats-Msg-Size"), "5")
	}},

	{"every kind of ack", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		fill(t, s.client(t), name+".x", 6)
		const ackWait = 4 * time.Second // far longer than the acks that follow take
		c := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "d", AckWait: ackWait})
		batch, err := c.Fetch(6)
		all := take(t, batch, err)
		equalTexts(t, "delivered", texts(all), count(1, 6))
		about, err := all[3].Metadata()
		testutil.Must(t, err)
		equal(t, "stream", about.Stream, name)
		equal(t, "consumer", about.Consumer, "d")
		equal(t, "stream sequence", about.Sequence.Stream, 4)
		equal(t, "consumer sequence", about.Sequence.Consumer, 4)
		equal(t, "delivered", about.NumDelivered, 1)
		equal(t, "pending", about.NumPending, 2)
		standing(t, "six are on their way", c, func(is *jetstream.ConsumerInfo) bool {
			return is.NumAckPending == 6 && is.Delivered.Stream == 6 && is.AckFloor.Stream == 0 && is.NumPending == 0
		})

		testutil.Must(t, all[0].Ack())
		testutil.Must(t, all[1].DoubleAck(within(t)))
		testutil.Must(t, all[2].Nak())
		testutil.Must(t, all[3].NakWithDelay(100*time.Millisecond))
		testutil.Must(t, all[4].TermWithReason("of no use"))
		working := time.Now()
		testutil.Must(t, all[5].InProgress())

		var again []jetstream.Msg
		for range 2 {
			m, err := c.Next(jetstream.FetchMaxWait(patience))
			testutil.Must(t, err)
			again = append(again, m)
		}
		equalTexts(t, "delivered again", texts(again), []string{"3", "4"})
		about, err = again[1].Metadata()
		testutil.Must(t, err)
		equal(t, "delivered", about.NumDelivered, 2)
		for _, m := range again {
			testutil.Must(t, m.DoubleAck(within(t)))
		}
		m, err := c.Next(jetstream.FetchMaxWait(patience))
		testutil.Must(t, err)
		equal(t, "the one that was worked on for too long", string(m.Data()), "6")
		if took := time.Since(working); took < ackWait-50*time.Millisecond {
			t.Errorf("it came again after %v", took)
		}
		testutil.Must(t, m.DoubleAck(within(t)))
		if m.Ack() == nil {
			t.Error("nats.go acknowledges a message twice")
		}
		standing(t, "all is dealt with", c, func(is *jetstream.ConsumerInfo) bool {
			return is.NumAckPending == 0 && is.AckFloor.Stream == 6 && is.NumRedelivered == 0
		})
		batch, err = c.FetchNoWait(10)
		equal(t, "nothing is left", len(take(t, batch, err)), 0)
	}},

	{"an ack that asks for more", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		js := s.client(t)
		fill(t, js, name+".x", 3)
		c := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "d"})
		m, err := c.Next(jetstream.FetchMaxWait(patience))
		testutil.Must(t, err)
		nc := js.Conn()
		next, err := nc.Request(m.Reply(), []byte("+NXT"), patience)
		testutil.Must(t, err)
		equal(t, "the next", string(next.Data), "2")
		equal(t, "its subject", next.Subject != name+".x", false)
		standing(t, "one is dealt with, one on its way", c, func(is *jetstream.ConsumerInfo) bool {
			return is.AckFloor.Stream == 1 && is.NumAckPending == 1
		})
	}},

	{"what is not acknowledged comes again, as often as it may", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		fill(t, s.client(t), name+".x", 1)
		c := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "d", AckWait: 100 * time.Millisecond, MaxDeliver: 3})
		for i := range 3 {
			m, err := c.Next(jetstream.FetchMaxWait(patience))
			testutil.Must(t, err)
			about, err := m.Metadata()
			testutil.Must(t, err)
			equal(t, "delivered", about.NumDelivered, uint64(i+1))
			equal(t, "stream sequence", about.Sequence.Stream, 1)
			equal(t, "consumer sequence", about.Sequence.Consumer, uint64(i+1))
		}
		if m, err := c.Next(jetstream.FetchMaxWait(2 * soon)); err == nil {
			t.Errorf("it came a fourth time: %v", m.Headers())
		}
	}},

	{"only so many are on their way", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		fill(t, s.client(t), name+".x", 5)
		c := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "d", MaxAckPending: 2})
		batch, err := c.Fetch(5, jetstream.FetchMaxWait(soon))
		all := take(t, batch, err)
		equalTexts(t, "at first", texts(all), count(1, 2))
		testutil.Must(t, all[0].DoubleAck(within(t)))
		batch, err = c.Fetch(5, jetstream.FetchMaxWait(soon))
		equalTexts(t, "after one ack", texts(take(t, batch, err)), count(3, 3))
	}},

	{"an ack for all before, and none at all", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		fill(t, s.client(t), name+".x", 5)
		c := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "all", AckPolicy: jetstream.AckAllPolicy})
		batch, err := c.Fetch(5)
		all := take(t, batch, err)
		testutil.Must(t, all[3].DoubleAck(within(t)))
		standing(t, "four are dealt with", c, func(is *jetstream.ConsumerInfo) bool {
			return is.AckFloor.Stream == 4 && is.NumAckPending == 1
		})
		none := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "none", AckPolicy: jetstream.AckNonePolicy})
		batch, err = none.Fetch(5)
		equal(t, "without acks", len(take(t, batch, err)), 5)
		standing(t, "nothing waits for an ack", none, func(is *jetstream.ConsumerInfo) bool {
			return is.NumAckPending == 0 && is.Delivered.Stream == 5
		})
	}},

	{"several receivers share one consumer", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		const many = 300
		s.consumer(t, name, jetstream.ConsumerConfig{Durable: "shared"})
		type got struct {
			by  int
			seq uint64
		}
		received := make(chan got, 2*many)
		for by := range 3 {
			c, err := s.client(t).Consumer(within(t), name, "shared")
			testutil.Must(t, err)
			consuming, err := c.Consume(func(m jetstream.Msg) {
				about, err := m.Metadata()
				if err != nil || m.Ack() != nil {
					t.Errorf("message %s: %v", m.Data(), err)
					return
				}
				received <- got{by, about.Sequence.Stream}
			}, jetstream.PullMaxMessages(10))
			testutil.Must(t, err)
			defer consuming.Stop()
		}
		fill(t, s.client(t), name+".x", many)
		seen, shares := map[uint64]bool{}, map[int]int{}
		for len(seen) < many {
			select {
			case g := <-received:
				if seen[g.seq] {
					t.Fatalf("message %d was received twice", g.seq)
				}
				seen[g.seq] = true
				shares[g.by]++
			case <-time.After(patience):
				t.Fatalf("only %d of %d were received", len(seen), many)
			}
		}
		if len(shares) < 2 {
			t.Errorf("all went to one of three: %v", shares)
		}
	}},
}
