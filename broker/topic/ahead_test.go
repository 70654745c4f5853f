package topic

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/ahead"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// sever cuts a broker off from the others' replication.
func (c *cluster) sever(n *site) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut[n.self] = true
	for conn := range c.conns {
		conn.Close()
	}
}

func (c *cluster) heal(n *site) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut[n.self] = false
}

// fillUp publishes messages without an answer until the broker asks to wait, and says how many it
// took.
func (n *site) fillUp(most int) (messages int) {
	n.t.Helper()
	data := strings.Repeat("x", 1<<10)
	for messages < most {
		messages++
		if n.hub.publish(message("orders.a", "", data)) {
			return messages
		}
	}
	return messages
}

// waiting is a publisher that waits for room.
func (n *site) waiting() (done chan struct{}) {
	done = make(chan struct{})
	taker := (*taker)(n.service.Topic("orders"))
	go func() {
		taker.Wait()
		close(done)
	}()
	return done
}

func logEnd(n *site) uint64 {
	_, end, _ := n.service.Topic("orders").shards[0].leading.Load().data.Offsets()
	return end
}

// TestALeaderWithoutConfirmationsPushesBack: a leader that its followers can't reach takes a
// bounded amount. Then its publishers wait, also those without a reply, and are refused after a
// while; none of the refused messages is kept.
func TestALeaderWithoutConfirmationsPushesBack(t *testing.T) {
	c := newCluster(t, 3)
	a := c.sites[0]
	c.begin()
	a.service.aheadBound = ahead.Bound{Bytes: 64 << 10, Records: 1000, Time: 5 * time.Second}
	a.expect(a.ask("orders.a", "one"), "orders@1")
	c.sever(a)

	if n := a.fillUp(1000); n < 64 || n > 66 {
		t.Fatalf("it asks to wait after %d messages of 1 KiB; the bound is 64 KiB", n)
	}
	if got := a.service.Stats().Ahead; got < 64<<10 || got > 70<<10 {
		t.Errorf("%d bytes are said to wait", got)
	}
	if topic := a.service.Topic("orders"); !topic.pushesBack() {
		t.Error("nobody is to wait")
	}
	waits := a.waiting()
	select {
	case <-waits:
	case <-time.After(testutil.Patience):
		t.Fatal("a publisher waits for ever")
	}
	if since, stalled := a.service.Topic("orders").Shard().ahead.Stalled(&a.service.aheadBound); !stalled {
		t.Errorf("it goes on after %v", since)
	}

	end := logEnd(a)
	got := a.ask("orders.a", "refused")
	if !strings.HasPrefix(got, "no: topic orders: not kept: ") || !strings.Contains(got, "wait for its other replicas") {
		t.Errorf("answered %q", got)
	}
	for range 200 {
		a.hub.publish(message("orders.a", "", strings.Repeat("x", 1<<10)))
	}
	if now := logEnd(a); now != end {
		t.Errorf("the log went on from %d to %d", end, now)
	}
	if n := a.service.Stats().Refused["overloaded"]; n != 201 {
		t.Errorf("%d messages are counted as refused", n)
	}

	c.heal(a)
	c.settle("all is confirmed", func() bool { return a.service.Stats().Ahead == 0 })
	if got := a.ask("orders.a", "next"); !strings.HasPrefix(got, "orders@") {
		t.Errorf("after that: %q", got)
	}
}

// TestPublishersGoOnWhenFollowersConfirm: publishers that wait go on as soon as the followers
// confirm, and nothing is refused.
func TestPublishersGoOnWhenFollowersConfirm(t *testing.T) {
	c := newCluster(t, 3)
	a := c.sites[0]
	c.begin()
	a.service.aheadBound = ahead.Bound{Bytes: 64 << 10, Records: 10, Time: time.Hour}
	c.sever(a)
	if n := a.fillUp(1000); n != 11 {
		t.Errorf("it asks to wait after %d messages; the bound is 10", n)
	}
	waits := a.waiting()
	a.hub.publish(message("orders.a", "late", "the last"))
	c.heal(a)
	select {
	case <-waits:
	case <-time.After(testutil.Patience):
		t.Fatal("a publisher still waits")
	}
	a.expect(a.hub.answer(t, "late"), "orders@12")
	if s := a.service.Stats(); s.Refused["overloaded"] != 0 || s.Ahead != 0 {
		t.Errorf("%d were refused, %d bytes wait", s.Refused["overloaded"], s.Ahead)
	}
}

// TestForwardsToALeaderWithoutConfirmationsAreBounded: forwarded messages are bounded in the same
// way, and refused when the watermark does not move.
func TestForwardsToALeaderWithoutConfirmationsAreBounded(t *testing.T) {
	c := newCluster(t, 3)
	a, b := c.sites[0], c.sites[1]
	c.begin()
	join(a, b)
	a.service.aheadBound = ahead.Bound{Bytes: 64 << 10, Records: 10, Time: 5 * time.Second}
	a.expect(b.ask("orders.a", "one"), "orders@1")
	c.sever(a)
	for i := range uint64(21) {
		b.hub.publish(message("orders.a", "", "data"))
		a.eventually("it has taken one more", func() bool { return logEnd(a) == 3+i })
	}
	b.hub.publish(message("orders.a", "reply", "waits in the outbox, and is refused then"))
	if got := b.hub.answer(t, "reply"); !strings.HasPrefix(got, "no: topic orders: not kept: ") {
		t.Errorf("answered %q", got)
	}
	if end := logEnd(a); end != 2+21 {
		t.Errorf("it took up to %d", end)
	}
}

// TestAShardWithoutFollowersWaitsOnlyForItsDisk: a shard without followers waits for nothing but
// its disk.
func TestAShardWithoutFollowersWaitsOnlyForItsDisk(t *testing.T) {
	n := newSite(t)
	n.topic("orders", func(s *coordination.TopicSpec) { s.Replicas = 1 })
	n.serve("orders")
	n.service.aheadBound = ahead.Bound{Bytes: 1, Records: 1}
	for range 100 {
		n.hub.publish(message("orders.a", "", "data"))
	}
	if got := n.ask("orders.a", "one"); got != "orders@101" {
		t.Errorf("answered %q", got)
	}
}
