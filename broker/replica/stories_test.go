package replica

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/log"
)

// TestAFollowerDiesAndComesBack: a follower that dies delays acks until it has left the set. It
// returns in a new incarnation, catches up and joins.
func TestAFollowerDiesAndComesBack(t *testing.T) {
	story(t, "a b c", func(w *world) {
		w.minInSync = 2
		w.place(orders, 1, "a b c")
		a := w.nodes["a"]
		a.publish(orders, numbered(10)...)
		disk := w.nodes["c"].kill()
		end := a.append(orders, Data, true, "while c is away")
		w.within(100*time.Millisecond, "it is acknowledged without c, whose life is over", func() bool { return a.leads[orders].High(Data) == end })
		if !w.inSync(orders, "a b") {
			t.Errorf("in sync: %v", w.store.shard(orders).InSync)
		}
		a.publish(orders, numbered(50)...)
		w.start("c", disk)
		w.within(2*time.Second, "c is in sync", func() bool { return w.inSync(orders, "a b c") })
		a.publish(orders, "all again")
		if !w.equal(orders, "a b c") {
			t.Error("the logs differ")
		}
		if s := w.nodes["c"].x.Stats(); s.Resets+s.Truncations > 0 {
			t.Errorf("what c had was thrown away: %+v", s)
		}
	})
}

// TestPublishingWaitsForTheMinimum: the set never shrinks below the minimum: publishing waits, and
// continues when the member is back.
func TestPublishingWaitsForTheMinimum(t *testing.T) {
	story(t, "a b", func(w *world) {
		w.minInSync = 2
		w.place(orders, 1, "a b")
		a := w.nodes["a"]
		a.publish(orders, "one")
		disk := w.nodes["b"].kill()
		end := a.append(orders, Data, true, "two")
		time.Sleep(30 * time.Second)
		if a.leads[orders].High(Data) >= end || !strings.Contains(fmt.Sprint(w.store.shard(orders).InSync), "b") {
			t.Errorf("acknowledged up to %d by %v", a.leads[orders].High(Data), w.store.shard(orders).InSync)
		}
		w.start("b", disk)
		w.within(2*time.Second, "it is acknowledged", func() bool { return a.leads[orders].High(Data) == end })
	})
}

// TestAFormerLeaderTruncates: records that only the former leader has are not in the new leader's
// log: the former leader truncates them and copies.
func TestAFormerLeaderTruncates(t *testing.T) {
	story(t, "a b c", func(w *world) {
		w.minInSync = 2
		w.place(orders, 1, "a b c")
		a := w.nodes["a"]
		a.publish(orders, numbered(20)...)
		for _, other := range []string{"b", "c"} {
			w.wires.freeze("a", other)
		}
		lost := a.append(orders, Data, true, "nobody else", "has", "these")
		w.place(orders, 2, "b c a")
		for _, other := range []string{"b", "c"} {
			w.wires.thaw("a", other)
		}
		b := w.nodes["b"]
		b.publish(orders, "from b", "too")
		if !w.equal(orders, "a b c") {
			t.Error("the logs differ")
		}
		if s := a.x.Stats(); s.Truncations != 1 || s.Resets != 0 {
			t.Errorf("a: %+v", s)
		}
		if _, end, _ := a.logs[orders][Data].Offsets(); end != lost-1 {
			t.Errorf("a ends at %d", end)
		}
		if !b.leads[orders].Readable() {
			t.Error("the new leader lets nobody read")
		}
	})
}

