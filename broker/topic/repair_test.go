package topic

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/records"
)

// spoilable returns a cluster of three brokers and their reports. The first broker leads, and that
// many messages are kept.
func spoilable(t *testing.T, messages int) (c *cluster, reports []chan []coordination.Suspect) {
	c = newCluster(t, 3)
	for _, n := range c.sites {
		said := make(chan []coordination.Suspect, 1000)
		n.report = func(_ context.Context, _ int64, suspects []coordination.Suspect) error {
			c.mu.Lock()
			if c.said != nil {
				c.said[n.self] = slices.Clone(suspects)
			}
			c.mu.Unlock()
			said <- suspects
			return nil
		}
		reports = append(reports, said)
	}
	c.begin()
	a := c.sites[0]
	for i := range messages {
		a.expect(a.ask("orders.a", fmt.Sprintf("%d %0100d", i, i)), fmt.Sprintf("orders@%d", i+1))
	}
	return c, reports
}

// reported waits until a broker reports its copy, and returns what it says.
func (c *cluster) reported(i int, reports []chan []coordination.Suspect) (said coordination.Suspect) {
	c.t.Helper()
	c.settle("it is reported", func() bool {
		select {
		case all := <-reports[i]:
			if len(all) == 1 {
				said = all[0]
			}
			return len(all) == 1
		default:
			return false
		}
	})
	return said
}

// segments are the files of a broker's copy, oldest first.
func (n *site) segments() []string {
	n.t.Helper()
	names, err := n.fs.List("data/shards/id-orders-0")
	if err != nil {
		n.t.Fatal(err)
	}
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasSuffix(name, ".log") })
}

// scrub has a broker look for damage at rest, and find some.
func (n *site) scrub() {
	n.t.Helper()
	before := n.service.ScrubStats().Damages
	p := n.service.Topic("orders").shards[0]
	for _, l := range p.opened.Load().parts {
		n.service.upkeep.Scrub(n.t.Context(), (*upkeepShard)(p), l, log.ScrubOptions{})
	}
	if n.service.ScrubStats().Damages == before {
		n.t.Fatal("nothing was found")
	}
}

// loseManifest flips a bit in both slots of the manifest of the site's log.
func (n *site) loseManifest() {
	n.t.Helper()
	const path = "data/shards/id-orders-0/manifest"
	info, err := n.fs.Stat(path)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, slot := range []int64{0, info.Size / 2} {
		if err := n.fs.(*crashfs.FS).Flip(path, (slot+100)*8); err != nil {
			n.t.Fatal(err)
		}
	}
}

// stepsBack waits until a broker doubts its copy, has withdrawn, and does not lead any more.
func (c *cluster) stepsBack(n *site) {
	c.t.Helper()
	c.settle("it steps back", func() bool {
		return n.service.Suspects() == 1 && n.service.Topic("orders").Shard() == nil
	})
}

func (n *site) flip(segment string) {
	n.t.Helper()
	if err := n.fs.(*crashfs.FS).FlipPayload(filepath.Join("data/shards/id-orders-0", segment), 3000); err != nil {
		n.t.Fatal(err)
	}
}

// whole reports whether all copies are the same and have so many messages, all are in sync, and
// this broker vouches for its copy.
func (c *cluster) whole(n *site, messages int) bool {
	all := c.copies()
	return equal(all) && len(all[0]) == messages && n.service.Suspects() == 0 && len(c.inSync()) == len(c.sites)
}

