package subscription

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestARecordWhoseMaximumIsRaisedIsNoDeadLetter: while its dead letter waits, more deliveries are
// permitted. It is delivered again, its answers count, and no dead letter is stored until it is
// given up again.
func TestARecordWhoseMaximumIsRaisedIsNoDeadLetter(t *testing.T) {
	deadStory(t, func(t *testing.T, w *world) {
		w.dead.refuse("it is full")
		w.shard.publish("o")
		w.declare("billing", 1, buried())
		s := w.find("billing")
		began := time.Now()
		s.Pull(pull("a", 9))
		time.Sleep(3 * time.Second)
		w.expect("billing", "a", "1", "1 x2")
		s.ExplainAck(1, []byte("-NAK no stock"))
		if i := s.Info(); i.GivenUp != 1 || i.DeadLetterTrouble == "" {
			t.Fatalf("its dead letter was refused, and it stands at %+v", i)
		}
		more := buried()
		more.Ack.MaxDeliver, more.Ack.Wait = 4, time.Hour
		w.declare("billing", 1, more)
		w.expect("billing", "a", "1 x3")
		if i := s.Info(); i.GivenUp != 0 || i.DeadLetterTrouble != "" || i.Pending != 1 {
			t.Errorf("delivered again, it stands at %+v", i)
		}
		s.Ack(1, 0, 3, Progress, 0, nil)
		time.Sleep(59 * time.Minute)
		w.expect("billing", "a")
		s.Ack(1, 0, 3, Retry, 2*time.Minute, nil)
		time.Sleep(time.Minute)
		w.expect("billing", "a")
		w.dead.refuse("")
		if got := w.dead.subjects(); len(got) != 0 {
			t.Errorf("stored is %q of a record that is delivered again", got)
		}
		time.Sleep(time.Minute)
		w.expect("billing", "a", "1 x4")
		s.Ack(1, 0, 4, Retry, 0, nil)
		time.Sleep(time.Second)
		if got := w.dead.subjects(); len(got) != 1 {
			t.Fatalf("stored is %q", got)
		}
		m := &w.dead.stored[0]
		if headerOf(m, DeadAttempts) != "4" || headerOf(m, DeadAnswer) != "-NAK no stock" || headerOf(m, DeadFirstDelivery) != began.UTC().Format(time.RFC3339Nano) {
			t.Errorf("its headers are %q", m.Data[:m.Header])
		}
	})
}

// TestAChangeKeepsWhatADeadLetterSays: the times of deliveries and the client's answer stay in the
// headers of a dead letter that waits for its turn while the Subscription is changed.
func TestAChangeKeepsWhatADeadLetterSays(t *testing.T) {
	for name, change := range map[string]func(s *coordination.SubscriptionSpec, n int){
		"the ack wait":          func(s *coordination.SubscriptionSpec, n int) { s.Ack.Wait += time.Duration(n) * time.Minute },
		"the maximum":           func(s *coordination.SubscriptionSpec, n int) { s.Ack.MaxDeliver += n },
		"the dead-letter topic": func(s *coordination.SubscriptionSpec, n int) { s.DeadLetter = fmt.Sprintf("dead%d", n) },
	} {
		t.Run(name, func(t *testing.T) {
			deadStory(t, func(t *testing.T, w *world) {
				w.dead.silent = true
				w.shard.publishN("o", 1000) // so many that deadlines are scanned after a pause only
				spec := buried()
				spec.Ack.Wait = time.Hour
				w.declare("billing", 1, spec)
				s := w.find("billing")
				s.Pull(pull("a", 1000))
				synctest.Wait()
				began := time.Now().UTC().Format(time.RFC3339Nano)
				for offset := range uint64(deadLettersAtOnce + 10) {
					s.ExplainAck(offset+1, []byte("+TERM no such customer"))
					s.Ack(offset+1, 0, 1, Term, 0, nil)
				}
				synctest.Wait()
				for n := range 2 { // before the second one deadlines were scanned just now
					change(&spec, n+1)
					w.declare("billing", 1, spec)
					synctest.Wait()
				}
				w.dead.mu.Lock()
				late := w.dead.late
				w.dead.silent = false
				w.dead.mu.Unlock()
				for _, done := range late {
					done(nil)
				}
				time.Sleep(time.Second)
				stored := w.dead.subjects()
				for i := range stored {
					m := &w.dead.stored[i]
					if headerOf(m, DeadAnswer) != "+TERM no such customer" || headerOf(m, DeadFirstDelivery) != began || headerOf(m, DeadLastDelivery) != began {
						t.Errorf("of %d stored, one has the headers %q", len(stored), m.Data[:m.Header])
						break
					}
				}
				if len(stored) != deadLettersAtOnce+10 || s.Info().DeadLettered == 0 {
					t.Errorf("%d are stored", len(stored))
				}
			})
		})
	}
}