// TestACopyIsNotEmptiedWhileItCounts: a truncation would empty a log, since compaction has removed
// records because of newer ones that are cut. The copy, which may be in the set, keeps its records
// until it is in doubt. Then it is copied anew.
func TestACopyIsNotEmptiedWhileItCounts(t *testing.T) {
	story(t, "a b", func(w *world) {
		w.place(orders, 1, "a b")
		var said atomic.Pointer[string]
		w.contradicted = func(_ *node, reason string) { said.Store(&reason) }
		a := w.nodes["a"]
		a.publish(orders, numbered(20)...)
		w.wires.freeze("a", "b")
		a.append(orders, Data, true, "nobody else has this")
		l := a.logs[orders][Data]
		for range 2 { // the first batches are merged with what nobody else has
			l.Roll()
			if err := l.Flush(); err != nil {
				t.Fatal(err)
			}
			if _, err := l.Compact(context.Background(), log.CompactOptions{Below: math.MaxUint64}); err != nil {
				t.Fatal(err)
			}
			a.append(orders, Data, true, "nor this")
		}
		if empties, err := l.Empties(21); err != nil || !empties {
			t.Fatalf("its truncation does not empty the log: %v", err)
		}
		w.place(orders, 2, "b a")
		w.wires.thaw("a", "b")
		w.within(5*time.Second, "it is said why", func() bool { return said.Load() != nil })
		if start, end, _ := l.Offsets(); start == end || !strings.Contains(*said.Load(), "so it is copied anew") {
			t.Fatalf("it has records from %d up to %d: %s", start, end, *said.Load())
		}
		a.inDoubt.Store(true)
		w.place(orders, 3, "b a")
		w.within(5*time.Second, "the logs are equal", func() bool { return w.equal(orders, "a b") })
		if s := a.x.Stats(); s.Truncations != 1 || s.Resets != 1 {
			t.Errorf("a: %+v", s)
		}
	})
}

// TestAReplicaThatEndsBelowTheLeadersStartIsReset: a replica that ends before the leader's log
// starts is reset to that start.
func TestAReplicaThatEndsBelowTheLeadersStartIsReset(t *testing.T) {
	story(t, "a b", func(w *world) {
		w.place(orders, 1, "a b")
		a := w.nodes["a"]
		a.publish(orders, numbered(10)...)
		disk := w.nodes["b"].kill()
		w.within(5*time.Second, "b has left", func() bool { a.append(orders, Data, true, "x"); return w.inSync(orders, "a") })
		a.publish(orders, numbered(1000)...)
		if start, err := a.logs[orders][Data].Trim(700); err != nil || start != 700 {
			t.Fatal(start, err)
		}
		b := w.start("b", disk)
		w.within(2*time.Second, "b is in sync", func() bool { return w.inSync(orders, "a b") })
		if !w.equal(orders, "a b") {
			t.Error("the logs differ")
		}
		if start, _, _ := b.logs[orders][Data].Offsets(); start != 700 {
			t.Errorf("b starts at %d", start)
		}
		if s := b.x.Stats(); s.Resets != 1 {
			t.Errorf("b: %+v", s)
		}
	})
}

// TestALogThatStartsWithinABatchIsCopied: a leader's log may start within a batch. Its followers
// first start at that batch, and are then trimmed to the same offset.
func TestALogThatStartsWithinABatchIsCopied(t *testing.T) {
	story(t, "a", func(w *world) {
		w.place(orders, 1, "a")
		a := w.nodes["a"]
		l := a.logs[orders][Data]
		var records []log.Record
		for _, text := range numbered(10) {
			records = append(records, log.Record{Data: []byte(text)})
		}
		for range 3 {
			if _, err := l.Append(&log.Append{Epoch: 1, Records: records, Done: local{a.leads[orders], Data}}); err != nil {
				t.Fatal(err)
			}
		}
		a.leads[orders].Appended(Data, 31, true)
		if _, err := l.Trim(15); err != nil {
			t.Fatal(err)
		}
		b := w.start("b", crashfs.New())
		w.place(orders, 2, "a (b)")
		w.within(time.Second, "b is in sync", func() bool { return w.inSync(orders, "a b") })
		w.within(3*time.Second, "b starts where a does", func() bool { return b.logs[orders][Data].Start() == 15 })
		if !w.equal(orders, "a b") {
			t.Error("the logs differ")
		}
		if s := b.x.Stats(); s.Resets != 1 {
			t.Errorf("b began anew %d times", s.Resets)
		}
	})
}

