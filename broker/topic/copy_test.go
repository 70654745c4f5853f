package topic

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/publish"
	replication "github.com/carillon-mq/carillon/broker/replica"
)

// set replaces the in-sync set, as it was left by lives that are over.
func (c *cluster) set(members ...coordination.Replica) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shard.InSync = members
	c.shard.Revision += 10
}

// name has the controller name a leader under the next epoch, and leave the set as it is but for
// the leader's life.
func (c *cluster) name(leader int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.sites[leader]
	c.shard.Epoch++
	c.shard.Revision++
	c.shard.Leader = n.self
	c.shard.InSync = slices.Clone(c.shard.InSync)
	for i, m := range c.shard.InSync {
		if m.Broker == n.self {
			c.shard.InSync[i].Incarnation = n.life
		}
	}
}

// entry is what the set says of a broker, and whether it is the leader.
func (c *cluster) entry(i int) (incarnation int64, leads bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, in := c.shard.Member(c.sites[i].self)
	if !in {
		return -1, false
	}
	return m.Incarnation, c.shard.Leader == c.sites[i].self
}

func (c *cluster) lifeOf(i int) coordination.Replica {
	return coordination.Replica{Broker: c.sites[i].self, Incarnation: c.sites[i].life}
}

// TestABrokerThatLostItsCopyWithdraws: of the set {A, B}, A is away with a healthy copy, and B
// returns without its copy. A plan that is older than B's report still names B. B withdraws and
// leads nothing, A vouches when it returns, and no record is lost.
func TestABrokerThatLostItsCopyWithdraws(t *testing.T) {
	t.Parallel()
	c, _ := spoilable(t, 300)
	a, b := c.sites[0], c.sites[1]
	c.settle("it has all", func() bool { return c.whole(b, 300) })
	c.kill(1)
	if err := b.fs.Rename("data/shards/id-orders-0", "data/lost"); err != nil {
		t.Fatal(err)
	}
	before := []coordination.Replica{c.lifeOf(0), c.lifeOf(1)}
	c.kill(0)
	c.set(before...)
	for range 2 { // and again, when it has begun a copy anew and knows that from its disk only
		c.start(1)
		c.settle("it doubts its copy", func() bool { return b.service.Suspects() == 1 })
		if life, _ := c.entry(1); life == b.life {
			t.Fatal("it vouches for a copy that isn't there")
		}
		c.name(1)
		c.settle("it withdraws, and leads no more", func() bool {
			life, leads := c.entry(1)
			return life == 0 && !leads
		})
		if b.service.Topic("orders").Shard() != nil || b.service.Suspects() != 1 {
			t.Fatal("it leads with a copy that lacks everything, or takes back what it said of it")
		}
		c.kill(1)
	}
	c.start(1)
	c.start(0)
	c.settle("the other one vouches", func() bool {
		life, _ := c.entry(0)
		return life == a.life
	})
	c.name(0)
	c.settle("all are whole", func() bool { return c.whole(b, 300) })
	a.expect(a.ask("orders.a", "new"), "orders@301")
}

// cursors is what a broker's copy of the log of cursors holds.
func (n *site) cursors() (all []string) {
	open := n.service.Topic("orders").shards[0].opened.Load()
	if open == nil {
		return nil
	}
	state := open.parts[replication.State]
	start, _, _ := state.Offsets()
	c := state.NewCursor(start)
	for {
		v, err := c.Read(64 << 10)
		if err != nil || v.End == v.From {
			return all
		}
		for b, ok := v.Next(); ok; b, ok = v.Next() {
			it := b.Records()
			for r := (log.Record{}); it.Next(&r); {
				all = append(all, string(r.Data))
			}
		}
		v.Release()
	}
}

