package session_test

import (
	"sync/atomic"
	"testing"

	"github.com/carillon-mq/carillon/broker/session"
)

// TestAWatchKnowsTheSubscribersOfItsSubject: a Watch counts subscriptions to exactly its subject,
// in its queue group or in none, of clients and of other brokers, and reports the first and the
// last.
func TestAWatchKnowsTheSubscribersOfItsSubject(t *testing.T) {
	h, address := newTestHub(t, nil)
	var plains, groups, agains atomic.Int64
	plain := h.Watch("in.box", "", func() { plains.Add(1) })
	group := h.Watch("in.box", "g", func() { groups.Add(1) })
	has := func(when string, wantPlain, wantGroup bool, plainChanges, groupChanges int64) {
		t.Helper()
		if plain.Present() != wantPlain || group.Present() != wantGroup {
			t.Errorf("%s: %v and %v", when, plain.Present(), group.Present())
		}
		if plains.Load() != plainChanges || groups.Load() != groupChanges {
			t.Errorf("%s: %d and %d changes", when, plains.Load(), groups.Load())
		}
	}
	c, d := dial(t, address, ""), dial(t, address, "")
	do := func(lines string) { t.Helper(); c.send("%s", lines); c.sync() }

	do("SUB in.* 1\r\nSUB > 2\r\nSUB in.box other 3\r\nSUB in.box.x 4\r\n")
	has("with wildcards and another group", false, false, 0, 0)
	do("SUB in.box 5\r\nSUB in.box 6\r\n")
	has("with two subscriptions", true, false, 1, 0)
	do("SUB in.box g 7\r\n")
	has("with the group", true, true, 1, 1)
	do("UNSUB 5\r\n")
	has("with one left", true, true, 1, 1)
	do("UNSUB 6\r\nUNSUB 7\r\n")
	has("with none left", false, false, 2, 2)
	do("UNSUB 1\r\nUNSUB 2\r\nUNSUB 3\r\nUNSUB 4\r\n")
	c.send("SUB in.box 8\r\nUNSUB 8 1\r\nPUB in.box 0\r\n\r\n")
	c.expect("MSG in.box 8 0", "")
	c.sync()
	has("after a subscription's last message", false, false, 4, 2)

	peer, _ := h.Attach(&sentLink{}, "b2")
	peer.SetInterest(session.Interest{Pattern: "in.box", Count: 1})
	peer.SetInterest(session.Interest{Pattern: "in.box", Queue: "g", Count: 2})
	has("with those of another broker", true, true, 5, 3)
	d.send("SUB in.box 1\r\n")
	d.sync()
	peer.SetInterest(session.Interest{Pattern: "in.box", Queue: "g", Count: 1})
	peer.Detach()
	has("without that broker", true, false, 5, 4)
	again := h.Watch("in.box", "", func() { agains.Add(1) })
	if !again.Present() {
		t.Error("a subscription that is older than the Watch does not count")
	}
	plain.Stop()
	d.send("UNSUB 1\r\n")
	d.sync()
	if again.Present() || agains.Load() != 1 || plains.Load() != 5 {
		t.Errorf("after one was stopped: %v, %d and %d changes", again.Present(), agains.Load(), plains.Load())
	}
}
