//go:build !race

package replica

import (
	"runtime"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestReplicatingAllocatesNothing: replicating a record, from the append to the watermark,
// allocates nothing at either end of a connection.
func TestReplicatingAllocatesNothing(t *testing.T) {
	w := overTCP(t, func(string) env.FS { return env.OS }, "a", "b")
	w.durability = log.Replicated
	p := lead(t, w, "a", "b")
	a := &log.Append{Epoch: 1, Records: []log.Record{{Subject: []byte("orders"), Data: make([]byte, 256)}}, Durability: log.Replicated, Done: p}
	publish := func() {
		if err := p.publish(a); err != nil {
			t.Fatal(err)
		}
	}
	for range 500 {
		publish()
	}
	if got := testutil.LeastAllocs(3000, 0, publish); got >= 1 {
		t.Errorf("%.2f allocations per append that is acknowledged", got)
	}
}

// TestALeaderWithoutFollowersNeedsLittleMemory: a shard without followers costs its leader little
// memory, since most Topics have one replica.
func TestALeaderWithoutFollowersNeedsLittleMemory(t *testing.T) {
	w := newWorld(t, "a")
	defer w.end()
	a := w.nodes["a"]
	logs := a.open(orders)
	shard := &coordination.Shard{Topic: "orders", Epoch: 1, Leader: "a", Replicas: []string{"a"}, InSync: []coordination.Replica{{Broker: "a", Incarnation: 11}}, Revision: 1}
	const n = 10_000
	all := make([]*Leading, n)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range all {
		all[i] = a.x.Lead(LeadConfig{ID: orders, Shard: shard, MinInSync: 1, Logs: logs})
	}
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&after)
	if each := int(after.HeapAlloc-before.HeapAlloc) / n; each > 800 {
		t.Errorf("%d bytes each", each)
	} else {
		t.Log(each, "bytes each")
	}
	for _, l := range all {
		l.End()
	}
}
