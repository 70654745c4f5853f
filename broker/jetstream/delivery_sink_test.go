package jetstream

import (
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/subscription"
	"github.com/carillon-mq/carillon/broker/work"
)

// sender is a hub that records what is sent, call by call.
type sender struct {
	Hub
	calls [][]protocol.Message
	waits []int // how much had been sent at each Wait; nothing is waited for if quiet
	quiet bool
}

func (s *sender) Wait() { s.waits = append(s.waits, len(s.calls)) }

func (s *sender) Send(messages []protocol.Message) (behind work.Behind) {
	if s.quiet {
		return behind
	}
	var call []protocol.Message
	for _, m := range messages {
		m.To, m.Subject, m.Reply, m.Data = clone(m.To), clone(m.Subject), clone(m.Reply), clone(m.Data)
		call = append(call, m)
	}
	s.calls = append(s.calls, call)
	behind.Add(s)
	return behind
}

func (s *sender) SendSoon(messages []protocol.Message) work.Behind { return s.Send(messages) }

func (s *sender) Forward(string, *protocol.Message) (linked bool, behind work.Behind) {
	return true, behind
}

func newSink(hub Hub) *deliverySink {
	return &deliverySink{server: NewServer(ServerConfig{Hub: hub}), stream: []byte("orders"), consumer: []byte("billing")}
}

var delivery = subscription.Delivery{Topic: "orders", Name: "billing", Delivered: 2, Offset: 7, Sequence: 9, Time: 1_700_000_000_000_000_000, Pending: 3}

// TestDeliveriesAreGatheredUntilFlush: a delivery is the record as published, sent to an inbox,
// with an ack subject as reply.
func TestDeliveriesAreGatheredUntilFlush(t *testing.T) {
	hub := &sender{}
	o := newSink(hub)
	header := "NATS/1.0\r\nColour: blue\r\n\r\n"
	r := log.Record{Offset: 7, Subject: []byte("orders.eu"), Header: len(header), Data: []byte(header + "payload")}
	d := delivery
	o.Deliver([]byte("inbox"), &d, &r)
	d.HeadersOnly = true
	o.Deliver([]byte("inbox"), &d, &r)
	r.Data[len(header)] = 'X' // the sink must have copied its input
	o.End([]byte("inbox"), subscription.Expired, 4, 100)
	o.Heartbeat([]byte("other"), 9, 7, 0)
	o.FlowControl([]byte("other"), 35)
	o.Heartbeat([]byte("other"), 9, 7, 36)
	if len(hub.calls) != 0 {
		t.Fatal("something was sent before Flush")
	}
	o.Flush()
	o.Flush() // with nothing gathered
	if len(hub.calls) != 1 || len(hub.calls[0]) != 6 {
		t.Fatalf("%d calls", len(hub.calls))
	}
	if len(hub.waits) != 1 || hub.waits[0] != 1 {
		t.Errorf("waited for room after %v calls, want once, after the only one", hub.waits)
	}
	got := hub.calls[0]
	const ack = "$JS.ACK.orders.billing.2.7.9.1700000000000000000.3"
	for i, want := range []protocol.Message{
		{To: []byte("inbox"), Subject: []byte("orders.eu"), Reply: []byte(ack), Header: len(header), Data: []byte(header + "payload")},
		{To: []byte("inbox"), Subject: []byte("orders.eu"), Reply: []byte(ack), Data: []byte("NATS/1.0\r\nColour: blue\r\nNats-Msg-Size: 7\r\n\r\n")},
		{Subject: []byte("inbox"), Data: []byte("NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 4\r\nNats-Pending-Bytes: 100\r\n\r\n")},
		{Subject: []byte("other"), Data: []byte("NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 9\r\nNats-Last-Stream: 7\r\n\r\n")},
		{Subject: []byte("other"), Reply: []byte("$JS.FC.orders.billing.z"), Data: []byte("NATS/1.0 100 FlowControl Request\r\n\r\n")},
		{Subject: []byte("other"), Data: []byte("NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 9\r\nNats-Last-Stream: 7\r\nNats-Consumer-Stalled: $JS.FC.orders.billing.10\r\n\r\n")},
	} {
		if want.Header == 0 {
			want.Header = len(want.Data)
		}
		m := got[i]
		if string(m.To) != string(want.To) || string(m.Subject) != string(want.Subject) || string(m.Reply) != string(want.Reply) ||
			string(m.Data) != string(want.Data) || m.Header != want.Header {
			t.Errorf("message %d is %q %q %q %d %q", i, m.To, m.Subject, m.Reply, m.Header, m.Data)
		}
	}
	for i, d := range []subscription.Delivery{delivery, d} {
		if size := o.Size(&d, &r); size != len("orders.eu")+len(ack)+len(got[i].Data) {
			t.Errorf("the size of delivery %d is %d", i, size)
		}
	}
}

func TestPullsEndWithTheStatusThatClientsMatch(t *testing.T) {
	for why, want := range map[subscription.End]string{
		subscription.Expired:        "408 Request Timeout\r\nNats-Pending-Messages: 1\r\nNats-Pending-Bytes: 2",
		subscription.NoMessages:     "404 No Messages",
		subscription.BatchDone:      "409 Batch Completed\r\nNats-Pending-Messages: 1\r\nNats-Pending-Bytes: 2",
		subscription.MaxBytes:       "409 Message Size Exceeds MaxBytes\r\nNats-Pending-Messages: 1\r\nNats-Pending-Bytes: 2",
		subscription.TooManyWaiting: "409 Exceeded MaxWaiting",
		subscription.Deleted:        "409 Consumer Deleted",
		subscription.LeaderGone:     "409 Leadership Change",
		subscription.Pushed:         "409 Consumer is push based",
		subscription.Stopping:       "409 Server Shutdown\r\nNats-Pending-Messages: 1\r\nNats-Pending-Bytes: 2",
	} {
		hub := &sender{}
		o := newSink(hub)
		o.End([]byte("inbox"), why, 1, 2)
		o.Flush()
		if got := string(hub.calls[0][0].Data); got != "NATS/1.0 "+want+"\r\n\r\n" {
			t.Errorf("%v: %q", why, got)
		}
	}
}

// TestTheMemoryOfASinkIsBounded: many or large deliveries are sent early, so that a sink's memory
// is bounded.
func TestTheMemoryOfASinkIsBounded(t *testing.T) {
	hub := &sender{}
	o := newSink(hub)
	small := log.Record{Subject: []byte("s"), Data: []byte("x")}
	for range batchMessages + 1 {
		o.Deliver([]byte("inbox"), &delivery, &small)
	}
	if len(hub.calls) != 1 || len(hub.calls[0]) != batchMessages {
		t.Fatalf("%d calls", len(hub.calls))
	}
	if len(hub.waits) != 0 {
		t.Error("it waited under the lock that acks need")
	}
	large := log.Record{Subject: []byte("s"), Data: []byte(strings.Repeat("x", batchBytes))}
	o.Deliver([]byte("inbox"), &delivery, &large)
	if len(hub.calls) != 2 || len(hub.calls[1]) != 2 || len(hub.calls[1][1].Data) != batchBytes {
		t.Fatalf("%d calls", len(hub.calls))
	}
}
