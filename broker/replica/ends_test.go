package replica

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

// TestEndWaitsForCallbacks: End waits for whatever uses the logs or calls back, and nothing does so
// afterwards.
func TestEndWaitsForCallbacks(t *testing.T) {
	story(t, "a b", func(w *world) {
		w.place(orders, 1, "a b")
		a, b := w.nodes["a"], w.nodes["b"]
		a.publish(orders, "one")
		f, l := b.follows[orders], a.leads[orders]
		f.mu.Lock()
		f.users++
		f.mu.Unlock()
		asks := b.x.Stats().OutAsks
		f.askAgain()
		time.Sleep(time.Second)
		if n := b.x.Stats().OutAsks; n != asks {
			t.Error("it asked with logs that were about to change")
		}
		f.mu.Lock()
		f.release()
		f.mu.Unlock()
		w.within(time.Second, "it asks", func() bool { return b.x.Stats().OutAsks == asks+1 })
		f.mu.Lock()
		f.users++
		f.mu.Unlock()
		ended := make(chan struct{})
		w.wires.carriers.Go(func() { f.End(); close(ended) })
		time.Sleep(time.Second)
		select {
		case <-ended:
			t.Error("it ended while its logs were in use")
		default:
		}
		f.mu.Lock()
		f.release()
		f.mu.Unlock()
		<-ended
		l.End()
		moved := a.moved
		l.notifyMoved()
		if a.moved != moved {
			t.Error("Moved was called after the end")
		}
		delete(b.follows, orders)
		delete(a.leads, orders)
	})
}

// TestALeaderThatCantBeReached: a leader that cannot be reached is reported, and the follower does
// not count as copying any more.
func TestALeaderThatCantBeReached(t *testing.T) {
	story(t, "a b", func(w *world) {
		w.place(orders, 1, "a b")
		w.nodes["a"].publish(orders, "one")
		f := w.nodes["b"].follows[orders]
		for leader, want := range map[string]string{"z": "no connection to broker z", "": "no leader"} {
			shard := *w.store.shard(orders)
			shard.Leader, shard.Epoch = leader, f.epochNow()+1
			f.Adopt(&shard)
			time.Sleep(time.Second)
			if ok, why := f.State(); ok || !strings.Contains(why, want) {
				t.Errorf("leader %q: it says %v, %q", leader, ok, why)
			}
		}
	})
}

// TestBytesInFlightAreBoundedByTheWindow: the bytes on their way to a follower are bounded by the
// window. The rest waits in the log until acks arrive.
func TestBytesInFlightAreBoundedByTheWindow(t *testing.T) {
	story(t, "a", func(w *world) {
		w.options.Backlog = 64 << 20
		b := w.start("b", crashfs.New())
		w.place(orders, 1, "a b")
		a := w.nodes["a"]
		large := strings.Repeat("x", 200<<10)
		a.publish(orders, "one", large)
		gate := make(chan struct{})
		b.fs.(*crashfs.FS).SetHook(func(op crashfs.Op) error {
			if op.Kind == "sync" || op.Kind == "syncall" {
				<-gate
			}
			return nil
		})
		before := a.x.Stats().OutBytes
		var end uint64
		for range 100 {
			end = a.append(orders, Data, true, large)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		if sent := a.x.Stats().OutBytes - before; sent < windowBytes/2 || sent > 2*windowBytes {
			t.Errorf("%d bytes are on their way", sent)
		}
		b.fs.(*crashfs.FS).SetHook(nil)
		close(gate)
		w.within(5*time.Second, "all is acknowledged", func() bool { return a.leads[orders].High(Data) == end })
		if !w.equal(orders, "a b") {
			t.Error("the logs differ")
		}
	})
}

// TestALateEndOfAFormerConnectionIsIgnored: the former connection ends after the follower has
// joined on a new one: the follower stays joined.
func TestALateEndOfAFormerConnectionIsIgnored(t *testing.T) {
	story(t, "a b", func(w *world) {
		w.place(orders, 1, "a b")
		a := w.nodes["a"]
		a.publish(orders, "one")
		l := a.leads[orders]
		l.mu.Lock()
		late := l.streams[0]
		l.mu.Unlock()
		w.nodes["b"].follows[orders].askAgain()
		w.within(time.Second, "it has asked anew", func() bool { l.mu.Lock(); defer l.mu.Unlock(); return len(l.streams) == 1 && l.streams[0] != late })
		l.disconnected(late)
		if !l.Followers()[0].Joined {
			t.Error("its follower has parted")
		}
	})
}
