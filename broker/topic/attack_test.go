package topic

import (
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
	"context"
	"fmt"
	"slices"
	"time"
)

// T1: two replicas. b can read all its records, and the bits of its manifest have flipped. A bit of a
// flips. b sets its copy aside, gets stuck, and a gives up what b has.
func TestAttackSetAsideThenGivenUp(t *testing.T) {
	c := newCluster(t, 2)
	for _, n := range c.sites {
		n.report = func(_ context.Context, _ int64, suspects []coordination.Suspect) error {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.said == nil {
				c.said = map[string][]coordination.Suspect{}
			}
			c.said[n.self] = slices.Clone(suspects)
			return nil
		}
	}
	c.begin()
	a, b := c.sites[0], c.sites[1]
	for i := range 600 {
		a.expect(a.ask("orders.a", fmt.Sprintf("%d %0100d", i, i)), fmt.Sprintf("orders@%d", i+1))
	}
	c.settle("all are whole", func() bool { return c.whole(a, 600) })
	c.kill(1)
	c.elect(0, 0)
	c.tell()
	a.open("orders")
	b.loseManifest()
	a.flip(a.segments()[0])
	a.scrub()
	a.eventually("a knows of its damage", func() bool { return a.service.Suspects() == 1 })
	c.start(1)
	for range 150 {
		c.tell()
		time.Sleep(100 * time.Millisecond)
		if a.exchange.Stats().GivenUp > 0 || c.whole(a, 600) {
			break
		}
	}
	ba := b.service.Topic("orders").shards[0]
	t.Logf("aside %d, b %s, set %v leader %s; a %s", b.service.Stats().SetAside, ba.own.state.String(), c.shard.InSync, c.shard.Leader, a.service.Topic("orders").shards[0].own.state.String())
	if ba.following != nil {
		t.Log(ba.following.State())
	}
	t.Log(a.exchange.Stats())
	if n := a.exchange.Stats().GivenUp; n > 0 {
		t.Errorf("%d acknowledged messages are given up that b could read; set aside: %d", n, b.service.Stats().SetAside)
	}
}
