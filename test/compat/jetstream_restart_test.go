package compat

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/internal/testutil"
	"github.com/carillon-mq/carillon/internal/testutil/brokers"
)

// TestJetStreamOutlivesItsBroker: a broker stops and returns: every acknowledged message is there,
// and cursors are where they were. Meanwhile, clients of other brokers get an error with the
// reason; afterwards they continue.
func TestJetStreamOutlivesItsBroker(t *testing.T) {
	local, _ := brokers.Coordinator(t)
	volume := t.TempDir()
	stays := startBroker(t, local, 0, t.TempDir())
	goes := startBroker(t, local, 1, volume)
	s := &site{urls: []string{stays.url()}}
	js := s.client(t)
	name := s.ledBy(t, js, "compat-1")

	c := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "d"})
	var mu sync.Mutex
	times := map[string]int{}
	received := func(n int) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(times) == n
		}
	}
	consuming, err := c.Consume(func(m jetstream.Msg) {
		if err := m.DoubleAck(within(t)); err != nil {
			return // it will be delivered again
		}
		mu.Lock()
		defer mu.Unlock()
		times[string(m.Data())]++
	}, jetstream.PullExpiry(1e9), jetstream.ConsumeErrHandler(func(jetstream.ConsumeContext, error) {}))
	testutil.Must(t, err)
	defer consuming.Stop()
	publish := func(from, to int) {
		t.Helper()
		for i := from; i <= to; i++ {
			ack, err := js.Publish(within(t), name+".x", []byte(fmt.Sprint(i)))
			testutil.Must(t, err)
			equal(t, "sequence", ack.Sequence, uint64(i))
		}
	}
	publish(1, 50)
	testutil.EventuallyTrue(t, "all are received", received(50))

	goes.stop()
	testutil.EventuallyTrue(t, "it is known to be away", func() bool {
		asking, stop := context.WithTimeout(t.Context(), 5*time.Second) // a request that was forwarded to the broker as it ended gets no answer
		defer stop()
		_, info := js.Stream(asking, name)
		return number(info) == 10194 && strings.Contains(info.Error(), "is away") // at first the reason is that there is no link
	})
	list := js.ListStreams(within(t))
	for is := range list.Info() {
		if is.Config.Name == name {
			t.Error("it is described while it is away")
		}
	}
	testutil.Must(t, list.Err())
	if _, err := js.Publish(within(t), name+".x", nil); err == nil {
		t.Error("a message was acknowledged by nobody")
	}
	if _, err := js.Stream(within(t), s.name("another")); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("one that isn't there: %v", err)
	}

	startBroker(t, local, 1, volume)
	testutil.EventuallyTrue(t, "it is served again", func() bool {
		stream, err := js.Stream(within(t), name)
		return err == nil && stream.CachedInfo().State.LastSeq == 50
	})
	publish(51, 100)
	testutil.EventuallyTrue(t, "what came afterwards is received, too", received(100))
	mu.Lock()
	defer mu.Unlock()
	for data, n := range times {
		if n != 1 {
			t.Errorf("message %s was acknowledged, and came %d times", data, n)
		}
	}
}

// ledBy creates streams until the broker of that name leads one.
func (s *site) ledBy(t *testing.T, js jetstream.JetStream, leader string) string {
	t.Helper()
	for range 10 {
		name := s.stream(t, nil)
		stream, err := js.Stream(within(t), name)
		testutil.Must(t, err)
		if stream.CachedInfo().Cluster.Leader == leader {
			return name
		}
	}
	t.Fatalf("%s is given no stream of ten", leader)
	return ""
}

// TestJetStreamWithoutEtcd: without etcd, messages are still kept and delivered, also to consumers
// that are created in memory. A request that needs etcd is refused with the reason, before clients
// time out.
func TestJetStreamWithoutEtcd(t *testing.T) {
	t.Parallel()
	local, stop := brokers.Coordinator(t)
	s := &site{}
	for i := range 2 {
		s.urls = append(s.urls, startBroker(t, local, i, t.TempDir()).url())
	}
	name := s.stream(t, nil)
	js := s.client(t)
	c := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "d"})
	stop()

	fill(t, js, name+".x", 10)
	batch, err := c.Fetch(10)
	for _, m := range take(t, batch, err) {
		testutil.Must(t, m.DoubleAck(within(t)))
	}
	ordered, err := s.client(t).OrderedConsumer(within(t), name, jetstream.OrderedConsumerConfig{})
	testutil.Must(t, err)
	batch, err = ordered.Fetch(10)
	equalTexts(t, "in order", texts(take(t, batch, err)), count(1, 10))

	began := time.Now()
	refusals := make(chan error, 3)
	go func() {
		_, err := js.CreateStream(within(t), jetstream.StreamConfig{Name: "new"})
		refusals <- err
	}()
	go func() {
		_, err := js.CreateConsumer(within(t), name, jetstream.ConsumerConfig{Durable: "new"})
		refusals <- err
	}()
	go func() { refusals <- js.DeleteStream(within(t), name) }()
	for range 3 {
		if err := <-refusals; number(err) != 10008 {
			t.Errorf("refused with %v", err)
		}
	}
	if took := time.Since(began); took > patience/2 { // broker/jetstream bounds it below the time-out of clients
		t.Errorf("it took %v, when clients have given up", took)
	}
	stream, err := js.Stream(within(t), name)
	testutil.Must(t, err)
	equal(t, "messages", stream.CachedInfo().State.Msgs, 10)
}

// TestAPullEndsBeforeItsConnection: a broker that stops tells clients with waiting pulls, as
// nats-server does, and closes their connections after that.
func TestAPullEndsBeforeItsConnection(t *testing.T) {
	t.Parallel()
	for _, sharded := range []bool{false, true} {
		alone := startStandalone(t)
		s := &site{urls: []string{alone.url()}}
		var name string
		if sharded {
			name = s.shardedStream(t, "")
		} else {
			name = s.stream(t, nil)
		}
		c := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "d"})
		batch, err := c.Fetch(10, jetstream.FetchMaxWait(patience))
		testutil.Must(t, err)
		testutil.EventuallyTrue(t, "the pull waits", func() bool {
			is, err := c.Info(within(t))
			return err == nil && is.NumWaiting == 1
		})
		alone.stop()
		for m := range batch.Messages() {
			t.Errorf("message %s", m.Data())
		}
		if err := batch.Error(); !errors.Is(err, jetstream.ErrServerShutdown) {
			t.Errorf("with several shards %v: the pull ended with %v", sharded, err)
		}
	}
}