// TestAnAskUnderAnotherEpochIsRefused: an ask under another epoch than the leader's is refused, and
// repeated until both know the same epoch.
func TestAnAskUnderAnotherEpochIsRefused(t *testing.T) {
	story(t, "a b", func(w *world) {
		w.minInSync = 2
		w.place(orders, 3, "a b")
		a, b := w.nodes["a"], w.nodes["b"]
		a.publish(orders, "one")
		newer := *w.store.shard(orders)
		newer.Epoch = 4
		b.follows[orders].Adopt(&newer) // a does not know of it
		end := a.append(orders, Data, true, "two")
		time.Sleep(10 * time.Second)
		if a.leads[orders].High(Data) >= end {
			t.Error("a follower acknowledged under an epoch that is over")
		}
		if ok, why := b.follows[orders].State(); ok || !strings.Contains(why, "epoch 3, not 4") {
			t.Errorf("it says %v, %q", ok, why)
		}
		if n := b.x.Stats().OutAsks; n > 30 {
			t.Errorf("it asked %d times in 10 s", n)
		}
		w.place(orders, 4, "a b")
		w.within(20*time.Millisecond, "it is called at once when its leader has heard of it", func() bool { return a.leads[orders].High(Data) == end })
	})
}

// TestAFollowerThatFallsBehindLeavesAndComesBack: a follower that cannot keep up leaves the set, so
// that publishing continues, and joins when it has caught up. It copies all the time.
func TestAFollowerThatFallsBehindLeavesAndComesBack(t *testing.T) {
	story(t, "a b c", func(w *world) {
		w.minInSync = 2
		slow := make(chan struct{})
		w.place(orders, 1, "a b c")
		a, c := w.nodes["a"], w.nodes["c"]
		a.publish(orders, numbered(3)...)
		c.fs.(*crashfs.FS).SetHook(func(op crashfs.Op) error {
			if op.Kind == "sync" || op.Kind == "syncall" {
				<-slow
			}
			return nil
		})
		end := a.append(orders, Data, true, numbered(5)...)
		time.Sleep(LagTime - time.Second)
		if a.leads[orders].High(Data) >= end {
			t.Error("acknowledged although a member doesn't have it safe")
		}
		w.within(3*time.Second, "acknowledged without c", func() bool { return a.leads[orders].High(Data) == end })
		if !w.inSync(orders, "a b") {
			t.Errorf("in sync: %v", w.store.shard(orders).InSync)
		}
		a.publish(orders, numbered(5)...)
		c.fs.(*crashfs.FS).SetHook(nil)
		close(slow)
		w.within(time.Second, "c is in sync", func() bool { return w.inSync(orders, "a b c") })
		if !w.equal(orders, "a b c") {
			t.Error("the logs differ")
		}
	})
}

// TestBothSetsCountWhileASwapIsUnanswered: the answer to a swap is lost: the leader counts both
// sets until it knows the result.
func TestBothSetsCountWhileASwapIsUnanswered(t *testing.T) {
	story(t, "a b c", func(w *world) {
		w.store.mu.Lock()
		w.store.lose = 1
		w.store.mu.Unlock()
		w.place(orders, 1, "a b (c)")
		a := w.nodes["a"]
		w.within(2*time.Second, "the leader knows", func() bool { return len(a.leads[orders].InSync()) == 3 })
		if !w.inSync(orders, "a b c") {
			t.Errorf("in sync: %v", w.store.shard(orders).InSync)
		}
		if w.store.swaps != 2 || w.store.reads != 1 {
			t.Errorf("%d swaps and %d reads", w.store.swaps, w.store.reads)
		}
		a.publish(orders, "one")
		if !w.equal(orders, "a b c") {
			t.Error("the logs differ")
		}
	})
}

