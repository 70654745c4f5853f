package subscription

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestAWorkQueueKeepsWhatAResetPasses: nobody acknowledged it. A late ack removes it, and a reset
// back delivers it.
func TestAWorkQueueKeepsWhatAResetPasses(t *testing.T) {
	deadStory(t, func(t *testing.T, w *world) {
		w.retain(coordination.WorkQueue)
		w.dead.refuse("it is full")
		w.declare("s", 1, buried())
		s := w.find("s")
		w.shard.publish("o", "o", "o", "o", "o", "o")
		s.Pull(pull("a", 3))
		w.expect("s", "a", "1", "2", "3")
		testutil.Must(t, w.ackNow(s, 1, Term)) // its dead letter waits
		testutil.Must(t, w.ackNow(s, 2, Done))
		resetTo(t, s, 6)
		w.holds("it was reset to 6", 1, 3, 4, 5, 6)
		w.restart()
		w.holds("after a restart", 1, 3, 4, 5, 6)
		s = w.find("s")
		testutil.Must(t, w.ackNow(s, 4, Done))
		w.holds("one was acknowledged late", 1, 3, 5, 6)
		resetTo(t, s, 3)
		s.Pull(pull("b", 3))
		w.expect("s", "b", "3", "5", "6")
		testutil.Must(t, w.ackNow(s, 3, Done))
		w.holds("one was delivered again, and acknowledged", 1, 5, 6)
		w.dead.refuse("")
		w.reset("s", coordination.Start{From: coordination.FromEarliest})
		synctest.Wait()
		s = w.find("s")
		s.Pull(pull("c", 1))
		w.expect("s", "c", "1")
	})
}

// TestAResetByInterestKeepsWhatWasGivenUp: and removes the rest of what it passes.
func TestAResetByInterestKeepsWhatWasGivenUp(t *testing.T) {
	for name, reset := range map[string]func(t *testing.T, w *world, s *Subscription){
		"by a client": func(t *testing.T, _ *world, s *Subscription) { resetTo(t, s, 6) },
		"as declared": func(_ *testing.T, w *world, _ *Subscription) {
			w.reset("s", coordination.Start{From: coordination.FromOffset, Offset: 6})
		},
		"as declared, under the next leader": func(_ *testing.T, w *world, _ *Subscription) {
			w.stop()
			for i, d := range w.desired.subs {
				after := *d
				after.Resets, after.ResetTo = 1, coordination.Start{From: coordination.FromOffset, Offset: 6}
				w.desired.subs[i] = &after
			}
			w.start()
		},
	} {
		t.Run(name, func(t *testing.T) {
			deadStory(t, func(t *testing.T, w *world) {
				w.retain(coordination.InterestPolicy)
				w.dead.refuse("it is full")
				spec := buried()
				spec.Ack.MaxDeliver, spec.Ack.Wait = 2, time.Hour
				w.declare("s", 1, spec)
				s := w.find("s")
				w.shard.publish("o", "o", "o", "o", "o", "o")
				s.Pull(pull("a", 3))
				w.expect("s", "a", "1", "2", "3")
				testutil.Must(t, w.ackNow(s, 2, Term)) // its dead letter waits
				s.Ack(3, 0, 1, Retry, 0, nil)
				s.Pull(pull("a", 1))
				w.expect("s", "a", "3 x2")
				s.Ack(3, 0, 2, Retry, 0, nil) // and that of 3
				reset(t, w, s)
				w.holds("it was reset", 2, 3, 6)
				w.restart()
				s = w.find("s")
				w.holds("under the next leader", 2, 3, 6)
				if err := w.ackNow(s, 2, Done); err != nil {
					t.Fatal(err)
				}
				w.holds("one was acknowledged late", 3, 6)
			})
		})
	}
}

func resetTo(t *testing.T, s *Subscription, next uint64) {
	t.Helper()
	done := make(chan error, 1)
	if _, err := s.Reset(next, func(err error) { done <- err }); err != nil {
		t.Fatal(err)
	}
	testutil.Must(t, <-done)
}

// TestNothingIsRemovedBeforeAResetIsDurable: another leader may find the former cursor.
func TestNothingIsRemovedBeforeAResetIsDurable(t *testing.T) {
	releaseStory(t, coordination.InterestPolicy, func(t *testing.T, w *world) {
		w.shard.publish("o", "o", "o", "o")
		w.declare("s", 1, earliest())
		w.declare("other", 2, earliest())
		s := w.find("s")
		w.find("other")
		hold := make(chan struct{})
		w.shard.set(func() { w.shard.hold = hold })
		answers := make(chan error, 2)
		for _, next := range []uint64{3, 4} {
			if _, err := s.Reset(next, func(err error) { answers <- err }); err != nil {
				t.Fatal(err)
			}
			w.undeclare("other") // so all records are looked at
			w.changed("other")
			w.holds("a reset is not confirmed", 1, 2, 3, 4)
		}
		w.shard.set(func() { w.shard.hold = nil })
		close(hold)
		testutil.Must(t, errors.Join(<-answers, <-answers))
		w.holds("they are confirmed", 4)
	})
}

