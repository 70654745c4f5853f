package topic

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A leader whose copy is damaged gives way when a condition needs the damaged records, also if the
// log is long.
func TestAttackAConditionThatMeetsDamageHasAnotherReplicaLead(t *testing.T) {
	c, _ := spoilable(t, 100)
	a := c.sites[0]
	for i := range 320 {
		a.expect(a.ask("orders.b", strings.Repeat("x", 60<<10)), fmt.Sprintf("orders@%d", 101+i))
	}
	c.settle("all are whole", func() bool { return c.whole(a, 420) })
	a.flip(a.segments()[0])
	said, n := "", 0
	for until := time.Now().Add(8 * time.Second); time.Now().Before(until); time.Sleep(300 * time.Millisecond) {
		n++
		if a.service.Suspects() == 1 {
			return
		}
		a.hub.publish(message("orders.new", fmt.Sprint("r", n), "y", "Expect-Last-By-Subject: 7"))
		said = a.hub.answer(t, fmt.Sprint("r", n))
	}
	t.Errorf("it leads on, and says: %s", said)
}