// TestAPossibleMemberOfTheSetCounts: while it is unknown whether a member was added to the set,
// nothing is acknowledged without it.
func TestAPossibleMemberOfTheSetCounts(t *testing.T) {
	story(t, "a b c", func(w *world) {
		w.store.mu.Lock()
		w.store.lose = 1
		w.store.mu.Unlock()
		w.place(orders, 1, "a b (c)")
		a := w.nodes["a"]
		w.within(3*time.Second, "c is let in, and nobody hears of it", func() bool {
			w.store.mu.Lock()
			defer w.store.mu.Unlock()
			w.store.down = w.store.lose == 0
			return w.store.down
		})
		w.wires.freeze("a", "c")
		end := a.append(orders, Data, true, "one")
		time.Sleep(time.Minute)
		if a.leads[orders].High(Data) >= end {
			t.Error("acknowledged without c, which etcd has in the set")
		}
		w.store.mu.Lock()
		w.store.down = false
		w.store.mu.Unlock()
		w.within(5*time.Second, "acknowledged without c, which has left", func() bool { return a.leads[orders].High(Data) == end && w.inSync(orders, "a b") })
		w.wires.thaw("a", "c")
	})
}

// TestALeaderThatRestartsInItsEpochKnowsTheSet: a leader begins anew in its epoch, as when the
// durability of its Topic is changed, and its view of etcd is old. What the leader before knew of
// the set counts: a member that was added, and one that may have been added by a swap without an
// answer.
func TestALeaderThatRestartsInItsEpochKnowsTheSet(t *testing.T) {
	for _, lose := range []int{0, 1} {
		story(t, "a b c", func(w *world) {
			set := func(down bool, lose int) {
				w.store.mu.Lock()
				defer w.store.mu.Unlock()
				w.store.down, w.store.lose = down, lose
			}
			set(true, 0)
			w.place(orders, 1, "a b (c)")
			a := w.nodes["a"]
			old, view := a.leads[orders], w.store.shard(orders)
			set(false, lose)
			w.within(3*time.Second, "c is let in", func() bool {
				w.store.mu.Lock()
				defer w.store.mu.Unlock()
				w.store.down = len(w.store.shards[orders].InSync) == 3
				return w.store.down
			})
			w.wires.freeze("a", "c")
			old.End()
			l := a.x.LeadOn(LeadConfig{ID: orders, Shard: view, MinInSync: 1, Durability: w.durability, Logs: a.open(orders)}, old.Rest())
			a.mu.Lock()
			a.leads[orders] = l
			a.mu.Unlock()
			end := a.append(orders, Data, true, "one")
			time.Sleep(time.Minute)
			if l.High(Data) >= end {
				t.Error("acknowledged without c, which etcd has in the set")
			}
			set(false, 0)
			w.within(5*time.Second, "it knows that etcd has c in the set", func() bool { return len(l.InSync()) == 3 })
			w.spread()
			w.within(15*time.Second, "acknowledged without c, which has left", func() bool { return l.High(Data) == end && w.inSync(orders, "a b") })
			w.wires.thaw("a", "c")
		})
	}
}

// TestNothingOfTheDataPathNeedsEtcd: while etcd is down, data flows as before (R7), and changes of
// the set wait.
func TestNothingOfTheDataPathNeedsEtcd(t *testing.T) {
	story(t, "a b c", func(w *world) {
		w.minInSync = 2
		w.place(orders, 1, "a b c")
		a := w.nodes["a"]
		a.publish(orders, "one")
		w.store.mu.Lock()
		w.store.down = true
		w.store.mu.Unlock()
		a.publish(orders, numbered(20)...)
		w.wires.reset("b") // a connection is made again without etcd, too
		a.publish(orders, numbered(20)...)
		w.wires.freeze("a", "c")
		w.wires.freeze("c", "a")
		end := a.append(orders, Data, true, "c is cut off")
		time.Sleep(time.Minute)
		if a.leads[orders].High(Data) >= end {
			t.Error("acknowledged without a member of the set that etcd has")
		}
		w.store.mu.Lock()
		w.store.down = false
		w.store.mu.Unlock()
		w.within(2*time.Second, "acknowledged without c", func() bool { return a.leads[orders].High(Data) == end })
		w.wires.thaw("a", "c")
		w.wires.thaw("c", "a")
		w.within(2*time.Second, "c is back", func() bool { return w.inSync(orders, "a b c") })
	})
}

