package replica

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/log"
)

// TestAnEpochOfDamagedRecordsHadBegun: the epoch of the record behind damage is that of the damaged
// records only if it had begun there. Of an epoch whose beginning is damaged, that isn't known.
func TestAnEpochOfDamagedRecordsHadBegun(t *testing.T) {
	epochs := []log.Epoch{{Epoch: 2, Start: 1}, {Epoch: 5, Start: 11}, {Epoch: 6, Start: 29}}
	for _, at := range []struct {
		damaged, behind uint64 // an offset, and the epoch of the next readable record
		want            bool
	}{
		{3, 2, true}, {9, 5, false}, {10, 6, false}, {11, 5, true}, {20, 5, true}, {20, 6, false}, {29, 6, true},
		{20, 0, false}, // nothing follows
		{20, 7, false},
	} {
		if got := hadBegun(epochs, at.behind, at.damaged); got != at.want {
			t.Errorf("%+v: %v", at, got)
		}
	}
}

// filled makes a cluster with 2,000 records and cursors on all of these brokers, which a leads.
func filled(w *world, brokers string) {
	w.t.Helper()
	w.place(orders, 1, brokers)
	a := w.nodes["a"]
	a.publish(orders, wide(2000)...)
	a.append(orders, State, true, wide(2000)...)
	w.within(time.Second, "all have it", func() bool { return w.equal(orders, brokers) })
}

// lost returns the offsets that a log can't read.
func (n *node) lost(p Part) []log.Span {
	n.w.t.Helper()
	spans, err := n.logs[orders][p].Unreadable()
	if err != nil {
		n.w.t.Fatal(err)
	}
	return spans
}

// spoilToo damages records of a log until one of them is among those that another broker can't
// read.
func (n *node) spoilToo(p Part, other *node) {
	n.w.t.Helper()
	want := other.lost(p)
	for i, info := range n.logs[orders][p].SegmentInfos() {
		if want[0].From < info.Base || want[0].From >= info.End {
			continue
		}
		at := max(0, int64(want[0].From-info.Base)*500-2000)
		for ; len(intersect(want, n.lost(p))) == 0; at += 300 {
			n.spoilAt(orders, p, i, at)
		}
		return
	}
	n.w.t.Fatalf("%s has no segment with %v", n.id, want)
}

func sum(spans []log.Span) (n uint64) {
	for _, s := range spans {
		n += s.Next - s.From
	}
	return n
}

// given returns how often a broker logged that it gives up records.
func (n *node) given() (logged int) {
	synctest.Wait() // until nobody logs
	return strings.Count(n.out.String(), givingUp)
}

// wholeFrom has b lead, and repairs the others. Then all are equal, and lack the same records.
func wholeFrom(w *world, others string, lost uint64, p Part) {
	w.t.Helper()
	w.place(orders, 2, "b "+others)
	for id := range strings.FieldsSeq(others) {
		n := w.nodes[id]
		if len(n.logs[orders][p].Lacks()) > 0 {
			if err := w.told(n.mend(orders)); err != nil {
				w.t.Fatal(err)
			}
			n.follow(orders)
		}
	}
	w.within(10*time.Second, "all are in sync", func() bool { return w.inSync(orders, "b "+others) })
	if !w.equal(orders, "b "+others) {
		w.t.Error("the logs differ")
	}
	for id := range strings.FieldsSeq("b " + others) {
		if holes := w.nodes[id].logs[orders][p].Holes(1); holes != lost {
			w.t.Errorf("%s lacks %d records, and %d were lost", id, holes, lost)
		}
	}
}

