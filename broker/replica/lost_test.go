package replica

import (
	"syscall"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/log"
)

// TestAFollowerThatLostConfirmedRecordsLeaves: a follower of a Topic in memory confirms records
// before it writes them. If its log fails and is reopened without them, it leaves the in-sync set
// at once, and joins when it has caught up.
func TestAFollowerThatLostConfirmedRecordsLeaves(t *testing.T) {
	story(t, "a b c", func(w *world) {
		w.minInSync, w.durability = 2, log.Memory
		w.place(orders, 1, "a b c")
		a, c := w.nodes["a"], w.nodes["c"]
		a.publish(orders, numbered(10)...)
		time.Sleep(time.Second) // on the story's clock, so that it is written
		c.fs.(*crashfs.FS).SetHook(func(op crashfs.Op) error {
			if op.Kind == "write" {
				return syscall.EIO
			}
			return nil
		})
		a.publish(orders, numbered(5)...) // confirmed by c, which cannot write it
		w.within(5*time.Second, "c's log has failed", func() bool {
			a.append(orders, Data, true, "more") // from which c learns of its failure
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.failed) > 0
		})
		c.fs.(*crashfs.FS).SetHook(nil)
		c.mu.Lock()
		f := c.follows[orders]
		delete(c.follows, orders)
		c.mu.Unlock()
		f.End()
		for _, l := range c.logs[orders] {
			_ = l.Close() // its log has failed
		}
		delete(c.logs, orders)
		w.wires.freeze("a", "b") // so that nothing new is acknowledged
		swaps := a.x.Stats().Swaps
		if _, end, _ := c.open(orders)[Data].Offsets(); end >= 16 { // before it copies anything
			t.Fatalf("c lost nothing: its log ends at %d", end)
		}
		c.see()
		// It may return to the set as soon as it has left.
		w.within(LagTime/10, "c has left", func() bool { return a.x.Stats().Swaps > swaps })
		w.wires.thaw("a", "b")
		w.within(5*time.Second, "c is in sync", func() bool { return w.inSync(orders, "a b c") })
		a.publish(orders, "all again")
		if !w.equal(orders, "a b c") {
			t.Error("the logs differ")
		}
	})
}
