package topic

import (
	"fmt"
	"slices"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/protocol"
)

// asking returns a message on the condition that no message matches a pattern.
func asking(of, reply, pattern string) protocol.Message {
	return message(of, reply, "x", "Expect-Subject: "+pattern, "Expect-Last-By-Subject: 0")
}

// TestAPatternHoldsUpItsOwnConnectionOnly: while a pattern is looked up, other connections publish
// to the shard and get their acks. What its own connection publishes behind it waits.
func TestAPatternHoldsUpItsOwnConnectionOnly(t *testing.T) {
	n := newSite(t)
	n.serve("orders")
	n.expect(n.ask("orders.eu", "a"), "orders@1")
	release := n.hangIndex("orders")
	n.hub.publishOf(7, message("orders.own", "before", "b"), asking("orders.own", "pattern", "orders.*.x"), message("orders.own", "behind", "d"))
	n.expect(n.hub.answer(t, "before"), "orders@2")
	n.hub.publishOf(7, message("orders.own", "later", "e"))
	if many := slices.Repeat([]protocol.Message{message("orders.own", "", "m")}, 100); !n.hub.publishOf(7, many...) {
		t.Error("the connection is not asked to wait")
	}
	for i := range 3 {
		reply := fmt.Sprint("other", i)
		if n.hub.publishOf(8, message("orders.other", reply, "f")) {
			t.Error("another connection is asked to wait")
		}
		n.expect(n.hub.answer(t, reply), fmt.Sprint("orders@", 3+i))
	}
	release()
	n.expect(n.hub.answer(t, "pattern"), "orders@6")
	n.expect(n.hub.answer(t, "behind"), "orders@7")
	n.expect(n.hub.answer(t, "later"), "orders@8")
}

// TestARollupOfAPatternHoldsUpItsOwnConnectionOnly is the same for the removal of what matches a
// pattern.
func TestARollupOfAPatternHoldsUpItsOwnConnectionOnly(t *testing.T) {
	n := newSite(t)
	n.limits(func(s *coordination.StreamSettings) { s.AllowRollup = true })
	n.serve("orders")
	n.expect(n.ask("orders.eu", "a"), "orders@1")
	release := n.hangIndex("orders")
	n.hub.publishOf(7, message("orders.*", "rollup", "x", "Rollup: sub"))
	n.hub.publishOf(8, message("orders.other", "other", "f"))
	n.expect(n.hub.answer(t, "other"), "orders@2")
	release()
	n.expect(n.hub.answer(t, "rollup"), "orders@3")
}
