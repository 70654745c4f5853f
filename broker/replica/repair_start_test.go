package replica

import (
	"context"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/log"
)

// trimmedPair makes a, which leads, and b, whose logs are equal.
func trimmedPair(w *world) (a, b *node) {
	w.t.Helper()
	w.place(orders, 1, "a b")
	a, b = w.nodes["a"], w.nodes["b"]
	a.publish(orders, wide(2000)...)
	w.within(time.Second, "b has it all", func() bool { return w.equal(orders, "a b") })
	return a, b
}

// spoilFirst damages a batch in the middle of a segment, and trims the log to its beginning. It
// returns where the log begins now.
func (n *node) spoilFirst(segment int) (start uint64) {
	n.w.t.Helper()
	lg := n.logs[orders][Data]
	n.spoilAt(orders, Data, segment, lg.SegmentInfos()[segment].Bytes/2)
	found, err := lg.Scrub(context.Background(), log.ScrubOptions{})
	if err != nil || len(found.Damaged) != 1 {
		n.w.t.Fatalf("%+v, %v", found, err)
	}
	start, err = lg.Trim(found.Damaged[0].From)
	if err != nil || start != found.Damaged[0].From {
		n.w.t.Fatalf("it begins at %d, and %+v is damaged: %v", start, found.Damaged[0], err)
	}
	return start
}

// mendedBeside has b repair its copy, and follow. Then it is in sync, and has what a can't read.
func mendedBeside(w *world, start uint64) {
	w.t.Helper()
	a, b := w.nodes["a"], w.nodes["b"]
	told := b.mend(orders)
	w.within(30*time.Second, "b is repaired", func() bool { return len(told) > 0 })
	if err := w.told(told); err != nil {
		w.t.Fatal(err)
	}
	if a.leads[orders].Stalled("b") {
		w.t.Error("the leader says that b's repair could not go on")
	}
	b.follow(orders)
	w.within(5*time.Second, "b is in sync", func() bool { return w.inSync(orders, "a b") })
	lg := b.logs[orders][Data]
	if found, err := lg.Scrub(context.Background(), log.ScrubOptions{}); err != nil || len(found.Damaged) > 0 || len(lg.Lacks()) > 0 {
		w.t.Errorf("b is damaged: %+v, %v", found, err)
	}
	if base, err := lg.BatchBase(start); err != nil || base != start {
		w.t.Errorf("b lacks record %d: %v", start, err)
	}
}

// TestARepairBesideALeaderWhoseFirstRecordIsDamaged: the first record of a trimmed log is damaged
// on the leader, and another segment on the follower. The leader can't read where its first batch
// begins. It sends what the follower lacks, and adds it to the in-sync set. So each record is on a
// replica that can lead.
func TestARepairBesideALeaderWhoseFirstRecordIsDamaged(t *testing.T) {
	story(t, "a b", func(w *world) {
		a, b := trimmedPair(w)
		start := a.spoilFirst(2)
		w.within(5*time.Second, "b's log begins there, too", func() bool { return b.logs[orders][Data].Start() == start })
		b.spoil(orders, Data, 3)
		mendedBeside(w, start)
	})
}

// TestARepairOfWhatItsLeaderHasTrimmed: the leader's log begins behind the damage of the follower's
// segment, and its first record is damaged. The follower has that, and needs nothing before it.
func TestARepairOfWhatItsLeaderHasTrimmed(t *testing.T) {
	story(t, "a b", func(w *world) {
		a, b := trimmedPair(w)
		b.spoil(orders, Data, 4)
		b.follows[orders].End() // so that it is not trimmed
		mendedBeside(w, a.spoilFirst(4))
	})
}

// TestAStalledRepairIsForgotten: a stalled repair does not count any more when the follower copies
// again: it may lack other segments later.
func TestAStalledRepairIsForgotten(t *testing.T) {
	story(t, "a b", func(w *world) {
		a, b := trimmedPair(w)
		shard := *w.store.shard(orders)
		shard.Replicas = []string{"a", "b", "c"} // c is away, and may have it
		w.store.put(&shard)
		a.see()
		a.spoil(orders, Data, 3)
		b.ruin(orders, Data, 3)
		b.mend(orders)
		w.within(5*time.Second, "b's repair is stalled", func() bool { return a.leads[orders].Stalled("b") })
		b.follow(orders)
		w.within(5*time.Second, "b copies", func() bool { ok, _ := b.follows[orders].State(); return ok })
		if a.leads[orders].Stalled("b") {
			t.Error("the leader goes by a repair that has ended")
		}
	})
}
