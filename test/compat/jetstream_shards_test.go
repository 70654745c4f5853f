package compat

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestATopicOfSeveralShards: a Topic of four shards on three brokers: 10,000 messages on 100
// subjects, published on all brokers, are delivered to clients that pull on all brokers, each once
// and those of a subject in order. Requests that need one order are refused as documented.
func TestATopicOfSeveralShards(t *testing.T) {
	t.Parallel()
	const shards, subjects, each = 4, 100, 100
	s := brokerSite(t, 3)
	first := s.client(t)
	testutil.EventuallyTrue(t, "the topic is made", func() bool {
		m, err := first.Conn().Request("$CARILLON.API.TOPIC.CREATE.orders", []byte(`{"stream":{"subjects":["orders.>"],"allow_direct":true},"shards":4}`), patience)
		return err == nil && !strings.Contains(string(m.Data), `"error"`)
	})
	var stream jetstream.Stream
	testutil.EventuallyTrue(t, "all shards are served", func() (ok bool) {
		var err error
		stream, err = first.Stream(within(t), "orders")
		return err == nil
	})

	var publishing sync.WaitGroup
	for p := range 10 {
		js := s.client(t)
		publishing.Go(func() {
			for i := range each {
				for subject := p; subject < subjects; subject += 10 {
					m := &nats.Msg{Subject: fmt.Sprint("orders.", subject), Data: []byte(strconv.Itoa(i)), Header: nats.Header{}}
					m.Header.Set(jetstream.MsgIDHeader, fmt.Sprintf("%d of %d", i, subject))
					if _, err := js.PublishMsgAsync(m, jetstream.WithStallWait(patience)); err != nil {
						t.Error(err)
						return
					}
				}
			}
			select {
			case <-js.PublishAsyncComplete():
			case <-time.After(3 * patience):
				t.Error("not all is acknowledged")
			}
		})
	}
	publishing.Wait()
	// A repeated message is recognised by its id, and answered with its first shard and sequence.
	again, err := first.PublishMsg(within(t), &nats.Msg{Subject: "orders.7", Data: []byte("3"), Header: nats.Header{jetstream.MsgIDHeader: {"3 of 7"}}})
	testutil.Must(t, err)
	if !again.Duplicate || !strings.HasPrefix(again.Stream, "orders--") {
		t.Errorf("published again: %+v", again)
	}

	info, err := stream.Info(within(t))
	testutil.Must(t, err)
	total := uint64(0)
	for n := range shards {
		part, err := first.Stream(within(t), fmt.Sprintf("orders--%d", n))
		testutil.Must(t, err)
		total += part.CachedInfo().State.Msgs
		if part.CachedInfo().State.Msgs == 0 {
			t.Errorf("shard %d has nothing", n)
		}
	}
	if info.Config.Name != "orders" || info.State.Msgs != subjects*each || total != subjects*each {
		t.Errorf("the whole has %d messages, the shards %d", info.State.Msgs, total)
	}

	config := jetstream.ConsumerConfig{Durable: "billing", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 10 * patience}
	_, err = stream.CreateOrUpdateConsumer(within(t), config)
	testutil.Must(t, err)
	var mu sync.Mutex
	last, count := map[string]int{}, 0
	done := make(chan struct{})
	take := func(m jetstream.Msg) {
		i, err := strconv.Atoi(string(m.Data()))
		mu.Lock()
		defer mu.Unlock()
		if before, known := last[m.Subject()]; err != nil || known && i != before+1 || !known && i != 0 {
			t.Errorf("%s %s came after %d (%v)", m.Subject(), m.Data(), before, err)
		}
		last[m.Subject()] = i
		if err := m.Ack(); err != nil {
			t.Error(err)
		}
		if count++; count == subjects*each {
			close(done)
		}
	}
	allCame := func(to string) {
		t.Helper()
		select {
		case <-done:
		case <-time.After(6 * patience):
			mu.Lock()
			defer mu.Unlock()
			t.Errorf("%d of %d came to %s", count, subjects*each, to)
		}
	}
	// One client pulls by itself until half of the messages are delivered, then others fetch: no
	// message is delivered to both.
	consumer, err := s.client(t).Consumer(within(t), "orders", "billing")
	testutil.Must(t, err)
	for count < subjects*each/2 {
		batch, err := consumer.Fetch(123, jetstream.FetchMaxWait(patience))
		testutil.Must(t, err)
		got := 0
		for m := range batch.Messages() {
			take(m)
			got++
		}
		if batch.Error() != nil || got != 123 {
			t.Fatalf("a fetch of 123 brought %d: %v", got, batch.Error())
		}
	}
	consuming, err := consumer.Consume(take, jetstream.PullMaxMessages(500))
	testutil.Must(t, err)
	allCame("one that is durable")
	consuming.Stop()
	testutil.EventuallyTrue(t, "all is acknowledged", func() bool {
		is, err := consumer.Info(within(t))
		return err == nil && is.NumPending == 0 && is.NumAckPending == 0 && is.Delivered.Consumer == subjects*each
	})

	refuse := func(what string, err error, code jetstream.ErrorCode) {
		t.Helper()
		var api *jetstream.APIError
		if !errors.As(err, &api) || api.ErrorCode != code || !strings.Contains(api.Description, "orders") {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err = stream.CreateConsumer(within(t), jetstream.ConsumerConfig{Durable: "later", DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: 3})
	refuse("start by sequence", err, 10012)
	_, err = stream.OrderedConsumer(within(t), jetstream.OrderedConsumerConfig{})
	refuse("an ordered consumer", err, 10012)
	if err == nil || !strings.Contains(err.Error(), "orders--0 to orders--3") {
		t.Errorf("the way out isn't said: %v", err)
	}
	// An ephemeral consumer gets all messages, too, and is deleted with its client.
	passing, err := s.client(t).CreateConsumer(within(t), "orders", jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy, InactiveThreshold: 20 * time.Second})
	testutil.Must(t, err)
	last, count, done = map[string]int{}, 0, make(chan struct{})
	passed, err := passing.Consume(take)
	testutil.Must(t, err)
	allCame("one that isn't durable")
	passed.Stop()
	testutil.EventuallyTrue(t, "it is gone when nobody reads by it", func() bool {
		_, err := passing.Info(within(t))
		return errors.Is(err, jetstream.ErrConsumerNotFound)
	})
	old, err := s.client(t).Conn().JetStream(nats.MaxWait(patience))
	testutil.Must(t, err)
	pulling, err := old.PullSubscribe("orders.7", "") // the former API looks for the stream itself
	testutil.Must(t, err)
	if got, err := pulling.Fetch(each, nats.MaxWait(patience)); err != nil || len(got) != each || string(got[each-1].Data) != strconv.Itoa(each-1) {
		t.Errorf("by the former API %d came (%v)", len(got), err)
	}
	_, err = old.SubscribeSync("orders.>", nats.OrderedConsumer())
	if err == nil || !strings.Contains(err.Error(), "can't have an ordered consumer") {
		t.Errorf("ordered, by the former API: %v", err)
	}
	refuse("purge by sequence", stream.Purge(within(t), jetstream.WithPurgeSequence(3)), 10110)
	refuse("delete a shard", first.DeleteStream(within(t), "orders--2"), 10050)
	_, err = first.Publish(within(t), "orders.7", nil, jetstream.WithExpectLastSequence(3))
	refuse("expecting the last of all", err, 10077)
	if _, err := stream.GetMsg(within(t), 3); err == nil || !strings.Contains(err.Error(), "4 shards") {
		t.Errorf("get by sequence: %v", err)
	}

	// A subject is in one shard, so it has a last message, as a shard has.
	newest, err := stream.GetLastMsgForSubject(within(t), "orders.7")
	testutil.Must(t, err)
	if string(newest.Data) != strconv.Itoa(each-1) {
		t.Errorf("the last of a subject is %s", newest.Data)
	}
	testutil.EventuallyTrue(t, "the shards count their subjects", func() bool {
		is, err := stream.Info(within(t), jetstream.WithSubjectFilter("orders.>"))
		return err == nil && is.State.NumSubjects == subjects && len(is.State.Subjects) == subjects && is.State.Subjects["orders.7"] == each
	})
	_, err = first.Publish(within(t), "orders.7", []byte("100"), jetstream.WithExpectLastSequencePerSubject(newest.Sequence))
	testutil.Must(t, err)
	_, err = first.Publish(within(t), "orders.7", []byte("100"), jetstream.WithExpectLastSequencePerSubject(newest.Sequence))
	refuseLast := new(jetstream.APIError)
	if !errors.As(err, &refuseLast) || refuseLast.ErrorCode != 10071 {
		t.Errorf("expecting what isn't the last: %v", err)
	}
	part, err := first.Stream(within(t), again.Stream)
	testutil.Must(t, err)
	state := part.CachedInfo().State
	_, err = first.Publish(within(t), "orders.7", []byte("101"), jetstream.WithExpectStream(again.Stream), jetstream.WithExpectLastSequence(state.LastSeq))
	testutil.Must(t, err)
	ordered, err := part.OrderedConsumer(within(t), jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: 10})
	testutil.Must(t, err)
	messages, err := ordered.Messages()
	testutil.Must(t, err)
	defer messages.Stop()
	for want := uint64(10); want <= state.LastSeq+1; want++ {
		m, err := messages.Next(jetstream.NextContext(within(t)))
		testutil.Must(t, err)
		if about, err := m.Metadata(); err != nil || about.Sequence.Stream != want || about.Stream != again.Stream {
			t.Fatalf("message %d is %+v (%v)", want, about, err)
		}
	}

	testutil.Must(t, stream.Purge(within(t)))
	if info, err = stream.Info(within(t)); err != nil || info.State.Msgs != 0 {
		t.Errorf("after a purge: %+v (%v)", info, err)
	}
	testutil.Must(t, first.DeleteStream(within(t), "orders"))
	if _, err := first.Stream(within(t), "orders--1"); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("a shard of what was deleted: %v", err)
	}
}
