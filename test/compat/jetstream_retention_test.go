package compat

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// becomes waits until a stream has so many messages, and its first one has that sequence: what acks
// remove goes a moment later.
func becomes(t *testing.T, what string, js jetstream.JetStream, stream string, messages, first uint64) {
	t.Helper()
	var is jetstream.StreamState
	defer func() {
		if t.Failed() {
			t.Logf("%s: the stream has %+v", what, is)
		}
	}()
	testutil.EventuallyTrue(t, what, func() bool {
		s, err := js.Stream(within(t), stream)
		testutil.Must(t, err)
		is = s.CachedInfo().State
		return is.Msgs == messages && is.FirstSeq == first
	})
}

// stays fails if a stream has another number of messages after a while.
func stays(t *testing.T, what string, js jetstream.JetStream, stream string, messages uint64) {
	t.Helper()
	time.Sleep(soon / 4)
	s, err := js.Stream(within(t), stream)
	testutil.Must(t, err)
	equal(t, what, s.CachedInfo().State.Msgs, messages)
}

func queue(c *jetstream.StreamConfig)    { c.Retention = jetstream.WorkQueuePolicy }
func interest(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy }

// refused checks the error code of the creation, or change, of a consumer.
func (s *site) refused(t *testing.T, stream string, config jetstream.ConsumerConfig, want jetstream.ErrorCode) {
	t.Helper()
	_, err := s.client(t).CreateOrUpdateConsumer(within(t), stream, config)
	if number(err) != want {
		t.Errorf("consumer %+v: %v, want error %d", config, err, want)
	}
}

