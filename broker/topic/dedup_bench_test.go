package topic

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/dedup"
	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
)

// BenchmarkElection measures moving leadership between two brokers, with different numbers of
// message ids in the deduplication window.
func BenchmarkElection(b *testing.B) {
	for _, ids := range []int{0, 100_000, dedup.MaxIDs} {
		b.Run(fmt.Sprintf("ids=%d", ids), func(b *testing.B) {
			c := newCluster(b, 2)
			for i, n := range c.sites {
				n.fs, n.dir, n.options = env.OS, b.TempDir(), log.Options{}
				n.topic("orders", func(s *coordination.TopicSpec) {
					s.Deduplication, s.Durability = time.Hour, coordination.Memory
				})
				c.start(i)
				n.hub.quiet = true
			}
			c.elect(0, 0, 1)
			c.tell()
			leader := c.sites[0]
			leader.open("orders")
			read := make([]protocol.Message, 1024)
			for i := range read {
				read[i] = message("orders.eu", "r", string(make([]byte, 256)), "Id: 0123456789abcdef")
			}
			for id := 0; id < ids; {
				n := min(len(read), ids-id)
				for i := range n {
					copy(read[i].Data[len("NATS/1.0\r\nId: "):], fmt.Appendf(nil, "%016d", id))
					id++
				}
				leader.hub.publish(read[:n]...)
				leader.hub.await(b, "acks", func() bool { return leader.hub.count >= id })
			}
			b.ResetTimer()
			for i := range b.N {
				next := (i + 1) % 2
				c.elect(next, 0, 1)
				c.tell()
				c.sites[next].open("orders")
			}
			b.StopTimer()
			if n := c.sites[b.N%2].service.Stats().IDs; n != int64(ids) {
				b.Fatalf("%d ids are known", n)
			}
		})
	}
}