// TestACopyWithoutItsCursorsIsInDoubt: a broker comes back without the folder of a shard's cursors.
// It has all records, but its copy is in doubt, also in the next life: it neither vouches nor leads
// until it has fetched the cursors.
func TestACopyWithoutItsCursorsIsInDoubt(t *testing.T) {
	t.Parallel()
	c, _ := spoilable(t, 30)
	a, b := c.sites[0], c.sites[1]
	shard := a.service.Topic("orders").Shard()
	if _, err := shard.AppendState(&log.Append{Durability: log.Synced, Records: []log.Record{{Data: []byte("acknowledged")}}}); err != nil {
		t.Fatal(err)
	}
	if err := shard.State().Flush(); err != nil { // nobody waits for it
		t.Fatal(err)
	}
	c.settle("it has all", func() bool { return c.whole(b, 30) && len(b.cursors()) == 1 })
	c.kill(1)
	if err := b.fs.Rename("data/shards/id-orders-0.state", "data/lost"); err != nil {
		t.Fatal(err)
	}
	before := []coordination.Replica{c.lifeOf(0), c.lifeOf(1)}
	c.kill(0)
	c.kill(2)
	c.set(before...)
	for range 2 {
		c.start(1)
		c.settle("it doubts its copy", func() bool { return b.service.Suspects() == 1 })
		if life, _ := c.entry(1); life == b.life {
			t.Fatal("it vouches for a copy without its cursors")
		}
		c.name(1) // a plan that is older than what it reports
		c.settle("it withdraws", func() bool { life, leads := c.entry(1); return life == 0 && !leads })
		c.kill(1)
	}
	c.start(0)
	c.settle("another one vouches", func() bool { life, _ := c.entry(0); return life == a.life })
	c.name(0)
	c.start(1)
	c.start(2)
	c.settle("it has fetched them", func() bool { return c.whole(b, 30) && len(b.cursors()) == 1 })
}

// TestACopyInDoubtThatIsElectedWithdraws: a follower finds out that its copy must be fetched anew
// while its leader is cut off. The controller elects it before it has that report.
func TestACopyInDoubtThatIsElectedWithdraws(t *testing.T) {
	t.Parallel()
	c, _ := spoilable(t, 300)
	b := c.sites[1]
	c.settle("it has all", func() bool { return c.whole(b, 300) })
	c.kill(1)
	b.loseManifest()
	c.start(1)
	c.kill(0)
	c.settle("it doubts its copy", func() bool { return b.service.Suspects() == 1 })
	c.name(1)
	c.settle("it withdraws", func() bool {
		life, leads := c.entry(1)
		return life == 0 && !leads
	})
	c.name(2)
	c.tell()
	c.sites[2].open("orders")
	if got := c.sites[2].read("orders"); len(got) != 300 {
		t.Errorf("300 messages were acknowledged; there are %d", len(got))
	}
	c.start(0)
	c.settle("all are whole", func() bool { return c.whole(b, 300) })
}

// TestAReturnedReplicaVouchesForItsOwnCopy: all brokers are killed. Each opens its copy and vouches
// for it, though no broker leads; the former leader does not continue its epoch. The answers to
// some swaps are lost.
func TestAReturnedReplicaVouchesForItsOwnCopy(t *testing.T) {
	t.Parallel()
	c, _ := spoilable(t, 100)
	for i := range c.sites {
		c.kill(i)
	}
	for i := range c.sites {
		c.start(i)
	}
	c.mu.Lock()
	c.lose = 2
	c.mu.Unlock()
	for i, n := range c.sites {
		c.settle("it vouches", func() bool {
			life, _ := c.entry(i)
			return life == n.life
		})
	}
	c.mu.Lock()
	leader, epoch := c.shard.Leader, c.shard.Epoch
	c.mu.Unlock()
	if leader != "" || epoch != 1 {
		t.Fatalf("%q leads epoch %d", leader, epoch)
	}
	for _, n := range c.sites {
		if n.service.Topic("orders").Shard() != nil || n.service.Suspects() > 0 {
			t.Fatal("it leads, or doubts its copy")
		}
	}
	c.name(2)
	c.tell()
	c.sites[2].open("orders")
	c.sites[2].expect(c.sites[2].ask("orders.a", "on"), "orders@101")
	c.settle("all are whole", func() bool { return c.whole(c.sites[0], 101) })
}

// TestAProcessThatRegistersAgainVouchesAgain: a process loses its lease and registers again. It
// leads on in its epochs, and vouches again for shards without a leader.
func TestAProcessThatRegistersAgainVouchesAgain(t *testing.T) {
	t.Parallel()
	c, _ := spoilable(t, 10)
	a := c.sites[0]
	register := func(i int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.sites[i].life += 100
		c.lives[c.sites[i].self] = c.sites[i].life
	}
	register(0)
	c.settle("the set names its new life", func() bool {
		life, leads := c.entry(0)
		return life == a.life && leads
	})
	a.expect(a.ask("orders.a", "on"), "orders@11")
	if epoch := a.service.Topic("orders").Shard().Epoch(); epoch != 1 {
		t.Errorf("it leads epoch %d", epoch)
	}
	c.kill(0)
	register(1)
	c.settle("it vouches again", func() bool {
		life, leads := c.entry(1)
		return life == c.sites[1].life && !leads
	})
}

