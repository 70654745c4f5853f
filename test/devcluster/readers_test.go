//go:build linux

package devcluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// received counts how often each message was received.
type received struct {
	mu    sync.Mutex
	times map[string]int
}

func (r *received) take(m jetstream.Msg) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.times[string(m.Data())]++
	_ = m.Ack() // a lost ack means that the message comes again
}

// has reports an error unless all messages from 1 to n were received.
func (r *received) has(n int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range n {
		if r.times[fmt.Sprint(i+1)] == 0 {
			return fmt.Errorf("message %d of %d was not received", i+1, n)
		}
	}
	return nil
}

// noticed bounds the time until all messages are received after a kill: clients that wait for
// missed heartbeats take 30 s.
const noticed = 20 * time.Second

// TestConsumersWithoutADurableNameOutliveTheirLeader: whoever consumes from one goes on after the
// leader was killed, and after all brokers were, without waiting for missed heartbeats. The
// consumer is the same one.
func TestConsumersWithoutADurableNameOutliveTheirLeader(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	js := c.connect()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "news", Subjects: []string{"news.>"}, Replicas: 3})
	testutil.Must(t, err)
	c.whole(js, "news")

	readers := map[string]*received{}
	made := map[string]jetstream.Consumer{}
	for kind, config := range map[string]jetstream.ConsumerConfig{
		"stored":    {AckPolicy: jetstream.AckExplicitPolicy, AckWait: 2 * time.Second},
		"in memory": {AckPolicy: jetstream.AckExplicitPolicy, AckWait: 2 * time.Second, MemoryStorage: true},
	} {
		consumer, err := stream.CreateConsumer(ctx, config)
		testutil.Must(t, err)
		if kind == "stored" { // whoever is connected to another broker than the leader
			consumer, err = c.connectTo((c.whole(js, "news")+1)%3).Consumer(ctx, "news", consumer.CachedInfo().Name)
			testutil.Must(t, err)
		}
		got := &received{times: map[string]int{}}
		consuming, err := consumer.Consume(got.take, jetstream.ConsumeErrHandler(func(jetstream.ConsumeContext, error) {}))
		testutil.Must(t, err)
		defer consuming.Stop()
		readers[kind], made[kind] = got, consumer
	}
	published := 0
	publish := func() {
		t.Helper()
		for range 100 {
			published++
			if _, err := js.Publish(ctx, "news.x", fmt.Append(nil, published), jetstream.WithRetryAttempts(100)); err != nil {
				t.Fatal(err)
			}
		}
	}
	killed := time.Now()
	for i := range tries(3, 6) {
		publish()
		for kind, got := range readers {
			testutil.Eventually(t, "all messages are received by the consumer that is "+kind, func() error { return got.has(published) })
		}
		if took := time.Since(killed); i > 0 && took > noticed {
			t.Errorf("all messages were received %v after a kill", took)
		}
		leader := c.whole(js, "news")
		killed = time.Now()
		if i%3 == 1 {
			c.kill(0, 1, 2)
		} else {
			c.kill(leader)
		}
		// The first requests come before the next leader serves the stream.
		for kind, consumer := range made {
			if is := informed(t, consumer); is.Delivered.Stream == 0 {
				t.Errorf("the consumer that is %s has started anew: %+v", kind, is)
			}
		}
	}
	publish()
	for kind, got := range readers {
		testutil.Eventually(t, "all messages are received by the consumer that is "+kind, func() error { return got.has(published) })
	}
	// A delivery that did not reach the disk counts once its message is acknowledged, or delivered
	// again.
	for kind, consumer := range made {
		testutil.Eventually(t, "the consumer that is "+kind+" counts all that it ever delivered", func() error {
			if is := informed(t, consumer); is.Delivered.Consumer < uint64(published) {
				return fmt.Errorf("it has delivered %d of %d messages", is.Delivered.Consumer, published)
			}
			return nil
		})
	}
}

// Codes of refusals by which brokers tell clients to try again.
const (
	streamOffline   jetstream.ErrorCode = 10194
	consumerOffline jetstream.ErrorCode = 10195
)

// informed returns the info of a consumer. A request that was forwarded to a broker as it died gets
// no answer, and one that was forwarded to a broker as it stopped leading is refused as offline.
// Any other answer than the info is an error.
func informed(t *testing.T, consumer jetstream.Consumer) (is *jetstream.ConsumerInfo) {
	t.Helper()
	testutil.Eventually(t, "the consumer's info is answered", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		var err error
		is, err = consumer.Info(ctx)
		refusal, refused := errors.AsType[*jetstream.APIError](err)
		offline := refused && (refusal.ErrorCode == streamOffline || refusal.ErrorCode == consumerOffline)
		if err != nil && !errors.Is(err, context.DeadlineExceeded) && !offline {
			t.Fatal(err)
		}
		return err
	})
	return is
}