// TestAConnectionBreaksInTheMiddleOfAFrame: a connection may break at any byte. A partly received
// frame has no effect.
func TestAConnectionBreaksInTheMiddleOfAFrame(t *testing.T) {
	story(t, "a b", func(w *world) {
		w.minInSync = 2
		w.place(orders, 1, "a b")
		a := w.nodes["a"]
		a.publish(orders, "one")
		for n := 1; n < 700; n += 37 {
			way := []string{"a", "b"}
			if n%2 == 0 {
				way = []string{"b", "a"}
			}
			w.wires.breakAfter(way[0], way[1], n)
			a.publish(orders, numbered(4)...)
		}
		if !w.equal(orders, "a b") {
			t.Error("the logs differ")
		}
		if s := w.nodes["b"].x.Stats(); s.Truncations+s.Resets > 0 {
			t.Errorf("what was copied was thrown away: %+v", s)
		}
	})
}

// TestASilentPeerIsDisconnected: a peer that is silent for two seconds is disconnected, and found
// again soon after it is back.
func TestASilentPeerIsDisconnected(t *testing.T) {
	story(t, "a b c", func(w *world) {
		w.minInSync = 2
		w.place(orders, 1, "a b c")
		a := w.nodes["a"]
		a.publish(orders, "one")
		time.Sleep(30 * time.Second)
		if w.wires.dials != 2 {
			t.Errorf("%d dials; an idle connection is to stay", w.wires.dials)
		}
		for _, way := range [][2]string{{"a", "c"}, {"c", "a"}} {
			w.wires.freeze(way[0], way[1])
		}
		end := a.append(orders, Data, true, "two")
		took := w.within(10*time.Second, "acknowledged without c", func() bool { return a.leads[orders].High(Data) == end })
		if took < silence-beatEvery || took > silence+DisconnectTime+time.Second {
			t.Errorf("c was given up after %v", took)
		}
		time.Sleep(time.Minute)
		for _, way := range [][2]string{{"a", "c"}, {"c", "a"}} {
			w.wires.thaw(way[0], way[1])
		}
		took = w.within(5*time.Second, "c is back", func() bool { return w.inSync(orders, "a b c") })
		if took > dialTimeout+redialMax+time.Second {
			t.Errorf("c was back after %v", took)
		}
		if !w.equal(orders, "a b c") {
			t.Error("the logs differ")
		}
	})
}

// TestAFollowerWithASlowDiskStopsReading: a follower whose disk is behind stops reading, and loses
// nothing.
func TestAFollowerWithASlowDiskStopsReading(t *testing.T) {
	story(t, "a", func(w *world) {
		w.options.Backlog = 2 << 10
		b := w.start("b", crashfs.New())
		w.place(orders, 1, "a b")
		a := w.nodes["a"]
		a.publish(orders, "one")
		gate := make(chan struct{})
		b.fs.(*crashfs.FS).SetHook(func(op crashfs.Op) error {
			if op.Kind == "sync" || op.Kind == "syncall" || op.Kind == "write" {
				<-gate
			}
			return nil
		})
		end := a.append(orders, Data, true, numbered(300)...)
		time.Sleep(5 * time.Second)
		if w.wires.dials != 1 {
			t.Errorf("%d dials: a peer that is held back by its disk lives", w.wires.dials)
		}
		b.fs.(*crashfs.FS).SetHook(nil)
		close(gate)
		w.within(2*time.Second, "all is acknowledged", func() bool { return a.leads[orders].High(Data) == end })
		if !w.equal(orders, "a b") {
			t.Error("the logs differ")
		}
	})
}