// TestACopyInDoubtLeavesTheSet: damage is found in a follower's copy: it leaves the set before it
// follows again, and is repaired. Found in a leader's copy while nobody else vouches, it leads on,
// and steps down as soon as somebody does.
func TestACopyInDoubtLeavesTheSet(t *testing.T) {
	t.Parallel()
	c, _ := spoilable(t, 600)
	a, b := c.sites[0], c.sites[1]
	c.alone(1)
	b.flip(b.segments()[1])
	b.scrub()
	c.settle("it leaves the set", func() bool {
		life, _ := c.entry(1)
		return life <= 0
	})
	c.reach(1)
	c.settle("it is repaired", func() bool { return b.exchange.Stats().Repaired == 1 && c.whole(b, 600) })

	c.kill(1)
	c.kill(2)
	c.tell()
	a.flip(a.segments()[0])
	a.scrub()
	a.eventually("it doubts its copy", func() bool { return a.service.Suspects() == 1 })
	for range 10 {
		c.tell()
	}
	if a.service.Topic("orders").Shard() == nil {
		t.Fatal("it doesn't lead any more, and nobody else can")
	}
	c.start(1)
	c.settle("it withdraws when another vouches", func() bool {
		life, leads := c.entry(0)
		other, _ := c.entry(1)
		return life == 0 && !leads && other == b.life
	})
	c.name(1)
	c.tell()
	b.open("orders")
	c.start(2)
	c.settle("all are whole", func() bool { return c.whole(a, 600) })
}

// TestSafeRecordsAreSetAsideByATruncation: a leader in doubt that lacks all records is elected. Its
// followers set aside the records that they know to be safe, and do not delete them. They know them
// after a restart, too.
func TestSafeRecordsAreSetAsideByATruncation(t *testing.T) {
	t.Parallel()
	t.Run("of a follower that lives", func(t *testing.T) { setAside(t, false) })
	t.Run("of a follower that was killed", func(t *testing.T) { setAside(t, true) })
}

func setAside(t *testing.T, restarted bool) {
	c, _ := spoilable(t, 300)
	b := c.sites[1]
	c.settle("it has all, and knows it", func() bool { return c.whole(b, 300) })
	b.eventually("it knows that it is safe", func() bool {
		following := b.service.Topic("orders").shards[0].copying.Load()
		return following != nil && following.High(replication.Data) == 301
	})
	if restarted {
		b.eventually("its journal knows it", func() bool { return b.journaled("id-orders", 301) })
		c.kill(1)
	}
	c.kill(2)
	if err := c.sites[2].fs.Rename("data/shards/id-orders-0", "data/lost"); err != nil {
		t.Fatal(err)
	}
	c.kill(0)
	if restarted {
		c.start(1)
	}
	c.start(2)
	c.settle("it doubts its copy", func() bool { return c.sites[2].service.Suspects() == 1 })
	c.elect(2, 2)
	c.doubt()
	c.settle("its follower is as it is, and has set aside what it had", func() bool {
		return len(c.inSync()) == 2 && b.exchange.Stats().SetAside == 1
	})
	if aside, err := b.fs.List("data/set-aside"); err != nil || len(aside) == 0 {
		t.Errorf("set aside: %v, %v", aside, err)
	}
	if !b.said("copy=\"partial since epoch") || !b.said("lacks records of the data log from 1 to 300") {
		t.Errorf("it did not doubt its copy before it dropped anything: %s", b.logged)
	}
}

// journaled reports whether a process that is started after a power cut knows the watermark of a
// Topic's data log, whatever is lost by that of what was not synced.
func (n *site) journaled(topic string, watermark uint64) bool {
	for seed := range uint64(16) {
		d, err := log.OpenDisk(n.fs.(*crashfs.FS).Clone().Crash(rand.New(rand.NewPCG(seed, 1))), "data", log.Options{})
		if err != nil {
			n.t.Fatal(err)
		}
		l, err := d.Open(log.Identity{Topic: topic}, 1, 1, nil)
		if err != nil {
			n.t.Fatal(err)
		}
		known := l.Watermark()
		if err := d.Close(); err != nil {
			n.t.Fatal(err)
		}
		if known != watermark {
			return false
		}
	}
	return true
}

