package jetstream

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/subscription"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// sentTo returns how many messages a node has sent to a subject.
func (n *node) sentTo(subject string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.sent[subject])
}

// TestTheRelayOfABrokerThatLeadsNothingAnyMoreYields: a broker led all shards when it was drained,
// and doesn't see that yet. No new leader knows its relay, which is silent nevertheless.
func TestTheRelayOfABrokerThatLeadsNothingAnyMoreYields(t *testing.T) {
	w := newWorld(t, 3)
	w.wide(2, 0, 0)
	moveAll := func(to string, stale map[string]bool) {
		w.set(func() {
			w.moving, w.stale = true, stale
			w.lead(w.topics["orders"], 0, to)
			w.lead(w.topics["orders"], 1, to)
			w.moving = false
		})
	}
	moveAll("broker-0", nil)
	if made := ask[jsapi.ConsumerResponse](w.nodes[0], relayedCall, relayedConfig); made.Error != nil {
		t.Fatal(made.Error)
	}
	w.relayed(w.beside(3))
	moveAll("broker-1", map[string]bool{"broker-0": true})
	testutil.EventuallyTrue(t, "the next relay sends heartbeats", func() bool { return w.nodes[1].sentTo("in.box") > 3 })
	before := w.nodes[0].sentTo("in.box")
	w.beside(3) // its State has it as their leader still
	next := w.nodes[1].sentTo("in.box")
	testutil.EventuallyTrue(t, "the next relay sends more heartbeats", func() bool { return w.nodes[1].sentTo("in.box") > next+3 })
	if now := w.nodes[0].sentTo("in.box"); now != before {
		t.Errorf("the former relay has sent %d messages since", now-before)
	}
}

