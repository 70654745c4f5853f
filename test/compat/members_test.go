package compat

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// countMembers returns the clients that all brokers count of a Subscription.
func countMembers(nc *nats.Conn, topic, name string) (sum int, err error) {
	ask := func(subject string, answer any) error {
		m, err := nc.Request(subject, nil, patience)
		if err != nil {
			return err
		}
		return json.Unmarshal(m.Data, answer)
	}
	var list admin.BrokerList
	if err := ask(admin.BrokerListSubject, &list); err != nil {
		return 0, err
	}
	for _, b := range list.Brokers {
		var said admin.SubscriptionStates
		if err := ask(admin.SubscriptionStatesSubject+topic+"."+b.ID, &said); err != nil {
			return 0, err
		}
		if said.Error != nil {
			return 0, said.Error
		}
		sum += said.Clients[name]
	}
	return sum, nil
}

// TestBrokersCountTheClientsThatRead: each client is one active member, on whatever broker it is
// and however many requests it has, of Topics with one and with several shards. Those that left
// don't count.
func TestBrokersCountTheClientsThatRead(t *testing.T) {
	members := startBrokers(t, 3)
	watcher := join(t, members[0])
	js, err := jetstream.New(watcher, jetstream.WithDefaultTimeout(patience))
	testutil.Must(t, err)
	wants := func(when, topic, name string, n int) {
		t.Helper()
		testutil.Eventually(t, when, func() error {
			got, err := countMembers(watcher, topic, name)
			if err == nil && got != n {
				err = fmt.Errorf("%d members are counted, want %d", got, n)
			}
			return err
		})
	}
	var one jetstream.Stream
	testutil.Eventually(t, "all brokers have joined", func() (err error) {
		one, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "one", Subjects: []string{"one.>"}, Replicas: 3})
		return err
	})
	made, err := watcher.Request(admin.TopicCreateSubject+"many", []byte(`{"stream":{"subjects":["many.>"],"num_replicas":1},"shards":4}`), patience)
	if err != nil {
		t.Fatal(err)
	}
	var many admin.TopicInfo
	if testutil.Must(t, json.Unmarshal(made.Data, &many)); many.Error != nil {
		t.Fatal(many.Error)
	}
	for _, topic := range []string{"one", "many"} {
		testutil.Eventually(t, "the consumer is created", func() error {
			_, err := js.CreateConsumer(t.Context(), topic, jetstream.ConsumerConfig{Durable: "billing", AckPolicy: jetstream.AckExplicitPolicy})
			return err
		})
		wants("nobody reads", topic, "billing", 0)
		var clients []*nats.Conn
		for i := range 2 * len(members) {
			nc := join(t, members[i%len(members)])
			clients = append(clients, nc)
			for n := range 3 { // each with an inbox of its own
				inbox := nc.NewInbox()
				_, err := nc.SubscribeSync(inbox)
				testutil.Must(t, err)
				testutil.Must(t, nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+topic+".billing", inbox, fmt.Appendf(nil, `{"batch":%d,"expires":%d}`, n+1, 10*time.Minute)))
			}
		}
		wants("six clients read", topic, "billing", len(clients))
		for _, nc := range clients[1:] {
			nc.Close()
		}
		wants("one is left", topic, "billing", 1)
		clients[0].Close()
		wants("all have left", topic, "billing", 0)
	}

	// A client that only acknowledges counts, and so do receivers of a deliver subject.
	_, err = js.Publish(t.Context(), "one.a", []byte("x"))
	testutil.Must(t, err)
	consumer, err := one.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "taken", AckPolicy: jetstream.AckExplicitPolicy})
	testutil.Must(t, err)
	m, err := consumer.Next()
	testutil.Must(t, err)
	wants("one took a message", "one", "taken", 1)
	other := join(t, members[1])
	testutil.Must(t, other.Publish(m.Reply(), nil))
	wants("another acknowledges it", "one", "taken", 2)

	old, err := watcher.JetStream(nats.MaxWait(patience))
	testutil.Must(t, err)
	_, err = old.AddConsumer("one", &nats.ConsumerConfig{Durable: "sent", DeliverSubject: "sent.here", DeliverGroup: "workers", AckPolicy: nats.AckExplicitPolicy})
	testutil.Must(t, err)
	wants("nobody receives", "one", "sent", 0)
	for i := range 2 {
		nc := join(t, members[i])
		for range 2 {
			_, err := nc.QueueSubscribeSync("sent.here", "workers")
			testutil.Must(t, err)
		}
		_, err := nc.SubscribeSync("sent.here") // not in the group
		testutil.Must(t, err)
	}
	outside := join(t, members[2])
	_, err = outside.SubscribeSync("sent.here")
	testutil.Must(t, err)
	wants("two receive", "one", "sent", 2)
}