// TestWhatALeaderAndItsFollowerLackIsGivenUp: a leader and a follower lack some of the same
// records, and others that only one of them lacks. What both lack is given up, and nothing else.
// The follower becomes whole and can lead.
func TestWhatALeaderAndItsFollowerLackIsGivenUp(t *testing.T) {
	for part := range Parts {
		for name, at := range map[string][2][]int64{ // bytes of the segment where only a, and only b, is damaged
			"the same":             {nil, nil},
			"more at the leader":   {{1000, 5500}, nil},
			"more at the follower": {nil, {1000, 5500}},
			"each has others":      {{1000}, {5500}},
		} {
			t.Run(part.String()+" "+name, func(t *testing.T) {
				story(t, "a b", func(w *world) {
					filled(w, "a b")
					a, b := w.nodes["a"], w.nodes["b"]
					a.spoilAt(orders, part, 3, 3000)
					b.spoilToo(part, a)
					for i, n := range []*node{a, b} {
						for _, byte := range at[i] {
							n.spoilAt(orders, part, 3, byte)
						}
					}
					both := intersect(a.lost(part), b.lost(part))
					if len(both) == 0 {
						t.Fatalf("a lacks %v, b %v", a.lost(part), b.lost(part))
					}
					if err := w.told(b.mend(orders)); err != nil {
						t.Fatal(err)
					}
					if n := b.given(); n != len(both) || a.given() > 0 {
						t.Errorf("%d lines in the log for %v", n, both)
					}
					if counted := b.x.Stats().GivenUp; part == Data && counted != sum(both) || part == State && counted > 0 {
						t.Errorf("%d messages are counted for %v", counted, both)
					}
					b.follow(orders)
					w.within(5*time.Second, "b is in sync", func() bool { return w.inSync(orders, "a b") })
					wholeFrom(w, "a", sum(both), part)
				})
			})
		}
	}
}

// TestWhatAThirdReplicaMayHaveIsNotGivenUp: nothing is given up while a replica is away that may
// have it. When it returns and lacks the same, that is given up. If it has it, nothing is.
func TestWhatAThirdReplicaMayHaveIsNotGivenUp(t *testing.T) {
	for name, comes := range map[string]func(w *world, c *node) (lost bool){
		"with the same damage": func(w *world, c *node) bool {
			c.open(orders)
			c.spoilToo(Data, w.nodes["a"])
			if err := w.told(c.mend(orders)); err != nil {
				w.t.Fatal(err)
			}
			w.place(orders, 2, "c a b")
			return true
		},
		"with other damage": func(w *world, c *node) bool {
			c.open(orders)
			c.spoilAt(orders, Data, 3, 9000)
			if err := w.told(c.mend(orders)); err != nil {
				w.t.Fatal(err)
			}
			w.place(orders, 2, "c a b")
			return false
		},
		"without anything": func(w *world, c *node) bool {
			if _, err := c.open(orders)[Data].ResetTo(1, 0); err != nil {
				w.t.Fatal(err)
			}
			c.see()
			return true
		},
	} {
		t.Run(name, func(t *testing.T) {
			story(t, "a b c", func(w *world) {
				filled(w, "a b c")
				a, b, c := w.nodes["a"], w.nodes["b"], w.nodes["c"]
				fs := c.kill()
				a.spoilAt(orders, Data, 3, 5000)
				b.spoilToo(Data, a)
				both := intersect(a.lost(Data), b.lost(Data))
				told := b.mend(orders)
				time.Sleep(time.Minute)
				if len(told) > 0 || b.x.Stats().GivenUp > 0 || !a.leads[orders].Stalled("b") {
					t.Fatal("b does not wait for c")
				}
				if lacks, known := a.leads[orders].Lacks("b", Data, both[0]); !lacks || !known {
					t.Error("the leader doesn't know what b lacks")
				}
				if lacks, known := a.leads[orders].Lacks("b", Data, log.Span{From: both[0].From - 1, Next: both[0].Next}); lacks || !known {
					t.Error("the leader doesn't know what b has")
				}
				shard := *w.store.shard(orders)
				w.store.put(&shard)
				c = w.startWithout(func() *node { return w.start("c", fs) })
				lost := comes(w, c)
				if err := w.told(told); err != nil {
					t.Fatal(err)
				}
				if n := b.logs[orders][Data].Holes(1); lost && n != sum(both) || !lost && n > 0 {
					t.Errorf("%d are given up, and both lacked %v", n, both)
				}
			})
		})
	}
}

