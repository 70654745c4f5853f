//go:build linux

package devcluster

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestAQueueIsEmptiedWhileItsLeadersDie: clients of all brokers publish to a stream and take from
// it, while its leader is killed again and again. In the end each acknowledged message was taken,
// and the stream is empty: nothing was removed too early, and no removal was forgotten.
func TestAQueueIsEmptiedWhileItsLeadersDie(t *testing.T) {
	for _, test := range []struct {
		retention jetstream.RetentionPolicy
		filters   []string // of the consumers
	}{
		{jetstream.WorkQueuePolicy, []string{"a", "b"}},
		{jetstream.InterestPolicy, []string{"a", "*"}},
	} {
		t.Run(test.retention.String(), func(t *testing.T) {
			t.Parallel()
			emptied(t, strings.ToLower(test.retention.String()), test.retention, test.filters)
		})
	}
}

func emptied(t *testing.T, name string, retention jetstream.RetentionPolicy, filters []string) {
	c := startCluster(t)
	js := c.connect()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name + ".*"}, Replicas: 3, Retention: retention})
	testutil.Must(t, err)
	taken := map[string]*received{}
	for _, filter := range filters {
		taken[filter] = &received{times: map[string]int{}}
		_, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
			Durable: "of-" + strings.ReplaceAll(filter, "*", "all"), FilterSubject: name + "." + filter,
			AckPolicy: jetstream.AckExplicitPolicy, AckWait: 2 * time.Second,
		})
		testutil.Must(t, err)
		for broker := range c.urls {
			consumer, err := c.connectTo(broker).Consumer(ctx, name, "of-"+strings.ReplaceAll(filter, "*", "all"))
			testutil.Must(t, err)
			consuming, err := consumer.Consume(taken[filter].take, jetstream.PullMaxMessages(50),
				jetstream.ConsumeErrHandler(func(jetstream.ConsumeContext, error) {}))
			testutil.Must(t, err)
			defer consuming.Stop()
		}
	}

	c.whole(js, name)
	var published atomic.Int64
	publishing, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		publisher := js
		for i := 1; publishing.Err() == nil; i++ {
			subject := name + "." + []string{"a", "b"}[i%2]
			id := fmt.Sprint(i)
			for {
				within, cancel := context.WithTimeout(ctx, 2*time.Second) // it is lost with its broker
				_, err := publisher.PublishMsg(within, &nats.Msg{Subject: subject, Data: []byte(id)}, jetstream.WithMsgID(id))
				cancel()
				if err == nil {
					break
				}
				if ctx.Err() != nil {
					ended <- fmt.Errorf("publish message %d: %w", i, err)
					return
				}
			}
			published.Store(int64(i))
		}
		ended <- nil
	}()
	c.killLeaders(js, name, "messages are acknowledged", 200, func() int { return int(published.Load()) })
	stop()
	testutil.Must(t, <-ended)

	n := int(published.Load())
	testutil.Eventually(t, "each message was taken", func() error {
		for filter, r := range taken {
			if err := r.hasEach(n, func(i int) bool { return filter == "*" || []string{"a", "b"}[i%2] == filter }); err != nil {
				return fmt.Errorf("consumer of %s: %w", filter, err)
			}
		}
		return nil
	})
	var is jetstream.StreamState
	testutil.Eventually(t, "the stream is empty", func() error {
		info, err := stream.Info(ctx)
		if err != nil {
			return err
		}
		if is = info.State; is.Msgs != 0 {
			return fmt.Errorf("it has %+v", is)
		}
		return nil
	})
	t.Logf("%d messages were published and taken; %d sequences", n, is.LastSeq)
}

// hasEach reports an error unless each message from 1 to n that matches was received.
func (r *received) hasEach(n int, matches func(int) bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := 1; i <= n; i++ {
		if matches(i) && r.times[fmt.Sprint(i)] == 0 {
			return fmt.Errorf("message %d of %d was not received", i, n)
		}
	}
	return nil
}
