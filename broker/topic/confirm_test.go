package topic

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/confirm"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// depose cuts the leader off and has another one lead, which the former one does not hear of.
func (c *cluster) depose() (a, b *site) {
	c.t.Helper()
	a, b = c.sites[0], c.sites[1]
	c.begin()
	a.expect(a.ask("orders.a", "one", "Id: one"), "orders@1")
	c.sever(a)
	c.elect(1, 1, 2)
	c.mu.Lock()
	c.lives[a.self] = 0
	c.mu.Unlock()
	c.tell()
	b.open("orders")
	b.expect(b.ask("orders.b", "two", "Id: two"), "orders@2")
	return a, b
}

// TestADeposedLeaderRefusesNoCondition: a leader that was deposed and doesn't know it refuses no
// message by a condition on its last message. It answers that it can't know, and keeps nothing. It
// still gives answers that stay true.
func TestADeposedLeaderRefusesNoCondition(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	a, b := c.depose()
	all := map[string]string{ // all of them hold, or did, at the leader that there is
		"last":                     "Expect-Last: 2",
		"last-of-a-subject":        "Expect-Last-By-Subject: 2",
		"last-id":                  "Expect-Last-Id: two",
		"after-a-message-with-id":  "After: two",
		"first-of-another-subject": "Expect-Last-By-Subject: 7",
	}
	var read []protocol.Message
	for what, condition := range all {
		read = append(read, message("orders.b", what, "three", condition))
	}
	a.hub.publish(append(read, message("orders.a", "again", "one", "Id: one"))...)
	a.expect(a.hub.answer(t, "again"), "orders@1 again")
	for what := range all {
		if got := a.hub.answer(t, what); !strings.HasPrefix(got, "no: ") || !strings.Contains(got, "nothing was kept, try again") {
			t.Errorf("%s: answered %q", what, got)
		}
		if a.hub.sendOf(what) <= a.hub.sendOf("again") {
			t.Errorf("a duplicate is answered with %s, as if it waited for a confirmation", what)
		}
	}
	const clientsWait = 5 * time.Second // nats.go's usual
	if confirm.Time >= clientsWait {
		t.Errorf("clients have given up after %v", confirm.Time)
	}
	b.expect(b.ask("orders.b", "three", "Expect-Last: 2"), "orders@3")
	b.expect(b.ask("orders.b", "no", "Expect-Last: 2"), "no: topic orders: the last message is at offset 3")
}

// TestADeposedLeaderConfirmsNoReader: readers that request the latest message get no answer from a
// deposed leader.
func TestADeposedLeaderConfirmsNoReader(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	a, b := c.depose()
	confirm := func(n *site) error {
		done := make(chan error, 1)
		if n.service.Topic("orders").Shard().Confirm(func(err error) { done <- err }) {
			return nil
		}
		select {
		case err := <-done:
			return err
		case <-time.After(testutil.Patience):
			t.Fatal("no answer")
			return nil
		}
	}
	if _, ok := confirm(a).(*publish.UnconfirmedError); !ok {
		t.Error("the former leader is confirmed")
	}
	if err := confirm(b); err != nil {
		t.Errorf("the leader is not confirmed: %v", err)
	}

	// One that waits when it hears of the other leader is told at once.
	shard := a.service.Topic("orders").Shard()
	done := make(chan error, 1)
	if shard.Confirm(func(err error) { done <- err }) {
		t.Error("the former leader is confirmed")
	}
	c.mu.Lock()
	c.lives[a.self] = a.life
	c.mu.Unlock()
	c.tell()
	select {
	case err := <-done:
		if _, ok := err.(*publish.LeadershipLostError); !ok {
			t.Errorf("told %v", err)
		}
	case <-time.After(testutil.Patience):
		t.Fatal("it still waits")
	}
	if shard.Confirm(func(err error) { done <- err }) || <-done == nil {
		t.Error("a shard that is led no more is confirmed")
	}
}

// TestARefusalWaitsForAFollowerToLeave: a follower that died holds a refusal up until it has left
// the in-sync set.
func TestARefusalWaitsForAFollowerToLeave(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	a := c.sites[0]
	c.begin()
	a.expect(a.ask("orders.a", "one"), "orders@1")
	c.kill(2)
	a.hub.publish(message("orders.a", "r", "no", "Expect-Last: 7"))
	c.settle("it has left", func() bool { return len(c.inSync()) == 2 })
	a.expect(a.hub.answer(t, "r"), "no: topic orders: the last message is at offset 1")
}

