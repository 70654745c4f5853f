package jetstream

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/internal/testutil"
)

const (
	relayedCall   = "CONSUMER.CREATE.orders.pusher"
	relayedConfig = `{"stream_name":"orders","config":{"durable_name":"pusher","deliver_subject":"in.box","ack_policy":"explicit","ack_wait":3600000000000,"idle_heartbeat":100000000}}`
)

// delivered returns the deliveries that reached a subject, and the sequences in the heartbeats
// behind the last one.
func delivered(all []protocol.Message) (got []jsapi.Delivery, beats []string) {
	for _, m := range all {
		if d, ok := jsapi.ParseAckSubject(m.Reply); ok && m.To != nil {
			got, beats = append(got, d), nil
		} else if _, after, ok := strings.Cut(string(m.Data), "Nats-Last-Consumer: "); ok {
			beats = append(beats, strings.SplitN(after, "\r\n", 2)[0])
		}
	}
	return got, beats
}

// relayed waits until n deliveries reached the subject, and a heartbeat with the last sequence did
// behind them. It fails if a sequence is not one more than the one before.
func (w *world) relayed(n int) (got []jsapi.Delivery) {
	w.t.Helper()
	w.whenever("in.box", func(all []protocol.Message) bool {
		var beats []string
		got, beats = delivered(all)
		for _, of := range beats {
			if of != fmt.Sprint(len(got)) {
				w.t.Fatalf("a heartbeat has sequence %s after %d deliveries", of, len(got))
			}
		}
		return len(got) >= n && len(beats) > 0
	})
	for i, d := range got {
		if d.ConsumerSeq != uint64(i+1) {
			w.t.Fatalf("delivery %d has sequence %d", i+1, d.ConsumerSeq)
		}
	}
	if len(got) != n {
		w.t.Fatalf("%d deliveries, want %d", len(got), n)
	}
	return got
}

// TestARelayGoesOnWhereTheFormerOneStood: the deliveries of all shards have one sequence, which the
// next leader of the first shard continues, and with which heartbeats agree.
func TestARelayGoesOnWhereTheFormerOneStood(t *testing.T) {
	w := newWorld(t, 3)
	w.wide(3, 10, 4)
	made := ask[jsapi.ConsumerResponse](w.nodes[1], relayedCall, relayedConfig)
	if made.ConsumerInfo == nil || made.NumPending != 40 || made.Delivered.Consumer != 0 || !made.PushBound {
		t.Fatalf("made: %+v %+v", made.Error, made.ConsumerInfo)
	}
	if last := w.relayed(40)[39]; last.Pending != 0 {
		t.Errorf("%d are pending behind the last one", last.Pending)
	}
	for round := range 2 {
		for shard := range 3 { // the relay's last
			of := w.nodes[0].topics.Topic("orders").Shards()[2-shard]
			w.set(func() { w.lead(w.topics["orders"], 2-shard, of.Leader()) })
		}
		w.fill(10, 4+round, 5+round)
		w.relayed(50 + 10*round)
	}
	is := ask[jsapi.ConsumerResponse](w.nodes[2], "CONSUMER.INFO.orders.pusher", "")
	if is.ConsumerInfo == nil || is.Delivered.Consumer != 60 || is.NumAckPending != 60 || !is.PushBound {
		t.Errorf("in the end: %+v %+v", is.Error, is.ConsumerInfo)
	}
}

// TestARelayWaitsForNoShardForLong: the shards whose leaders are there deliver when a relay begins
// without the others, whose messages come once they are there.
func TestARelayWaitsForNoShardForLong(t *testing.T) {
	w := newWorld(t, 3)
	w.wide(3, 30, 1)
	spec := coordination.SubscriptionSpec{Start: coordination.Start{From: coordination.FromEarliest}, Consumer: coordination.ConsumerSettings{DeliverSubject: "in.box", IdleHeartbeat: 100 * time.Millisecond}}
	w.set(func() { w.cut["broker-2"] = true })
	_, err := w.CreateSubscription(t.Context(), "orders", "pusher", spec, client)
	testutil.Must(t, err)
	there := 0
	for s := range 30 {
		if w.nodes[0].topics.Topic("orders").ShardFor(fmt.Appendf(nil, "orders.%d", s)).Number() < 2 {
			there++
		}
	}
	w.relayed(there)
	w.set(func() { delete(w.cut, "broker-2") })
	w.relayed(30)
}

// TestNothingIsDeliveredWhileNobodyIsSubscribed: records stay undelivered until somebody
// subscribes.
func TestNothingIsDeliveredWhileNobodyIsSubscribed(t *testing.T) {
	w := newWorld(t, 2)
	w.wide(2, 6, 1)
	w.subscribe("in.box", false)
	if made := ask[jsapi.ConsumerResponse](w.nodes[0], relayedCall, relayedConfig); made.ConsumerInfo == nil || made.PushBound {
		t.Fatalf("made: %+v %+v", made.Error, made.ConsumerInfo)
	}
	w.subscribe("in.box", true)
	w.relayed(6)
	w.subscribe("in.box", false)
	w.fill(6, 1, 3)
	if is := ask[jsapi.ConsumerResponse](w.nodes[1], "CONSUMER.INFO.orders.pusher", ""); is.PushBound || is.NumPending != 12 {
		t.Errorf("while nobody is subscribed: %+v", is.ConsumerInfo)
	}
	w.subscribe("in.box", true)
	w.relayed(18)
}

