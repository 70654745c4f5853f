package subscription

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// TestRemovedRecordsAreNotDelivered: neither for the first time nor again. Pending ones are
// acknowledged, and no advisory says that they reached their maximum of deliveries.
func TestRemovedRecordsAreNotDelivered(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		spec := earliest()
		spec.Ack.Wait = 10 * time.Second
		spec.Ack.MaxDeliver = 2
		w.declare("billing", 1, spec)
		s := w.find("billing")
		w.shard.publish("o", "o", "o", "o", "o", "o", "o", "o")
		w.shard.gone.Add(2, 3)
		w.shard.gone.Add(7, 9)
		s.Pull(pull("a", 3))
		w.expect("billing", "a", "1", "3", "4")
		if i := s.Info(); i.Lag != 2 || !i.LagExact || i.Pending != 3 {
			t.Fatalf("of 5 records that are left 3 are pending, and it stands at %+v", i)
		}
		w.shard.gone.Add(1, 2)
		w.shard.gone.Add(4, 5)
		if i := s.Info(); i.Pending != 1 || i.FloorOffset != 2 || i.FloorSequence != 1 || i.Lag != 2 {
			t.Fatalf("1 and 4 were removed, and it stands at %+v", i)
		}
		s.Pull(pull("b", 9))
		w.expect("billing", "b", "5", "6")
		if i := s.Info(); i.Lag != 0 || i.DeliveredOffset != 8 {
			t.Fatalf("all is delivered, and it stands at %+v", i)
		}
		w.shard.gone.Add(5, 6)
		time.Sleep(11 * time.Second)
		w.expect("billing", "b", "3 x2", "6 x2")
		w.shard.gone.Add(6, 7)
		time.Sleep(11 * time.Second)
		w.expect("billing", "b")
		if i := s.Info(); i.Pending != 0 || i.Exhausted != 1 || i.Lost != 0 || i.Trouble != "" {
			t.Errorf("3 was delivered twice, 6 was removed, and it stands at %+v", i)
		}
		w.shard.publish("o")
		w.expect("billing", "b", "9")
	})
}

// TestARemovalMakesRoomForDeliveries: a Subscription with too many pending records goes on when
// some are removed.
func TestARemovalMakesRoomForDeliveries(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		spec := earliest()
		spec.Ack.MaxPending = 2
		w.declare("billing", 1, spec)
		s := w.find("billing")
		w.shard.publish("o", "o", "o", "o", "o")
		s.Pull(pull("a", 9))
		w.expect("billing", "a", "1", "2")
		w.shard.gone.Add(1, 2)
		w.shard.moved()
		w.expect("billing", "a", "3")
		w.shard.gone.Add(2, 5)
		w.shard.moved()
		w.expect("billing", "a", "5")
	})
}

// TestTheNewestOfASubjectIsOneThatIsLeft: a start at the newest record of each subject passes
// removed ones.
func TestTheNewestOfASubjectIsOneThatIsLeft(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.shard.publish("a", "b", "a", "b", "c")
		w.shard.gone.Add(3, 4)
		w.declare("s", 1, startAt(coordination.Start{From: coordination.FromLastBySubject}))
		s := w.find("s")
		if i := s.Info(); i.Lag != 3 {
			t.Errorf("three subjects have a record, and it stands at %+v", i)
		}
		w.shard.gone.Add(4, 5)
		if i := s.Info(); i.Lag != 2 {
			t.Errorf("one of the newest was removed, and it stands at %+v", i)
		}
		s.Pull(pull("a", 9))
		w.expect("s", "a", "1", "5")
	})
}

// TestASubscriptionOfWhatIsLeft removes records at random while others are published, delivered and
// acknowledged, and compares what a Subscription says with a map.
func TestASubscriptionOfWhatIsLeft(t *testing.T) {
	for seed := range uint64(24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			story(t, func(t *testing.T, w *world) { removeAtRandom(t, w, seed) })
		})
	}
}

func removeAtRandom(t *testing.T, w *world, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 3))
	spec := earliest()
	spec.Ack.Wait = time.Hour
	if seed%2 == 0 {
		spec = startAt(coordination.Start{From: coordination.FromEarliest}, "o.>")
		spec.Ack.Wait = time.Hour
	}
	w.declare("s", 1, spec)
	s := w.find("s")
	left := map[uint64]bool{} // records that match, and are not removed
	pending := map[uint64]bool{}
	end, delivered := uint64(1), uint64(0)
	for range 60 {
		switch r.IntN(5) {
		case 0, 1:
			var subjects []string
			for range 1 + r.IntN(20) {
				name := []string{"o.1", "o.2", "noise"}[r.IntN(3)]
				subjects = append(subjects, name)
				left[end] = seed%2 == 1 || strings.HasPrefix(name, "o")
				end++
			}
			w.shard.publish(subjects...)
		case 2:
			if end == 1 {
				continue
			}
			from := 1 + r.Uint64N(end-1)
			next := min(from+1+r.Uint64N(1+r.Uint64N(8)), end)
			w.shard.gone.Add(from, next)
			for o := from; o < next; o++ {
				left[o], pending[o] = false, false
			}
			w.shard.moved()
		case 3:
			n := 1 + r.IntN(8)
			var want []string
			for o := delivered + 1; o < end && len(want) < n; o++ {
				if left[o] {
					want = append(want, fmt.Sprint(o))
					delivered, pending[o] = o, true
				}
			}
			if left := n - len(want); left > 0 {
				want = append(want, fmt.Sprintf("NoMessages %d/0", left))
			}
			p := pull("a", n)
			p.NoWait = true
			s.Pull(p)
			synctest.Wait()
			if got := w.box("s").take("a"); !slices.Equal(got, want) {
				t.Fatalf("%q were delivered, want %q", got, want)
			}
		case 4:
			for o := range pending {
				if pending[o] && r.IntN(2) == 0 {
					s.Ack(o, 0, 1, Done, 0, nil)
					pending[o] = false
				}
			}
			synctest.Wait()
		}
		lag, waiting, floor := uint64(0), 0, uint64(0)
		for o := uint64(1); o < end; o++ {
			if left[o] && o > delivered {
				lag++
			}
			if pending[o] {
				if waiting++; floor == 0 {
					floor = o
				}
			}
		}
		i := s.Info()
		if i.Lag != lag || !i.LagExact || i.Pending != waiting || waiting > 0 && i.FloorOffset != floor-1 {
			t.Fatalf("it stands at %+v; %d are to be delivered, and %d pending, from %d on", i, lag, waiting, floor)
		}
	}
}