// TestADamagedSegmentIsFetchedAlone: a segment in which damage is found at rest is fetched alone
// from the leader and set aside; a leader has another one lead first.
func TestADamagedSegmentIsFetchedAlone(t *testing.T) {
	t.Parallel()
	c, reports := spoilable(t, 600)
	a, b := c.sites[0], c.sites[1]
	bad := b.segments()[1]
	b.flip(bad)
	c.alone(1)
	b.scrub()
	if said := c.reported(1, reports); said.Lacks != 1 || said.End != 601 {
		t.Errorf("reported was %+v", said)
	}
	c.reach(1)
	c.settle("it is repaired, and vouched for again", func() bool { return b.exchange.Stats().Repaired == 1 && c.whole(b, 600) })
	info, err := b.fs.Stat(filepath.Join("data/set-aside/id-orders-0.1", bad))
	if err != nil {
		t.Fatal(err)
	}
	if s := b.exchange.Stats(); int64(s.InRepairBytes) > info.Size || s.Resets > 0 || b.service.Stats().SetAside > 0 || b.service.ScrubStats().Copies > 0 {
		t.Errorf("%d bytes for a segment of %d: %+v", s.InRepairBytes, info.Size, s)
	}
	if found, err := b.service.Topic("orders").shards[0].opened.Load().parts[0].Scrub(t.Context(), log.ScrubOptions{}); err != nil || len(found.Damaged) > 0 {
		t.Errorf("%v, %v", found, err)
	}
	a.expect(a.ask("orders.a", "all have this"), "orders@601")

	// The leader steps back, and another one is named.
	a.flip(a.segments()[0])
	a.scrub()
	c.stepsBack(a)
	c.elect(2, 0, 1, 2)
	c.tell()
	c.sites[2].open("orders")
	c.settle("it is repaired", func() bool { return a.exchange.Stats().Repaired == 1 && c.whole(a, 601) })
	if a.service.ScrubStats().Copies > 0 {
		t.Error("more than the segment was set aside")
	}
	c.sites[2].expect(c.sites[2].ask("orders.a", "and this"), "orders@602")
}

// TestAMissingSegmentIsFetchedAlone: a segment that is not there when a broker starts again is
// fetched alone, too.
func TestAMissingSegmentIsFetchedAlone(t *testing.T) {
	t.Parallel()
	c, _ := spoilable(t, 600)
	b := c.sites[1]
	c.kill(1)
	lost := filepath.Join("data/shards/id-orders-0", b.segments()[2])
	info, err := b.fs.Stat(lost)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.fs.Remove(lost); err != nil {
		t.Fatal(err)
	}
	c.start(1)
	c.settle("it is repaired, and vouched for again", func() bool { return b.exchange.Stats().Repaired == 1 && c.whole(b, 600) })
	if s := b.exchange.Stats(); int64(s.InRepairBytes) > info.Size || s.Resets > 0 || b.service.ScrubStats().Copies > 0 {
		t.Errorf("%d bytes for a segment of %d: %+v", s.InRepairBytes, info.Size, s)
	}
}

// TestACopyThatLostItsEndReportsAShorterReach: a copy lost its end. It does not report its former
// end as its reach, so a longer copy is elected.
func TestACopyThatLostItsEndReportsAShorterReach(t *testing.T) {
	t.Parallel()
	c, reports := spoilable(t, 600)
	b := c.sites[1]
	c.settle("it has all", func() bool { return c.whole(b, 600) })
	c.mu.Lock()
	c.lives[b.self] = 0
	c.mu.Unlock()
	b.stop() // in order, so it knows in its next life how far it went
	all := b.segments()
	last := all[len(all)-1]
	if err := b.fs.Remove(filepath.Join("data/shards/id-orders-0", last)); err != nil {
		t.Fatal(err)
	}
	c.alone(1)
	c.start(1)
	if said := c.reported(1, reports); fmt.Sprintf("%020d.log", said.End) != last || said.Lacks != 1 {
		t.Errorf("reported was %+v; %s is not there", said, last)
	}
	c.reach(1)
	c.settle("it is repaired", func() bool { return b.exchange.Stats().Repaired == 1 && c.whole(b, 600) })
}