// startWithout starts a broker that doesn't follow at once.
func (w *world) startWithout(start func() *node) *node {
	shard := w.store.shard(orders)
	w.store.mu.Lock()
	w.store.down = true
	delete(w.store.shards, orders)
	w.store.mu.Unlock()
	n := start()
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	w.store.shards[orders], w.store.down = shard, false
	return n
}

// TestWhatAFollowerSaidOnAnEndedConnectionDoesNotCount: what a follower said does not count when
// its connection has ended: its next life may have another volume. Nor does it count when it does
// not ask any more.
func TestWhatAFollowerSaidOnAnEndedConnectionDoesNotCount(t *testing.T) {
	for name, end := range map[string]func(w *world){
		"it is cut off":     func(w *world) { w.wires.freeze("c", "a"); w.wires.freeze("a", "c"); w.wires.reset("c") },
		"it doesn't ask":    func(w *world) { w.nodes["c"].follows[orders].End(); time.Sleep(extentLife) },
		"it is another one": func(w *world) { w.nodes["c"].kill() },
	} {
		t.Run(name, func(t *testing.T) {
			story(t, "a b c", func(w *world) {
				filled(w, "a b c")
				w.place(ID{Topic: "payments"}, 1, "a c") // keeps the connection
				a, b, c := w.nodes["a"], w.nodes["b"], w.nodes["c"]
				a.spoilAt(orders, Data, 3, 5000)
				b.spoilToo(Data, a)
				c.spoilToo(Data, a)
				b.follows[orders].End()
				span := intersect(a.lost(Data), c.lost(Data))[0]
				c.mend(orders)
				w.within(5*time.Second, "c says what it lacks", func() bool { lacks, _ := a.leads[orders].Lacks("c", Data, span); return lacks })
				end(w)
				w.within(5*time.Second, "that does not count", func() bool { _, known := a.leads[orders].Lacks("c", Data, span); return !known })
				told := b.mend(orders)
				time.Sleep(30 * time.Second)
				if len(told) > 0 || b.x.Stats().GivenUp > 0 {
					t.Error("b does not wait for c")
				}
				w.wires.thaw("c", "a")
				w.wires.thaw("a", "c")
			})
		})
	}
}

// earlier is a connection to a broker of a version that does not exchange what followers lack.
type earlier struct{ net.Conn }

func (earlier) Announces(f coordination.Feature) bool { return f != coordination.FeatureExtents }

// TestAnEarlierVersionSaysNotWhatItLacks: one of follower and leader is of an earlier version.
// Nothing is given up, and the repair waits.
func TestAnEarlierVersionSaysNotWhatItLacks(t *testing.T) {
	story(t, "a b", func(w *world) {
		w.dial = func(ctx context.Context, from, to string) (net.Conn, error) {
			conn, err := w.wires.dial(ctx, from, to)
			return earlier{conn}, err
		}
		w.nodes["b"].stop()
		w.start("b", crashfs.New())
		filled(w, "a b")
		a, b := w.nodes["a"], w.nodes["b"]
		a.spoilAt(orders, Data, 3, 5000)
		b.spoilToo(Data, a)
		told := b.mend(orders)
		time.Sleep(30 * time.Second)
		if len(told) > 0 || b.x.Stats().GivenUp > 0 || !a.leads[orders].Stalled("b") {
			t.Error("b does not wait")
		}
		if _, known := a.leads[orders].Lacks("b", Data, a.lost(Data)[0]); known {
			t.Error("the leader believes to know what b lacks")
		}
	})
}

