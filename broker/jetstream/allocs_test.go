//go:build !race

package jetstream

import (
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/subscription"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// No race build: under the race detector sync.Pool drops items at random.

func TestDeliveringAllocatesNothing(t *testing.T) {
	o := newSink(&sender{quiet: true})
	header := "NATS/1.0\r\nColour: blue\r\n\r\n"
	r := log.Record{Offset: 7, Time: time.Now().UnixNano(), Subject: []byte("orders.eu"), Header: len(header), Data: []byte(header + "payload")}
	inbox, relay := []byte("_INBOX.abcdefghijklmnop.1"), appendRelayTo(nil, 77, "broker-1")
	all := func() {
		for range 50 {
			o.Deliver(inbox, &delivery, &r)
			o.Deliver(relay, &delivery, &r)
			o.Size(&delivery, &r)
		}
		o.End(inbox, subscription.BatchDone, 0, 10)
		o.Heartbeat(inbox, 1, 2, 3)
		o.FlowControl(inbox, 3)
		o.Flush()
	}
	all()
	if n := testutil.LeastAllocs(100, 0.5, all); n > 0.5 { // a garbage collection empties the pool
		t.Errorf("%.1f allocations", n)
	}
}

// TestAcksAllocateNothing: handling an ack allocates no memory.
func TestAcksAllocateNothing(t *testing.T) {
	w := newWorld(t, 1)
	n := w.nodes[0]
	orders(t, w, n, 1)
	got := w.await(n.say(nextCall, ""))
	ack := []protocol.Message{{Subject: got.Reply, Data: []byte("+ACK")}}
	if allocs := testutil.LeastAllocs(1000, 0, func() { n.Take(ack, nil, false) }); allocs > 0 {
		t.Errorf("%.1f allocations for an ack", allocs)
	}
}

// TestRelayingAllocatesNothing: a relay passes a delivery on without allocating memory.
func TestRelayingAllocatesNothing(t *testing.T) {
	s := NewServer(ServerConfig{Hub: &sender{quiet: true}})
	r := &relay{relays: &s.relays, to: []byte("in.box"), shards: make([]relayShard, 3), consumer: &coordination.ConsumerSettings{IdleHeartbeat: time.Second}}
	number := s.shares.begin(openRequest{by: r, shard: 1})
	r.shards[1].share.number = number
	on := appendRelayTo(nil, number, "orders.eu")
	m := protocol.Message{Subject: on, Reply: []byte("$JS.ACK.orders--1.pusher.1.9.9.1700000000000000000.0"), Data: []byte("payload")}
	messages := []protocol.Message{m}
	if n := testutil.LeastAllocs(1000, 0, func() { s.Take(messages, nil, true) }); n > 0 {
		t.Errorf("%.1f allocations", n)
	}
	if r.sum.Sequence < 1000 {
		t.Errorf("%d deliveries were passed on", r.sum.Sequence)
	}
}
