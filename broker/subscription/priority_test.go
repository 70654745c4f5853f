package subscription

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
)

func prioritized(policy coordination.PriorityPolicy) coordination.SubscriptionSpec {
	spec := earliest()
	spec.Consumer.PriorityPolicy, spec.Consumer.PriorityGroups = policy, []string{"A"}
	return spec
}

// Pinned and Unpinned record what happens to pins, for the inbox "pins".
func (m *mailbox) Pinned(group, id string) { m.event("pinned %s %d", group, len(id)) }
func (m *mailbox) Unpinned(group string)   { m.event("unpinned %s", group) }

func (m *mailbox) event(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.got["pins"] = append(m.got["pins"], fmt.Sprintf(format, args...))
}

// pin returns the pin of the last delivery.
func (w *world) pin(of string) string { return w.box(of).last().Pin }

// TestLowestPriorityComesFirst: the lowest number is served first, and in turn with others of it.
func TestLowestPriorityComesFirst(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.declare("billing", 1, prioritized(coordination.PriorityPrioritized))
		s := w.find("billing")
		for i, to := range []string{"b", "a1", "c", "a2"} {
			s.Pull(Pull{To: []byte(to), Batch: 2, Priority: []int{2, 1, 3, 1}[i]})
		}
		w.shard.publishN("o", 7)
		w.expect("billing", "a1", "1", "3")
		w.expect("billing", "a2", "2", "4")
		w.expect("billing", "b", "5", "6")
		w.expect("billing", "c", "7")
		s.Pull(Pull{To: []byte("a1"), Batch: 1, Priority: 1})
		w.shard.publish("o", "o")
		w.expect("billing", "a1", "8")
		w.expect("billing", "c", "9")
	})
}

// TestOverflowIsServedWhenEnoughWaits: a request with a minimum waits until so many records are
// there, or are pending. Others are served in the meantime.
func TestOverflowIsServedWhenEnoughWaits(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		spec := prioritized(coordination.PriorityOverflow)
		spec.Subjects, spec.Ack.Wait = []string{"o"}, time.Hour
		w.declare("billing", 1, spec)
		s := w.find("billing")
		s.Pull(Pull{To: []byte("over"), Batch: 9, MinPending: 3})
		w.shard.publish("o", "x", "x", "o")
		w.expect("billing", "over")
		s.Pull(Pull{To: []byte("any"), Batch: 1})
		w.expect("billing", "any", "1")
		w.shard.publish("o", "o") // three wait now
		w.expect("billing", "over", "4")
		s.Pull(Pull{To: []byte("busy"), Batch: 9, MinAckPending: 3})
		w.expect("billing", "busy")
		s.Pull(Pull{To: []byte("any"), Batch: 1})
		w.expect("billing", "any", "5")
		w.expect("billing", "busy", "6") // 1, 4 and 5 are pending
		s.Pull(Pull{To: []byte("now"), Batch: 1, MinPending: 1, NoWait: true})
		w.expect("billing", "now", "NoMessages 1/0")
		for _, offset := range []uint64{1, 4, 5} { // one stays pending, less than busy asks for
			if err := w.ackNow(s, offset, Done); err != nil {
				t.Error(err)
			}
		}
		s.Pull(Pull{To: []byte("one"), Batch: 1, MinPending: 1})
		s.Ack(6, 0, 0, Retry, 0, nil)
		w.expect("billing", "one", "6 x2") // what is delivered again counts, too
		w.expect("billing", "over")
		w.expect("billing", "busy")
	})
}

// TestOneClientIsPinned: it gets all until it is silent or unpinned. Others wait, and whoever has a
// former pin learns it.
func TestOneClientIsPinned(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		spec := prioritized(coordination.PriorityPinned)
		spec.Consumer.PriorityTimeout, spec.Ack.Wait = time.Minute, time.Hour
		w.declare("billing", 1, spec)
		s := w.find("billing")
		ask := func(to, pin string, n int) { s.Pull(Pull{To: []byte(to), Batch: n, Group: "A", Pin: pin}) }
		ask("a", "", 1)
		ask("b", "", 5)
		if i := s.Info(); i.Pin != "" || !i.Pinned.IsZero() {
			t.Errorf("%q is pinned before anything was delivered", i.Pin)
		}
		w.shard.publish("o", "o")
		w.expect("billing", "a", "1") // and b, which waits for the second, does not get it
		w.expect("billing", "b")
		w.expect("billing", "pins", "pinned A 22")
		first := w.pin("billing")
		if i := s.Info(); i.Pin != first || first == "" || !i.Pinned.Equal(time.Now()) {
			t.Errorf("pinned is %q at %v, and the delivery has %q", i.Pin, i.Pinned, first)
		}
		time.Sleep(50 * time.Second)
		ask("a", first, 2) // a sign of life
		w.expect("billing", "a", "2")
		ask("x", "another", 1)
		w.expect("billing", "x", "PinMismatch 1/0")
		time.Sleep(50 * time.Second)
		w.shard.publish("o")
		w.expect("billing", "a", "3")
		w.expect("billing", "pins")
		time.Sleep(11 * time.Second) // it has not asked for a minute
		w.expect("billing", "pins", "unpinned A")
		if i := s.Info(); i.Pin != "" {
			t.Errorf("%q is pinned still", i.Pin)
		}
		ask("a", first, 1)
		w.shard.publish("o")
		w.expect("billing", "a", "WrongPin 1/0")
		w.expect("billing", "b", "4")
		second := w.pin("billing")
		if second == first || second == "" {
			t.Errorf("the pins are %q and %q", first, second)
		}
		w.expect("billing", "pins", "pinned A 22")

		ask("c", "", 1)
		s.Unpin()
		w.expect("billing", "b", "WrongPin 4/0")
		w.shard.publish("o")
		w.expect("billing", "c", "5")

		// The next leader knows of no pin.
		third := w.pin("billing")
		time.Sleep(time.Second) // the deliveries are durable
		w.crash()
		s = w.find("billing")
		ask("c", third, 1)
		w.shard.publish("o")
		w.expect("billing", "c", "WrongPin 1/0")
		ask("c", "", 1)
		w.expect("billing", "c", "6")

		// A request without a group is served while nobody is pinned, and does not pin.
		s.Unpin()
		s.Pull(Pull{To: []byte("plain"), Batch: 1})
		w.shard.publish("o")
		w.expect("billing", "plain", "7")
		if d := w.box("billing").last(); d.Pin != "" {
			t.Errorf("a request without a group got the pin %q", d.Pin)
		}
		// Another policy ends the pin.
		ask("c", "", 1)
		w.shard.publish("o")
		w.expect("billing", "c", "8")
		w.declare("billing", 1, earliest())
		synctest.Wait()
		s.Pull(pull("d", 1))
		w.shard.publish("o")
		w.expect("billing", "d", "9")
	})
}

// TestWaitingOfPrioritiesIsBounded: all waiting requests are looked at for each delivery.
func TestWaitingOfPrioritiesIsBounded(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		spec := prioritized(coordination.PriorityPrioritized)
		spec.Consumer.MaxWaiting = 1 << 20
		w.declare("billing", 1, spec)
		s := w.find("billing")
		for i := range mostPrioritized + 1 {
			s.Pull(Pull{To: fmt.Append(nil, i), Batch: 1, Priority: i})
		}
		w.expect("billing", fmt.Sprint(mostPrioritized), "TooManyWaiting 1/0")
		if n := s.Info().Waiting; n != mostPrioritized {
			t.Errorf("%d requests wait", n)
		}
	})
}