// TestACopyThatLostItsEndCatchesUpBeforeItVouches: a broker lost the last segment of a copy, whose
// last records its manifest need not list. It fetches the records that are listed, and does not
// vouch for its copy before the leader has put it into the set, since the copy may lack more.
func TestACopyThatLostItsEndCatchesUpBeforeItVouches(t *testing.T) {
	t.Parallel()
	c, reports := spoilable(t, 600)
	b := c.sites[1]
	c.settle("it has all", func() bool { return c.whole(b, 600) })
	c.kill(1)
	all := b.segments()
	if err := b.fs.Remove(filepath.Join("data/shards/id-orders-0", all[len(all)-1])); err != nil {
		t.Fatal(err)
	}
	var open atomic.Bool
	c.mu.Lock()
	c.hold = func(inSync []coordination.Replica) error {
		if !open.Load() && slices.ContainsFunc(inSync, func(m coordination.Replica) bool { return m.Broker == b.self && m.Incarnation > 0 }) {
			return errors.New("the set stays")
		}
		return nil
	}
	c.mu.Unlock()
	c.start(1)
	if said := c.reported(1, reports); said.Lacks != 1 {
		t.Errorf("reported was %+v", said)
	}
	c.settle("the records that are known are fetched", func() bool { return b.exchange.Stats().Repaired == 1 })
	for c.reported(1, reports).Lacks > 0 { // until it reports the doubt that stays
	}
	open.Store(true)
	c.settle("it has caught up", func() bool { return c.whole(b, 600) })
}

// TestARepairRestartsWithTheNextLeader: the leader dies while it is asked for a segment, and so
// does the broker under repair. The repair starts again with the next leader.
func TestARepairRestartsWithTheNextLeader(t *testing.T) {
	t.Parallel()
	c, _ := spoilable(t, 600)
	b := c.sites[1]
	c.mu.Lock()
	c.cut[b.self] = true
	for conn, of := range c.conns {
		if of == b.self {
			conn.Close()
		}
	}
	c.mu.Unlock()
	b.flip(b.segments()[1])
	b.scrub()
	b.eventually("it is reported", func() bool { return b.service.Suspects() == 1 })
	c.kill(0)
	c.elect(2, 2, 0)
	c.mu.Lock()
	c.cut[b.self] = false
	c.mu.Unlock()
	c.tell()
	c.sites[2].open("orders")
	b.eventually("it is repaired by the new leader", func() bool { return b.exchange.Stats().Repaired == 1 })
	c.kill(1)
	c.start(1)
	c.start(0)
	c.settle("all are whole", func() bool { return c.whole(b, 600) })
}

// TestADamagedCopyIsFetchedAnew: a copy that needs more than segments is set aside as a whole and
// fetched anew.
func TestADamagedCopyIsFetchedAnew(t *testing.T) {
	t.Parallel()
	c, reports := spoilable(t, 300)
	b := c.sites[1]
	c.kill(1)
	b.loseManifest()
	c.alone(1)
	c.start(1)
	if said := c.reported(1, reports); said.Lacks != 0 {
		t.Errorf("reported was %+v", said)
	}
	c.reach(1)
	c.settle("it is fetched anew, and vouched for again", func() bool { return b.service.Stats().SetAside == 2 && c.whole(b, 300) })
	if b.exchange.Stats().Repaired > 0 || b.service.ScrubStats().Copies != 1 {
		t.Errorf("%+v, %+v", b.exchange.Stats(), b.service.ScrubStats())
	}
}

// doesNotLead starts the second broker, which is to lead and says that it can't.
func (c *cluster) doesNotLead(b *site) {
	c.t.Helper()
	c.start(1)
	c.elect(1, 1) // the others are away
	c.settle("it reports that it can't lead", func() bool { return b.service.Suspects() == 1 })
	if b.service.Topic("orders").Shard() != nil {
		c.t.Fatal("it leads with a copy that lacks everything")
	}
}

// catchesUp has the second broker follow until it has so many messages.
func (c *cluster) catchesUp(b *site, messages int) {
	c.t.Helper()
	c.reach(1)
	c.elect(0, 0, 2)
	c.tell()
	c.sites[0].open("orders")
	c.settle("it has caught up", func() bool { return c.whole(b, messages) })
}

// leadsFrom has the second broker lead, and keep the next message at an offset.
func (c *cluster) leadsFrom(b *site, offset int) {
	c.t.Helper()
	c.elect(1, 0, 1, 2)
	c.tell()
	b.open("orders")
	b.expect(b.ask("orders.a", "on"), fmt.Sprintf("orders@%d", offset))
}

