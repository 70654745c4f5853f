package topic

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/protocol"
)

// counts declares that orders has counters.
func (n *site) counts(change func(*coordination.TopicSpec)) {
	n.topic("orders", func(s *coordination.TopicSpec) {
		if s.Stream.AllowCounter = true; change != nil {
			change(s)
		}
	})
}

func add(reply, on, what string, headers ...string) protocol.Message {
	return message(on, reply, "", append([]string{"Add: " + what}, headers...)...)
}

// TestACounterIsAddedUp: by each life of the broker, in one read and in several, in a batch, and
// whether the last total is remembered or read.
func TestACounterIsAddedUp(t *testing.T) {
	n := newSite(t)
	n.counts(func(s *coordination.TopicSpec) { s.Stream.AllowAtomic, s.Deduplication = true, 1<<40 })
	n.serve("orders")
	n.expect(n.ask("orders.a", "", "Add: 1"), "orders@1 = 1")
	n.expect(n.ask("orders.a", "", "Add: +2"), "orders@2 = 3")
	n.expect(n.ask("orders.b", "", "Add: -5"), "orders@3 = -5")
	n.restart("orders")
	n.hub.publish(add("r1", "orders.a", "10"), add("r2", "orders.b", "5"), add("r3", "orders.a", "10", "Id: ten"), add("r4", "orders.c", "007"))
	n.expect(n.hub.answer(t, "r1"), "orders@4 = 13")
	n.expect(n.hub.answer(t, "r2"), "orders@5 = 0")
	n.expect(n.hub.answer(t, "r3"), "orders@6 = 23")
	n.expect(n.hub.answer(t, "r4"), "orders@7 = 7")
	n.expect(n.ask("orders.a", "", "Add: 10", "Id: ten"), "orders@6 again")
	n.leaderOf("orders").totals.Forget()
	n.expect(n.batch("x", "orders.a - Add:1", "orders.a 1 Add:1"), "no: topic orders: an increment has no payload")
	n.expect(n.batch("y", "orders.a - Add:1", "orders.d - Add:2", "orders.a - Add:1"), "orders@10/3 y")
	huge := strings.Repeat("9", 500)
	n.expect(n.ask("orders.d", "", "Add: "+huge), "orders@11 = 1"+strings.Repeat("0", 499)+"1")
	n.has("1 orders.a 1", "2 orders.a 3", "3 orders.b -5", "4 orders.a 13", "5 orders.b 0", "6 orders.a 23", "7 orders.c 7",
		"8 orders.a 24", "9 orders.d 2", "10 orders.a 25", "11 orders.d 1"+strings.Repeat("0", 499)+"1")
}

// TestIncrementsThatAreRefused: nothing of them counts.
func TestIncrementsThatAreRefused(t *testing.T) {
	n := newSite(t)
	n.counts(func(s *coordination.TopicSpec) { s.MaxMessage = 2100 })
	n.topic("prices", nil)
	n.serve("orders", "prices")
	n.expect(n.ask("prices.a", "", "Add: 1"), "no: topic prices: it has no counters")
	n.expect(n.ask("orders.a", ""), "no: topic orders: it has counters only, and the message has no increment")
	n.expect(n.ask("orders.a", "1", "Add: 1"), "no: topic orders: an increment has no payload")
	for _, header := range []string{"Rollup: sub", "Expect-Topic: orders", "Expect-Last-Id: a", "Expect-Last: 0", "Expect-Last-By-Subject: 0"} {
		n.expect(n.ask("orders.a", "", "Add: 1", header), "no: topic orders: the increment is invalid")
	}
	n.expect(n.ask("orders.a", "", "Add: "+strings.Repeat("9", 1025)), "no: topic orders: the increment is invalid")
	digits := strings.Repeat("9", 1024)
	n.expect(n.ask("orders.a", "", "Add: "+digits), "orders@1 = "+digits)
	if got := n.ask("orders.a", "", "Add: 1"); !strings.HasPrefix(got, "no: topic orders: a message of") {
		t.Errorf("beyond the largest total: %s", got)
	}
	n.expect(n.ask("orders.a", "", "Add: -"+digits[1:]), "orders@2 = 9"+strings.Repeat("0", 1023))
}

// TestATotalOfOthersIsKept: what a record says of other streams is in the next one.
func TestATotalOfOthersIsKept(t *testing.T) {
	n := newSite(t)
	n.counts(nil)
	n.serve("orders")
	n.expect(n.ask("orders.a", "", "Add: 1", "Sources: there"), "orders@1 = 1")
	for i := range 3 {
		n.expect(n.ask("orders.a", "", "Add: 1"), fmt.Sprintf("orders@%d = %d", i+2, i+2))
		r, err := n.leaderOf("orders").Get(uint64(i + 2))
		if err != nil {
			t.Fatal(err)
		}
		if is, _ := protocol.Header(r.Data[:r.Header]).Get("Sources"); string(is) != "there" {
			t.Errorf("record %d has %q", i+2, r.Data)
		}
		n.restart("orders")
	}
}

