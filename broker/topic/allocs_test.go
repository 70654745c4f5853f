//go:build !race

package topic

import (
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestKeepingAndAnsweringAllocatesNothing: from the publisher's read to the ack, with the machine's
// disk.
func TestKeepingAndAnsweringAllocatesNothing(t *testing.T) {
	for name, change := range map[string]func(*coordination.TopicSpec){
		"synced": nil,
		"memory": func(s *coordination.TopicSpec) { s.Durability = coordination.Memory },
		"numbered": func(s *coordination.TopicSpec) {
			s.Replicas, s.MinInSync, s.Durability = 2, 1, coordination.Memory
		},
	} {
		t.Run(name, func(t *testing.T) {
			n, hub, topic := benchSite(t, 1, change)
			if name == "numbered" { // as on a Topic with replicas, of which this is the one in sync
				shard := *n.shards["id-orders"]
				shard.Replicas, shard.Epoch, shard.Revision = []string{self, "broker-b"}, 2, n.revision+1
				n.revision++
				n.shards["id-orders"] = &shard
				n.tell()
				n.eventually("it leads with replicas", func() bool { return topic.Shard().Epoch() == 2 })
			}
			read := make([]protocol.Message, 10)
			for i := range read {
				read[i] = message("orders.eu", "0", "a message", "Trace: 1")
			}
			got := testutil.LeastAllocs(1000, 0, func() {
				(*taker)(topic).Take(read, nil, false)
				for range read {
					<-hub.waiting[0]
				}
			})
			if got >= 1 { // for ten messages
				t.Errorf("%.2f allocations per read", got)
			}
			if f := topic.shards[0].out.Load(); name == "numbered" && (f == nil || f.Next() < 10_000) {
				t.Error("messages were given no numbers")
			}
		})
	}
}

// TestKeepingIDsAllocatesNothing: a follower's part in deduplication, for each batch that it
// appends.
func TestKeepingIDsAllocatesNothing(t *testing.T) {
	batches := idBatches(t, 20, 50, "Id: %d")
	w, counted := newWindow()
	c := clock.New(clock.Config{})
	note := func() {
		for _, b := range batches {
			if _, err := w.Note(plainCodec{}, c, b, 1, int64(time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		if counted() != 1000 {
			t.Fatalf("%d ids are known", counted())
		}
		w.Truncate(0)
	}
	note()
	if got := testutil.LeastAllocs(100, 0, note); got >= 1 { // for a thousand ids
		t.Errorf("%.2f allocations", got)
	}
}
