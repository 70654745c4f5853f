//go:build !race

package topic

import (
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/protocol"
)

// From the publisher's read to the ack, with the machine's disk.
func TestKeepingAndAnsweringAllocatesNothing(t *testing.T) {
	for name, change := range map[string]func(*coordination.TopicSpec){
		"synced": nil,
		"memory": func(s *coordination.TopicSpec) { s.Durability = coordination.Memory },
	} {
		t.Run(name, func(t *testing.T) {
			_, hub, topic := benchSite(t, 1, change)
			read := make([]protocol.Message, 10)
			for i := range read {
				read[i] = message("orders.eu", "0", "a message", "Trace: 1")
			}
			got := testing.AllocsPerRun(1000, func() {
				(*taker)(topic).Take(read, false)
				for range read {
					<-hub.waiting[0]
				}
			})
			if got >= 1 { // for ten messages
				t.Errorf("%.2f allocations per read", got)
			}
		})
	}
}
