package topic

import (
	"fmt"
	"strings"
	"testing"
)

// TestAConditionThatMeetsDamageHasAnotherReplicaLead: a leader whose log is long and damaged gives
// way when a condition needs the damaged records.
func TestAConditionThatMeetsDamageHasAnotherReplicaLead(t *testing.T) {
	t.Parallel()
	c, _ := spoilable(t, 100)
	a := c.sites[0]
	for i := range 320 { // more than a condition reads without the index
		a.expect(a.ask("orders.b", strings.Repeat("x", 60<<10)), fmt.Sprintf("orders@%d", 101+i))
	}
	c.settle("all are whole", func() bool { return c.whole(a, 420) })
	a.flip(a.segments()[0])
	n := 0
	c.settle("the copy is reported", func() bool {
		n++
		a.hub.publish(message("orders.new", fmt.Sprint("r", n), "y", "Expect-Last-By-Subject: 7"))
		return a.service.Suspects() == 1
	})
}