// TestARefusalAndAnAckOfOneReadDoNotWaitForEachOther: a refusal and an ack of one read don't wait
// for each other: kept messages are acknowledged as usual.
func TestARefusalAndAnAckOfOneReadDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	a := c.sites[0]
	c.begin()
	a.hub.publish(message("orders.a", "r1", "one"), message("orders.a", "r2", "no", "Expect-Last: 0"), message("orders.a", "r3", "two", "Expect-Last: 1"))
	a.expect(a.hub.answer(t, "r2"), "no: topic orders: the last message is at offset 1")
	a.expect(a.hub.answer(t, "r1"), "orders@1")
	a.expect(a.hub.answer(t, "r3"), "orders@2")
	c.elect(0, 0, 1, 2) // a new epoch of the same leader
	a.hub.publish(message("orders.a", "r4", "no", "Expect-Last: 0"))
	c.tell()
	a.expect(a.hub.answer(t, "r4"), "no: topic orders: the last message is at offset 2")
}

// TestAConditionForwardedToADeposedLeaderIsJudgedByTheNext: a message with a condition that was
// forwarded to a deposed leader is sent again to the present one, where the condition holds.
func TestAConditionForwardedToADeposedLeaderIsJudgedByTheNext(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	a, b, other := c.sites[0], c.sites[1], c.sites[2]
	c.begin()
	join(other, a)
	join(other, b)
	other.expect(other.ask("orders.a", "one"), "orders@1")
	c.sever(a)
	c.elect(1, 1, 2)
	c.mu.Lock()
	// Neither has seen it yet; other follows a, as far as it knows.
	c.lives[a.self], c.lives[other.self] = 0, 0
	c.mu.Unlock()
	c.tell()
	other.hub.publish(message("orders.a", "r", "three", "Expect-Last: 2"))
	a.eventually("the former leader has judged it", func() bool { return a.service.Topic("orders").Shard().confirms.Waiting() })
	c.mu.Lock()
	c.lives[other.self] = other.life
	c.mu.Unlock()
	c.tell()
	b.open("orders")
	b.expect(b.ask("orders.a", "two"), "orders@2")
	got := other.hub.answer(t, "r")
	if got != "orders@3" && got != "no: topic orders: the last message is at offset 1" {
		t.Errorf("answered %q", got)
	}
	if got != "orders@3" {
		// It came to the next leader before the second message did, and was judged there.
		other.expect(other.ask("orders.a", "three", "Expect-Last: 2"), "orders@3")
	}
}

// TestARefusalTakesOneRoundTrip: a refusal by condition takes one round trip to the other replicas,
// also while records are copied: docs/protocol.md. The publisher is at the leader's broker, and
// time is virtual.
func TestARefusalTakesOneRoundTrip(t *testing.T) {
	const way, most = 5 * time.Millisecond, 1.2
	for _, busy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			t.Cleanup(func() { time.Sleep(2 * way) }) // the last frames arrive before the bubble ends
			c := newCluster(t, 3)
			c.way = way
			c.begin()
			a := c.sites[0]
			a.expect(a.ask("orders.a", "one"), "orders@1")
			rng := rand.New(rand.NewPCG(1, 2))
			var took []time.Duration
			for n := range 101 {
				time.Sleep(time.Duration(rng.Int64N(int64(4 * way))))
				if busy {
					for range 5 {
						a.hub.publish(message("orders.a", "", "more"))
						time.Sleep(time.Duration(rng.Int64N(int64(way))))
					}
				}
				reply, began := fmt.Sprintf("refused-%d", n), time.Now()
				a.hub.publish(message("orders.b", reply, "two", "Expect-Last-By-Subject: 7"))
				if got := a.hub.answer(t, reply); !strings.HasPrefix(got, "no: ") {
					t.Fatalf("answered %q", got)
				}
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			trips := float64(took[len(took)/2]) / float64(2*way)
			t.Logf("busy: %v; p50 %.2f round trips, at most %.2f", busy, trips, float64(took[len(took)-1])/float64(2*way))
			if trips < 1 || trips > most {
				t.Errorf("busy: %v; a refusal takes %.2f round trips, want 1 to %.1f", busy, trips, most)
			}
		})
	}
}
