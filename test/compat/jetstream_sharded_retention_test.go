package compat

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/internal/testutil"
)

const (
	shardedQueue    = `,"retention":"workqueue"`
	shardedInterest = `,"retention":"interest"`
)

// takeAll fetches n messages, and returns them.
func takeAll(t *testing.T, c jetstream.Consumer, n int) (all []jetstream.Msg) {
	t.Helper()
	batch, err := c.Fetch(n, jetstream.FetchMaxWait(patience))
	testutil.Must(t, err)
	for m := range batch.Messages() {
		all = append(all, m)
	}
	if len(all) != n || batch.Error() != nil {
		t.Fatalf("%d of %d messages came (%v)", len(all), n, batch.Error())
	}
	return all
}

func ackAll(t *testing.T, messages []jetstream.Msg) {
	t.Helper()
	for _, m := range messages {
		testutil.Must(t, m.DoubleAck(within(t)))
	}
}

// shardsHave fails unless the shards have so many messages together.
func shardsHave(t *testing.T, what string, js jetstream.JetStream, name string, messages uint64) {
	t.Helper()
	sum := uint64(0)
	for shard := range 3 {
		s, err := js.Stream(within(t), fmt.Sprintf("%s--%d", name, shard))
		testutil.Must(t, err)
		sum += s.CachedInfo().State.Msgs
	}
	equal(t, what, sum, messages)
}