var retentionStories = []story{
	{"a work queue is taken by several clients, each message once", func(t *testing.T, s *site) {
		const messages = 500
		name := s.stream(t, queue)
		js := s.client(t)
		fill(t, js, name+".x", messages)
		s.consumer(t, name, jetstream.ConsumerConfig{Durable: "workers", AckPolicy: jetstream.AckExplicitPolicy})
		var mu sync.Mutex
		times := map[string]int{}
		for range 3 {
			c, err := s.client(t).Consumer(within(t), name, "workers")
			testutil.Must(t, err)
			consuming, err := c.Consume(func(m jetstream.Msg) {
				mu.Lock()
				times[string(m.Data())]++
				mu.Unlock()
				if err := m.Ack(); err != nil {
					t.Errorf("ack: %v", err)
				}
			}, jetstream.PullMaxMessages(20))
			testutil.Must(t, err)
			defer consuming.Stop()
		}
		becomes(t, "the queue is empty", js, name, 0, messages+1)
		mu.Lock()
		defer mu.Unlock()
		equal(t, "messages", len(times), messages)
		for data, n := range times {
			if n != 1 {
				t.Errorf("message %s came %d times", data, n)
			}
		}
	}},

	{"a work queue keeps what a reset passes", func(t *testing.T, s *site) {
		name := s.stream(t, queue)
		js := s.client(t)
		fill(t, js, name+".x", 6)
		c := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "d"})
		batch, err := c.Fetch(2)
		all := take(t, batch, err)
		testutil.Must(t, all[0].DoubleAck(within(t)))
		becomes(t, "one was acknowledged", js, name, 5, 2)
		if _, at, code := s.reset(t, js, name, "d", `{"seq":5}`); at != 5 || code != 0 {
			t.Errorf("reset to 5: %d, %d", at, code)
		}
		batch, err = c.Fetch(2)
		later := take(t, batch, err)
		equalTexts(t, "from 5 on", texts(later), count(5, 6))
		stays(t, "nothing was acknowledged", js, name, 5)
		testutil.Must(t, later[0].DoubleAck(within(t)))
		becomes(t, "another one was acknowledged", js, name, 4, 2)
		if _, at, code := s.reset(t, js, name, "d", `{"seq":2}`); at != 2 || code != 0 {
			t.Errorf("reset to 2: %d, %d", at, code)
		}
		batch, err = c.Fetch(4)
		equalTexts(t, "from 2 on", texts(take(t, batch, err)), []string{"2", "3", "4", "6"})
	}},

	{"a work queue keeps what is not acknowledged", func(t *testing.T, s *site) {
		name := s.stream(t, queue)
		js := s.client(t)
		fill(t, js, name+".x", 6)
		c := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "d", AckWait: 200 * time.Millisecond, MaxDeliver: 2})
		batch, err := c.Fetch(6)
		all := take(t, batch, err)
		testutil.Must(t, all[1].DoubleAck(within(t)))
		testutil.Must(t, all[2].TermWithReason("broken"))
		becomes(t, "an ack and a termination remove", js, name, 4, 1)
		batch, err = c.Fetch(6, jetstream.FetchMaxWait(2*soon))
		again := take(t, batch, err)
		equalTexts(t, "delivered again", texts(again), []string{"1", "4", "5", "6"})
		standing(t, "all were given up", c, func(i *jetstream.ConsumerInfo) bool { return i.NumAckPending == 0 })
		stays(t, "what was given up stays", js, name, 4)
		testutil.Must(t, again[1].DoubleAck(within(t)))
		becomes(t, "a late ack removes it", js, name, 3, 1)
		testutil.Must(t, js.DeleteConsumer(within(t), name, "d"))
		stays(t, "without a consumer", js, name, 3)
		next := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "next"})
		batch, err = next.Fetch(3)
		rest := take(t, batch, err)
		equalTexts(t, "for the next one", texts(rest), []string{"1", "5", "6"})
		for _, m := range rest {
			testutil.Must(t, m.Ack())
		}
		becomes(t, "the queue is empty", js, name, 0, 7)
	}},

	{"the consumers of a work queue share no message", func(t *testing.T, s *site) {
		name := s.stream(t, queue)
		js := s.client(t)
		explicit := jetstream.AckExplicitPolicy
		s.refused(t, name, jetstream.ConsumerConfig{Durable: "d", AckPolicy: jetstream.AckNonePolicy}, 10084)
		s.refused(t, name, jetstream.ConsumerConfig{Durable: "d", AckPolicy: jetstream.AckAllPolicy}, 10098)
		s.refused(t, name, jetstream.ConsumerConfig{Durable: "d", AckPolicy: explicit, DeliverPolicy: jetstream.DeliverNewPolicy}, 10101)
		whole := jetstream.ConsumerConfig{Durable: "whole", AckPolicy: explicit}
		s.consumer(t, name, whole)
		s.refused(t, name, jetstream.ConsumerConfig{Durable: "d", AckPolicy: explicit}, 10099)
		s.refused(t, name, jetstream.ConsumerConfig{Durable: "d", AckPolicy: explicit, FilterSubject: name + ".a"}, 10100)
		s.consumer(t, name, whole) // the same again
		testutil.Must(t, js.DeleteConsumer(within(t), name, "whole"))
		a := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "a", AckPolicy: explicit, FilterSubject: name + ".a"})
		b := s.consumer(t, name, jetstream.ConsumerConfig{AckPolicy: explicit, FilterSubjects: []string{name + ".b", name + ".c.*"}})
		s.refused(t, name, jetstream.ConsumerConfig{Durable: "d", AckPolicy: explicit, FilterSubject: name + ".c.>"}, 10100)
		s.refused(t, name, jetstream.ConsumerConfig{Durable: "d", AckPolicy: explicit, FilterSubject: name + ".*"}, 10100)
		s.refused(t, name, jetstream.ConsumerConfig{Durable: "a", AckPolicy: explicit, FilterSubject: name + ".*"}, 10100)
		for _, subject := range []string{".a", ".b", ".c.1", ".d", ".a"} {
			_, err := js.Publish(within(t), name+subject, []byte(subject))
			testutil.Must(t, err)
		}
		for _, c := range []jetstream.Consumer{b, a} {
			batch, err := c.Fetch(2)
			for _, m := range take(t, batch, err) {
				testutil.Must(t, m.DoubleAck(within(t)))
			}
		}
		becomes(t, "what nobody matches stays", js, name, 1, 4)
		stream, err := js.Stream(within(t), name)
		testutil.Must(t, err)
		equal(t, "retention", stream.CachedInfo().Config.Retention, jetstream.WorkQueuePolicy)
	}},

	{"a message stays until each interested consumer has acknowledged it", func(t *testing.T, s *site) {
		name := s.stream(t, interest)
		js := s.client(t)
		ack, err := js.Publish(within(t), name+".x", nil)
		testutil.Must(t, err)
		equal(t, "the sequence of a message that nobody wants", ack.Sequence, uint64(1))
		becomes(t, "it is not kept", js, name, 0, 2)
		all := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "all"})
		some := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "some", FilterSubject: name + ".a", AckPolicy: jetstream.AckAllPolicy})
		none := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "none", AckPolicy: jetstream.AckNonePolicy})
		for i := range 6 {
			_, err := js.Publish(within(t), name+[]string{".a", ".b"}[i%2], fmt.Append(nil, i+2))
			testutil.Must(t, err)
		}
		stays(t, "all are wanted", js, name, 6)
		fetch := func(c jetstream.Consumer, n int) []jetstream.Msg {
			t.Helper()
			batch, err := c.Fetch(n)
			return take(t, batch, err)
		}
		for _, m := range fetch(all, 6) {
			testutil.Must(t, m.DoubleAck(within(t)))
		}
		stays(t, "one more wants each", js, name, 6)
		equalTexts(t, "without acks", texts(fetch(none, 4)), count(2, 5))
		becomes(t, "those of b that came", js, name, 4, 2)
		got := fetch(some, 3)
		equalTexts(t, "those of a", texts(got), []string{"2", "4", "6"})
		testutil.Must(t, got[1].DoubleAck(within(t)))
		becomes(t, "an ack of all before", js, name, 2, 6)
		equalTexts(t, "the rest", texts(fetch(none, 2)), count(6, 7))
		becomes(t, "the last of a is pending", js, name, 1, 6)
		testutil.Must(t, js.DeleteConsumer(within(t), name, "some"))
		becomes(t, "nobody wants it", js, name, 0, 8)
	}},

	{"what only a deleted consumer held goes", func(t *testing.T, s *site) {
		name := s.stream(t, interest)
		js := s.client(t)
		s.consumer(t, name, jetstream.ConsumerConfig{Durable: "a", FilterSubject: name + ".a"})
		s.consumer(t, name, jetstream.ConsumerConfig{Durable: "b", FilterSubjects: []string{name + ".a", name + ".b"}})
		for i := range 9 {
			_, err := js.Publish(within(t), name+[]string{".a", ".b", ".c"}[i%3], nil)
			testutil.Must(t, err)
		}
		becomes(t, "nobody wants c", js, name, 6, 1)
		_, err := js.UpdateConsumer(within(t), name, jetstream.ConsumerConfig{Durable: "b", FilterSubject: name + ".b"})
		testutil.Must(t, err)
		stays(t, "a has those of a still", js, name, 6)
		testutil.Must(t, js.DeleteConsumer(within(t), name, "a"))
		becomes(t, "those of a", js, name, 3, 2)
		_, err = js.UpdateConsumer(within(t), name, jetstream.ConsumerConfig{Durable: "b", FilterSubject: name + ".c"})
		testutil.Must(t, err)
		becomes(t, "b wants others", js, name, 0, 10)
	}},

	{"the retention of a stream changes to interest and back", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		js := s.client(t)
		fill(t, js, name+".x", 4)
		c := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "d"})
		batch, err := c.Fetch(2)
		for _, m := range take(t, batch, err) {
			testutil.Must(t, m.DoubleAck(within(t)))
		}
		stays(t, "acks remove nothing", js, name, 4)
		config := jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}}
		become := func(to jetstream.RetentionPolicy, want jetstream.ErrorCode) {
			t.Helper()
			config.Retention = to
			is, err := js.UpdateStream(within(t), config)
			equal(t, "the change to "+to.String(), number(err), want)
			if want == 0 {
				equal(t, "retention", is.CachedInfo().Config.Retention, to)
			}
		}
		become(jetstream.WorkQueuePolicy, 10052)
		become(jetstream.InterestPolicy, 0)
		becomes(t, "what was acknowledged", js, name, 2, 3)
		become(jetstream.LimitsPolicy, 0)
		batch, err = c.Fetch(2)
		for _, m := range take(t, batch, err) {
			testutil.Must(t, m.DoubleAck(within(t)))
		}
		stays(t, "acks remove nothing again", js, name, 2)
		worked := s.stream(t, queue)
		config.Name, config.Subjects = worked, []string{worked + ".>"}
		become(jetstream.InterestPolicy, 10052)
	}},

	{"a full work queue has room again after an ack", func(t *testing.T, s *site) {
		name := s.stream(t, func(c *jetstream.StreamConfig) {
			queue(c)
			c.MaxMsgs, c.Discard = 3, jetstream.DiscardNew
		})
		js := s.client(t)
		fill(t, js, name+".x", 3)
		_, err := js.Publish(within(t), name+".x", nil)
		equal(t, "a fourth message", number(err), jetstream.ErrorCode(10077))
		c := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "d"})
		batch, err := c.Fetch(1)
		for _, m := range take(t, batch, err) {
			testutil.Must(t, m.DoubleAck(within(t)))
		}
		becomes(t, "one was acknowledged", js, name, 2, 2)
		fill(t, js, name+".x", 1)
	}},

	{"what is acknowledged makes room for what is not", func(t *testing.T, s *site) {
		const rounds, each = 8, 300
		name := s.stream(t, func(c *jetstream.StreamConfig) {
			queue(c)
			c.MaxBytes = 1 << 20
		})
		js := s.client(t)
		fill(t, js, name+".x", 1)
		c := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "d", MaxAckPending: 1000})
		batch, err := c.Fetch(1)
		take(t, batch, err) // and never acknowledged
		for round := range uint64(rounds) {
			for range each {
				_, err := js.PublishAsync(name+".x", make([]byte, 1000))
				testutil.Must(t, err)
			}
			<-js.PublishAsyncComplete()
			batch, err := c.Fetch(each)
			for _, m := range take(t, batch, err) {
				testutil.Must(t, m.Ack())
			}
			becomes(t, fmt.Sprintf("round %d", round+1), js, name, 1, 1)
		}
		time.Sleep(soon) // so that retention has looked at it
		becomes(t, "in the end", js, name, 1, 1)
	}},

	{"a consumer that is not used any more holds nothing", func(t *testing.T, s *site) {
		name := s.stream(t, interest)
		js := s.client(t)
		s.consumer(t, name, jetstream.ConsumerConfig{FilterSubject: name + ".x", InactiveThreshold: 5 * soon})
		fill(t, js, name+".x", 3)
		fill(t, js, name+".y", 1)
		becomes(t, "it holds what it matches", js, name, 3, 1)
		becomes(t, "it was deleted", js, name, 0, 5)
	}},

	{"a push consumer empties a work queue", func(t *testing.T, s *site) {
		name := s.stream(t, queue)
		js, older := s.client(t), s.legacy(t)
		fill(t, js, name+".x", 40)
		sub, err := older.SubscribeSync(name + ".>")
		testutil.Must(t, err)
		for _, m := range next(t, sub, 40) {
			testutil.Must(t, m.Ack())
		}
		becomes(t, "the queue is empty", js, name, 0, 41)
	}},
}