// TestTheNextRelayWaitsForTheLinksOfTheFormerOne: what the former relay has passed on is on its way
// over slow links. The next one's messages don't overtake it.
func TestTheNextRelayWaitsForTheLinksOfTheFormerOne(t *testing.T) {
	w := newWorld(t, 3)
	w.wide(3, 0, 0)
	if made := ask[jsapi.ConsumerResponse](w.nodes[0], relayedCall, relayedConfig); made.Error != nil {
		t.Fatal(made.Error)
	}
	all := w.beside(2)
	w.relayed(all)
	var behind kept
	behind.keep(w.nodes[0], func(m *protocol.Message) bool {
		return string(m.Subject) == shareSubject && bytes.Contains(m.Data, []byte(`"yield":true`)) && !bytes.Contains(m.Data, []byte(`"topic"`))
	})
	moved := time.Now()
	w.move("broker-1")
	testutil.EventuallyTrue(t, "the former relay asks whether its messages have arrived", func() bool { return behind.count() == 2 })
	var r *relay
	testutil.EventuallyTrue(t, "the next relay has asked the former one to yield", func() bool {
		if r = w.nodes[1].relays.find(pullGroupKey{w.nodes[1].topics.Topic("orders").ID(), "pusher"}); r == nil {
			return false
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.former.begun
	})
	r.mu.Lock()
	if waits := len(r.former.open) > 0; (r.started || !waits) && time.Since(moved) < yieldTime {
		t.Errorf("before the former relay's messages have arrived: started %v, waits %v", r.started, waits)
	}
	r.mu.Unlock()
	behind.release(w.nodes[0], w.nodes[2])
	w.relayed(all + w.beside(2))
}

// TestARelayGoesOnBehindTheSequenceOfTheFormerOne: a shard is out of reach when the first one is
// moved. What it had delivered is in the sequence nevertheless.
func TestARelayGoesOnBehindTheSequenceOfTheFormerOne(t *testing.T) {
	w := newWorld(t, 4)
	w.wide(4, 0, 0)
	if made := ask[jsapi.ConsumerResponse](w.nodes[0], relayedCall, relayedConfig); made.Error != nil {
		t.Fatal(made.Error)
	}
	all := w.beside(3)
	w.relayed(all)
	w.set(func() { w.cut["broker-3"] = true })
	w.move("broker-1")
	for s := 0; ; s++ {
		subject := fmt.Sprintf("orders.%d", s)
		if w.nodes[0].topics.Topic("orders").ShardFor([]byte(subject)).Number() == 2 {
			w.publish(subject, "x")
			break
		}
	}
	w.relayed(all + 1)
}

// shareWithoutResult has the first share of a node's shard, whose result is lost with the link.
func (w *world) shareWithoutResult(t *testing.T, at int, relayed int) (all int) {
	var lost kept
	lost.keep(w.nodes[at], endsShare)
	all = relayed + w.beside(1)
	testutil.EventuallyTrue(t, "the result of the share is lost", func() bool { return lost.count() > 0 })
	w.nodes[at].mu.Lock()
	w.nodes[at].keeps = nil
	w.nodes[at].mu.Unlock()
	r := w.nodes[0].relays.find(pullGroupKey{w.nodes[0].topics.Topic("orders").ID(), "pusher"})
	r.mu.Lock()
	defer r.mu.Unlock()
	share := &r.shards[at].share
	if share.number == 0 {
		t.Error("the relay has the share as over")
	}
	share.until = time.Now().Add(time.Hour) // it counts as lost long after the test
	return all
}

// TestAShareThatIsLostWithALinkIsOverWithTheNext: the result of a share is lost with a link. With
// the next one the shard is asked for more soon, and not when the share counts as lost.
func TestAShareThatIsLostWithALinkIsOverWithTheNext(t *testing.T) {
	w, all := relayedWithoutAcks(t, 2)
	all = w.shareWithoutResult(t, 1, all)
	w.nodes[0].Linked("broker-1")
	all += w.beside(1)
	w.relayed(all)
}

// TestARelayThatIsReplacedDoesNotWaitForALostShare: likewise where the consumer delivers to another
// subject meanwhile. The next relay of the broker goes on in the sequence.
func TestARelayThatIsReplacedDoesNotWaitForALostShare(t *testing.T) {
	w, all := relayedWithoutAcks(t, 2)
	all = w.shareWithoutResult(t, 1, all)
	r := w.nodes[0].relays.find(pullGroupKey{w.nodes[0].topics.Topic("orders").ID(), "pusher"})
	w.subscribe("in.box", false) // no consumer that somebody uses may be changed so
	elsewhere := strings.Replace(strings.Replace(relayedConfig, "explicit", "none", 1), "in.box", "in.tray", 1)
	if made := ask[jsapi.ConsumerResponse](w.nodes[0], relayedCall, elsewhere); made.Error != nil {
		t.Fatal(made.Error)
	}
	testutil.EventuallyTrue(t, "the former relay has ended", r.over)
	more := w.beside(1)
	w.whenever("in.tray", func(messages []protocol.Message) bool {
		got, beats := delivered(messages)
		for i, d := range got {
			if d.ConsumerSeq != uint64(all+i+1) {
				t.Fatalf("delivery %d behind %d others has sequence %d", i, all, d.ConsumerSeq)
			}
		}
		return len(got) == more && len(beats) > 0
	})
}

// TestARelayThatIsReplacedBeforeItBeganPassesTheSequenceOn, whoever asks for it, and when.
func TestARelayThatIsReplacedBeforeItBeganPassesTheSequenceOn(t *testing.T) {
	w := newWorld(t, 1)
	w.wide(2, 0, 0)
	n := w.nodes[0]
	if made := ask[jsapi.ConsumerResponse](n, relayedCall, relayedConfig); made.Error != nil {
		t.Fatal(made.Error)
	}
	of, g := n.topics.Topic("orders"), &n.Server.relays
	declared := n.Server.state().Subscription(of.ID(), "pusher")
	if declared == nil {
		t.Fatal("the consumer is not declared")
	}
	made := declared.Incarnation()
	next := func(after *relay) *relay {
		r := newRelay(g, of, declared, subscription.Claim{}, after, true, time.Now())
		t.Cleanup(r.interest.Stop)
		return r
	}
	began := next(nil)
	began.started, began.sum = true, shareState{Sequence: 9, Offset: 5}
	second := next(began)
	third := next(second)
	if at := third.stands(made); at == nil || at.Sequence != 9 || at.Offset != 5 {
		t.Errorf("behind two others it stands at %+v", at)
	}
	for _, drop := range []bool{false, true} {
		last := next(began)
		last.end(drop)
		if at := last.stands(made); at == nil || at.Sequence != 9 {
			t.Errorf("after its end (%v) it stands at %+v", drop, at)
		}
	}
	second.mu.Lock()
	second.inherit()
	second.mu.Unlock()
	afterwards := next(nil) // of this broker, when the others are gone
	afterwards.goOnBehindOf(second)
	afterwards.mu.Lock()
	afterwards.start()
	afterwards.mu.Unlock()
	if at := afterwards.stands(made); at == nil || at.Sequence != 9 || at.Offset != 5 {
		t.Errorf("it goes on at %+v", at)
	}
	if at := afterwards.stands(made + 1); at != nil {
		t.Errorf("a consumer that was made anew goes on at %+v", at)
	}
}

// TestWhatARelayLearnedOutlivesIt: it was told by another broker where the consumer stands, and is
// replaced before it has sent anything.
func TestWhatARelayLearnedOutlivesIt(t *testing.T) {
	w := newWorld(t, 1)
	w.wide(2, 0, 0)
	n := w.nodes[0]
	if made := ask[jsapi.ConsumerResponse](n, relayedCall, relayedConfig); made.Error != nil {
		t.Fatal(made.Error)
	}
	of, g := n.topics.Topic("orders"), &n.Server.relays
	declared := n.Server.state().Subscription(of.ID(), "pusher")
	next := func(learned uint64) *relay {
		r := newRelay(g, of, declared, subscription.Claim{}, nil, true, time.Now())
		r.goOnBehind(&shareState{Sequence: learned, Offset: learned})
		return r
	}
	// The second one has learned less: it asked another broker.
	for _, learned := range []uint64{9, 4} {
		g.mu.Lock()
		g.end(next(learned), false)
		g.mu.Unlock()
	}
	after := next(0)
	defer after.end(true)
	g.mu.Lock()
	before := g.left[after.key]
	g.mu.Unlock()
	if before == nil {
		t.Fatal("nobody knows where the consumer stands")
	}
	after.goOnBehindOf(before)
	if at := after.stands(declared.Incarnation()); at == nil || at.Sequence != 9 {
		t.Errorf("the next one begins behind %+v", at)
	}
}

// TestARelayThatIsDroppedAnswersThoseItYieldsTo at once: they need not wait for it.
func TestARelayThatIsDroppedAnswersThoseItYieldsTo(t *testing.T) {
	w := newWorld(t, 1)
	w.wide(2, 0, 0)
	n := w.nodes[0]
	if made := ask[jsapi.ConsumerResponse](n, relayedCall, relayedConfig); made.Error != nil {
		t.Fatal(made.Error)
	}
	of := n.topics.Topic("orders")
	declared := n.Server.state().Subscription(of.ID(), "pusher")
	r := newRelay(&n.Server.relays, of, declared, subscription.Claim{}, nil, true, time.Now())
	r.shards[0].share.number = 1 // something may come
	answered := make(chan struct{})
	r.yield(r.made, func(*shareState) { close(answered) })
	r.end(true)
	select {
	case <-answered:
	case <-time.After(testutil.Patience):
		t.Error("it did not answer")
	}
}

// TestBrokersWithoutALeaseAreAskedToYield: they have links, and may have a relay.
func TestBrokersWithoutALeaseAreAskedToYield(t *testing.T) {
	w := newWorld(t, 3)
	w.wide(2, 0, 0)
	n := w.nodes[0]
	if made := ask[jsapi.ConsumerResponse](n, relayedCall, relayedConfig); made.Error != nil {
		t.Fatal(made.Error)
	}
	r := n.Server.relays.every()[0]
	for _, linked := range []bool{true, false} {
		w.set(func() {
			w.cut = map[string]bool{"broker-2": !linked}
			w.dead = map[string]bool{"broker-2": linked} // not registered
			w.tell(coordination.Changes{Brokers: true})
		})
		r.mu.Lock()
		asked := map[string]bool{}
		for _, one := range r.begin(&round{}, time.Now(), shareRequest{}) {
			asked[one.broker] = true
			r.relays.server.shares.drop(one.what.Number)
		}
		r.mu.Unlock()
		if len(asked) != 2 || !asked["broker-1"] || !asked["broker-2"] {
			t.Errorf("asked are %v", asked)
		}
	}
}
