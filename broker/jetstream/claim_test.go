package jetstream

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/subscription"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// beside publishes n messages in each shard but the first one, and returns their number.
func (w *world) beside(n int) (published int) {
	of := w.nodes[0].topics.Topic("orders")
	done := make([]int, len(of.Shards()))
	for s := 0; published < n*(len(done)-1); s++ {
		subject := fmt.Sprintf("orders.%d", s)
		if at := of.ShardFor([]byte(subject)).Number(); at > 0 && done[at] < n {
			w.publish(subject, "x")
			done[at]++
			published++
		}
	}
	return published
}

// TestOneOfTwoRelaysDelivers: the first shard has moved, and its former leader doesn't see that.
// Its relay delivers nothing beside the next one's, and the sequence goes on.
func TestOneOfTwoRelaysDelivers(t *testing.T) {
	w := newWorld(t, 3)
	w.wide(3, 0, 0)
	if made := ask[jsapi.ConsumerResponse](w.nodes[0], relayedCall, relayedConfig); made.Error != nil {
		t.Fatal(made.Error)
	}
	all := w.beside(5)
	w.relayed(all)
	w.move("broker-1", "broker-0")
	for range 10 {
		all += w.beside(3)
		w.relayed(all)
	}
	w.nodes[0].mu.Lock()
	before := len(w.nodes[0].sent["in.box"])
	w.nodes[0].mu.Unlock()
	w.nodes[1].mu.Lock()
	next := len(w.nodes[1].sent["in.box"])
	w.nodes[1].mu.Unlock()
	if got, _ := delivered(w.received("in.box")); len(got) != all || next == 0 {
		t.Errorf("%d deliveries of %d, and the next relay has sent %d messages", len(got), all, next)
	}
	// The former relay is silent, though its broker doesn't know why.
	testutil.EventuallyTrue(t, "the next relay sends heartbeats", func() bool {
		w.nodes[1].mu.Lock()
		defer w.nodes[1].mu.Unlock()
		return len(w.nodes[1].sent["in.box"]) > next+3
	})
	w.nodes[0].mu.Lock()
	defer w.nodes[0].mu.Unlock()
	if now := len(w.nodes[0].sent["in.box"]); now != before {
		t.Errorf("the former relay has sent %d messages since", now-before)
	}
}

// TestALeaderOfAShardServesNoClaimBeforeItsState: the leader of a shard was just elected, and
// knows of no relay. It refuses that of an epoch which its State has as over.
func TestALeaderOfAShardServesNoClaimBeforeItsState(t *testing.T) {
	w := newWorld(t, 3)
	w.wide(3, 0, 0)
	if made := ask[jsapi.ConsumerResponse](w.nodes[0], relayedCall, relayedConfig); made.Error != nil {
		t.Fatal(made.Error)
	}
	w.relayed(w.beside(1))
	r := w.nodes[0].relays.find(pullGroupKey{w.nodes[0].topics.Topic("orders").ID(), "pusher"})
	w.set(func() {
		w.stale = map[string]bool{"broker-0": true}
		w.cut["broker-1"] = true // the next relay reaches no shard
		w.lead(w.topics["orders"], 0, "broker-1")
		w.lead(w.topics["orders"], 2, "broker-2")
	})
	w.beside(1) // ends the watch
	testutil.EventuallyTrue(t, "the former relay is refused", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.superseded
	})
}

// kept are forwarded messages that stay on their way.
type kept struct {
	mu  sync.Mutex
	all []protocol.Message
}

// keep keeps what a node forwards and is matched, until release delivers it to another.
func (k *kept) keep(n *node, matches func(m *protocol.Message) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.keeps = func(m protocol.Message) bool {
		if !matches(&m) {
			return false
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		k.all = append(k.all, m)
		return true
	}
}

func (k *kept) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.all)
}

// share keeps the next deliveries of a node to a relay, and all that it forwards behind them. It
// waits until the share that the relay has asked for is over, so that no more of it comes.
func (k *kept) share(n *node, publish func()) {
	k.keep(n, func(m *protocol.Message) bool { return isRelayed(m.Subject) || k.count() > 0 })
	publish()
	testutil.EventuallyTrue(n.w.t, "deliveries and the result of their share are under way", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return slices.ContainsFunc(k.all, func(m protocol.Message) bool { return endsShare(&m) })
	})
}

// endsShare reports whether a message is the result of a share, and not that of a watch that found
// something.
func endsShare(m *protocol.Message) bool {
	return string(m.Subject) == shareResultSubject && bytes.Contains(m.Data, []byte(`"messages"`)) &&
		!bytes.Contains(m.Data, fmt.Appendf(nil, `"why":%d`, subscription.Ready))
}