// TestAFollowerWhoseDiskFails: a log that failed appends nothing more: the follower reports it
// once, and asks no more.
func TestAFollowerWhoseDiskFails(t *testing.T) {
	story(t, "a b c", func(w *world) {
		w.minInSync = 2
		w.place(orders, 1, "a b c")
		a, c := w.nodes["a"], w.nodes["c"]
		a.publish(orders, "one")
		c.fs.(*crashfs.FS).SetHook(func(op crashfs.Op) error {
			if op.Kind == "sync" || op.Kind == "syncall" {
				return fmt.Errorf("an input/output error")
			}
			return nil
		})
		end := a.append(orders, Data, true, "two")
		w.within(5*time.Second, "acknowledged without c", func() bool { return a.leads[orders].High(Data) == end })
		a.publish(orders, numbered(5)...)
		time.Sleep(time.Minute)
		if ok, why := c.follows[orders].State(); len(c.failed) != 1 || ok || why == "" {
			t.Errorf("c was told %v, and says %v, %q", c.failed, ok, why)
		}
		if n := c.x.Stats().OutAsks; n > 2 {
			t.Errorf("c asked %d times", n)
		}
	})
}

// TestAFollowerWithAFullDiskContinuesWhenThereIsSpace: a full disk refuses appends and does no
// other harm: when there is space, the follower continues.
func TestAFollowerWithAFullDiskContinuesWhenThereIsSpace(t *testing.T) {
	story(t, "a b c", func(w *world) {
		w.minInSync = 2
		w.place(orders, 1, "a b c")
		a, c := w.nodes["a"], w.nodes["c"]
		a.publish(orders, "one")
		c.fs.(*crashfs.FS).SetCapacity(1)
		end := a.append(orders, Data, true, numbered(400)...)
		w.within(20*time.Second, "acknowledged without c", func() bool { return a.leads[orders].High(Data) == end })
		time.Sleep(time.Minute)
		if ok, why := c.follows[orders].State(); len(c.failed) != 0 || ok || !strings.Contains(why, "no room") {
			t.Errorf("c was told %v, and says %v, %q", c.failed, ok, why)
		}
		c.fs.(*crashfs.FS).SetCapacity(0)
		w.within(3*time.Second, "c is back", func() bool { return w.inSync(orders, "a b c") })
		if !w.equal(orders, "a b c") {
			t.Error("the logs differ")
		}
	})
}

// TestABrokerThatRegistersAgain: a broker whose lease expired registers again and continues, as a
// leader and as a follower.
func TestABrokerThatRegistersAgain(t *testing.T) {
	story(t, "a b", func(w *world) {
		w.minInSync = 2
		payments := ID{Topic: "payments"}
		w.place(orders, 1, "a b")
		w.place(payments, 1, "b a")
		w.nodes["a"].publish(orders, "one")
		w.nodes["b"].publish(payments, "one")
		for _, id := range []string{"a", "b"} {
			w.store.register(id)
			w.spread()
			w.within(2*time.Second, "both sets have the new life", func() bool { return w.inSync(orders, "a b") && w.inSync(payments, "b a") })
			w.nodes["a"].publish(orders, "two")
			w.nodes["b"].publish(payments, "two")
		}
		if w.wires.dials != 2 {
			t.Errorf("%d dials; connections have nothing to do with leases", w.wires.dials)
		}
	})
}

