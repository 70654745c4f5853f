package subscription

import (
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// reset resets a declared Subscription.
func (w *world) reset(name string, to coordination.Start) {
	for i, s := range w.desired.subs {
		if s.Name == name {
			after := *s
			after.Resets++
			after.ResetTo = to
			w.desired.subs[i] = &after
		}
	}
	w.changed(name)
}

func TestAResetBeginsAgainOnce(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.shard.publish("o", "o", "o")
		time.Sleep(time.Minute)
		noon := time.Now()
		w.shard.publish("o", "o")
		w.declare("billing", 7, earliest())
		s := w.find("billing")
		consume := func(want ...string) {
			t.Helper()
			synctest.Wait() // the desired state is applied
			s := w.find("billing")
			s.Pull(Pull{To: []byte("a"), Batch: 9, NoWait: true})
			w.expect("billing", "a", want...)
			for offset := uint64(1); offset <= 5; offset++ {
				_ = w.ackNow(s, offset, Done)
			}
		}
		consume("1", "2", "3", "4", "5", "NoMessages 4/0")

		// A request that waits is served by the new cursor.
		s.Pull(pull("b", 2))
		w.reset("billing", coordination.Start{From: coordination.FromTime, Time: noon})
		w.expect("billing", "b", "4", "5")
		if w.find("billing") != s {
			t.Error("the Subscription is another one")
		}
		if i := s.Info(); i.FloorOffset != 3 || i.Pending != 2 {
			t.Errorf("after a reset to a time: %+v", i)
		}
		// An ack of before counts for what the new cursor delivered only.
		if err := w.ackNow(s, 4, Done); err != nil {
			t.Fatal(err)
		}
		for range 2 { // by its ops, and by a snapshot
			w.restart()
			s = w.find("billing")
			if i := s.Info(); i.FloorOffset != 4 || i.Pending != 1 {
				t.Errorf("under another leader: %+v", i)
			}
			s.store.mu.Lock()
			s.store.dirty = true
			s.store.mu.Unlock()
		}

		w.reset("billing", coordination.Start{From: coordination.FromEarliest})
		consume("1", "2", "3", "4", "5", "NoMessages 4/0")
		w.reset("billing", coordination.Start{From: coordination.FromOffset, Offset: 3})
		consume("3", "4", "5", "NoMessages 6/0")
		w.reset("billing", coordination.Start{From: coordination.FromEarliest})
		w.reset("billing", coordination.Start{From: coordination.FromLatest})
		synctest.Wait()
		w.shard.publish("o")
		consume("6", "NoMessages 8/0")

		// Reset while it is not led here.
		w.stop()
		for i, s := range w.desired.subs {
			after := *s
			after.Resets, after.ResetTo = s.Resets+1, coordination.Start{From: coordination.FromOffset, Offset: 2}
			w.desired.subs[i] = &after
		}
		w.start()
		consume("2", "3", "4", "5", "6", "NoMessages 4/0")
	})
}

// An etcd that is restored from a backup may have forgotten a reset. The cursor stays, and the next
// reset counts.
func TestAForgottenResetKeepsItsCursor(t *testing.T) {
	for _, leads := range []bool{true, false} {
		story(t, func(t *testing.T, w *world) {
			w.shard.publish("o", "o", "o")
			w.declare("billing", 7, coordination.SubscriptionSpec{})
			w.find("billing")
			before := w.desired.subs[0]
			earliest := coordination.Start{From: coordination.FromEarliest}
			w.reset("billing", earliest)
			synctest.Wait()
			w.find("billing").Pull(pull("a", 3))
			w.expect("billing", "a", "1", "2", "3")
			if err := w.ackNow(w.find("billing"), 1, Done); err != nil {
				t.Fatal(err)
			}
			if !leads {
				w.stop()
			}
			w.desired.subs[0] = before
			if leads {
				w.changed("billing")
			} else {
				w.start()
			}
			stands := func(floor uint64, pending int) {
				t.Helper()
				synctest.Wait()
				if i := w.find("billing").Info(); i.FloorOffset != floor || i.Pending != pending {
					t.Errorf("it stands at %+v, want the floor %d and %d pending", i, floor, pending)
				}
			}
			stands(1, 2)
			time.Sleep(time.Second)
			w.restart()
			stands(1, 2)
			w.reset("billing", earliest)
			stands(0, 0)
			w.restart()
			stands(0, 0)
		})
	}
}

// A reset whose start is not durable delivers nothing: under another leader Latest would be another
// record.
func TestAResetDeliversNothingBeforeItIsDurable(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.shard.publish("o", "o")
		w.declare("billing", 7, earliest())
		s := w.find("billing")
		s.Pull(pull("a", 2))
		w.expect("billing", "a", "1", "2")
		s.Pull(pull("a", 2))
		var full atomic.Bool
		var tried atomic.Int32
		full.Store(true)
		w.fs.(*crashfs.FS).SetHook(func(op crashfs.Op) error {
			if !full.Load() || op.Kind != "preallocate" {
				return nil
			}
			if tried.Add(1) > 100 {
				full.Store(false) // or time would stand still
			}
			return syscall.ENOSPC
		})
		w.shard.state.Roll()
		w.reset("billing", coordination.Start{From: coordination.FromEarliest})
		time.Sleep(5 * time.Second)
		w.expect("billing", "a")
		full.Store(false)
		time.Sleep(2 * time.Second)
		w.expect("billing", "a", "1", "2")
	})
}

// TestTheStartOfASecondResetIsWritten: a step between the two parts of a reset wrote the start that
// the former one had searched for as that of the second, whose own start was then never written:
// after a crash Latest was another record.
func TestTheStartOfASecondResetIsWritten(t *testing.T) {
	w := newWorld(t)
	defer func() { w.stop() }()
	w.shard.publish("o", "o")
	w.declare("billing", 7, earliest())
	s := w.find("billing")
	entryOf := func() *entry {
		s.store.mu.Lock()
		defer s.store.mu.Unlock()
		return s.store.subs["billing"]
	}
	s.mu.Lock()
	former := entryOf()
	s.search = &startSearch{} // the former reset still searches
	w.reset("billing", coordination.Start{From: coordination.FromLatest})
	for range 300 { // until the second reset begins, if it begins without the lock
		if entryOf() != former {
			break
		}
		time.Sleep(time.Microsecond)
	}
	s.startAt(1, 0) // a step
	s.mu.Unlock()
	testutil.EventuallyTrue(t, "the reset is served", func() bool {
		return entryOf() != former && w.service.WhyNot(topicID, "billing") == nil && w.find("billing").Info().DeliveredOffset == 2
	})
	w.shard.publish("o")
	crashed := w.fs.(*crashfs.FS).Snapshot()
	w.stop()
	w.fs = crashed
	w.start()
	if i := w.find("billing").Info(); i.DeliveredOffset != 2 || i.Lag != 1 {
		t.Errorf("after a crash it stands at %+v", i)
	}
}