// TestAResetThatFailedRemovesOnceItIsWritten: it is written anew by itself.
func TestAResetThatFailedRemovesOnceItIsWritten(t *testing.T) {
	releaseStory(t, coordination.InterestPolicy, func(t *testing.T, w *world) {
		w.shard.publish("o", "o", "o", "o")
		w.declare("s", 1, earliest())
		s := w.find("s")
		w.shard.set(func() { w.shard.refuse = errors.New("no room") })
		answer := make(chan error, 1)
		if _, err := s.Reset(3, func(err error) { answer <- err }); err != nil {
			t.Fatal(err)
		}
		if err := <-answer; err == nil {
			t.Error("it was confirmed")
		}
		w.holds("it is not written", 1, 2, 3, 4)
		w.shard.set(func() { w.shard.refuse = nil })
		time.Sleep(2 * retryAfter)
		w.holds("it is written", 3, 4)
	})
}

// TestAResetThatCantBeWrittenChangesNothing: nothing is forgotten, and nothing removed.
func TestAResetThatCantBeWrittenChangesNothing(t *testing.T) {
	releaseStory(t, coordination.WorkQueue, func(t *testing.T, w *world) {
		w.shard.publish("o", "o", "o")
		w.declare("s", 1, earliest())
		s := w.find("s")
		s.Pull(pull("a", 2))
		w.expect("s", "a", "1", "2")
		failed := errors.New("the disk failed")
		s.store.mu.Lock()
		s.store.failed = failed
		s.store.mu.Unlock()
		if _, err := s.Reset(3, nil); !errors.Is(err, failed) {
			t.Error(err)
		}
		if i := s.Info(); i.DeliveredOffset != 2 || i.Pending != 2 {
			t.Errorf("it stands at %+v", i)
		}
		s.store.mu.Lock()
		s.store.failed = nil
		s.store.mu.Unlock()
	})
}

// TestAResetOfAWorkQueueBeginsWithTheEarliest: another one, which a broker of an earlier version
// wrote, is refused, and the next one is served. One that was applied stays so.
func TestAResetOfAWorkQueueBeginsWithTheEarliest(t *testing.T) {
	releaseStory(t, coordination.WorkQueue, func(t *testing.T, w *world) {
		w.shard.publish("o", "o", "o")
		w.declare("s", 1, earliest())
		w.find("s").Pull(pull("a", 1))
		w.expect("s", "a", "1")
		w.reset("s", coordination.Start{From: coordination.FromLatest})
		for range 2 {
			synctest.Wait()
			_, err := w.service.Wait(t.Context(), topicID, "s")
			var not *NotServedError
			if !errors.As(err, &not) || not.Reason != Unsupported || !strings.Contains(not.Why, "reset it to Earliest") {
				t.Errorf("the reset was answered with %v", err)
			}
			w.holds("the reset was refused", 1, 2, 3)
			w.restart()
		}
		w.reset("s", coordination.Start{From: coordination.FromEarliest})
		synctest.Wait()
		w.find("s").Pull(pull("a", 3))
		w.expect("s", "a", "1", "2", "3")

		for i, d := range w.desired.subs { // as an earlier version has applied it
			after := *d
			after.ResetTo = coordination.Start{From: coordination.FromLatest}
			w.desired.subs[i] = &after
		}
		w.restart()
		if i := w.find("s").Info(); i.Pending != 3 {
			t.Errorf("it stands at %+v", i)
		}
	})
}

// TestAResetKeepsABoundedNumber: in a work queue it is refused if it passes more.
func TestAResetKeepsABoundedNumber(t *testing.T) {
	releaseStory(t, coordination.WorkQueue, func(t *testing.T, w *world) {
		some := slices.Repeat([]string{"o"}, mostKept/8)
		for range 8 {
			w.shard.publish(some...)
		}
		w.shard.publish("o", "o")
		w.declare("s", 1, earliest())
		s := w.find("s")
		var refused *ResetRefusedError
		if _, err := s.Reset(mostKept+2, nil); !errors.As(err, &refused) || s.Info().DeliveredOffset != 0 {
			t.Errorf("it was reset past too many: %v", err)
		}
		resetTo(t, s, mostKept+1)
	})
}
