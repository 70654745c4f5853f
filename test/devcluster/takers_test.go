//go:build linux

package devcluster

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestAHundredClientsEmptyAQueue: a hundred clients share the messages of a work queue while its
// leader is killed three times. In the end each message was taken, and the queue is empty. No
// message was delivered again after its ack was confirmed, and only kills had messages delivered
// again.
func TestAHundredClientsEmptyAQueue(t *testing.T) {
	const clients, kills = 100, 3
	n := tries(30_000, 1_000_000)
	c := startCluster(t)
	js := c.connect()
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(tries(2, 10))*patience)
	defer cancel()
	const name, ackWait = "many", 10 * time.Second
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name}, Replicas: 3, Retention: jetstream.WorkQueuePolicy})
	testutil.Must(t, err)
	_, err = stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: "all", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: -1, AckWait: ackWait,
	})
	testutil.Must(t, err)
	for i := 1; i <= n; i++ {
		_, err := js.PublishAsync(name, []byte(strconv.Itoa(i)), jetstream.WithStallWait(patience))
		testutil.Must(t, err)
	}
	testutil.Eventually(t, "the stream has all messages", func() error {
		info, err := stream.Info(ctx)
		if err == nil && info.State.Msgs != uint64(n) {
			err = fmt.Errorf("it has %d of %d", info.State.Msgs, n)
		}
		return err
	})

	var (
		taken     = make([]atomic.Int32, n+1) // deliveries of each message
		confirmed = make([]atomic.Int64, n+1) // when its ack was, by acks; 0: it was not
		acks      atomic.Int64                // confirmed ones
		first     atomic.Int64                // messages that were delivered
		after     atomic.Int64                // deliveries after a confirmed ack
	)
	// take takes a message that was asked for when so many acks were confirmed. One that was asked
	// for before its own ack was confirmed may have been on its way already.
	take := func(m jetstream.Msg, asked int64) {
		i, err := strconv.Atoi(string(m.Data()))
		if err != nil || i < 1 || i > n {
			t.Errorf("message %q was not published", m.Data())
			return
		}
		if at := confirmed[i].Load(); at != 0 && at <= asked {
			after.Add(1)
		}
		if taken[i].Add(1) == 1 {
			first.Add(1)
		}
		within, cancel := context.WithTimeout(ctx, ackWait/2) // the answer is lost with its broker
		defer cancel()
		if m.DoubleAck(within) == nil {
			confirmed[i].Store(acks.Add(1))
		}
	}
	// Each client holds one message at a time: one of several might wait in the client until it is
	// delivered to another one.
	taking, stop := context.WithCancel(ctx)
	var takers sync.WaitGroup
	defer takers.Wait()
	defer stop()
	for i := range clients {
		consumer, err := c.connectTo(i%len(c.urls)).Consumer(ctx, name, "all")
		testutil.Must(t, err)
		takers.Go(func() {
			for taking.Err() == nil {
				asked := acks.Load()
				if m, err := consumer.Next(jetstream.FetchContext(taking)); err == nil {
					take(m, asked)
				}
			}
		})
	}
	progress := func(want int) {
		t.Helper()
		for first.Load() < int64(want) {
			next := min(first.Load()+1000, int64(want))
			testutil.EventuallyTrue(t, "more messages are taken", func() bool { return first.Load() >= next })
		}
	}
	for kill := range kills {
		progress(n * (kill + 1) / (kills + 2))
		c.kill(c.whole(js, name))
	}
	progress(n)
	testutil.Eventually(t, "the queue is empty", func() error {
		info, err := stream.Info(ctx)
		if err == nil && info.State.Msgs != 0 {
			err = fmt.Errorf("it has %+v", info.State)
		}
		return err
	})
	again := 0
	for i := 1; i <= n; i++ {
		again += int(taken[i].Load()) - 1
	}
	if after.Load() > 0 {
		t.Errorf("%d messages were delivered after their acks were confirmed", after.Load())
	}
	if limit := kills * clients; again > limit {
		t.Errorf("%d deliveries were repeated; at most %d were pending when brokers died", again, limit)
	}
	t.Logf("%d messages were taken, %d deliveries were repeated", n, again)
}