// release delivers what was kept, and what else n forwards goes at once again.
func (k *kept) release(n, to *node) {
	n.mu.Lock()
	n.keeps = nil
	n.mu.Unlock()
	k.mu.Lock()
	all := k.all
	k.all = nil
	k.mu.Unlock()
	to.Take(all, nil, true)
}

// TestARelayWaitsForTheSequencesOfAllShards: the next relay delivers nothing before it knows where
// the consumer stands in each shard.
func TestARelayWaitsForTheSequencesOfAllShards(t *testing.T) {
	w := newWorld(t, 3)
	w.wide(3, 0, 0)
	if made := ask[jsapi.ConsumerResponse](w.nodes[0], relayedCall, relayedConfig); made.Error != nil {
		t.Fatal(made.Error)
	}
	all := w.beside(5)
	w.relayed(all)
	var answers kept
	answers.keep(w.nodes[2], func(m *protocol.Message) bool {
		return string(m.Subject) == shareResultSubject && bytes.Contains(m.Data, []byte(`"state"`))
	})
	w.move("broker-1")
	testutil.EventuallyTrue(t, "the last shard has answered", func() bool { return answers.count() > 0 })
	all += w.beside(5)
	r := w.nodes[1].next(t)
	r.mu.Lock()
	asked, known, others, patient := r.shards[2].question.number != 0, r.shards[2].known, r.shards[1].known, time.Since(r.began) < relayPatience
	for i := range r.shards {
		if patient && r.shards[i].share.number != 0 {
			t.Errorf("shard %d has a share before all are known", i)
		}
	}
	if patient && (r.started || !asked || known || !others) {
		t.Errorf("before the last shard's answer: started %v, asked %v, known %v, the others %v", r.started, asked, known, others)
	}
	r.mu.Unlock()
	answers.release(w.nodes[2], w.nodes[1])
	w.relayed(all)
}

// TestAWatchThatIsLostWithALinkIsAskedForAgain: the answers to the watches of a relay and of a
// pull are lost with a link. With the next one the shard's messages are delivered soon, and not
// when the watches count as lost.
func TestAWatchThatIsLostWithALinkIsAskedForAgain(t *testing.T) {
	w := newWorld(t, 2)
	w.wide(2, 0, 0)
	for _, call := range [][2]string{{relayedCall, relayedConfig}, {"CONSUMER.CREATE.orders.puller", `{"stream_name":"orders","config":{"durable_name":"puller","ack_policy":"explicit"}}`}} {
		if made := ask[jsapi.ConsumerResponse](w.nodes[0], call[0], call[1]); made.Error != nil {
			t.Fatal(made.Error)
		}
	}
	all := w.beside(1)
	w.relayed(all)
	inbox := w.nodes[0].say("$JS.API.CONSUMER.MSG.NEXT.orders.puller", `{"batch":10,"expires":60000000000}`)
	w.awaitAll(inbox, all)
	shares := &w.nodes[0].shares
	testutil.EventuallyTrue(t, "both watch the other broker's shard", func() bool {
		shares.mu.Lock()
		defer shares.mu.Unlock()
		n := 0
		for _, r := range shares.all {
			if r.watch && r.shard == 1 {
				n++
			}
		}
		return n == 2 && len(shares.all) == 4
	})
	began := time.Now()
	var lost kept
	lost.keep(w.nodes[1], func(m *protocol.Message) bool { return string(m.Subject) == shareResultSubject })
	all += w.beside(1)
	testutil.EventuallyTrue(t, "both answers are lost", func() bool { return lost.count() == 2 })
	w.nodes[1].mu.Lock()
	w.nodes[1].keeps = nil
	w.nodes[1].mu.Unlock()
	w.nodes[0].Linked("broker-1")
	w.relayed(all)
	w.awaitAll(inbox, all)
	// They count as lost after watchTime and lostAfter.
	if took := time.Since(began); took > watchTime {
		t.Errorf("it took %v", took)
	}
}

