package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/broker/subscription"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// A message is refused, two nobody acknowledges, and one is processed. The three come back once.
func TestDeadLettersFromTheCommandLine(t *testing.T) {
	t.Parallel()
	dev := startDev(t, "--data", t.TempDir())
	defer dev.stop()
	s := shell{t, dev.url}
	s.does("topic create work --shards 2")
	s.fails(exitFailure, `there is no topic "work-dead" for dead letters`, "subs create work jobs --dead-letter work-dead")
	s.does("topic create work-dead")
	s.fails(exitFailure, "dead letters can't go into topic work, which it reads", "subs create work jobs --dead-letter work")
	for range 2 { // it waits for longer than the ack below takes on a busy machine
		s.prints("subscription jobs of topic work begins with the oldest message; dead letters go into topic work-dead\n",
			"subs create work jobs --start earliest --max-deliver 1 --ack-wait 10s --dead-letter work-dead")
	}
	s.fails(exitFailure, "dead letters would come back for ever, by the topics work-dead, work, work-dead", "subs create work-dead back --max-deliver 1 --dead-letter work")
	s.does("subs create work other --start earliest")
	s.fails(exitFailure, "it has no topic for dead letters", "subscription replay work other")
	if got := s.does("subscription show work jobs"); !strings.Contains(got, "topic work-dead") {
		t.Errorf("it is shown as\n%s", got)
	}
	for i := range 4 {
		s.does(fmt.Sprintf("pub work.%d --ack", i), fmt.Sprint(i))
	}

	nc, err := nats.Connect(dev.url, nats.Timeout(testutil.Patience))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(testutil.Patience))
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := js.Consumer(t.Context(), "work", "jobs")
	if err != nil {
		t.Fatal(err)
	}
	// Clients of JetStream know no dead letters, and keep them.
	config := jobs.CachedInfo().Config
	config.Description = "changed"
	if jobs, err = js.CreateOrUpdateConsumer(t.Context(), "work", config); err != nil {
		t.Fatal(err)
	}
	if got := s.does("subscription show work jobs"); !strings.Contains(got, "topic work-dead") || !strings.Contains(got, "changed") {
		t.Errorf("it is shown as\n%s", got)
	}
	batch, err := jobs.Fetch(4, jetstream.FetchMaxWait(30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	for m := range batch.Messages() {
		switch string(m.Data()) {
		case "0":
			err = m.TermWithReason("no such customer")
		case "1":
			err = m.DoubleAck(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	holds := func(topic string, want uint64) {
		t.Helper()
		testutil.Wait{Limit: testutil.Patience, Every: 20 * time.Millisecond}.For(t, "waiting for the messages of "+topic, func(ctx context.Context) error {
			stream, err := js.Stream(ctx, topic)
			if err != nil {
				return err
			}
			if got := stream.CachedInfo().State.Msgs; got != want {
				return fmt.Errorf("there are %d", got)
			}
			return nil
		})
	}
	holds("work-dead", 3)
	dead, err := js.Stream(t.Context(), "work-dead")
	if err != nil {
		t.Fatal(err)
	}
	letter, err := dead.GetLastMsgForSubject(t.Context(), "work-dead.work.0")
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{subscription.DeadReason: "Terminated", subscription.DeadAnswer: "+TERM no such customer", subscription.DeadSubject: "work.0", subscription.DeadSubscription: "jobs"} {
		if got := letter.Header.Get(key); got != want {
			t.Errorf("%s is %q", key, got)
		}
	}

	s.prints("1 dead letters of subscription jobs were published again; 0 are of other subscriptions or incomplete, and 2 are left\n", "subscription replay work jobs --max 1")
	s.prints("2 dead letters of subscription jobs were published again; 0 are of other subscriptions or incomplete, and 0 are left\n", "subscription replay work jobs")
	s.prints("0 dead letters of subscription jobs were published again; 0 are of other subscriptions or incomplete, and 0 are left\n", "subscription replay work jobs")
	again := map[string]int{}
	other, err := js.Consumer(t.Context(), "work", "other")
	if err != nil {
		t.Fatal(err)
	}
	if batch, err = other.Fetch(7, jetstream.FetchMaxWait(30*time.Second)); err != nil {
		t.Fatal(err)
	}
	for m := range batch.Messages() {
		again[m.Subject()+" "+string(m.Data())]++
		if m.Headers().Get(subscription.DeadReason) != "" {
			t.Errorf("%s came back with the headers of a dead letter", m.Subject())
		}
	}
	if again["work.0 0"] != 2 || again["work.1 1"] != 1 || again["work.2 2"] != 2 || again["work.3 3"] != 2 {
		t.Errorf("the topic has %v", again)
	}
}

// TestWhatADeadLetterLeftOutIsReplayed: it is read from the message's Topic, if it is still there.
func TestWhatADeadLetterLeftOutIsReplayed(t *testing.T) {
	t.Parallel()
	dev := startDev(t, "--data", t.TempDir())
	defer dev.stop()
	s := shell{t, dev.url}
	s.does("topic create work")
	s.does("topic create work-dead --max-message-size 1KiB")
	s.does("subs create work jobs --start earliest --dead-letter work-dead")
	large := strings.Repeat("x", 2000)
	for range 2 {
		s.does("pub work.large --ack", large)
	}
	nc, err := nats.Connect(dev.url, nats.Timeout(testutil.Patience))
	testutil.Must(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(testutil.Patience))
	testutil.Must(t, err)
	jobs, err := js.Consumer(t.Context(), "work", "jobs")
	testutil.Must(t, err)
	batch, err := jobs.Fetch(2, jetstream.FetchMaxWait(30*time.Second))
	testutil.Must(t, err)
	for m := range batch.Messages() {
		testutil.Must(t, m.TermWithReason("no room"))
	}
	dead, err := js.Stream(t.Context(), "work-dead")
	testutil.Must(t, err)
	testutil.EventuallyTrue(t, "both are stored", func() bool {
		info, err := dead.Info(t.Context())
		return err == nil && info.State.Msgs == 2
	})
	letter, err := dead.GetMsg(t.Context(), 1)
	testutil.Must(t, err)
	if left := letter.Header.Get(subscription.DeadLeftOut); left != subscription.DeadPayload || len(letter.Data) != 0 {
		t.Errorf("it left out %q, and has %d bytes", left, len(letter.Data))
	}
	work, err := js.Stream(t.Context(), "work")
	testutil.Must(t, err)
	testutil.Must(t, work.DeleteMsg(t.Context(), 2))
	s.prints("1 dead letters of subscription jobs were published again; 1 are of other subscriptions or incomplete, and 0 are left\n", "subscription replay work jobs")
	again, err := work.GetMsg(t.Context(), 3)
	testutil.Must(t, err)
	if again.Subject != "work.large" || strings.TrimSpace(string(again.Data)) != large {
		t.Errorf("on %s came %d bytes", again.Subject, len(again.Data))
	}
}
