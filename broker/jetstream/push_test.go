package jetstream

import (
	"fmt"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/protocol"
)

const pushCall = "CONSUMER.CREATE.orders.pusher"

// TestAPushConsumerDelivers: messages reach the deliver subject, and acks and answers to flow
// control requests reach the leader from any broker.
func TestAPushConsumerDelivers(t *testing.T) {
	for _, durable := range []string{"", `"durable_name":"pusher",`} {
		w := newWorld(t, 2)
		leader, other := w.nodes[1], w.nodes[0]
		orders(t, w, leader, 0)
		config := `{"stream_name":"orders","config":{` + durable + `"name":"pusher","deliver_subject":"in.box","ack_policy":"explicit","flow_control":true,"idle_heartbeat":100000000}}`
		made := ask[jsapi.ConsumerResponse](other, pushCall, config)
		if made.Error != nil || !made.PushBound || made.Config.DeliverSubject != "in.box" || made.Config.MaxWaiting != 0 || !made.Config.FlowControl {
			t.Fatalf("%+v", made)
		}
		const size, n = 100 << 10, 10
		for range n {
			if m := w.await(leader.say("orders.eu", strings.Repeat("x", size))); !strings.Contains(string(m.Data), `"seq"`) {
				t.Fatalf("publishing is answered with %s", m.Data)
			}
		}
		request, data := protocol.Message{}, 0
		w.whenever("in.box", func(all []protocol.Message) bool { // it stalls, and says so
			data = 0
			for _, m := range all {
				switch {
				case string(m.Data) == "NATS/1.0 100 FlowControl Request\r\n\r\n":
					request = m
				case string(m.Subject) == "orders.eu":
					data++
				case strings.Contains(string(m.Data), "Nats-Consumer-Stalled: "+string(request.Reply)+"\r\n"):
					return true
				}
			}
			return false
		})
		if data >= n || !strings.HasPrefix(string(request.Reply), "$JS.FC.orders.pusher.") {
			t.Fatalf("%d messages before it is answered, request %q", data, request.Reply)
		}
		other.publish(string(request.Reply), "", "")
		var got []protocol.Message
		w.whenever("in.box", func(all []protocol.Message) bool {
			got = got[:0]
			for _, m := range all {
				if string(m.Subject) == "orders.eu" {
					got = append(got, m)
				}
			}
			return len(got) == n
		})
		for i, m := range got {
			w.await(other.say(string(m.Reply), "+ACK"))
			if !strings.HasPrefix(string(m.Reply), fmt.Sprintf("$JS.ACK.orders.pusher.1.%d.%d.", i+1, i+1)) {
				t.Errorf("delivery %d: %s", i, m.Reply)
			}
		}
		info := ask[jsapi.ConsumerResponse](other, "CONSUMER.INFO.orders.pusher", "")
		if info.AckFloor.Stream != n || info.NumAckPending != 0 {
			t.Errorf("it stands at %+v", info.ConsumerInfo)
		}
		if m := w.await(other.say("$JS.API.CONSUMER.MSG.NEXT.orders.pusher", "")); string(m.Data) != "NATS/1.0 409 Consumer is push based\r\n\r\n" {
			t.Errorf("a pull gets %q", m.Data)
		}
		if m := w.await(other.say(string(got[0].Reply), "+NXT")); string(m.Data) != "NATS/1.0 409 Consumer is push based\r\n\r\n" {
			t.Errorf("an ack that asks for more gets %q", m.Data)
		}
	}
}

// TestTheDeliverSubjectOfABoundConsumerStays: the subject changes only while nobody is subscribed
// to the former one.
func TestTheDeliverSubjectOfABoundConsumerStays(t *testing.T) {
	w := newWorld(t, 2)
	n := w.nodes[0]
	orders(t, w, w.nodes[1], 1)
	create := func(to string) string {
		return `{"stream_name":"orders","config":{"durable_name":"pusher","ack_policy":"explicit","deliver_subject":"` + to + `"}}`
	}
	if made := ask[jsapi.ConsumerResponse](n, pushCall, create("a")); made.Error != nil {
		t.Fatal(made.Error)
	}
	w.await("a")
	expect(t, "while it is bound", n, pushCall, create("b"), jsapi.ErrConsumerNameExist.ErrCode)
	w.inboxMu.Lock()
	w.deserted = map[string]bool{"a": true}
	w.inboxMu.Unlock()
	if info := ask[jsapi.ConsumerResponse](n, "CONSUMER.INFO.orders.pusher", ""); info.PushBound {
		t.Error("it is bound, and nobody is subscribed")
	}
	changed := ask[jsapi.ConsumerResponse](n, pushCall, create("b"))
	if changed.Error != nil || changed.Config.DeliverSubject != "b" || !changed.PushBound {
		t.Fatalf("%+v", changed)
	}
	if m := w.await("b"); string(m.Data) != "1" {
		t.Errorf("the new subject gets %q", m.Data)
	}
	expect(t, "a cycle", n, pushCall, create("orders.eu"), jsapi.ErrConsumerDeliverCycle.ErrCode)
	expect(t, "to a pull consumer", n, pushCall, `{"stream_name":"orders","config":{"durable_name":"pusher","ack_policy":"explicit"}}`, jsapi.ErrConsumerCreate.ErrCode, "can not update push consumer to pull based")
}