// TestAFollowerDiesWhileItGivesUp: the broker under repair dies at any step of its disk, and starts
// again. What it gave up is what both lack, in each life.
func TestAFollowerDiesWhileItGivesUp(t *testing.T) {
	for steps := 0; steps < 60; steps += 4 {
		story(t, "a b", func(w *world) {
			filled(w, "a b")
			a, b := w.nodes["a"], w.nodes["b"]
			a.spoilAt(orders, Data, 3, 3000)
			b.spoilToo(Data, a)
			both := intersect(a.lost(Data), b.lost(Data))
			b.follows[orders].End()
			if err := b.logs[orders][Data].NoteDamage(); err != nil {
				t.Fatal(err)
			}
			b.fs.(*crashfs.FS).StopAfter(steps)
			b.mend(orders)
			time.Sleep(5 * time.Second)
			var fs env.FS = b.kill()
			b = w.startWithout(func() *node { return w.start("b", fs) })
			if len(b.open(orders)[Data].Lacks()) > 0 {
				if err := w.told(b.mend(orders)); err != nil {
					t.Fatal(err)
				}
				b.follow(orders)
			} else {
				b.see()
			}
			w.within(5*time.Second, "b is in sync", func() bool { return w.inSync(orders, "a b") })
			wholeFrom(w, "a", sum(both), Data)
		})
	}
}

// TestAFollowerKeepsARecordThatItsLeaderGivesUp: a follower does not give up a record that it has,
// whatever its leader says.
func TestAFollowerKeepsARecordThatItsLeaderGivesUp(t *testing.T) {
	story(t, "a b", func(w *world) {
		filled(w, "a b")
		a, b := w.nodes["a"], w.nodes["b"]
		info := b.spoilAt(orders, Data, 3, 5000)
		b.follows[orders].End()
		m := &repairing{}
		if _, _, err := m.advance(b.follows[orders], answered{}, 1); err != nil || m.repair == nil {
			t.Fatal(err)
		}
		defer m.abandon()
		m.describe(b.follows[orders])
		bad := b.lost(Data)[0]
		batches, err := a.logs[orders][Data].Nothing(log.Span{From: info.Base, Next: bad.From})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.appendPiece(b.follows[orders], &piece{kind: pieceLost, start: 1, batches: batches}); err == nil || m.repair.Begun() {
			t.Errorf("it was taken: %v", err)
		}
	})
}

// TestDamageThatIsFoundDuringARepair: new damage is found in the follower's copy while its repair
// waits. It says that, too.
func TestDamageThatIsFoundDuringARepair(t *testing.T) {
	story(t, "a b c", func(w *world) {
		filled(w, "a b c")
		a, b, c := w.nodes["a"], w.nodes["b"], w.nodes["c"]
		c.kill()
		a.spoilAt(orders, Data, 3, 5000)
		b.spoilToo(Data, a)
		b.mend(orders)
		time.Sleep(20 * time.Second)
		fresh := b.spoilAt(orders, Data, 5, 5000)
		damage := slices.DeleteFunc(b.lost(Data), func(s log.Span) bool { return s.From < fresh.Base })
		if len(damage) != 1 {
			t.Fatalf("damaged is %v", damage)
		}
		w.within(2*scanEvery, "it says that it lacks that", func() bool {
			lacks, _ := a.leads[orders].Lacks("b", Data, damage[0])
			return lacks
		})
	})
}

// TestRecordsGivenUpForOneFollowerAndThenForAnother: a leader lacks two records, and two followers
// lack the earlier one. It is given up for b, which ends before the later one, and so is stuck
// there. Then it is given up for c, which has the later one, and becomes whole.
func TestRecordsGivenUpForOneFollowerAndThenForAnother(t *testing.T) {
	story(t, "a b c", func(w *world) {
		w.place(orders, 1, "a b c")
		a := w.nodes["a"]
		a.publish(orders, wide(1000)...)
		w.within(time.Second, "all have it", func() bool { return w.equal(orders, "a b c") })
		fs := w.nodes["b"].kill()
		w.place(orders, 2, "a c (b)")
		a.publish(orders, wide(1000)...)
		w.within(time.Second, "c has it", func() bool { return w.equal(orders, "a c") })
		c := w.nodes["c"]
		a.spoilAt(orders, Data, 3, 5000)
		c.spoilToo(Data, a)
		both := intersect(a.lost(Data), c.lost(Data))
		later := slices.IndexFunc(a.logs[orders][Data].SegmentInfos(), func(s log.SegmentInfo) bool { return s.Base > 1001 })
		a.spoilAt(orders, Data, later, 5000)
		toldC := c.mend(orders)
		b := w.startWithout(func() *node { return w.start("b", fs) })
		b.open(orders)
		b.spoilToo(Data, a)
		if err := w.told(b.mend(orders)); err != nil {
			t.Fatal(err)
		}
		b.follow(orders)
		if err := w.told(toldC); err != nil {
			t.Fatal(err)
		}
		c.follow(orders)
		// b is, too, if c has completed a meanwhile
		w.within(5*time.Second, "c is in sync", func() bool {
			return w.inSync(orders, "a c") || w.inSync(orders, "a b c")
		})
		w.place(orders, 3, "c a b")
		if err := w.told(a.mend(orders)); err != nil {
			t.Fatal(err)
		}
		a.follow(orders)
		w.within(5*time.Second, "all are in sync", func() bool { return w.inSync(orders, "a b c") && w.equal(orders, "a b c") })
		if n := c.logs[orders][Data].Holes(1); n != sum(both) {
			t.Errorf("%d are given up, and both lacked %v", n, both)
		}
	})
}

