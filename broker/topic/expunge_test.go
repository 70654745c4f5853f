package topic

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	replication "github.com/carillon-mq/carillon/broker/replica"
	"github.com/carillon-mq/carillon/broker/upkeep"
)

// TestReplicasExpungeRemovedRecords: leader and followers rewrite their files without removed
// records, a replica that was away does so after it has caught up, and each leads afterwards with
// the same records.
func TestReplicasExpungeRemovedRecords(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	a, b := c.sites[0], c.sites[1]
	for _, n := range c.sites {
		n.options.TailBytes = 1
		n.compact = upkeep.Compacting{Every: 5 * time.Millisecond, Age: 1}
		n.topic("orders", func(s *coordination.TopicSpec) { s.Replicas, s.Deduplication = 3, 0 })
	}
	c.begin()
	for i := 1; i <= 300; i++ {
		a.expect(a.ask("orders.a", fmt.Sprintf("%d %s", i, strings.Repeat("x", 600))), fmt.Sprintf("orders@%d", i))
	}
	c.kill(2)
	c.settle("the other two are the set", func() bool { return len(c.inSync()) == 2 })
	var offsets []uint64
	for offset := uint64(1); offset <= 250; offset++ {
		if offset%5 > 0 {
			offsets = append(offsets, offset)
		}
	}
	if err := a.erase(a.leaderOf("orders"), offsets...); err != nil {
		t.Fatal(err)
	}
	a.ask("orders.a", "the last one")
	holes := func(n *site) uint64 {
		if open := n.service.Topic("orders").shards[0].opened.Load(); open != nil {
			return open.parts[replication.Data].Holes(1)
		}
		return 0
	}
	c.settle("leader and follower expunge", func() bool { return holes(a) > 150 && holes(b) > 150 })
	a.eventually("it is counted", func() bool {
		did := a.service.Expunged()
		return did.Records > 150 && did.Bytes > 150*600 && !did.Last.IsZero()
	})
	c.start(2)
	c.settle("the third one is in sync again, and expunges, too", func() bool { return len(c.inSync()) == 3 && holes(c.sites[2]) > 150 })
	want := without(offsets, 301)
	for leader := range 3 {
		c.elect(leader, 0, 1, 2)
		c.tell()
		n := c.sites[leader]
		n.open("orders")
		data := n.leaderOf("orders").data
		if got := offsetsIn(t, data); slices.ContainsFunc(want, func(o uint64) bool { return !slices.Contains(got, o) }) {
			t.Errorf("%s has lost records that were not removed: it has %v", n.self, got)
		}
		if removed := n.leaderOf("orders").Removed(); removed.Len() != uint64(len(offsets)) {
			t.Errorf("%s knows of %d removed records", n.self, removed.Len())
		}
	}
}

// without returns the offsets from 1 to last that are not among some.
func without(offsets []uint64, last uint64) (left []uint64) {
	for o := uint64(1); o <= last; o++ {
		if !slices.Contains(offsets, o) {
			left = append(left, o)
		}
	}
	return left
}

// offsetsIn returns the offsets of the records that a log has.
func offsetsIn(t *testing.T, data *log.Log) (offsets []uint64) {
	t.Helper()
	_, end, _ := data.Offsets()
	for c := data.NewCursor(data.Start()); c.Next() < end; {
		v, err := c.Read(64 << 10)
		if err != nil {
			t.Fatal(err)
		}
		for b, ok := v.Next(); ok; b, ok = v.Next() {
			records := b.Records()
			for r := (log.Record{}); records.Next(&r); {
				offsets = append(offsets, r.Offset)
			}
		}
		v.Release()
	}
	return offsets
}

// TestACopyInDoubtIsNotExpunged: what a copy in doubt says of removed records is not relied on.
func TestACopyInDoubtIsNotExpunged(t *testing.T) {
	n := newSite(t)
	n.serve("orders")
	n.ask("orders.a", "1")
	if err := n.erase(n.leaderOf("orders"), 1); err != nil {
		t.Fatal(err)
	}
	p := n.service.Topic("orders").shards[0]
	for _, doubted := range []bool{false, true} {
		p.own.doubted.Store(doubted)
		if removed, ok, err := (*upkeepShard)(p).Removals(); err != nil || ok == doubted || !doubted && removed.Set.Len() != 1 {
			t.Errorf("in doubt %v: %+v, %v, %v", doubted, removed, ok, err)
		}
	}
}

// TestReplicasExpungeWhatMessagesRemoved: files lose what messages removed by a limit, on leaders
// and on followers. What leads afterwards, in which life, shows the newest messages of each
// subject.
func TestReplicasExpungeWhatMessagesRemoved(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	for _, n := range c.sites {
		n.options.TailBytes = 1
		n.compact = upkeep.Compacting{Every: 5 * time.Millisecond, Age: 1}
		n.topic("orders", func(s *coordination.TopicSpec) {
			s.Replicas, s.Deduplication, s.Stream.MaxPerSubject = 3, 0, 2
		})
	}
	c.begin()
	model := acked{}
	// left is how many offsets the files lack. A segment that has lost all records goes as a whole, if
	// no record precedes it.
	left := func(n *site) uint64 {
		if open := n.service.Topic("orders").shards[0].opened.Load(); open != nil {
			data := open.parts[replication.Data]
			return data.Start() - 1 + data.Holes(data.Start())
		}
		return 0
	}
	for life := range 5 {
		i := life % 3
		n := c.sites[i]
		for range 100 {
			of := fmt.Sprint("orders.", i, "x")
			model.put(of, n.ask(of, strings.Repeat("x", 600)), 2)
			of = fmt.Sprint("orders.", life)
			model.put(of, n.ask(of, strings.Repeat("x", 600)), 2)
		}
		c.settle("the leader expunges", func() bool { return left(n) > uint64(100*(life+1)) })
		n.shows(fmt.Sprintf("leader %d", life+1), model.left()...)
		if c.kill(i); life == 2 {
			for other := range c.sites { // power fails everywhere
				if other != i {
					c.kill(other)
				}
			}
			for other := range c.sites {
				if other != i {
					c.start(other)
				}
			}
		}
		next := (i + 1) % 3
		c.elect(next, next, (i+2)%3)
		c.tell()
		c.sites[next].open("orders")
		c.sites[next].shows(fmt.Sprintf("leader %d", life+2), model.left()...)
		c.start(i)
		c.settle("all are in sync", func() bool { return len(c.inSync()) == 3 })
	}
}