// TestTheTroubleWithDeadLettersEndsWithTheLastOne: it ends at once when the last waiting message is
// acknowledged with later ones, removed, or deleted by retention.
func TestTheTroubleWithDeadLettersEndsWithTheLastOne(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, w *world, s *Subscription){
		"an ack of all": func(t *testing.T, w *world, s *Subscription) {
			testutil.Must(t, w.ackNow(s, 3, Done))
		},
		"removal": func(_ *testing.T, w *world, _ *Subscription) {
			w.shard.gone.Add(1, 3)
			w.shard.moved()
		},
		"retention": func(t *testing.T, w *world, _ *Subscription) {
			w.shard.data.Roll()
			w.shard.publish("o")
			_, err := w.shard.data.Trim(3)
			testutil.Must(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			deadStory(t, func(t *testing.T, w *world) {
				w.dead.refuse("it is full")
				w.shard.publish("o", "o")
				spec := buried()
				if name == "an ack of all" {
					spec.Ack.Policy = coordination.AckAll
				}
				w.declare("billing", 1, spec)
				s := w.find("billing")
				s.Pull(pull("a", 5))
				time.Sleep(10 * time.Second)
				if name == "an ack of all" {
					w.shard.publish("o")
					synctest.Wait()
				}
				if i := s.Info(); i.GivenUp != 2 || !strings.Contains(i.DeadLetterTrouble, "it is full") {
					t.Fatalf("it stands at %+v", i)
				}
				end(t, w, s)
				if i := s.Info(); i.GivenUp != 0 || i.DeadLetterTrouble != "" {
					t.Errorf("it stands at %+v", i)
				}
				if stats := w.service.Stats(); stats.GivenUp != 0 {
					t.Errorf("%d wait", stats.GivenUp)
				}
			})
		})
	}
}

// TestDeadlinesFitIntoNanoseconds: a timer that is due after the longest wait, or that a broker of
// a version without dead letters sets for a terminated record, is not due at once. That spins.
func TestDeadlinesFitIntoNanoseconds(t *testing.T) {
	for _, ms := range []int64{terminated, terminated + clockCorrections/8, latestDeadline, after(time.Now().UnixMilli(), milliseconds(math.MaxInt64))} {
		if ns := ms * int64(time.Millisecond); ns/int64(time.Millisecond) != ms {
			t.Errorf("%d ms are %d ns", ms, ns)
		}
	}
	for deadline, want := range map[int64]bool{
		terminated: true, terminated - clockCorrections/2: true, latestDeadline: false, math.MaxInt64 / 1_000_000 * 2: false,
		terminatedBefore: true, terminatedBefore - clockCorrections: true,
	} {
		if d := (delivery{deadline: deadline}); d.isTerminated() != want {
			t.Errorf("that %d is a termination is %v", deadline, !want)
		}
	}
	story(t, func(t *testing.T, w *world) {
		w.shard.publish("o", "o")
		spec := earliest()
		spec.Ack.Wait = math.MaxInt64
		w.declare("billing", 1, spec)
		s := w.find("billing")
		s.Pull(pull("a", 2))
		w.expect("billing", "a", "1", "2")
		s.Ack(2, 0, 1, Retry, math.MaxInt64, nil)
		s.Pull(pull("a", 2))
		time.Sleep(20 * 365 * 24 * time.Hour) // never with a timer that is always due
		w.expect("billing", "a")
	})
}
