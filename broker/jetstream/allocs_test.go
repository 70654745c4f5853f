//go:build !race

package jetstream

import (
	"testing"
	"time"

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
	inbox := []byte("_INBOX.abcdefghijklmnop.1")
	all := func() {
		for range 50 {
			o.Deliver(inbox, &delivery, &r)
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
