package subscription

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// TestAPinTakesNoRoom: a request that becomes the pinned client's gives back what it took, and no
// more.
func TestAPinTakesNoRoom(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		spec := prioritized(coordination.PriorityPinned)
		spec.Consumer.PriorityTimeout, spec.Ack.Wait = time.Minute, time.Hour
		w.declare("billing", 1, spec)
		room := NewPullRoom(1 << 20)
		w.find("billing").PullWithin(room.Of("ann"), Pull{To: []byte("a"), Batch: 1, Group: "A"})
		if held := room.Held(); held != pullBytes+2 {
			t.Errorf("the request takes %d bytes", held)
		}
		w.shard.publish("o")
		w.expect("billing", "a", "1")
		if held, of := room.Held(), room.Of("ann"); held != 0 || of.held.Load() != 0 || of.has.Load() != 0 {
			t.Errorf("after the request %d bytes are taken, %d for %d requests of its account", held, of.held.Load(), of.has.Load())
		}
	})
}

// TestForgettingAccountsIsRare: accounts that wait are never forgotten, and others only when as
// many came as there are. So a search among all of them is paid for by the calls in between.
func TestForgettingAccountsIsRare(t *testing.T) {
	room := NewPullRoom(1 << 30)
	for i := range mostAccounts - 2 {
		room.Of(fmt.Sprint("waits ", i)).Enter(0)
	}
	searches := 0
	for i := range 100 * mostAccounts {
		before := len(room.by)
		room.Of(fmt.Sprint("passes ", i))
		if len(room.by) <= before {
			searches++
		}
	}
	if searches > 200 || len(room.by) > 3*mostAccounts {
		t.Errorf("%d searches, and %d accounts are known", searches, len(room.by))
	}
	for i := range mostAccounts - 2 {
		if room.Of(fmt.Sprint("waits ", i)).has.Load() != 1 {
			t.Fatalf("account %d was forgotten", i)
		}
	}
}
