//go:build linux

package devcluster

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/subscription"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// patient is how long a client waits for an answer whose leader may be killed.
const patient = 2 * time.Second

// TestDeadLettersOutliveTheirLeaders: brokers are killed while a client acknowledges half of the
// messages, and terminates some others. Afterwards each message is acknowledged or in the
// dead-letter stream, and none is there twice.
func TestDeadLettersOutliveTheirLeaders(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	js := c.connect()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	for _, name := range []string{"work", "work-dead"} {
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}, Replicas: 3})
		testutil.Must(t, err)
		c.whole(js, name)
	}
	asked, err := json.Marshal(admin.CreateSubscriptionRequest{
		Start: coordination.Start{From: coordination.FromEarliest}, DeadLetter: "work-dead",
		Ack: coordination.Ack{MaxDeliver: 1, Wait: time.Second, MaxPending: 300},
	})
	testutil.Must(t, err)
	answer, err := js.Conn().RequestWithContext(ctx, admin.SubscriptionCreateSubject+"work.jobs", asked)
	testutil.Must(t, err)
	var made admin.SubscriptionInfo
	if testutil.Must(t, json.Unmarshal(answer.Data, &made)); made.Error != nil {
		t.Fatal(made.Error.Text)
	}
	var jobs jetstream.Consumer
	testutil.Eventually(t, "the consumer is served", func() error {
		jobs, err = js.Consumer(ctx, "work", "jobs")
		return err
	})
	published, acked := 0, map[string]bool{}
	var client sync.WaitGroup
	working, stop := context.WithCancel(ctx)
	publish := func(some int) {
		for end := published + some; published < end && working.Err() == nil; {
			data := fmt.Sprint(published)
			answer, done := context.WithTimeout(ctx, patient)
			if _, err := js.Publish(answer, "work."+data, []byte(data), jetstream.WithMsgID(data)); err == nil {
				published++
			}
			done()
		}
	}
	client.Go(func() {
		for turn := 0; working.Err() == nil; {
			publish(10)
			batch, err := jobs.Fetch(10, jetstream.FetchMaxWait(time.Second))
			if err != nil {
				continue
			}
			for m := range batch.Messages() {
				switch turn++; turn % 4 {
				case 0, 1: // an ack without an answer may count or not
					acked[string(m.Data())] = true
					answer, end := context.WithTimeout(ctx, patient)
					_ = m.DoubleAck(answer)
					end()
				case 2:
					_ = m.TermWithReason("no use for it")
				}
			}
		}
	})
	for range tries(2, 10) {
		for _, name := range []string{"work", "work-dead"} {
			c.kill(c.whole(js, name))
		}
	}
	stop()
	client.Wait()
	testutil.Eventually(t, "nothing is pending", func() error {
		jobs, err := js.Consumer(ctx, "work", "jobs")
		if err != nil {
			return err
		}
		// Nobody acknowledges what is left.
		if batch, err := jobs.FetchNoWait(100); err == nil {
			for range batch.Messages() {
			}
		}
		if i := jobs.CachedInfo(); i.NumPending > 0 || i.NumAckPending > 0 {
			return fmt.Errorf("%d wait, and %d are pending", i.NumPending, i.NumAckPending)
		}
		return nil
	})

	dead, offsets, letters := map[string]int{}, map[string]int{}, 0
	c.whole(js, "work-dead")
	stored, err := js.Stream(ctx, "work-dead")
	testutil.Must(t, err)
	reader, err := stored.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	testutil.Must(t, err)
	messages, err := reader.Messages()
	testutil.Must(t, err)
	defer messages.Stop()
	for range stored.CachedInfo().State.Msgs {
		m, err := messages.Next(jetstream.NextContext(ctx))
		testutil.Must(t, err)
		letters++
		dead[string(m.Data())]++
		offsets[m.Headers().Get(subscription.DeadOffset)]++
	}
	for i := range published {
		if data := fmt.Sprint(i); !acked[data] && dead[data] == 0 {
			t.Errorf("message %d is neither acknowledged nor a dead letter", i)
		}
	}
	if letters != len(offsets) || letters != len(dead) {
		t.Errorf("%d messages of %d offsets are %d dead letters", len(dead), len(offsets), letters)
	}
	t.Logf("of %d messages %d were to be acknowledged, and %d are dead letters", published, len(acked), letters)
}