// TestRecordsGivenUpForOneFollowerAndForAnotherInALaterEpoch: a leader and two followers lack a
// record. It is given up for b. The leader leads the next epoch, too, knows nothing of b's repair,
// and is asked by c. Its log says that the record was given up, so c becomes whole.
func TestRecordsGivenUpForOneFollowerAndForAnotherInALaterEpoch(t *testing.T) {
	story(t, "a b c", func(w *world) {
		filled(w, "a b c")
		a, b, c := w.nodes["a"], w.nodes["b"], w.nodes["c"]
		a.flipped(nil)
		b.flipped(a)
		c.flipped(a)
		both := intersect(a.lost(Data), c.lost(Data))
		for _, n := range []*node{b, c} {
			if err := n.logs[orders][Data].NoteDamage(); err != nil {
				t.Fatal(err)
			}
		}
		c.mend(orders)
		w.within(5*time.Second, "c says what it lacks", func() bool {
			lacks, _ := a.leads[orders].Lacks("c", Data, both[0])
			return lacks
		})
		w.wires.freeze("a", "c")
		if err := w.told(b.mend(orders)); err != nil {
			t.Fatal(err)
		}
		b.follow(orders)
		w.within(5*time.Second, "b copies", func() bool { copies, _ := b.follows[orders].State(); return copies })
		w.wires.reset("c")
		w.wires.thaw("a", "c")
		w.place(orders, 2, "a b (c)")
		if err := w.told(c.mend(orders)); err != nil {
			t.Fatal(err)
		}
		c.follow(orders)
		w.within(5*time.Second, "c is in sync", func() bool { return w.inSync(orders, "a b c") })
		w.place(orders, 3, "b (a) c")
		if err := w.told(a.mend(orders)); err != nil {
			t.Fatal(err)
		}
		a.follow(orders)
		w.within(5*time.Second, "all are in sync", func() bool { return w.inSync(orders, "a b c") })
		if !w.equal(orders, "a b c") {
			t.Error("the logs differ")
		}
	})
}