// inMemory returns a cluster of three brokers whose Topic is in memory and has one message, its
// leader, and a follower.
func inMemory(t *testing.T) (c *cluster, leader, follower *site) {
	c = newCluster(t, 3)
	for _, n := range c.sites {
		n.topic("orders", func(s *coordination.TopicSpec) {
			s.Replicas, s.Durability = 3, coordination.Memory
		})
	}
	c.begin()
	leader = c.sites[0]
	leader.expect(leader.ask("orders.a", "one"), "orders@1")
	return c, leader, c.sites[1]
}

// failSegments has segments be neither written nor, once a write has failed, opened.
func (n *site) failSegments(failed *atomic.Bool) {
	n.fs.(*crashfs.FS).SetHook(func(op crashfs.Op) error {
		if !strings.HasSuffix(op.Path, ".log") || op.Kind != "write" && (op.Kind != "open" || !failed.Load()) {
			return nil
		}
		failed.Store(true)
		return syscall.EIO
	})
}

// TestAFollowerInMemoryWhoseLogFailsIsInDoubt: a log of a Topic in memory fails under a follower
// that has confirmed what it had not written: its copy is in doubt.
func TestAFollowerInMemoryWhoseLogFailsIsInDoubt(t *testing.T) {
	t.Parallel()
	c, a, b := inMemory(t)
	var failed atomic.Bool
	b.failSegments(&failed)
	a.expect(a.ask("orders.a", "two"), "orders@2")
	b.eventually("a write fails", failed.Load)
	n := 2
	c.settle("it doubts its copy, and withdraws though its logs can't be opened", func() bool {
		life, _ := c.entry(1)
		if life != 0 && !b.said("unsynced") { // the next append notices
			n++
			a.hub.publish(message("orders.a", "", fmt.Sprint(n)))
		}
		return (life == 0 || life == -1) && b.said("unsynced")
	})
	b.fs.(*crashfs.FS).SetHook(nil)
	c.settle("all are whole", func() bool { return c.whole(b, n) })
}

