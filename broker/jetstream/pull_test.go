package jetstream

import (
	"fmt"
	"github.com/carillon-mq/carillon/broker/jsapi"
	"strings"
	"testing"
)

// orders creates a stream led by one broker, with a durable consumer and the given number of
// messages.
func orders(t *testing.T, w *world, leader *node, messages int) {
	t.Helper()
	w.place = func(string) string { return leader.id }
	if made := ask[jsapi.StreamResponse](leader, "STREAM.CREATE.orders", `{"name":"orders","subjects":["orders.>"]}`); made.Error != nil {
		t.Fatal(made.Error)
	}
	for i := range messages {
		w.await(leader.say("orders.eu", fmt.Sprint(i+1)))
	}
	made := ask[jsapi.ConsumerResponse](leader, "CONSUMER.CREATE.orders.billing", `{"stream_name":"orders","config":{"durable_name":"billing","ack_policy":"explicit","max_batch":50}}`)
	if made.Error != nil || made.NumPending != uint64(messages) {
		t.Fatalf("%+v", made)
	}
}

const nextCall = "$JS.API.CONSUMER.MSG.NEXT.orders.billing"

// TestPullsAndAcksFindTheLeader: pulls and acks reach the leader from any broker, and deliveries
// and answers reach the client.
func TestPullsAndAcksFindTheLeader(t *testing.T) {
	w := newWorld(t, 2)
	leader, other := w.nodes[1], w.nodes[0]
	orders(t, w, leader, 6)

	got := w.awaitAll(other.say(nextCall, `{"batch":4}`), 4)
	for i, m := range got {
		if string(m.Subject) != "orders.eu" || string(m.Data) != fmt.Sprint(i+1) || !strings.HasPrefix(string(m.Reply), "$JS.ACK.orders.billing.1.") {
			t.Errorf("delivery %d: %q %q %q", i, m.Subject, m.Reply, m.Data)
		}
	}
	// An ack with a reply subject gets an empty answer once it is durable.
	answer := w.await(other.say(string(got[0].Reply), "+ACK"))
	if len(answer.Data) != 0 {
		t.Errorf("an ack is answered with %q", answer.Data)
	}
	other.publish(string(got[1].Reply), "", "")
	w.await(leader.say(string(got[2].Reply), "+TERM no use"))
	next := w.await(other.say(string(got[3].Reply), "+NXT"))
	if string(next.Data) != "5" {
		t.Errorf("an ack that asks for more got %q", next.Data)
	}
	again := other.say(string(got[3].Reply), "whatever")
	if m := w.await(again); len(m.Data) != 0 {
		t.Errorf("an ack of no known kind is answered with %q", m.Data)
	}
	info := ask[jsapi.ConsumerResponse](other, "CONSUMER.INFO.orders.billing", "")
	if info.AckFloor.Stream != 4 || info.NumAckPending != 1 || info.NumPending != 1 || info.Delivered.Stream != 5 {
		t.Errorf("it stands at %+v", info.ConsumerInfo)
	}
	if stats := leader.Stats(); stats.Pulls != 2 || stats.Acks != 5 || stats.Delivered != 5 {
		t.Errorf("the leader counts %+v", stats)
	}
	if stats := other.Stats(); stats.Pulls != 0 || stats.Acks != 0 || stats.Forwarded == 0 {
		t.Errorf("the other counts %+v", stats)
	}
}

// TestPullsThatAreRefused: refused pulls get the statuses of nats-server.
func TestPullsThatAreRefused(t *testing.T) {
	w := newWorld(t, 1)
	n := w.nodes[0]
	orders(t, w, n, 1)
	for _, test := range []struct{ what, to, payload, want string }{
		{"too many at once", nextCall, `{"batch":51}`, "409 Exceeded MaxRequestBatch of 50"},
		{"a heartbeat too slow", nextCall, `{"expires":10,"idle_heartbeat":9}`, "400 Bad Request - heartbeat value too large"},
		{"no such consumer", "$JS.API.CONSUMER.MSG.NEXT.orders.none", "", "503"},
		{"no such stream", "$JS.API.CONSUMER.MSG.NEXT.none.billing", "", "503"},
		{"an ack of no such consumer", "$JS.ACK.orders.none.1.1.1.1.1", "", "503"},
	} {
		if m := w.await(n.say(test.to, test.payload)); string(m.Data) != "NATS/1.0 "+test.want+"\r\n\r\n" || m.Header != len(m.Data) {
			t.Errorf("%s: %q", test.what, m.Data)
		}
	}
}

// TestDeletingAConsumerEndsItsPulls: deleting a consumer ends its waiting pulls, for durable
// consumers and others.
func TestDeletingAConsumerEndsItsPulls(t *testing.T) {
	w := newWorld(t, 1)
	n := w.nodes[0]
	orders(t, w, n, 0)
	for _, name := range []string{"billing", "eph"} {
		if name == "eph" {
			if made := ask[jsapi.ConsumerResponse](n, "CONSUMER.CREATE.orders.eph", `{"stream_name":"orders","config":{"name":"eph"}}`); made.Error != nil || made.Config.Durable != "" {
				t.Fatalf("%+v", made)
			}
		}
		inbox := n.say("$JS.API.CONSUMER.MSG.NEXT.orders."+name, "")
		if done := ask[jsapi.DoneResponse](n, "CONSUMER.DELETE.orders."+name, ""); !done.Success {
			t.Fatalf("%+v", done)
		}
		if m := w.await(inbox); string(m.Data) != "NATS/1.0 409 Consumer Deleted\r\n\r\n" {
			t.Errorf("%s: %q", name, m.Data)
		}
		expect(t, "afterwards", n, "CONSUMER.INFO.orders."+name, "", jsapi.ErrConsumerNotFound.ErrCode)
	}
	if names := ask[jsapi.ConsumerNamesResponse](n, "CONSUMER.NAMES.orders", ""); len(names.Consumers) != 0 {
		t.Errorf("there are still %v", names.Consumers)
	}
}

// TestAConsumerWithoutAName: the old call without a name creates a consumer with a generated name.
func TestAConsumerWithoutAName(t *testing.T) {
	w := newWorld(t, 1)
	n := w.nodes[0]
	orders(t, w, n, 0)
	made := ask[jsapi.ConsumerResponse](n, "CONSUMER.CREATE.orders", `{"stream_name":"orders","config":{"ack_policy":"none"}}`)
	if made.Error != nil || made.Name == "" || made.Config.Durable != "" {
		t.Fatalf("%+v", made)
	}
	if info := ask[jsapi.ConsumerResponse](n, "CONSUMER.INFO.orders."+made.Name, ""); info.Error != nil {
		t.Error(info.Error)
	}
}
