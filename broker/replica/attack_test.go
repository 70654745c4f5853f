package replica

import (
	"context"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/log"
)

// T2: a leads with damage X and Y. c lacks X and has Y. b ends before Y and lacks X.
func TestAttackTwoFollowersOneGivenUp(t *testing.T) {
	story(t, "a b c", func(w *world) {
		w.place(orders, 1, "a b c")
		a := w.nodes["a"]
		a.publish(orders, wide(1000)...)
		w.within(time.Second, "all have it", func() bool { return w.equal(orders, "a b c") })
		fsB := w.nodes["b"].kill()
		w.place(orders, 2, "a c (b)")
		a.publish(orders, wide(1000)...)
		w.within(time.Second, "c has it", func() bool { return w.equal(orders, "a c") })
		c := w.nodes["c"]
		a.spoilAt(orders, Data, 3, 5000)
		infos := a.logs[orders][Data].SegmentInfos()
		y := 0
		for i, s := range infos {
			if s.Base > 1200 {
				y = i
				break
			}
		}
		c.spoilToo(Data, a)
		a.spoilAt(orders, Data, y, 5000)
		toldC := c.mend(orders)
		time.Sleep(5 * time.Second)
		b := w.startWithout(func() *node { return w.start("b", fsB) })
		b.open(orders)
		b.spoilToo(Data, a)
		t.Logf("a %v b %v c %v", a.lost(Data), b.lost(Data), c.lost(Data))
		toldB := b.mend(orders)
		if err := w.told(toldB); err != nil {
			t.Fatal(err)
		}
		t.Logf("b given up %d", b.x.Stats().GivenUp)
		b.follow(orders)
		time.Sleep(3 * time.Minute)
		ok, why := b.follows[orders].State()
		t.Logf("b: %v %s", ok, why)
		ok, why = c.follows[orders].State()
		t.Logf("c: %v %s", ok, why)
		if len(toldC) == 0 {
			t.Error("c's repair never ends; b is stuck; a leads alone")
		}
	})
}

// T4: the leader's damage is not on its disk (page cache).
func TestAttackTransientLeader(t *testing.T) {
	story(t, "a b", func(w *world) {
		filled(w, "a b")
		a, b := w.nodes["a"], w.nodes["b"]
		if err := a.logs[orders][Data].Flush(); err != nil {
			t.Fatal(err)
		}
		info := a.logs[orders][Data].SegmentInfos()[3]
		if err := a.fs.(*crashfs.FS).Flip(info.File, 3000*8); err != nil {
			t.Fatal(err)
		}
		a.logs[orders][Data].Scrub(context.Background(), log.ScrubOptions{})
		b.spoilToo(Data, a)
		x := a.lost(Data)[0]
		if err := w.told(b.mend(orders)); err != nil {
			t.Fatal(err)
		}
		b.follow(orders)
		w.within(5*time.Second, "b is in sync", func() bool { return w.inSync(orders, "a b") })
		if err := a.logs[orders][Data].NoteDamage(); err != nil {
			t.Fatal(err)
		}
		// The bit was wrong in memory only: restart a.
		var fs env.FS = a.kill()
		if err := fs.(*crashfs.FS).Flip(info.File, 3000*8); err != nil {
			t.Fatal(err)
		}
		w.place(orders, 2, "b a")
		a = w.start("a", fs)
		a.see()
		w.within(5*time.Second, "in sync", func() bool { return w.inSync(orders, "b a") })
		v, err := a.logs[orders][Data].NewCursor(x.From).Read(1)
		n := 0
		if err == nil {
			if batch, ok := v.Next(); ok {
				n = batch.Count()
			}
		}
		t.Logf("a reads %d records at %d: %v; a lacks %v", n, x.From, err, a.logs[orders][Data].Lacks())
		if !w.equal(orders, "a b") {
			t.Error("both are in sync, and the logs differ")
		}
	})
}

// T3: the record behind the damage is damaged too, and hides where an epoch begins.
func TestAttackEpochWithinAdjacent(t *testing.T) {
	// Truth: epoch 5 up to 24, epoch 7 from 24 on. [20,28) and [28,33) are damaged, and the epochs
	// are known from the records only.
	lineage := Lineage{Start: 1, End: 40, Epochs: []log.Epoch{{Epoch: 5, Start: 1}, {Epoch: 7, Start: 33}}}
	if epoch, known := epochWithin(lineage, log.Span{From: 20, Next: 28}); known {
		t.Errorf("epoch %d is believed for 20 to 28", epoch)
	}
}

// T6: b's new volume is empty and b is stuck. Its old volume, which has everything, is put back. Before
// its lease has ended, c comes, which has nothing.
func TestAttackStuckOutlivesItsConnection(t *testing.T) {
	story(t, "a b", func(w *world) {
		filled(w, "a b")
		a := w.nodes["a"]
		old := w.nodes["b"].kill()
		bad := a.spoil(orders, Data, 3)
		w.start("b", crashfs.New())
		w.place(orders, 2, "a (b) (c)")
		w.within(5*time.Second, "b waits", func() bool {
			_, end, _ := w.nodes["b"].logs[orders][Data].Offsets()
			return end >= bad.Base
		})
		time.Sleep(time.Second)
		b := w.nodes["b"]
		b.fs.(*crashfs.FS).StopAfter(0)
		w.wires.reset("b")
		b.stop() // its lease lasts, or the leader doesn't hear of etcd
		delete(w.nodes, "b")
		time.Sleep(time.Second)
		w.start("c", crashfs.New())
		time.Sleep(30 * time.Second)
		if n := a.x.Stats().GivenUp; n > 0 {
			t.Errorf("%d are given up", n)
		}
		b = w.startWithout(func() *node { return w.start("b", old) })
		if lacks := b.open(orders)[Data].Lacks(); len(lacks) == 0 {
			t.Log("b has all of it")
		}
	})
}