// TestABrokenCounter: its last record has no total. When it is deleted the record before counts.
func TestABrokenCounter(t *testing.T) {
	n := newSite(t)
	n.topic("orders", nil)
	n.serve("orders")
	n.expect(n.ask("orders.a", "3"), "orders@1")
	n.expect(n.ask("orders.a", "x"), "orders@2")
	n.counts(nil)
	n.tell()
	for range 2 {
		n.expect(n.ask("orders.a", "", "Add: 1"), "no: topic orders: the last message of the subject has no total (delete it)")
	}
	if err := n.erase(n.leaderOf("orders"), 2); err != nil {
		t.Fatal(err)
	}
	n.expect(n.ask("orders.a", "", "Add: 1"), "orders@3 = 4")
}

// TestCountersGoOnWithTheNextLeader: leadership moves while increments are under way. Each counts
// once, and is answered with the total that it made, also if that was read from the log.
func TestCountersGoOnWithTheNextLeader(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	for _, n := range c.sites {
		n.counts(func(s *coordination.TopicSpec) { s.Replicas = 3 })
	}
	c.begin()
	a, b := c.sites[0], c.sites[1]
	join(a, b)
	a.expect(a.ask("orders.a", "", "Add: 1"), "orders@1 = 1")
	c.alone(2) // so nothing is acknowledged
	a.hub.publish(add("r2", "orders.a", "10"), add("r3", "orders.b", "3"), add("r4", "orders.a", "100"))
	b.ends(5)
	c.alone(0)
	a.hub.publish(add("r5", "orders.a", "1000"), add("r6", "orders.b", "4"))
	a.ends(7)
	c.elect(1, 1, 2)
	c.tell()
	c.reach(0)
	c.reach(2)
	a.hub.publish(add("r7", "orders.a", "10000"))
	b.open("orders")
	for reply, want := range map[string]string{
		"r2": "orders@2 = 11", "r3": "orders@3 = 3", "r4": "orders@4 = 111", "r5": "orders@5 = 1111", "r6": "orders@6 = 7", "r7": "orders@7 = 11111",
	} {
		if got := a.hub.answer(t, reply); got != want {
			t.Errorf("%s was answered %q, want %q", reply, got, want)
		}
	}
	if got := b.values(); !slices.Equal(got, []string{"1", "11", "3", "111", "1111", "7", "11111"}) {
		t.Errorf("kept %q", got)
	}
	a.eventually("nothing is held", func() bool { return a.service.Stats().OutboxMessages == 0 })
}

// TestTotalsAreReadBeforeTheyAreDurable: a total that was forgotten is read although nobody has
// confirmed its record.
func TestTotalsAreReadBeforeTheyAreDurable(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	for _, n := range c.sites {
		n.counts(func(s *coordination.TopicSpec) { s.Replicas = 3 })
	}
	c.begin()
	a := c.sites[0]
	c.alone(2)
	var want big.Int
	for i := range 20 {
		want.Add(&want, big.NewInt(int64(i)))
		a.hub.publish(add(fmt.Sprint("r", i), "orders.a", fmt.Sprint(i)))
		a.ends(uint64(i + 2))
		if s := a.service.Topic("orders").shards[0].leading.Load(); !s.totals.Forget() {
			t.Error("it was not forgotten")
		}
	}
	c.reach(2)
	a.expect(a.hub.answer(t, "r19"), "orders@20 = "+want.String())
}

// TestAFailedAppendCountsNothing: the log refuses increments, which are undone.
func TestAFailedAppendCountsNothing(t *testing.T) {
	t.Parallel()
	n := newSite(t)
	n.counts(nil)
	n.serve("orders")
	n.expect(n.ask("orders.a", "", "Add: 1"), "orders@1 = 1")
	s := n.leaderOf("orders")
	s.mu.Lock()
	was := s.epoch.Swap(0) // the log takes no append of an earlier epoch
	s.mu.Unlock()
	if got := n.ask("orders.a", "", "Add: 10"); !strings.HasPrefix(got, "no: ") {
		t.Fatal(got)
	}
	s.mu.Lock()
	s.epoch.Store(was)
	s.mu.Unlock()
	n.expect(n.ask("orders.a", "", "Add: 100"), "orders@2 = 101")
}
