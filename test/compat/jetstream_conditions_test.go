package compat

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/internal/testutil"
)

const whereKey = "carillon.dev/where"

func whereOf(condition string) map[string]string {
	return map[string]string{whereKey: condition, "team": "billing"}
}

// TestConditionsOfConsumers: a consumer gets the messages that match the condition in its metadata,
// however it reads them.
func TestConditionsOfConsumers(t *testing.T) {
	s := brokerSite(t, 2)
	js := s.client(t)
	name := s.stream(t, nil)
	publish := func(from, to int) {
		t.Helper()
		for i := from; i <= to; i++ {
			_, err := js.Publish(within(t), name+".x", fmt.Appendf(nil, `{"n": %d, "even": %v}`, i, i%2 == 0))
			testutil.Must(t, err)
		}
	}
	sequences := func(all []jetstream.Msg) (found []string) {
		for _, m := range all {
			is, err := m.Metadata()
			testutil.Must(t, err)
			found = append(found, fmt.Sprint(is.Sequence.Stream))
			testutil.Must(t, m.DoubleAck(within(t)))
		}
		return found
	}
	publish(1, 6)

	c := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "d", Metadata: whereOf("json.even")})
	equal(t, "pending", c.CachedInfo().NumPending, uint64(3))
	equal(t, "condition", c.CachedInfo().Config.Metadata[whereKey], "json.even")
	equal(t, "other metadata", c.CachedInfo().Config.Metadata["team"], "billing")
	batch, err := c.Fetch(3)
	equalTexts(t, "what matches", sequences(take(t, batch, err)), []string{"2", "4", "6"})
	info, err := c.Info(within(t))
	testutil.Must(t, err)
	equal(t, "pending", info.NumPending, uint64(0))
	equal(t, "waiting for acks", info.NumAckPending, 0)

	// The same again changes nothing; another condition counts for what was not delivered.
	s.consumer(t, name, jetstream.ConsumerConfig{Durable: "d", Metadata: whereOf("json.even")})
	publish(7, 10)
	change := func(metadata map[string]string) jetstream.Consumer {
		t.Helper()
		changed, err := js.UpdateConsumer(within(t), name, jetstream.ConsumerConfig{Durable: "d", AckPolicy: jetstream.AckExplicitPolicy, Metadata: metadata})
		testutil.Must(t, err)
		return changed
	}
	c = change(whereOf("!json.even"))
	batch, err = c.Fetch(2)
	equalTexts(t, "what matches the new condition", sequences(take(t, batch, err)), []string{"7", "9"})
	publish(11, 11)
	c = change(nil)
	equal(t, "condition", c.CachedInfo().Config.Metadata[whereKey], "")
	batch, err = c.Fetch(2)
	equalTexts(t, "without a condition", sequences(take(t, batch, err)), []string{"10", "11"})

	ordered, err := js.OrderedConsumer(within(t), name, jetstream.OrderedConsumerConfig{Metadata: whereOf("json.n > 9")})
	testutil.Must(t, err)
	batch, err = ordered.Fetch(2)
	var found []string
	for _, m := range take(t, batch, err) {
		is, err := m.Metadata()
		testutil.Must(t, err)
		found = append(found, fmt.Sprint(is.Sequence.Stream))
	}
	equalTexts(t, "in order", found, []string{"10", "11"})

	inbox := js.Conn().NewInbox()
	sub, err := js.Conn().SubscribeSync(inbox)
	testutil.Must(t, err)
	push, err := js.CreateOrUpdatePushConsumer(within(t), name, jetstream.ConsumerConfig{
		Durable: "p", DeliverSubject: inbox, AckPolicy: jetstream.AckExplicitPolicy, Metadata: whereOf("json.n == 3 || json.n == 8"),
	})
	testutil.Must(t, err)
	equal(t, "pending", push.CachedInfo().NumPending, uint64(2))
	for _, n := range []string{"3", "8"} {
		m, err := sub.NextMsg(patience)
		testutil.Must(t, err)
		if !strings.Contains(string(m.Data), `"n": `+n+",") {
			t.Errorf("pushed: %s, want %s", m.Data, n)
		}
	}

	queue := s.stream(t, func(c *jetstream.StreamConfig) { c.Retention = jetstream.WorkQueuePolicy })
	for stream, refused := range map[string]map[string]jetstream.ConsumerConfig{
		name: {
			"column 8":                            {Durable: "a", Metadata: whereOf("json.n =")},
			"it is empty":                         {Durable: "a", Metadata: whereOf("")},
			"with priority groups":                {Durable: "a", Metadata: whereOf("json.even"), PriorityPolicy: jetstream.PriorityPolicyOverflow, PriorityGroups: []string{"A"}},
			"that starts with the newest message": {Durable: "a", Metadata: whereOf("json.even"), DeliverPolicy: jetstream.DeliverLastPolicy},
		},
		queue: {"a topic that is a work queue": {Durable: "a", Metadata: whereOf("json.even"), AckPolicy: jetstream.AckExplicitPolicy}},
	} {
		for want, config := range refused {
			if _, err := js.CreateConsumer(within(t), stream, config); number(err) != 10012 || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v, want an error with %q", config, err, want)
			}
		}
	}
}

// TestAConditionOnAllShards: the leader of each shard judges for a consumer of the Topic.
func TestAConditionOnAllShards(t *testing.T) {
	s := brokerSite(t, 2)
	js := s.client(t)
	testutil.EventuallyTrue(t, "the topic is made", func() bool {
		m, err := js.Conn().Request("$CARILLON.API.TOPIC.CREATE.orders", []byte(`{"stream":{"subjects":["orders.>"]},"shards":3}`), patience)
		return err == nil && !strings.Contains(string(m.Data), `"error"`)
	})
	testutil.EventuallyTrue(t, "all shards are served", func() bool {
		_, err := js.Stream(within(t), "orders")
		return err == nil
	})
	c, err := js.CreateOrUpdateConsumer(within(t), "orders", jetstream.ConsumerConfig{Durable: "d", AckPolicy: jetstream.AckExplicitPolicy, Metadata: whereOf("json.n == 7")})
	testutil.Must(t, err)
	const subjects = 20
	for subject := range subjects {
		for n := range 10 {
			_, err := js.PublishMsg(within(t), &nats.Msg{Subject: fmt.Sprint("orders.", subject), Data: fmt.Appendf(nil, `{"n": %d}`, n)})
			testutil.Must(t, err)
		}
	}
	info, err := c.Info(within(t))
	testutil.Must(t, err)
	equal(t, "pending", info.NumPending, uint64(subjects))
	seen := map[string]bool{}
	batch, err := c.Fetch(subjects)
	for _, m := range take(t, batch, err) {
		seen[m.Subject()] = true
		equal(t, "message", string(m.Data()), `{"n": 7}`)
		testutil.Must(t, m.DoubleAck(within(t)))
	}
	equal(t, "subjects with a message", len(seen), subjects)
	_, err = js.CreateConsumer(within(t), "orders", jetstream.ConsumerConfig{Durable: "p", DeliverSubject: "there", AckPolicy: jetstream.AckExplicitPolicy, Metadata: whereOf("json.n == 7")})
	if err == nil || !strings.Contains(err.Error(), "with a deliver subject") {
		t.Errorf("a push consumer: %v", err)
	}
}
