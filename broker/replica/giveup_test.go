package replica

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

// TestDamageThatNoReplicaHasIsGivenUp: a leader has damaged records, or cursors, and no replica can
// copy past them. While one replica is away that may have them, they stay. When all replicas wait
// there, the leader gives them up, tells of it, and all replicas get in sync.
func TestDamageThatNoReplicaHasIsGivenUp(t *testing.T) {
	for part := range Parts {
		t.Run(part.String(), func(t *testing.T) { story(t, "a", func(w *world) { damagedEverywhere(t, w, part) }) })
	}
}

func damagedEverywhere(t *testing.T, w *world, part Part) {
	w.minInSync = 1
	w.place(orders, 1, "a")
	a := w.nodes["a"]
	a.append(orders, State, true, wide(1000)...)
	a.publish(orders, wide(1000)...)
	bad := a.spoil(orders, part, 3)
	w.start("b", crashfs.New())
	w.place(orders, 2, "a (b) (c)")
	b := w.nodes["b"]
	w.within(5*time.Second, "b waits", func() bool {
		_, end, _ := b.logs[orders][part].Offsets()
		a.mu.Lock()
		defer a.mu.Unlock()
		return end >= bad.Base && end < bad.End && len(a.unreadable) > 0
	})
	time.Sleep(time.Minute)
	if n := a.logs[orders][part].Holes(1); n > 0 || w.inSync(orders, "a b") {
		t.Fatalf("%d records are given up, and c may have them", n)
	}
	w.start("c", crashfs.New())
	w.within(10*time.Second, "all are in sync", func() bool { return w.inSync(orders, "a b c") })
	if !w.equal(orders, "a b c") {
		t.Error("the logs differ")
	}
	a.publish(orders, "goes on")
	synctest.Wait() // until nobody logs
	n := a.logs[orders][part].Holes(1)
	if n == 0 || n >= bad.End-bad.Base {
		t.Errorf("%d records of the %d in the damaged segment are given up", n, bad.End-bad.Base)
	}
	if counted := a.x.Stats().GivenUp; part == Data && counted != n || part == State && counted > 0 {
		t.Errorf("%d messages are counted, and %d were given up", counted, n)
	}
	if lines := strings.Count(a.out.String(), givingUp); lines != 1 {
		t.Errorf("%d lines in the log", lines)
	}
	if holes := b.logs[orders][part].Holes(1); holes != n {
		t.Errorf("%d offsets have no record, and %d were given up", holes, n)
	}
}

// TestAReplicaThatWaitedIsAway: a replica on a new volume waits where its leader is damaged. It
// ends, and its leader still sees it registered, or can't ask etcd. What the leader lacks is not
// given up when another replica waits there, too: the former volume of the first one, which has it,
// returns.
func TestAReplicaThatWaitedIsAway(t *testing.T) {
	story(t, "a b", func(w *world) {
		filled(w, "a b")
		a := w.nodes["a"]
		former := w.nodes["b"].kill()
		bad := a.spoil(orders, Data, 3)
		w.place(orders, 2, "a (b) (c)") // before b asks: without c, it is the only other replica
		b := w.start("b", crashfs.New())
		waits := func(n *node) func() bool {
			return func() bool {
				_, end, _ := n.logs[orders][Data].Offsets()
				_, why := n.follows[orders].State()
				return end >= bad.Base && end < bad.End && strings.Contains(why, "can't be read here")
			}
		}
		w.within(5*time.Second, "b waits", waits(b))
		b.fs.(*crashfs.FS).StopAfter(0)
		w.wires.reset("b")
		b.stop()
		synctest.Wait() // until a has noticed
		delete(w.nodes, "b")
		c := w.start("c", crashfs.New())
		w.within(5*time.Second, "c waits", waits(c))
		time.Sleep(30 * time.Second)
		if n := a.x.Stats().GivenUp; n > 0 {
			t.Fatalf("%d are given up, and b may have them", n)
		}
		b = w.startWithout(func() *node { return w.start("b", former) })
		b.open(orders)
		w.place(orders, 3, "b a c")
		w.within(5*time.Second, "c is in sync", func() bool { return w.inSync(orders, "b a c") && w.equal(orders, "b c") })
		if n := b.logs[orders][Data].Holes(1); n > 0 {
			t.Errorf("%d are lost", n)
		}
	})
}
