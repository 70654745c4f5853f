package activity

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkAcked measures what counting its client adds to each ack, and to each pull that is not
// looked at, with the real clock. The clients share a Subscription and processors.
func BenchmarkAcked(b *testing.B) {
	for _, clients := range []int{1, 1000} {
		for what, each := range map[string]func(c *Clients, name []byte, id uint64){
			"acks": func(c *Clients, name []byte, id uint64) { c.Acked("t", name, id) },
			"pulls": func(c *Clients, name []byte, id uint64) {
				c.Pulled("t", name, id, func() time.Duration { return time.Second })
			},
		} {
			b.Run(fmt.Sprintf("%s/clients=%d", what, clients), func(b *testing.B) {
				c := New(&room{}, begin().state)
				b.ReportAllocs()
				b.RunParallel(func(p *testing.PB) {
					name := []byte("billing")
					for id := uint64(0); p.Next(); id = (id + 1) % uint64(clients) {
						each(c, name, id)
					}
				})
			})
		}
	}
}
