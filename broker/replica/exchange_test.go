package replica

import (
	"testing"
	"time"
)

// TestAnAcknowledgedRecordIsOnAllMembersOfTheSet: an acknowledged record is on all members of the
// set, at the leader's offset.
func TestAnAcknowledgedRecordIsOnAllMembersOfTheSet(t *testing.T) {
	story(t, "a b c", func(w *world) {
		w.minInSync = 2
		w.place(orders, 1, "a b c")
		a := w.nodes["a"]
		a.publish(orders, numbered(100)...)
		for _, id := range []string{"a", "b", "c"} {
			if _, _, durable := w.nodes[id].logs[orders][Data].Offsets(); durable != 101 {
				t.Errorf("acknowledged, and safe at %s up to %d", id, durable)
			}
		}
		if !w.equal(orders, "a b c") {
			t.Error("the logs differ")
		}
		w.within(200*time.Millisecond, "followers know the watermark", func() bool {
			return w.nodes["b"].follows[orders].High(Data) == 101 && w.nodes["c"].follows[orders].High(Data) == 101
		})
	})
}