// TestAnUnfinishedCopyDoesNotLeadAfterARestart: a broker dies while its copy is fetched anew. After
// its restart the logs are undamaged but incomplete: it does not lead until they have caught up.
func TestAnUnfinishedCopyDoesNotLeadAfterARestart(t *testing.T) {
	t.Parallel()
	c, _ := spoilable(t, 300)
	b := c.sites[1]
	c.kill(1)
	b.loseManifest()
	b.fs.(*crashfs.FS).SetHook(func(op crashfs.Op) error {
		if op.Kind == "rename" && strings.HasSuffix(op.Path, "id-orders-0") {
			c.alone(1) // after the leader has said that it wants nothing of the copy
		}
		return nil
	})
	c.start(1)
	c.settle("it begins anew, and nothing comes", func() bool {
		open := b.service.Topic("orders").shards[0].opened.Load()
		return b.service.Stats().SetAside == 2 && open != nil && len(open.parts[0].SegmentInfos()) == 0
	})
	c.kill(1)
	c.doesNotLead(b)
	c.catchesUp(b, 300)
	c.kill(1)
	c.start(1)
	c.leadsFrom(b, 301)
}

// TestAnEmptyReplacementLogDoesNotLeadAfterARestart: a broker is elected although its copy is lost.
// It withdraws, and dies before it has fetched any record. After its restart it finds the empty log
// that it created, and does not lead with that either.
func TestAnEmptyReplacementLogDoesNotLeadAfterARestart(t *testing.T) {
	t.Parallel()
	c, _ := spoilable(t, 300)
	b := c.sites[1]
	c.kill(1)
	for _, name := range append(b.segments(), "manifest", "meta.json") {
		if err := b.fs.Remove(filepath.Join("data/shards/id-orders-0", name)); err != nil {
			t.Fatal(err)
		}
	}
	c.alone(1)
	for range 2 {
		c.doesNotLead(b)
		c.kill(1)
	}
	c.start(1)
	c.catchesUp(b, 300)
	c.leadsFrom(b, 301)
}

// TestDamageFoundByAReaderIsKnownAfterARestart: a broker that has found damage ends before the
// repair. It knows the damage after its restart.
func TestDamageFoundByAReaderIsKnownAfterARestart(t *testing.T) {
	t.Parallel()
	c, _ := spoilable(t, 600)
	a := c.sites[0]
	a.flip(a.segments()[0])
	var why *publish.NotServedError
	var err error
	for offset := uint64(1); offset <= 600 && err == nil; offset++ {
		_, err = a.service.Topic("orders").Shard().Get(offset)
	}
	if !errors.As(err, &why) {
		t.Fatal(err)
	}
	a.eventually("it steps back", func() bool { return a.service.Suspects() == 1 })
	c.kill(0)
	c.elect(2, 0, 1, 2)
	c.start(0)
	c.tell()
	c.sites[2].open("orders")
	c.settle("it is repaired", func() bool { return a.exchange.Stats().Repaired == 1 && c.whole(a, 600) })
}

// TestDamageFoundByOpeningIsRepaired: damage that is found while a log is opened, by a read of its
// end for another purpose, is fetched before the broker follows.
func TestDamageFoundByOpeningIsRepaired(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	for _, n := range c.sites {
		n.topic("orders", func(s *coordination.TopicSpec) { s.Deduplication = 0 })
	}
	c.begin()
	a, b := c.sites[0], c.sites[1]
	for i := range 300 {
		a.expect(a.ask("orders.a", fmt.Sprintf("%d %0100d", i, i)), fmt.Sprintf("orders@%d", i+1))
	}
	c.settle("all have it", func() bool { all := c.copies(); return equal(all) && len(all[0]) == 300 })
	c.kill(1)
	b.flip(b.segments()[0])
	c.start(1)
	c.settle("it is repaired", func() bool { return b.exchange.Stats().Repaired == 1 && c.whole(b, 300) })
}