// next returns the relay on a node that has just begun to lead the first shard, when it knows the
// state of the shard before the last one.
func (n *node) next(t *testing.T) (r *relay) {
	testutil.EventuallyTrue(t, "the next relay asks", func() bool {
		if r = n.relays.find(pullGroupKey{n.topics.Topic("orders").ID(), "pusher"}); r == nil {
			return false
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.shards[0].known && r.shards[1].known
	})
	return r
}

// relayedWithoutAcks returns a world of some brokers, each of which leads a shard, with a push
// consumer that takes no acks, and how many messages it has relayed.
func relayedWithoutAcks(t *testing.T, brokers int) (w *world, relayed int) {
	t.Helper()
	w = newWorld(t, brokers)
	w.wide(brokers, 0, 0)
	if made := ask[jsapi.ConsumerResponse](w.nodes[0], relayedCall, strings.Replace(relayedConfig, "explicit", "none", 1)); made.Error != nil {
		t.Fatal(made.Error)
	}
	relayed = w.beside(2)
	w.relayed(relayed)
	return w, relayed
}

// TestARelayThatEndsPassesOnWhatItHasAskedFor: deliveries are under way to the relay when the
// first shard is moved. Without acks nobody would deliver them again. The next relay delivers
// behind them.
func TestARelayThatEndsPassesOnWhatItHasAskedFor(t *testing.T) {
	w, all := relayedWithoutAcks(t, 3)
	var deliveries kept
	deliveries.share(w.nodes[2], func() { all += w.beside(4) })
	moved := time.Now()
	w.move("broker-1")
	n := w.nodes[0]
	testutil.EventuallyTrue(t, "the relay ends", func() bool {
		return n.relays.find(pullGroupKey{n.topics.Topic("orders").ID(), "pusher"}) == nil
	})
	r := w.nodes[1].next(t)
	r.mu.Lock()
	if known := r.shards[2].known; known && time.Since(moved) < yieldTime {
		t.Error("a shard confirms the next relay's claim before the former one has passed on what it was sent")
	}
	r.mu.Unlock()
	deliveries.release(w.nodes[2], n)
	all += w.beside(2)
	w.relayed(all)
	testutil.EventuallyTrue(t, "the former relay is forgotten", func() bool {
		n.relays.mu.Lock()
		defer n.relays.mu.Unlock()
		return len(n.relays.ending) == 0
	})
}

// TestAStoppingBrokerPassesOnWhatItsRelaysHaveAskedFor: as above, for a broker that stops.
func TestAStoppingBrokerPassesOnWhatItsRelaysHaveAskedFor(t *testing.T) {
	w, all := relayedWithoutAcks(t, 2)
	var deliveries kept
	r := w.nodes[0].relays.find(pullGroupKey{w.nodes[0].topics.Topic("orders").ID(), "pusher"})
	deliveries.share(w.nodes[1], func() { w.beside(4) })
	stopped := make(chan struct{})
	go func() {
		w.nodes[0].relays.finish()
		close(stopped)
	}()
	testutil.EventuallyTrue(t, "its relays end", func() bool { return r.relays.find(r.key) == nil })
	sent := 0
	deliveries.mu.Lock()
	for i := range deliveries.all {
		if isRelayed(deliveries.all[i].Subject) {
			sent++
		}
	}
	deliveries.mu.Unlock()
	deliveries.release(w.nodes[1], w.nodes[0])
	<-stopped
	if got, _ := delivered(w.received("in.box")); len(got) != all+sent {
		t.Errorf("%d deliveries, want %d and %d that were under way", len(got), all, sent)
	}
}

// TestAClaimThatIsMadeAgainWaitsToo: a shard waits for the relay of an earlier claim. Neither the
// same claim, asked for again after its question was lost, nor a later one is confirmed before.
func TestAClaimThatIsMadeAgainWaitsToo(t *testing.T) {
	s, of := &Server{}, yieldKey{"orders--1", "pusher"}
	var got []string
	note := func(what string) func() { return func() { got = append(got, what) } }
	first := s.yields.begin(s, of, note("first"))
	s.yields.wait(of, note("again"))
	s.yields.wait(yieldKey{"orders--2", "pusher"}, note("other shard"))
	second := s.yields.begin(s, of, note("later"))
	second.part()
	s.yields.wait(of, note("later again"))
	if want := []string{"other shard"}; !slices.Equal(got, want) {
		t.Errorf("while the first relay has not yielded, confirmed are %q", got)
	}
	first.part()
	if want := []string{"other shard", "first", "again", "later", "later again"}; !slices.Equal(got, want) {
		t.Errorf("confirmed are %q, want %q", got, want)
	}
	if len(s.yields.open) > 0 {
		t.Error("something is waited for still")
	}
}

// TestASupersededRelayRests: it has nothing to do, and is not woken again and again.
func TestASupersededRelayRests(t *testing.T) {
	began := time.Now().Add(-time.Hour)
	r := &relay{shards: make([]relayShard, 2), consumer: &coordination.ConsumerSettings{IdleHeartbeat: time.Second}, began: began, beat: began, started: true}
	r.superseded = true
	if r.arm(time.Now()); r.timer != nil {
		r.timer.Stop()
		t.Error("it is woken")
	}
}