// TestCursorChangesWithoutAWaitingClientAreCopiedLazily: cursor changes without a waiting client
// are copied, and neither synced nor counted until a client waits.
func TestCursorChangesWithoutAWaitingClientAreCopiedLazily(t *testing.T) {
	story(t, "a b", func(w *world) {
		w.minInSync = 2
		w.place(orders, 1, "a b")
		a, b := w.nodes["a"], w.nodes["b"]
		a.publish(orders, "one")
		a.append(orders, State, false, numbered(10)...)
		w.within(time.Second, "b has them", func() bool { _, end, _ := b.logs[orders][State].Offsets(); return end == 11 })
		if _, _, durable := b.logs[orders][State].Offsets(); durable == 11 {
			t.Error("they were synced")
		}
		w.wires.reset("b")
		w.within(time.Second, "what b has when it asks again is safe", func() bool { return a.leads[orders].Followers()[0].Safe[State] == 11 })
		if _, _, durable := b.logs[orders][State].Offsets(); durable != 11 {
			t.Errorf("b says that it has 11, and %d is safe", durable)
		}
		time.Sleep(time.Minute)
		if !w.inSync(orders, "a b") || a.leads[orders].High(State) != 1 {
			t.Errorf("in sync %v, high %d", w.store.shard(orders).InSync, a.leads[orders].High(State))
		}
		end := a.append(orders, State, true, "a cursor that counts")
		w.within(time.Second, "it is safe", func() bool { return a.leads[orders].High(State) == end })
		a.append(orders, State, false, numbered(3)...)
		w.within(time.Second, "b has them", func() bool { _, end, _ := b.logs[orders][State].Offsets(); return end == 15 })
		w.place(orders, 2, "b a")
		w.within(2*time.Second, "what a new leader has of them counts", func() bool { return b.leads[orders].Readable() })
		if !w.equal(orders, "a b") {
			t.Error("the logs differ")
		}
	})
}

// TestFollowersStartWhereTheirLeaderDoes: followers delete what their leader has deleted.
func TestFollowersStartWhereTheirLeaderDoes(t *testing.T) {
	story(t, "a b", func(w *world) {
		w.place(orders, 1, "a b")
		a, b := w.nodes["a"], w.nodes["b"]
		for round := range 3 {
			a.publish(orders, numbered(200)...)
			want := uint64(100 + 200*round)
			if _, err := a.logs[orders][Data].Trim(want); err != nil {
				t.Fatal(err)
			}
			w.within(3*time.Second, "b starts there, too", func() bool { return b.logs[orders][Data].Start() == want })
		}
	})
}

// TestNothingHappensAfterEnd: after End no callback is called and nothing changes, whatever still
// arrives.
func TestNothingHappensAfterEnd(t *testing.T) {
	story(t, "a b", func(w *world) {
		w.place(orders, 1, "a b")
		a, b := w.nodes["a"], w.nodes["b"]
		for range 20 {
			a.append(orders, Data, true, numbered(30)...)
			b.follows[orders].End()
			_, end, _ := b.logs[orders][Data].Offsets()
			a.leads[orders].End()
			a.mu.Lock()
			moved := a.moved
			a.mu.Unlock()
			time.Sleep(10 * time.Millisecond)
			if _, now, _ := b.logs[orders][Data].Offsets(); now != end {
				t.Fatalf("b's log went from %d to %d after it was ended", end, now)
			}
			a.mu.Lock()
			if a.moved > moved {
				t.Errorf("Moved was called %d times after the end", a.moved-moved)
			}
			a.mu.Unlock()
			delete(b.follows, orders)
			delete(a.leads, orders)
			w.spread()
			w.within(time.Second, "they go on", func() bool { return a.leads[orders].High(Data) >= end && a.leads[orders].Readable() })
		}
	})
}

// TestALoneLeader: for a shard with one replica, the watermark follows what is safe on the leader.
func TestALoneLeader(t *testing.T) {
	story(t, "a", func(w *world) {
		w.place(orders, 1, "a")
		a := w.nodes["a"]
		a.publish(orders, numbered(10)...)
		if s := a.x.Stats(); s.Leads != 0 {
			t.Errorf("%+v", s)
		}
		w.place(orders, 1, "a") // the same state with a higher revision
		if !a.leads[orders].Readable() || !a.leads[orders].Enough() {
			t.Error("it isn't readable")
		}
		// It gets a follower in the same epoch.
		b := w.start("b", crashfs.New())
		shard := *w.store.shard(orders)
		shard.Replicas, shard.Adding = []string{"a", "b"}, []string{"b"}
		w.store.put(&shard)
		w.spread()
		w.within(time.Second, "b has joined", func() bool { return w.inSync(orders, "a b") })
		a.publish(orders, "two")
		if _, end, _ := b.logs[orders][Data].Offsets(); end != 12 {
			t.Errorf("b ends at %d", end)
		}
	})
}

var _ Store = (*coordination.Client)(nil)