// TestALeaderWhoseFirstRecordIsDamaged: the leader finds that its first record is damaged when a
// follower returns, and another replica leads.
func TestALeaderWhoseFirstRecordIsDamaged(t *testing.T) {
	t.Parallel()
	c, _ := spoilable(t, 600)
	a, b := c.sites[0], c.sites[1]
	a.flip(a.segments()[0])
	shard := a.service.Topic("orders").Shard()
	found, err := shard.Data().Scrub(t.Context(), log.ScrubOptions{})
	if err != nil || len(found.Damaged) != 1 {
		t.Fatal(found, err)
	}
	if _, err := shard.Purge(t.Context(), found.Damaged[0].From); err != nil {
		t.Fatal(err)
	}
	c.kill(1)
	c.start(1)
	c.settle("it steps back", func() bool { return a.service.Suspects() == 1 })
	c.elect(2, 0, 1, 2)
	c.tell()
	c.sites[2].open("orders")
	c.settle("it is repaired", func() bool {
		return a.exchange.Stats().Repaired == 1 && a.service.Suspects() == 0 && len(c.inSync()) == 3
	})
	b.expect(c.sites[2].ask("orders.a", "on"), "orders@601")
}

// TestALeaderWhoseReaderFindsDamageIsReplaced: a reader of the leader finds damage that was not
// known before. The reader gets no error for records that other replicas have: one of these leads,
// and the reader waits for it.
func TestALeaderWhoseReaderFindsDamageIsReplaced(t *testing.T) {
	t.Parallel()
	c, _ := spoilable(t, 600)
	stepsBack := func(leader, next int, read func(shard *ShardLeader) error) {
		t.Helper()
		n := c.sites[leader]
		n.flip(n.segments()[0])
		var why *publish.NotServedError
		if err := read(n.service.Topic("orders").Shard()); !errors.As(err, &why) || why.Reason != publish.Troubled {
			t.Fatalf("a reader is told: %v", err)
		}
		c.stepsBack(n)
		c.elect(next, 0, 1, 2)
		c.tell()
		c.sites[next].open("orders")
		c.settle("it is repaired", func() bool { return n.exchange.Stats().Repaired == 1 && c.whole(n, 600) })
	}
	stepsBack(0, 2, func(shard *ShardLeader) (err error) {
		for offset := uint64(1); offset <= 600 && err == nil; offset++ {
			_, err = shard.Get(offset)
		}
		return err
	})
	stepsBack(2, 1, func(shard *ShardLeader) (err error) {
		var r records.BulkReader
		for q := (records.Query{Offset: 1, Records: 600, Bytes: 1 << 10, Most: 1 << 20}); q.Offset <= 600 && err == nil; {
			var got records.Range
			_, got, err = r.Read(&shard.Reader, q, nil)
			q.Offset = got.Next
		}
		return err
	})
	stepsBack(1, 0, func(shard *ShardLeader) error {
		_, err := shard.LastFor("orders.nothing")
		return err
	})
}

// TestACopyWithADamagedDeduplicationWindowDoesNotLead: a broker that finds damage while it reads
// message ids from its log neither follows nor leads with it: the other replicas know all ids, and
// no message is kept twice.
func TestACopyWithADamagedDeduplicationWindowDoesNotLead(t *testing.T) {
	c := newCluster(t, 3)
	c.begin()
	a, b := c.sites[0], c.sites[1]
	for i := range 300 {
		a.expect(a.ask("orders.a", fmt.Sprintf("%d %0100d", i, i), fmt.Sprintf("Id: %d", i)), fmt.Sprintf("orders@%d", i+1))
	}
	c.settle("all have it", func() bool { all := c.copies(); return equal(all) && len(all[0]) == 300 })
	spoil := func(i int) {
		c.kill(i)
		c.sites[i].flip(c.sites[i].segments()[0])
		c.start(i)
	}
	spoil(1)
	c.tell()
	c.settle("it is repaired", func() bool { return b.exchange.Stats().Repaired == 1 && c.whole(b, 300) })
	spoil(0)
	c.elect(0, 0, 1, 2)
	c.tell()
	a.eventually("it steps back", func() bool { return a.service.Suspects() == 1 })
	if a.service.Topic("orders").Shard() != nil {
		t.Error("it leads without knowing all ids")
	}
	c.elect(2, 0, 1, 2)
	c.tell()
	c.sites[2].open("orders")
	c.settle("it is repaired", func() bool { return a.exchange.Stats().Repaired == 1 && c.whole(a, 300) })
	for _, id := range []int{0, 12, 299} {
		c.sites[2].expect(c.sites[2].ask("orders.a", "again", fmt.Sprintf("Id: %d", id)), fmt.Sprintf("orders@%d again", id+1))
	}
}