// TestASwapMadeBeforeADoubtDoesNotEndIt: a Topic in memory. The swap by which the leader puts a
// follower into the set is under way when the follower confirms a record and loses it with its log.
// The swap arrives: the follower withdraws, and the record is not lost with the leader.
func TestASwapMadeBeforeADoubtDoesNotEndIt(t *testing.T) {
	t.Parallel()
	c, a, b := inMemory(t)
	c.kill(1)
	c.settle("it leaves the set", func() bool { life, _ := c.entry(1); return life == -1 })
	var swaps atomic.Int32
	arrives := make(chan struct{})
	release := sync.OnceFunc(func() { close(arrives) })
	t.Cleanup(release)
	c.mu.Lock()
	c.hold = func(inSync []coordination.Replica) error {
		if !slices.ContainsFunc(inSync, func(m coordination.Replica) bool { return m.Broker == b.self }) || swaps.Add(1) > 1 {
			return errors.New("etcd does not answer")
		}
		<-arrives
		return nil
	}
	c.mu.Unlock()
	c.start(1)
	c.settle("the leader is about to put it into the set", func() bool { return swaps.Load() > 0 })
	p := b.service.Topic("orders").shards[0]
	for _, l := range p.opened.Load().parts { // the first write that fails is that of the next record
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	var failed atomic.Bool
	b.failSegments(&failed)
	a.expect(a.ask("orders.a", "two"), "orders@2")
	b.eventually("a write fails", failed.Load)
	c.settle("its log can't be opened again", func() bool { // the next append notices
		a.hub.publish(message("orders.a", "", "more"))
		return b.said("trouble with a Topic's log")
	})
	c.alone(1)
	b.fs.(*crashfs.FS).SetHook(nil)
	c.settle("it is open again and would follow", func() bool { return p.opened.Load() != nil && p.own.follows.Load() == 1 })
	release()
	a.eventually("the swap arrives", func() bool { life, _ := c.entry(1); return life == b.life })
	c.settle("it withdraws", func() bool { life, _ := c.entry(1); return life == 0 })
	if b.service.Suspects() != 1 {
		t.Error("it takes its copy for whole")
	}
	c.kill(0)
	c.mu.Lock()
	c.hold = nil
	c.mu.Unlock()
	c.reach(1)
	c.name(2)
	c.tell()
	c.sites[2].open("orders")
	if got := c.sites[2].read("orders"); len(got) < 2 || got[1] != "2 orders.a two" {
		t.Errorf("it has %q", got)
	}
	c.settle("it has all again", func() bool { return b.service.Suspects() == 0 && len(c.inSync()) == 2 })
}

// TestAShutdownWithACopyInDoubtIsNotMarkedOrderly: a broker shuts down while it can't open the logs
// of a copy in doubt. The shutdown is not marked as orderly: the next process would vouch for a
// copy that lacks confirmed records.
func TestAShutdownWithACopyInDoubtIsNotMarkedOrderly(t *testing.T) {
	t.Parallel()
	c, a, b := inMemory(t)
	b.failSegments(new(atomic.Bool))
	c.settle("its log has failed and can't be opened again", func() bool {
		a.hub.publish(message("orders.a", "", "two"))
		return b.said("unsynced") && b.said("doing=open")
	})
	if err := b.service.Close(); err == nil || !strings.Contains(err.Error(), "in doubt") {
		t.Errorf("the end is orderly: %v", err)
	}
}

// TestAnEpochInDoubtIsLedOnce: a leader that was elected in doubt finds more damage while others
// vouch. The doubt of its epoch was an earlier one: it withdraws, and does not begin to lead that
// epoch again while the set that shows so has not reached it.
func TestAnEpochInDoubtIsLedOnce(t *testing.T) {
	t.Parallel()
	c, _ := spoilable(t, 600)
	a := c.sites[0]
	c.elect(0, 0, 1, 2)
	c.doubt()
	c.tell()
	a.open("orders")
	c.settle("all are whole", func() bool { return c.whole(a, 600) })
	a.flip(a.segments()[0])
	a.scrub()
	a.eventually("it withdraws", func() bool { life, _ := c.entry(0); return life == 0 })
	c.settle("it doubts its copy, and does not lead", func() bool {
		return a.service.Suspects() == 1 && a.service.Topic("orders").Shard() == nil
	})
	if a.said("a copy in doubt leads") {
		t.Error("it led again")
	}
	c.name(1)
	c.settle("it is repaired", func() bool { return a.exchange.Stats().Repaired == 1 && c.whole(a, 600) })
}

// TestALeaderThatCannotOpenItsLogResigns: a leader's log fails and can't be opened again, while
// others are whole. It resigns.
func TestALeaderThatCannotOpenItsLogResigns(t *testing.T) {
	t.Parallel()
	c, _ := spoilable(t, 10)
	a := c.sites[0]
	var failed atomic.Bool
	a.failSegments(&failed)
	a.hub.publish(message("orders.a", "", "x"))
	a.eventually("a write fails", failed.Load)
	c.settle("it leads no more", func() bool { _, leads := c.entry(0); return !leads })
}

// cannotOpen has segments that are there not be opened.
func (n *site) cannotOpen() {
	n.fs.(*crashfs.FS).SetHook(func(op crashfs.Op) error {
		if strings.HasSuffix(op.Path, ".log") && op.Kind == "open" {
			return syscall.EIO
		}
		return nil
	})
}

// TestABrokerThatCannotOpenItsCopyReportsIt: a returned broker can't open its copy. It reports that
// at its second try, so that elections do not wait for it, and withdraws the report when it can.
func TestABrokerThatCannotOpenItsCopyReportsIt(t *testing.T) {
	t.Parallel()
	c, reports := spoilable(t, 10)
	b := c.sites[1]
	c.settle("it has all", func() bool { return c.whole(b, 10) })
	for i := range c.sites {
		c.kill(i)
	}
	b.cannotOpen()
	c.start(1)
	if said := c.reported(1, reports); !said.Closed {
		t.Errorf("reported was %+v", said)
	}
	b.fs.(*crashfs.FS).SetHook(nil)
	c.settle("it vouches for its copy", func() bool {
		life, _ := c.entry(1)
		return life == b.life && b.service.Suspects() == 0
	})
}

// TestALeaderThatCannotOpenItsLogResignsWithoutASuccessor: a leader's log fails and can't be opened
// again, and no other member is present. It resigns and reports that, since a member that returns
// vouches only for a shard without a leader.
func TestALeaderThatCannotOpenItsLogResignsWithoutASuccessor(t *testing.T) {
	t.Parallel()
	c, reports := spoilable(t, 10)
	a, b := c.sites[0], c.sites[1]
	c.settle("all have all", func() bool { return c.whole(b, 10) })
	c.kill(1)
	c.kill(2)
	c.tell()
	var failed atomic.Bool
	a.failSegments(&failed)
	a.hub.publish(message("orders.a", "", "x"))
	c.settle("it resigns", func() bool { _, leads := c.entry(0); return !leads })
	if said := c.reported(0, reports); !said.Closed || said.End < 11 || said.Epoch != 1 {
		t.Errorf("reported was %+v", said)
	}
	c.start(1)
	c.settle("another one vouches", func() bool { life, _ := c.entry(1); return life == b.life })
	c.name(1)
	c.tell()
	a.fs.(*crashfs.FS).SetHook(nil)
	c.start(2)
	b.open("orders")
	c.settle("all are whole", func() bool { return len(c.inSync()) == 3 && a.service.Suspects() == 0 })
}

// TestACopyInDoubtThatCannotBeOpenedIsReported: a copy in doubt whose logs can't be opened is
// reported as such, and not only withdrawn.
func TestACopyInDoubtThatCannotBeOpenedIsReported(t *testing.T) {
	t.Parallel()
	c, reports := spoilable(t, 600)
	b := c.sites[1]
	c.settle("it has all", func() bool { return c.whole(b, 600) })
	c.alone(1)
	b.flip(b.segments()[1])
	b.scrub()
	if said := c.reported(1, reports); said.Closed || said.Lacks != 1 {
		t.Errorf("reported was %+v", said)
	}
	var failed atomic.Bool
	b.failSegments(&failed)
	failed.Store(true)
	p := b.service.Topic("orders").shards[0]
	fault := error(syscall.EIO)
	p.fault.Store(&fault)
	b.service.wake(p)
	c.settle("it is reported that it can't be opened", func() bool {
		_, all := b.service.reports.All()
		return len(all) == 1 && all[0].Closed && all[0].End == 601
	})
	b.fs.(*crashfs.FS).SetHook(nil)
	c.reach(1)
	c.settle("it is repaired", func() bool { return c.whole(b, 600) })
}

// TestAClosedCopyIsRemovedLikeOthers: the replicas of a shard are moved to other brokers before a
// broker can open its copy. The copy is removed like others: it is set aside, or deleted if the
// move was planned, and is no longer reported.
func TestAClosedCopyIsRemovedLikeOthers(t *testing.T) {
	t.Parallel()
	for _, planned := range []bool{false, true} {
		n := newSite(t)
		n.serve("orders")
		n.expect(n.ask("orders.a", "one"), "orders@1")
		n.startAgain()
		n.cannotOpen()
		n.place("orders", self)
		n.tell()
		n.eventually("it is reported", func() bool { return n.service.Suspects() == 1 })
		if planned {
			leaving := *n.shards["id-orders"]
			leaving.Removing = []string{self}
			n.shards["id-orders"] = &leaving
			n.tell()
		}
		n.place("orders", "broker-b")
		n.tell()
		n.eventually("it is gone", func() bool { return len(n.stands()) == 0 && n.service.Suspects() == 0 })
		if aside := n.service.Stats().SetAside; aside != 2 && !planned || aside != 0 && planned {
			t.Errorf("planned: %v; %d logs were set aside", planned, aside)
		}
	}
}

// TestALogThatFailsAsItsDurabilityChangesSpendsTheEpoch: the durability of a Topic changes while a
// write of its leader hangs, and then fails. Followers have the record, so the leader does not lead
// this epoch again, in which it would give the offset to another record.
func TestALogThatFailsAsItsDurabilityChangesSpendsTheEpoch(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	for _, n := range c.sites {
		n.topic("orders", func(s *coordination.TopicSpec) { s.Replicas, s.MinInSync = 3, 2 })
	}
	c.begin()
	a := c.sites[0]
	a.expect(a.ask("orders.a", "one"), "orders@1")
	fails := make(chan struct{})
	a.fs.(*crashfs.FS).SetHook(func(op crashfs.Op) error {
		if op.Kind != "write" || !strings.HasSuffix(op.Path, ".log") {
			return nil
		}
		<-fails
		return syscall.EIO
	})
	a.hub.publish(message("orders.a", "", "two"))
	c.settle("the followers have it", func() bool {
		all := c.copies()
		return len(all[1]) == 2 && len(all[2]) == 2
	})
	for _, n := range c.sites {
		n.topic("orders", func(s *coordination.TopicSpec) { s.Durability = coordination.Replicated })
	}
	c.tell()
	p := a.service.Topic("orders").shards[0]
	a.eventually("it takes nothing any more", func() bool { return p.leading.Load() == nil })
	close(fails)
	a.fs.(*crashfs.FS).SetHook(nil)
	c.settle("it resigns", func() bool { _, leads := c.entry(0); return !leads })
	if p.leading.Load() != nil {
		t.Error("it leads on in the epoch in which it lost a record")
	}
}

// TestARefetchedCopyDoubtsLikeOthers: a lost copy was fetched again and is whole. Like any other
// copy, it is in doubt when a leader lacks safe records.
func TestARefetchedCopyDoubtsLikeOthers(t *testing.T) {
	t.Parallel()
	c, _ := spoilable(t, 300)
	b := c.sites[1]
	c.kill(1)
	if err := b.fs.Rename("data/shards/id-orders-0", "data/lost"); err != nil {
		t.Fatal(err)
	}
	c.start(1)
	c.settle("it has all again", func() bool { return c.whole(b, 300) })
	b.eventually("it knows that it is safe", func() bool {
		following := b.service.Topic("orders").shards[0].copying.Load()
		return following != nil && following.High(replication.Data) == 301
	})
	c.kill(2)
	if err := c.sites[2].fs.Rename("data/shards/id-orders-0", "data/lost"); err != nil {
		t.Fatal(err)
	}
	c.kill(0)
	c.start(2)
	c.settle("the other one doubts its copy", func() bool { return c.sites[2].service.Suspects() == 1 })
	c.elect(2, 2, 1)
	c.doubt()
	c.settle("it has doubted, and set aside what it had", func() bool {
		return b.exchange.Stats().SetAside == 1 && b.said("lacks records of the data log from 1 to 300")
	})
}

// TestADamagedLeaderServesWhileEtcdIsAway: etcd is away when a leader finds its copy damaged, and
// others have what is damaged. It leads on, acknowledges what is published, and refuses what it
// can't read; it withdraws when etcd is back, and stops leading at once.
func TestADamagedLeaderServesWhileEtcdIsAway(t *testing.T) {
	t.Parallel()
	c, _ := spoilable(t, 600)
	a, b := c.sites[0], c.sites[1]
	c.settle("all are whole", func() bool { return c.whole(b, 600) })
	c.tell() // all have seen the last revision of the key
	etcd := func(away bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.away = away
	}
	etcd(true)
	a.flip(a.segments()[0])
	a.scrub()
	a.eventually("it doubts its copy, and tries to withdraw", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return a.service.Suspects() == 1 && c.unsaid > 0
	})
	a.expect(a.ask("orders.a", "on"), "orders@601")
	if r, err := a.service.Topic("orders").Shard().Get(601); err != nil || string(r.Data) != "on" {
		t.Errorf("it reads %q, %v", r.Data, err)
	}
	var err error
	for offset := uint64(1); offset <= 600 && err == nil; offset++ {
		_, err = a.service.Topic("orders").Shard().Get(offset)
	}
	if why, ok := errors.AsType[*publish.NotServedError](err); !ok || why.Reason != publish.Troubled {
		t.Errorf("a reader of what is damaged is told: %v", err)
	}
	etcd(false)
	a.eventually("it withdraws and does not lead, though it has not seen the key's new revision", func() bool {
		return a.service.Topic("orders").Shard() == nil
	})
	if life, leads := c.entry(0); life != 0 || leads {
		t.Errorf("its entry is %d, and it leads: %v", life, leads)
	}
	c.name(1)
	c.tell()
	b.open("orders")
	b.expect(b.ask("orders.a", "and on"), "orders@602")
	c.settle("all are whole", func() bool { return c.whole(a, 602) })
}