// TestRecordsGivenUpForAFollowerThatStillRepairs: leader and two followers lack a record, and only
// c has a later one of the same segment. b is first to ask, and waits for c before the segment is
// complete. Then the first record is given up for c, too, which becomes whole.
func TestRecordsGivenUpForAFollowerThatStillRepairs(t *testing.T) {
	story(t, "a b c", func(w *world) {
		filled(w, "a b c")
		a, b, c := w.nodes["a"], w.nodes["b"], w.nodes["c"]
		a.spoilAt(orders, Data, 3, 3000)
		b.spoilToo(Data, a)
		c.spoilToo(Data, a)
		first := a.lost(Data)[0]
		a.spoilAt(orders, Data, 3, 9000)
		behind := log.Span{From: first.Next, Next: first.Next + 1000}
		for at := int64(6000); len(intersect(intersect(a.lost(Data), b.lost(Data)), []log.Span{behind})) == 0; at += 300 {
			b.spoilAt(orders, Data, 3, at)
		}
		both := intersect(a.lost(Data), c.lost(Data))
		if lost := intersect(both, []log.Span{behind}); len(lost) > 0 {
			t.Fatalf("c lacks %v, too", lost)
		}
		c.follows[orders].End()
		if err := c.logs[orders][Data].NoteDamage(); err != nil {
			t.Fatal(err)
		}
		toldB, toldC := b.mend(orders), c.mend(orders)
		if err := w.told(toldC); err != nil {
			t.Fatal(err)
		}
		c.follow(orders)
		w.within(5*time.Second, "c copies", func() bool { copies, _ := c.follows[orders].State(); return copies })
		w.place(orders, 2, "c (a) (b)")
		if err := w.told(a.mend(orders)); err != nil {
			t.Fatal(err)
		}
		a.follow(orders)
		if err := w.told(toldB); err != nil {
			t.Fatal(err)
		}
		b.follow(orders)
		w.within(5*time.Second, "all are in sync", func() bool { return w.inSync(orders, "a b c") && w.equal(orders, "a b c") })
		if n := c.logs[orders][Data].Holes(1); n != sum(both) {
			t.Errorf("%d are given up, and both lacked %v", n, both)
		}
	})
}

// flipped flips a bit of a record that can't be read from then on, also not by another broker, if
// that isn't nil. It returns how the bit is flipped back.
func (n *node) flipped(other *node) (back func(fs env.FS)) {
	t, lg := n.w.t, n.logs[orders][Data]
	t.Helper()
	if err := lg.Flush(); err != nil {
		t.Fatal(err)
	}
	segment := lg.SegmentInfos()[3]
	if other != nil { // replicas begin their segments at offsets of their own
		for _, segment = range lg.SegmentInfos() {
			if segment.End > other.lost(Data)[0].From {
				break
			}
		}
	}
	file := segment.File
	for at := int64(100); at < segment.Bytes; at += 100 {
		flip := func(fs env.FS) {
			if err := fs.(*crashfs.FS).Flip(file, at*8); err != nil {
				t.Fatal(err)
			}
		}
		flip(n.fs)
		if _, err := lg.Scrub(context.Background(), log.ScrubOptions{}); err != nil {
			t.Fatal(err)
		}
		if lost := n.lost(Data); len(lost) > 0 && (other == nil || len(intersect(lost, other.lost(Data))) > 0) {
			return flip
		}
		flip(n.fs) // that was no record's, or another one's
	}
	t.Fatalf("%s has no such record", n.id)
	return nil
}

// TestAFollowersDamageThatWasInMemoryOnly: a leader and two followers lack a record. c says so, and
// the record is given up for b. Then the broker of c restarts, and its damage is gone: it was in
// the page cache only. c doesn't have the record again, since b has none, and gets what b has.
func TestAFollowersDamageThatWasInMemoryOnly(t *testing.T) {
	story(t, "a b c", func(w *world) {
		filled(w, "a b c")
		a, b, c := w.nodes["a"], w.nodes["b"], w.nodes["c"]
		a.flipped(nil)
		b.flipped(a)
		back := c.flipped(a)
		both := intersect(a.lost(Data), c.lost(Data))
		if err := c.logs[orders][Data].NoteDamage(); err != nil {
			t.Fatal(err)
		}
		c.mend(orders)
		w.within(5*time.Second, "c says what it lacks", func() bool {
			lacks, _ := a.leads[orders].Lacks("c", Data, both[0])
			return lacks
		})
		w.wires.freeze("a", "c")
		if err := w.told(b.mend(orders)); err != nil {
			t.Fatal(err)
		}
		b.follow(orders)
		fs := c.kill()
		back(fs)
		w.wires.thaw("a", "c")
		w.place(orders, 2, "b (a) (c)")
		c = w.startWithout(func() *node { return w.start("c", fs) })
		c.open(orders)
		if lacks := c.lost(Data); !slices.Equal(lacks, both) {
			t.Errorf("c lacks %v, and %v was given up", lacks, both)
		}
		for _, n := range []*node{a, c} {
			if err := w.told(n.mend(orders)); err != nil {
				t.Fatal(err)
			}
			n.follow(orders)
		}
		w.within(5*time.Second, "all are in sync", func() bool { return w.inSync(orders, "a b c") })
		if !w.equal(orders, "a b c") {
			t.Error("the logs differ")
		}
	})
}