// TestDamagedRecordsThatAnAbsentReplicaHasAreNotSkipped: one of three replicas is present, and
// readers find damage in it. They wait for the others, which have the damaged records, and skip
// none; a replica that returns leads, and has them. If unclean election is allowed, readers do not
// wait.
func TestDamagedRecordsThatAnAbsentReplicaHasAreNotSkipped(t *testing.T) {
	t.Parallel()
	c, _ := spoilable(t, 600)
	a, b := c.sites[0], c.sites[1]
	c.settle("all are whole", func() bool { return c.whole(b, 600) })
	c.kill(1)
	c.kill(2)
	c.tell()
	a.flip(a.segments()[0])
	shard := a.service.Topic("orders").Shard()
	read := func() (err error) {
		for offset := uint64(1); offset <= 600 && err == nil; offset++ {
			_, err = shard.Get(offset)
		}
		return err
	}
	var why *publish.NotServedError
	if err := read(); !errors.As(err, &why) || !strings.Contains(err.Error(), "one of the brokers main-1, main-2 may have") {
		t.Fatalf("a reader is told: %v", err)
	}
	a.eventually("it doubts its copy", func() bool { return a.service.Suspects() == 1 })
	if a.service.Topic("orders").Shard() != shard {
		t.Fatal("it does not lead any more, and nobody else can")
	}
	allow := func(unclean bool) {
		for _, n := range c.sites {
			n.topic("orders", func(s *coordination.TopicSpec) { s.UncleanElection = unclean })
		}
		c.tell()
	}
	allow(true)
	if damage, ok := errors.AsType[*log.CorruptError](read()); !ok || damage.From < 1 || damage.Next < 2 {
		t.Errorf("a reader that may skip what is damaged is told: %v", damage)
	}
	allow(false)
	c.start(1)
	c.settle("it withdraws when another one is in sync", func() bool { life, leads := c.entry(0); return life == 0 && !leads })
	c.name(1)
	c.tell()
	b.open("orders")
	if got := b.read("orders"); len(got) != 600 {
		t.Errorf("there are %d", len(got))
	}
	c.start(2)
	c.settle("all are whole", func() bool { return c.whole(a, 600) })
}

// ruin flips bits in all batches of a segment.
func (n *site) ruin(segment string) {
	path := filepath.Join("data/shards/id-orders-0", segment)
	for at := int64(0); n.fs.(*crashfs.FS).FlipPayload(path, at) == nil; at += 40 {
	}
}

// damagedApart returns a cluster of three brokers whose leader doesn't reach the others. These have
// damaged a segment of their copies, and reported that. The leader has damaged another one, or the
// same. read reads on the leader until it fails.
func damagedApart(t *testing.T, others, leader int) (c *cluster, read func() error) {
	c, _ = spoilable(t, 600)
	c.mu.Lock()
	c.said = map[string][]coordination.Suspect{}
	c.mu.Unlock()
	a := c.sites[0]
	c.settle("all are whole", func() bool { return c.whole(a, 600) })
	for i, n := range c.sites[1:] {
		c.alone(i + 1)
		n.ruin(n.segments()[others])
		n.scrub()
		c.settle("it is reported", func() bool {
			said, _ := a.service.State().Reported(n.self, "id-orders", 0)
			return said.Lacks == 1
		})
	}
	a.ruin(a.segments()[leader])
	shard := a.service.Topic("orders").Shard()
	return c, func() (err error) {
		for offset := uint64(1); offset <= 600 && err == nil; offset++ {
			_, err = shard.Get(offset)
		}
		return err
	}
}

// TestRecordsThatAReplicaUnderRepairHasAreNotSkipped: all replicas are damaged, the leader in
// another segment than the others. Readers wait for what these have, and skip nothing. The leader
// sends what the others lack, and then one of them leads.
func TestRecordsThatAReplicaUnderRepairHasAreNotSkipped(t *testing.T) {
	t.Parallel()
	c, read := damagedApart(t, 1, 0)
	a, b := c.sites[0], c.sites[1]
	var why *publish.NotServedError
	if err := read(); !errors.As(err, &why) || !strings.Contains(err.Error(), "one of the brokers main-1, main-2 may have") {
		t.Fatalf("a reader is told: %v", err)
	}
	c.reach(1)
	c.settle("it withdraws when another one is in sync", func() bool {
		if damage, skips := errors.AsType[*log.CorruptError](read()); skips {
			t.Fatalf("a reader is told to skip: %v", damage)
		}
		life, leads := c.entry(0)
		return life == 0 && !leads
	})
	c.name(1)
	c.tell()
	b.open("orders")
	if got := b.read("orders"); len(got) != 600 {
		t.Errorf("there are %d", len(got))
	}
	c.reach(2)
	c.settle("all are whole", func() bool { return c.whole(a, 600) })
}

