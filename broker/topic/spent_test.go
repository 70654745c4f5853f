package topic

import (
	"context"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

// TestALeaderWhoseLogFailedNeedsAnotherEpoch: a leader's write fails while its followers have the
// message already. Its log is open again without that message; so it leads under the next epoch
// only, or two records would stand at one offset of one epoch, and nobody could tell which of them
// is kept.
func TestALeaderWhoseLogFailedNeedsAnotherEpoch(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	reported := make(chan []coordination.Suspect, 16)
	c.sites[0].report = func(_ context.Context, _ int64, said []coordination.Suspect) error {
		reported <- slices.Clone(said)
		return nil
	}
	c.begin()
	a := c.sites[0]
	a.expect(a.ask("orders.a", "one"), "orders@1")
	c.settle("all have it", func() bool { all := c.copies(); return equal(all) && len(all[0]) == 1 })

	// The write waits until the followers have what it is about, and fails then.
	sent := make(chan struct{})
	a.fs.(*crashfs.FS).SetHook(func(op crashfs.Op) error {
		if op.Kind != "write" || !strings.HasSuffix(op.Path, ".log") {
			return nil
		}
		<-sent
		return syscall.ENOSPC
	})
	a.hub.publish(message("orders.a", "r", "lost"))
	c.settle("the followers have it", func() bool {
		all := c.copies()
		return len(all[1]) == 2 && len(all[2]) == 2
	})
	close(sent)
	if got := a.hub.answer(t, "r"); !strings.Contains(got, "it isn't known whether the message was kept") {
		t.Fatalf("answered with %q", got)
	}
	a.fs.(*crashfs.FS).SetHook(nil)
	c.settle("the leader resigns", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		m, in := c.shard.Member(a.self)
		return c.shard.Leader == "" && c.shard.Epoch == 1 && in && m.Incarnation == a.life
	})
	if a.service.Suspects() != 0 {
		t.Error("it counts as suspect, and has all that was acknowledged")
	}
	c.elect(0, 0, 1, 2)
	c.tell()
	a.open("orders")
	a.expect(a.ask("orders.a", "two"), "orders@2")
	c.settle("all hold the same", func() bool {
		all := c.copies()
		return equal(all) && len(all[0]) == 2 && all[0][1] == "2/2 two"
	})
	if len(reported) > 0 {
		t.Errorf("it reported %v", <-reported)
	}
}
