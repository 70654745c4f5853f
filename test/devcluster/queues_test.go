//go:build linux

package devcluster

import (
	"context"
	"errors"
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
// it, while its leader is killed again and again, or those of its shards are. In the end each
// acknowledged message was taken, and the stream is empty: nothing was removed too early, and no
// removal was forgotten.
func TestAQueueIsEmptiedWhileItsLeadersDie(t *testing.T) {
	for _, test := range []struct {
		retention jetstream.RetentionPolicy
		filters   []string // of the consumers
		shards    int
	}{
		{jetstream.WorkQueuePolicy, []string{"a", "b"}, 1},
		{jetstream.InterestPolicy, []string{"a", "*"}, 1},
		{jetstream.WorkQueuePolicy, []string{"a", "b"}, 3},
		{jetstream.InterestPolicy, []string{"a", "*"}, 3},
	} {
		t.Run(fmt.Sprintf("%v, %d shards", test.retention, test.shards), func(t *testing.T) {
			t.Parallel()
			emptied(t, strings.ToLower(test.retention.String()), test.filters, test.shards)
		})
	}
}

func emptied(t *testing.T, name string, filters []string, shards int) {
	c := startCluster(t)
	js := c.connect()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	request := fmt.Sprintf(`{"stream":{"subjects":["%s.*.*"],"num_replicas":3,"retention":"%s"},"shards":%d}`, name, name, shards)
	testutil.Eventually(t, "the topic is made", func() error {
		m, err := js.Conn().Request("$CARILLON.API.TOPIC.CREATE."+name, []byte(request), answerTime)
		if err == nil && strings.Contains(string(m.Data), `"error"`) {
			err = errors.New(string(m.Data))
		}
		return err
	})
	streams := []string{name}
	if shards > 1 {
		streams = nil
		for n := range shards {
			streams = append(streams, fmt.Sprintf("%s--%d", name, n))
		}
	}
	for _, of := range streams {
		c.whole(js, of)
	}
	stream, err := js.Stream(ctx, name)
	testutil.Must(t, err)
	taken := map[string]*received{}
	for _, filter := range filters {
		taken[filter] = &received{times: map[string]int{}}
		_, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
			Durable: "of-" + strings.ReplaceAll(filter, "*", "all"), FilterSubject: name + "." + filter + ".*",
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

	var published atomic.Int64
	publishing, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		publisher := js
		for i := 1; publishing.Err() == nil; i++ {
			subject := fmt.Sprintf("%s.%s.%d", name, []string{"a", "b"}[i%2], i%7)
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
	c.killLeadersOf(js, streams, "messages are acknowledged", 200, func() int { return int(published.Load()) })
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
