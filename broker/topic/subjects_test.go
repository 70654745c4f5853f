package topic

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// hangIndex has the disk hang when the index of a Topic's subjects is opened, until it is released.
func (n *site) hangIndex(name string) (release func()) {
	over, released := make(chan struct{}), false
	release = func() {
		if !released {
			released = true
			n.fs.(*crashfs.FS).SetHook(nil)
			close(over)
		}
	}
	n.t.Cleanup(release) // before the site is stopped
	n.fs.(*crashfs.FS).SetHook(func(op crashfs.Op) error {
		if op.Kind == "list" && strings.Contains(op.Path, name) {
			<-over
		}
		return nil
	})
	return release
}

// A condition on a subject whose last message isn't known waits for the disk, and the goroutine
// that brings it does not: it goes on, and so do messages for other shards. Messages behind it in
// the shard keep their order.
func TestAConditionHoldsNobodyElseUp(t *testing.T) {
	n := newSite(t)
	n.serve("orders", "bills")
	n.expect(n.ask("orders.eu", "a"), "orders@1")
	release := n.hangIndex("orders")
	published := make(chan struct{})
	go func() {
		defer close(published)
		n.hub.publish(message("orders.eu", "r1", "b", "Expect-Last-By-Subject: 1"), message("orders.eu", "r2", "c"), message("orders.us", "r3", "d", "Expect-Last-By-Subject: 7"))
	}()
	select {
	case <-published:
	case <-time.After(testutil.Patience):
		t.Fatal("the publisher waits for the disk")
	}
	n.expect(n.ask("bills.x", "x"), "bills@1")
	release()
	n.expect(n.hub.answer(t, "r1"), "orders@2")
	n.expect(n.hub.answer(t, "r2"), "orders@3")
	n.expect(n.hub.answer(t, "r3"), "no: topic orders: the last message of subject orders.us is at offset 0")
}