// TestAFollowerThatLacksARecordAndThenLeads: b says that it lacks a record, as does its leader.
// Then b leads, and the record is not given up for a: c may have it, and is away. When c is back,
// all have it.
func TestAFollowerThatLacksARecordAndThenLeads(t *testing.T) {
	story(t, "a b c", func(w *world) {
		filled(w, "a b c")
		a, b := w.nodes["a"], w.nodes["b"]
		fs := w.nodes["c"].kill()
		a.flipped(nil)
		b.flipped(a)
		both := intersect(a.lost(Data), b.lost(Data))
		for _, n := range []*node{a, b} {
			if err := n.logs[orders][Data].NoteDamage(); err != nil {
				t.Fatal(err)
			}
		}
		b.mend(orders)
		w.within(5*time.Second, "b says what it lacks", func() bool {
			lacks, _ := a.leads[orders].Lacks("b", Data, both[0])
			return lacks
		})
		w.place(orders, 2, "b (a) (c)")
		told := a.mend(orders)
		time.Sleep(20 * time.Second)
		if len(told) > 0 || a.given()+b.given() > 0 {
			t.Fatal("the record is given up")
		}
		c := w.startWithout(func() *node { return w.start("c", fs) })
		c.open(orders)
		w.place(orders, 3, "c (a) (b)")
		toldA, toldB := a.mend(orders), b.mend(orders)
		for n, told := range map[*node]<-chan error{a: toldA, b: toldB} {
			if err := w.told(told); err != nil {
				t.Fatalf("%s: %v", n.id, err)
			}
			n.follow(orders)
		}
		w.within(5*time.Second, "all are in sync", func() bool { return w.inSync(orders, "a b c") })
		if !w.equal(orders, "a b c") || c.logs[orders][Data].Holes(1) > 0 {
			t.Error("the logs differ, or a record is given up")
		}
	})
}

// TestALeadersDamageThatWasInMemoryOnly: a leader and a follower lack a record, which is given up.
// Then the leader's damage is gone: it was in the page cache only, and its broker restarts, or the
// file is read again. The leader doesn't have the record again, since its follower has none, and
// gets what the follower has when that one leads.
func TestALeadersDamageThatWasInMemoryOnly(t *testing.T) {
	for _, restarts := range []bool{true, false} {
		t.Run(fmt.Sprintf("restarts %v", restarts), func(t *testing.T) {
			story(t, "a b", func(w *world) {
				filled(w, "a b")
				a, b := w.nodes["a"], w.nodes["b"]
				back := a.flipped(nil)
				b.spoilToo(Data, a)
				both := intersect(a.lost(Data), b.lost(Data))
				if err := w.told(b.mend(orders)); err != nil {
					t.Fatal(err)
				}
				b.follow(orders)
				w.within(5*time.Second, "b is in sync", func() bool { return w.inSync(orders, "a b") })
				if err := a.logs[orders][Data].NoteDamage(); err != nil {
					t.Fatal(err)
				}
				if restarts {
					fs := a.kill()
					back(fs)
					w.place(orders, 2, "b (a)")
					a = w.startWithout(func() *node { return w.start("a", fs) })
					a.open(orders)
				} else {
					back(a.fs)
					a.fs.(*crashfs.FS).DropCache()
					w.place(orders, 2, "b (a)")
				}
				if lacks := a.lost(Data); !slices.Equal(lacks, both) {
					t.Errorf("a lacks %v, and %v was given up", lacks, both)
				}
				if err := w.told(a.mend(orders)); err != nil {
					t.Fatal(err)
				}
				a.follow(orders)
				w.within(5*time.Second, "both are in sync", func() bool { return w.inSync(orders, "a b") })
				if !w.equal(orders, "a b") {
					t.Error("the logs differ")
				}
			})
		})
	}
}