var shardedRetentionStories = []story{
	{"a work queue is taken by several clients, each message once", func(t *testing.T, s *site) {
		name, js := s.shardedStream(t, shardedQueue), s.client(t)
		s.fillEach(t, name, 10, 1, 30)
		s.consumer(t, name, jetstream.ConsumerConfig{Durable: "workers", AckPolicy: jetstream.AckExplicitPolicy})
		var mu sync.Mutex
		times := map[string]int{}
		for range 3 {
			c, err := s.client(t).Consumer(within(t), name, "workers")
			testutil.Must(t, err)
			consuming, err := c.Consume(func(m jetstream.Msg) {
				mu.Lock()
				times[m.Subject()+" "+string(m.Data())]++
				mu.Unlock()
				if err := m.Ack(); err != nil {
					t.Errorf("ack: %v", err)
				}
			}, jetstream.PullMaxMessages(20))
			testutil.Must(t, err)
			defer consuming.Stop()
		}
		becomes(t, "the queue is empty", js, name, 0, 301)
		mu.Lock()
		defer mu.Unlock()
		equal(t, "messages", len(times), 300)
		for data, n := range times {
			if n != 1 {
				t.Errorf("message %s came %d times", data, n)
			}
		}
	}},

	{"a work queue keeps what is not acknowledged", func(t *testing.T, s *site) {
		name, js := s.shardedStream(t, shardedQueue), s.client(t)
		s.fillEach(t, name, 9, 1, 2)
		c := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "d", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Hour})
		all := takeAll(t, c, 18)
		for i, m := range all {
			switch i % 3 {
			case 0:
				testutil.Must(t, m.DoubleAck(within(t)))
			case 1:
				testutil.Must(t, m.Term())
			}
		}
		becomes(t, "acks and terminations remove", js, name, 6, 13)
		testutil.Must(t, js.DeleteConsumer(within(t), name, "d"))
		stays(t, "without a consumer", js, name, 6)
		next := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "next", AckPolicy: jetstream.AckExplicitPolicy})
		ackAll(t, takeAll(t, next, 6))
		becomes(t, "the queue is empty", js, name, 0, 19)
	}},

	{"the consumers of a work queue share no message", func(t *testing.T, s *site) {
		name := s.shardedStream(t, shardedQueue)
		js, explicit := s.client(t), jetstream.AckExplicitPolicy
		s.refused(t, name, jetstream.ConsumerConfig{Durable: "d", AckPolicy: jetstream.AckNonePolicy}, 10084)
		s.refused(t, name, jetstream.ConsumerConfig{Durable: "d", AckPolicy: jetstream.AckAllPolicy}, 10098)
		s.refused(t, name, jetstream.ConsumerConfig{Durable: "d", AckPolicy: explicit, DeliverPolicy: jetstream.DeliverNewPolicy}, 10101)
		s.consumer(t, name, jetstream.ConsumerConfig{Durable: "whole", AckPolicy: explicit})
		s.refused(t, name, jetstream.ConsumerConfig{Durable: "d", AckPolicy: explicit}, 10099)
		s.refused(t, name, jetstream.ConsumerConfig{Durable: "d", AckPolicy: explicit, FilterSubject: name + ".1"}, 10100)
		testutil.Must(t, js.DeleteConsumer(within(t), name, "whole"))
		first := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "first", AckPolicy: explicit, FilterSubject: name + ".1"})
		second := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "second", AckPolicy: explicit, FilterSubjects: []string{name + ".2", name + ".3"}})
		s.refused(t, name, jetstream.ConsumerConfig{Durable: "second", AckPolicy: explicit, FilterSubject: name + ".*"}, 10100)
		s.refused(t, name+"--1", jetstream.ConsumerConfig{AckPolicy: explicit}, 10012) // a shard has none of its own
		s.fillEach(t, name, 5, 1, 4)
		ackAll(t, takeAll(t, first, 4))
		ackAll(t, takeAll(t, second, 8))
		becomes(t, "what nobody takes stays", js, name, 8, 13)
	}},

	{"by interest, a message goes when all consumers that it matches have acknowledged it", func(t *testing.T, s *site) {
		name, js := s.shardedStream(t, shardedInterest), s.client(t)
		s.fillEach(t, name, 6, 1, 2)
		becomes(t, "without a consumer nothing stays", js, name, 0, 13)
		explicit := jetstream.AckExplicitPolicy
		all := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "all", AckPolicy: explicit})
		some := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "some", AckPolicy: explicit, FilterSubjects: []string{name + ".1", name + ".4"}})
		held := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "held", AckPolicy: explicit, FilterSubject: name + ".2"})
		equal(t, "a new consumer has", held.CachedInfo().NumPending, 0)
		s.fillEach(t, name, 6, 3, 7) // from now on all are kept
		stays(t, "before an ack", js, name, 30)
		ackAll(t, takeAll(t, all, 30))
		becomes(t, "after the acks of one", js, name, 15, 28)
		ackAll(t, takeAll(t, some, 10))
		becomes(t, "after those of another", js, name, 5, 38)
		shardsHave(t, "the shards have", js, name, 5)
		testutil.Must(t, js.DeleteConsumer(within(t), name, "held"))
		becomes(t, "what only a deleted consumer held goes", js, name, 0, 43)
	}},

	{"by interest, what is pushed without acks goes when it was delivered", func(t *testing.T, s *site) {
		name, js := s.shardedStream(t, shardedInterest), s.client(t)
		legacy := s.legacy(t)
		var got bySubject
		_, err := legacy.Subscribe(name+".>", got.add, nats.AckNone())
		testutil.Must(t, err)
		slow, err := s.legacy(t).SubscribeSync(name+".1", nats.ManualAck(), nats.AckWait(time.Hour))
		testutil.Must(t, err)
		s.fillEach(t, name, 6, 1, 5)
		got.become(t, "pushed", name, 6, 5)
		becomes(t, "the others wait for acks", js, name, 5, 26)
		for _, m := range next(t, slow, 5) {
			testutil.Must(t, m.AckSync(nats.AckWait(patience)))
		}
		becomes(t, "all were acknowledged", js, name, 0, 31)
	}},

	{"the retention changes to one by interest", func(t *testing.T, s *site) {
		name, js := s.shardedStream(t, ""), s.client(t)
		s.fillEach(t, name, 6, 1, 5)
		c := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "d", AckPolicy: jetstream.AckExplicitPolicy})
		ackAll(t, takeAll(t, c, 12))
		stays(t, "within its limits", js, name, 30)
		stream, err := js.Stream(within(t), name)
		testutil.Must(t, err)
		config := stream.CachedInfo().Config
		config.Retention = jetstream.WorkQueuePolicy
		if _, err := js.UpdateStream(within(t), config); number(err) != 10052 {
			t.Errorf("to a work queue: %v", err)
		}
		config.Retention = jetstream.InterestPolicy
		_, err = js.UpdateStream(within(t), config)
		testutil.Must(t, err)
		becomes(t, "what was acknowledged goes", js, name, 18, 13)
		config.Retention = jetstream.LimitsPolicy
		_, err = js.UpdateStream(within(t), config)
		testutil.Must(t, err)
		ackAll(t, takeAll(t, c, 18))
		stays(t, "within its limits again", js, name, 18)
	}},
}

// TestRetentionByAcksOfSeveralShards tells the stories of streams that lose messages by acks, of a
// Topic with three shards on three brokers.
func TestRetentionByAcksOfSeveralShards(t *testing.T) {
	t.Parallel()
	s := brokerSite(t, 3)
	for _, story := range shardedRetentionStories {
		t.Run(story.name, func(t *testing.T) { story.tell(t, s) })
	}
}