// TestRecordsThatAllReplicasLackAreGivenUp: all replicas are damaged in the same segment, and none
// has a record of it. Readers of the leader wait while others may have them. When all others say
// that they lack them, they are given up, and all replicas become whole.
func TestRecordsThatAllReplicasLackAreGivenUp(t *testing.T) {
	t.Parallel()
	c, read := damagedApart(t, 0, 0)
	a, b := c.sites[0], c.sites[1]
	var why *publish.NotServedError
	if err := read(); !errors.As(err, &why) {
		t.Fatalf("a reader is told: %v", err)
	}
	c.reach(1)
	c.settle("one has asked for it again and again", func() bool {
		return a.service.Topic("orders").Shard().leading.Load().Stalled("broker-b")
	})
	if err := read(); !errors.As(err, &why) || !strings.Contains(err.Error(), "which broker main-2 may have") {
		t.Fatalf("a reader is told: %v", err)
	}
	if n := b.exchange.Stats().GivenUp; n > 0 {
		t.Fatalf("%d are given up, and one replica is away", n)
	}
	c.reach(2)
	c.settle("it withdraws when another one is in sync", func() bool { life, leads := c.entry(0); return life == 0 && !leads })
	leader := 1
	if life, _ := c.entry(1); life <= 0 {
		leader = 2
	}
	c.name(leader)
	c.tell()
	c.sites[leader].open("orders")
	lost := c.sites[leader].exchange.Stats().GivenUp
	if lost == 0 {
		t.Fatal("nothing is given up")
	}
	if got := c.sites[leader].read("orders"); uint64(len(got)) != 600-lost {
		t.Errorf("there are %d, and %d were given up", len(got), lost)
	}
	c.settle("all are whole", func() bool { return c.whole(a, int(600-lost)) })
}