// TestADeliveryOfALostShareIsDropped: what comes after a share counts as lost would come behind
// later records of its subject.
func TestADeliveryOfALostShareIsDropped(t *testing.T) {
	w := newWorld(t, 1)
	w.wide(2, 4, 1)
	if made := ask[jsapi.ConsumerResponse](w.nodes[0], relayedCall, relayedConfig); made.Error != nil {
		t.Fatal(made.Error)
	}
	w.relayed(4)
	n := w.nodes[0]
	r := n.relays.find(pullGroupKey{n.topics.Topic("orders").ID(), "pusher"})
	late := protocol.Message{Subject: []byte("orders.1"), Reply: []byte("$JS.ACK.orders--1.pusher.1.9.9.1700000000000000000.0")}
	r.deliver(1, n.shares.begin(openRequest{by: r, shard: 1}), late)
	w.fill(4, 1, 2)
	w.relayed(8)
}

// TestTheTimeOfAShareBeginsWhenItIsSent: what the relay has sent waited for longer than a share may
// take. If the share counted as lost when it is sent, what it delivers would be dropped, and come
// again after its ack wait only. What others have sent is not waited for.
func TestTheTimeOfAShareBeginsWhenItIsSent(t *testing.T) {
	w := newWorld(t, 2)
	w.wide(2, 0, 0)
	n, sent := w.nodes[0], 0
	for s := range 16 { // to the shard whose leader is the other broker
		if of := fmt.Sprintf("orders.%d", s); n.topics.Topic("orders").ShardFor([]byte(of)).Number() == 1 {
			w.publish(of, "x")
			sent++
		}
	}
	w.subscribe("in.box", false)
	if made := ask[jsapi.ConsumerResponse](n, relayedCall, relayedConfig); made.Error != nil {
		t.Fatal(made.Error)
	}
	r := n.relays.find(pullGroupKey{n.topics.Topic("orders").ID(), "pusher"})
	share := &r.shards[1].share
	full, shares := &gate{open: make(chan struct{})}, 0
	n.mu.Lock()
	n.hands = func(m *protocol.Message) {
		if !strings.Contains(string(m.Data), `"batch"`) {
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if shares++; share.number == 0 || time.Now().After(share.until) {
			t.Errorf("a share is sent that counts as lost: %+v", *share)
		}
	}
	n.mu.Unlock()
	r.mu.Lock()
	r.behind.Add(full)
	r.mu.Unlock()
	w.subscribe("in.box", true)
	testutil.EventuallyTrue(t, "a share waits for room", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		if share.number == 0 || full.waits.Load() == 0 {
			return false
		}
		share.until = time.Now().Add(-time.Second)
		return true
	})
	n.mu.Lock()
	n.full = full
	n.mu.Unlock()
	close(full.open)
	w.relayed(sent)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.behind.Any() && full.waits.Load() == 1 {
		t.Error("the relay does not know that what it has sent waits")
	}
	if shares == 0 {
		t.Error("no share was sent to the other broker")
	}
}

// TestARelayNeedsAllBrokers: a leader of an earlier version serves no push consumer of several
// shards.
func TestARelayNeedsAllBrokers(t *testing.T) {
	w := newWorld(t, 2)
	w.wide(2, 1, 1)
	between := func(earlier map[string]bool) {
		w.set(func() {
			w.earlier = earlier
			w.tell(coordination.Changes{Brokers: true})
		})
	}
	between(map[string]bool{w.nodes[1].id: true})
	expect(t, "during a rolling change", w.nodes[0], relayedCall, relayedConfig, 10012, "of an earlier one")
	between(nil)
	if made := ask[jsapi.ConsumerResponse](w.nodes[0], relayedCall, relayedConfig); made.Error != nil {
		t.Error(made.Error)
	}
}

// TestAConsumerThatIsMadeAnewIsNotDeletedForItsPredecessor: an unused consumer is being deleted
// while a client makes it anew. The State of the broker that deletes has the former one still.
func TestAConsumerThatIsMadeAnewIsNotDeletedForItsPredecessor(t *testing.T) {
	w := newWorld(t, 2)
	w.wide(2, 0, 0)
	spec := coordination.SubscriptionSpec{Start: coordination.Start{From: coordination.FromEarliest}, Consumer: coordination.ConsumerSettings{DeliverSubject: "in.box"}}
	former, err := w.CreateSubscription(t.Context(), "orders", "pusher", spec, client)
	testutil.Must(t, err)
	n := w.nodes[0]
	of := n.topics.Topic("orders")
	w.set(func() { w.stale = map[string]bool{n.id: true} })
	testutil.Must(t, w.DeleteSubscription(t.Context(), "orders", "pusher", former.Revision, client))
	anew, err := w.CreateSubscription(t.Context(), "orders", "pusher", spec, client)
	testutil.Must(t, err)
	there := func() (is *coordination.Subscription, asked int) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.subs[of.ID()+"/pusher"], w.asked
	}
	_, before := there()
	n.deleteInactive(of, "pusher", former.Incarnation())
	testutil.EventuallyTrue(t, "its deletion is asked for", func() bool {
		_, asked := there()
		return asked > before
	})
	n.slow.Finish()
	if is, _ := there(); is != anew {
		t.Errorf("the consumer that was made anew is %+v", is)
	}
}
