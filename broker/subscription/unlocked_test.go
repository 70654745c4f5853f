package subscription

import (
	"testing"
	"testing/synctest"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

// hangReads has reads of the disk hang until they are released. hang waits until one does, and
// fails the test if the Subscription is locked then.
func (w *world) hangReads(s *Subscription) (hang, release func()) {
	gate, waiting := make(chan struct{}), make(chan struct{}, 100)
	w.fs.(*crashfs.FS).SetHook(func(op crashfs.Op) error {
		if op.Kind == "read" {
			waiting <- struct{}{}
			<-gate
		}
		return nil
	})
	release = func() {
		w.fs.(*crashfs.FS).SetHook(nil)
		close(gate)
		synctest.Wait()
	}
	return func() {
		w.t.Helper()
		if synctest.Wait(); len(waiting) == 0 {
			w.t.Fatal("nothing is read")
		}
		if !s.mu.TryLock() {
			release()
			w.t.Fatal("it is locked while the disk is read")
		}
		s.mu.Unlock()
	}, release
}

// pendingTwo returns a Subscription with two pending records of four, which a restart has left on
// the disk only.
func pendingTwo(w *world) *Subscription {
	for range 4 {
		w.shard.publish("o") // each is a batch
	}
	w.declare("billing", 1, earliest())
	w.find("billing").Pull(pull("a", 2))
	w.expect("billing", "a", "1", "2")
	w.restart()
	synctest.Wait()
	return w.find("billing")
}

// TestNeitherAcksNorRequestsWaitForTheDisk: link readers bring them, to all Subscriptions of a
// broker.
func TestNeitherAcksNorRequestsWaitForTheDisk(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		s := pendingTwo(w)
		hang, release := w.hangReads(s)
		s.Pull(pull("b", 1))
		hang()
		s.Ack(1, 1, 1, Done, 0, nil)
		s.Pull(pull("c", 1))
		if i := s.Info(); i.FloorOffset != 1 || i.Pending != 1 {
			t.Errorf("it stands at %+v", i)
		}
		release()
		w.expect("billing", "b", "3")
		w.expect("billing", "c", "4")
		w.restart()
		if i := w.find("billing").Info(); i.FloorOffset != 1 || i.Pending != 3 {
			t.Errorf("it stands at %+v", i)
		}
	})
}

// TestARedeliveryDoesNotHoldUpAcks: it is read again from the disk.
func TestARedeliveryDoesNotHoldUpAcks(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		s := pendingTwo(w)
		s.Ack(1, 1, 1, Retry, 0, nil)
		hang, release := w.hangReads(s)
		s.Pull(pull("b", 2))
		hang()
		s.Ack(2, 2, 1, Done, 0, nil)
		s.Ack(1, 1, 1, Done, 0, nil) // the record that is read
		release()
		w.expect("billing", "b", "3", "4")
	})
}

// TestAnEarlierRecordThatIsRefusedMeanwhileIsDeliveredAgain: what was read for a later record does
// not have it.
func TestAnEarlierRecordThatIsRefusedMeanwhileIsDeliveredAgain(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		s := pendingTwo(w)
		s.Ack(2, 2, 1, Retry, 0, nil)
		hang, release := w.hangReads(s)
		s.Pull(pull("b", 1))
		hang() // record 2 is read
		s.Ack(2, 2, 1, Done, 0, nil)
		s.Ack(1, 1, 1, Retry, 0, nil)
		release()
		w.expect("billing", "b", "1 x2")
	})
}

// TestAChangeWhileTheDiskIsReadCounts: what was read for the former settings is not delivered.
func TestAChangeWhileTheDiskIsReadCounts(t *testing.T) {
	for name, change := range map[string]func(s *Subscription) (want []string){
		"a reset": func(s *Subscription) []string {
			s.mu.Lock()
			s.forgetDeliveries(1)
			s.mu.Unlock()
			s.service.tasks.wake(s)
			return []string{"1", "2"}
		},
		"other filters": func(s *Subscription) []string {
			spec := startAt(coordination.Start{From: coordination.FromEarliest}, "p")
			s.respecify(&spec)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			story(t, func(t *testing.T, w *world) {
				s := pendingTwo(w)
				hang, release := w.hangReads(s)
				s.Pull(pull("b", 2))
				hang()
				want := change(s)
				release()
				w.expect("billing", "b", want...)
			})
		})
	}
}

// TestARequestThatDoesNotWaitGetsWhatIsThere: it comes while the disk is read, after another record
// was published.
func TestARequestThatDoesNotWaitGetsWhatIsThere(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		s := pendingTwo(w)
		hang, release := w.hangReads(s)
		s.Pull(pull("b", 1))
		hang()
		w.shard.publish("o")
		p := pull("c", 3)
		p.NoWait = true
		s.Pull(p)
		release()
		w.expect("billing", "b", "3")
		w.expect("billing", "c", "4", "5", "NoMessages 1/0")
	})
}