// TestRecordsThatAStalledReplicaHasAreNotSkipped: a repair waits for a record that its leader
// lacks, too, since a third replica is away. Readers of the leader don't skip what else is damaged
// there and the replica under repair has.
func TestRecordsThatAStalledReplicaHasAreNotSkipped(t *testing.T) {
	t.Parallel()
	c, read := damagedApart(t, 0, 0)
	a := c.sites[0]
	c.reach(1)
	c.settle("one has asked for it again and again", func() bool {
		return a.service.Topic("orders").Shard().leading.Load().Stalled("broker-b")
	})
	other := a.segments()[1]
	a.ruin(other)
	first, err := strconv.ParseUint(strings.TrimSuffix(other, ".log"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	var why *publish.NotServedError
	if err := read(); !errors.As(err, &why) || !strings.Contains(err.Error(), "which broker main-2 may have") {
		t.Errorf("a reader of what both lack is told: %v", err)
	}
	if _, err := a.service.Topic("orders").Shard().Get(first); !errors.As(err, &why) || !strings.Contains(err.Error(), "one of the brokers main-1, main-2 may have") {
		t.Errorf("a reader of what the replica has is told: %v", err)
	}
}

// mayHave returns which other replicas may have what is damaged in a leader's copy.
func mayHave(s *ShardLeader, v *view, damage *log.CorruptError) []string {
	return s.leading.Load().MayHave(s.service.config.Self, s.service.State(), v.shard, s.state.Name(), damage)
}

// TestRecordsThatNoReplicaHasAreSkipped: damaged records are skipped if no other replica can have
// them: the others lack them or report damage, too.
func TestRecordsThatNoReplicaHasAreSkipped(t *testing.T) {
	t.Parallel()
	c, _ := spoilable(t, 30)
	a := c.sites[0]
	shard := a.service.Topic("orders").Shard()
	c.settle("all are whole", func() bool { return c.whole(a, 30) })
	c.kill(1)
	c.kill(2)
	c.tell()
	v := shard.shard.view.Load()
	// Both had 30 records and no cursors when they were seen last.
	for file, cases := range map[string]map[uint64]int{
		"data/shards/id-orders-0/1.log":       {31: 2, 32: 0},
		"data/shards/id-orders-0":             {31: 2, 32: 0},
		"data/shards/id-orders-0.state/1.log": {1: 2, 2: 0},
		"data/shards/id-orders-0.state":       {1: 2, 2: 0},
	} {
		for next, want := range cases {
			if got := mayHave(shard, v, &log.CorruptError{File: file, From: 0, Next: next}); len(got) != want {
				t.Errorf("%s up to %d: %q", file, next, got)
			}
		}
	}
	a.service.state.Store(a.state.With(nil, map[string][]coordination.Suspect{"broker-b": {{Topic: "id-orders", End: 31, State: 1, Lacks: 1}}}))
	for next, want := range map[uint64]int{31: 2, 32: 0} {
		if got := mayHave(shard, v, &log.CorruptError{File: "data/shards/id-orders-0/1.log", From: 30, Next: next}); len(got) != want {
			t.Errorf("of a replica that lacks segments, up to %d: %q", next, got)
		}
	}
	// In another epoch nothing is known of them, but what they report.
	c.name(0)
	c.tell()
	a.eventually("it leads in another epoch", func() bool { return shard.Epoch() == 2 })
	state := a.state
	for report, want := range map[coordination.Suspect]int{
		{End: 31, State: 1}:           2,
		{End: 30, State: 1}:           1,
		{End: 31, State: 1, Lacks: 1}: 2,
		{End: 30, State: 1, Lacks: 1}: 1,
	} {
		report.Topic = "id-orders"
		a.service.state.Store(state.With(nil, map[string][]coordination.Suspect{"broker-b": {report}}))
		v := shard.shard.view.Load()
		if got := mayHave(shard, v, &log.CorruptError{File: "data/shards/id-orders-0/1.log", From: 30, Next: 31}); len(got) != want {
			t.Errorf("of %+v: %q", report, got)
		}
	}
}

// TestALeaderTakesWhatItLacksBeforeACopyIsSetAside: a replica's manifest is lost, and a bit of the
// leader's copy flips. The replica can read all records: the leader takes from it what it lacks,
// and only then is the replica's copy set aside and fetched anew.
func TestALeaderTakesWhatItLacksBeforeACopyIsSetAside(t *testing.T) {
	t.Parallel()
	for name, knows := range map[string]bool{"the leader knows of its damage": true, "nobody knows of it": false} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 2)
			c.begin()
			a, b := c.sites[0], c.sites[1]
			for i := range 600 {
				a.expect(a.ask("orders.a", fmt.Sprintf("%d %0100d", i, i)), fmt.Sprintf("orders@%d", i+1))
			}
			c.settle("all are whole", func() bool { return c.whole(a, 600) && c.whole(b, 600) })
			c.kill(1)
			c.elect(0, 0)
			c.settle("a leads alone", func() bool {
				l := a.service.Topic("orders").shards[0].leading.Load()
				return l != nil && l.epoch.Load() == uint64(c.shard.Epoch)
			})
			b.loseManifest()
			a.flip(a.segments()[0])
			if knows {
				a.scrub()
				a.eventually("a knows of its damage", func() bool { return a.service.Suspects() == 1 })
			}
			c.start(1)
			c.settle("b's copy is fetched anew, and b knows that it counts", func() bool {
				return b.service.Stats().SetAside == 2 && slices.Contains(c.inSync(), "b") && b.service.Suspects() == 0
			})
			c.elect(1, 1)
			c.settle("all is there again", func() bool { return c.whole(b, 600) })
			if n := a.exchange.Stats().GivenUp + b.exchange.Stats().GivenUp; n > 0 {
				t.Errorf("%d messages are given up", n)
			}
			if a.exchange.Stats().Repaired == 0 {
				t.Error("a took nothing from b")
			}
		})
	}
}
