package subscription

import (
	"slices"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// TestADeadLetterTakesTheRecordsPlace: in a work queue, and by interest, a record goes once its
// dead letter is stored, and no earlier. One that was given up before there was a dead-letter Topic
// stays, and a late termination removes it.
func TestADeadLetterTakesTheRecordsPlace(t *testing.T) {
	for _, policy := range []coordination.StreamRetention{coordination.WorkQueue, coordination.InterestPolicy} {
		t.Run(string(policy), func(t *testing.T) {
			deadStory(t, func(t *testing.T, w *world) {
				w.retain(policy)
				spec := buried()
				spec.DeadLetter = ""
				w.declare("s", 1, spec)
				s := w.find("s")
				w.shard.publish("o")
				s.Pull(pull("a", 3))
				time.Sleep(time.Second)
				w.expect("s", "a", "1", "1 x2")
				time.Sleep(time.Second)
				if i := s.Info(); i.Exhausted != 1 {
					t.Fatalf("one is given up, and it stands at %+v", i)
				}
				w.holds("it was given up", 1)
				w.declare("s", 1, buried())
				w.dead.refuse("it is full")
				w.shard.publish("o", "o", "o")
				s.Pull(pull("a", 5))
				w.expect("s", "a", "2", "3", "4")
				s.Ack(3, 0, 1, Done, 0, nil)
				s.Ack(4, 0, 1, Term, 0, nil)
				time.Sleep(time.Second)
				w.expect("s", "a", "2 x2")
				time.Sleep(time.Second)
				w.holds("the dead-letter topic refuses", 1, 2, 4)
				w.restart()
				s = w.find("s")
				w.holds("after a restart", 1, 2, 4)
				w.dead.refuse("")
				time.Sleep(deadLetterLast)
				w.holds("their dead letters are stored", 1)
				s.Ack(1, 0, 2, Term, 0, nil)
				w.holds("it was terminated, too late for a dead letter")
				if got := w.dead.subjects(); !slices.Equal(slices.Sorted(slices.Values(got)), []string{"dead.o", "dead.o"}) {
					t.Errorf("stored were %q", got)
				}
			})
		})
	}
}

// TestATerminationOutlivesTheDeadLetterTopic: a record that a client terminated is removed when its
// dead letter waits and the Subscription is changed to have none.
func TestATerminationOutlivesTheDeadLetterTopic(t *testing.T) {
	deadStory(t, func(t *testing.T, w *world) {
		w.retain(coordination.WorkQueue)
		w.dead.refuse("it is full")
		w.declare("s", 1, buried())
		s := w.find("s")
		w.shard.publish("o")
		s.Pull(pull("a", 2))
		w.expect("s", "a", "1")
		s.Ack(1, 0, 1, Term, 0, nil)
		w.holds("its dead letter waits", 1)
		spec := buried()
		spec.DeadLetter = ""
		w.declare("s", 1, spec)
		w.holds("without a dead-letter topic")
	})
}
