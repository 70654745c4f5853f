package topic

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/log"
	replication "github.com/carillon-mq/carillon/broker/replica"
)

// TestARepairedCopyForgetsTheMessagesThatWereReplaced: a leader without followers appends a
// message, finds damage there, and another one leads. Its copy is repaired with what the next
// leader has instead. The end of that repair can't be written at once. When it leads again, it does
// not take the message for one that it has, but appends it again.
func TestARepairedCopyForgetsTheMessagesThatWereReplaced(t *testing.T) {
	t.Parallel()
	c, _ := spoilable(t, 300)
	a, b := c.sites[0], c.sites[1]
	c.settle("all are whole", func() bool { return c.whole(a, 300) })
	c.alone(0)
	a.hub.publish(message("orders.a", "alone", "only here", "Id: lost"))
	a.ends(302)
	data := a.service.Topic("orders").shards[0].opened.Load().parts[replication.Data]
	data.Roll()
	if err := data.Flush(); err != nil {
		t.Fatal(err)
	}
	all := a.segments()
	if err := a.fs.(*crashfs.FS).FlipPayload(filepath.Join("data/shards/id-orders-0", all[len(all)-1]), 0); err != nil {
		t.Fatal(err)
	}
	a.scrub()
	a.eventually("it doubts its copy", func() bool { return a.service.Suspects() == 1 })
	c.elect(1, 1, 2)
	c.tell()
	b.open("orders")
	b.expect(b.ask("orders.a", "other"), "orders@301")

	var changes, failed atomic.Int64 // of the manifest since the segment was placed
	a.fs.(*crashfs.FS).SetHook(func(op crashfs.Op) error {
		switch {
		case op.Kind == "rename" && strings.HasSuffix(op.Path, ".repair"):
			changes.Store(1)
		case op.Kind == "open" && op.Path == "data/shards/id-orders-0/manifest" && changes.Load() > 0 && changes.Add(1) == 4:
			failed.Add(1)
			return syscall.EMFILE
		}
		return nil
	})
	c.reach(0)
	c.settle("it is repaired", func() bool { return failed.Load() == 1 && c.whole(a, 301) })
	a.fs.(*crashfs.FS).SetHook(nil)
	c.elect(0, 0, 1, 2)
	c.tell()
	a.open("orders")
	a.expect(a.hub.answer(t, "alone"), "orders@302")
	a.expect(a.ask("orders.a", "only here", "Id: lost"), "orders@302 again")
	if got := a.read("orders"); len(got) != 302 || got[301] != "302 orders.a only here" {
		t.Errorf("it has %d messages, at last %q", len(got), got[len(got)-1])
	}
}

// TestDamageThatIsMetBeforeALeaderIsSetUp: a follower asks a leader that is not set up yet, and
// what the leader reads for it is damaged. The broker does not panic.
func TestDamageThatIsMetBeforeALeaderIsSetUp(t *testing.T) {
	t.Parallel()
	c, _ := spoilable(t, 30)
	c.kill(1)
	c.kill(2)
	c.tell()
	led := c.sites[0].service.Topic("orders").Shard()
	fresh := &ShardLeader{service: led.service, topic: led.topic, shard: led.shard, data: led.data, state: led.state}
	damage := &log.CorruptError{File: "data/shards/id-orders-0/1.log", From: 3, Next: 4}
	if err := fresh.Unreadable(damage); err != damage {
		t.Errorf("it is told: %v", err)
	}
}

// TestALogWithHiddenIDsIsNotMarked: the only message with an id is in damaged records of a leader
// in doubt. Its log is not marked to have no ids, so they are still unknown after a restart.
func TestALogWithHiddenIDsIsNotMarked(t *testing.T) {
	c := newCluster(t, 3)
	for _, n := range c.sites {
		n.machine = newMachine(t)
		n.topic("orders", func(s *coordination.TopicSpec) { s.Replicas, s.MinInSync, s.Deduplication = 3, 1, clusterWindow })
	}
	c.begin()
	a := c.sites[0]
	a.expect(a.ask("orders.a", strings.Repeat("x", 100), "Id: hidden"), "orders@1")
	for i := range 300 {
		a.expect(a.ask("orders.a", fmt.Sprintf("%d %0100d", i, i)), fmt.Sprintf("orders@%d", i+2))
	}
	c.settle("all have it", func() bool { return c.whole(a, 301) })
	for i := range c.sites {
		c.kill(i)
	}
	if err := a.fs.(*crashfs.FS).FlipPayload(filepath.Join("data/shards/id-orders-0", a.segments()[0]), 0); err != nil {
		t.Fatal(err)
	}
	for life := range 2 {
		c.start(0)
		c.elect(0, 0)
		c.doubt()
		c.tell()
		a.open("orders")
		if life == 0 { // a message with an id would clear the mark
			a.leading().keepSpec(a.leading().shard.view.Load()) // as when the broker is idle
			c.kill(0)
		}
	}
	if !a.hides("Id: hidden") {
		t.Error("a message whose id can't be read is kept twice")
	}
}
