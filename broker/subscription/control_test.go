package subscription

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// TestAPausedSubscriptionWaits: requests wait, acks count, and the end of the pause needs no wake.
func TestAPausedSubscriptionWaits(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.shard.publish("o", "o", "o")
		w.declare("billing", 1, earliest())
		s := w.find("billing")
		s.Pull(pull("a", 2))
		w.expect("billing", "a", "1", "2")
		spec := earliest()
		spec.Consumer.PauseUntil = time.Now().Add(time.Hour)
		w.declare("billing", 1, spec)
		synctest.Wait()
		if rest := s.Info().PausedFor; rest != time.Hour {
			t.Errorf("it is paused for %v", rest)
		}
		s.Pull(Pull{To: []byte("a"), Batch: 2, Expires: 2 * time.Hour, Heartbeat: 45 * time.Minute})
		s.Pull(Pull{To: []byte("b"), Batch: 1, NoWait: true})
		w.expect("billing", "b", "NoMessages 1/0")
		if err := w.ackNow(s, 1, Done); err != nil {
			t.Error(err)
		}
		time.Sleep(50 * time.Minute) // the ack wait of 2 is over
		w.expect("billing", "a", "beat 2/2")
		time.Sleep(11 * time.Minute)
		w.expect("billing", "a", "2 x2", "3")
		for _, offset := range []uint64{2, 3} {
			if err := w.ackNow(s, offset, Done); err != nil {
				t.Error(err)
			}
		}

		spec.Consumer.PauseUntil = time.Now().Add(time.Hour)
		w.declare("billing", 1, spec)
		synctest.Wait()
		s.Pull(pull("a", 1))
		w.shard.publish("o")
		w.expect("billing", "a")
		w.declare("billing", 1, earliest()) // the pause is ended early
		w.expect("billing", "a", "4")
	})
}

// The greatest time that a client may name is no time in the past.
func TestAPauseMayHaveNoEnd(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.shard.publish("o")
		spec := earliest()
		spec.Consumer.PauseUntil = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
		w.declare("billing", 1, spec)
		w.find("billing").Pull(pull("a", 1))
		time.Sleep(100 * 24 * time.Hour)
		w.expect("billing", "a")
		w.declare("billing", 1, earliest())
		w.expect("billing", "a", "1")
	})
}

// TestRecordsAreReplayedInTheirIntervals: until the end of the log is reached.
func TestRecordsAreReplayedInTheirIntervals(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.shard.publish("o")
		time.Sleep(10 * time.Second)
		w.shard.publish("o", "x")
		time.Sleep(5 * time.Second)
		w.shard.publish("o")
		spec := earliest()
		spec.Consumer.ReplayOriginal, spec.Subjects = true, []string{"o"}
		w.declare("billing", 1, spec)
		s := w.find("billing")
		s.Pull(Pull{To: []byte("n"), Batch: 2, NoWait: true})
		w.expect("billing", "n", "1", "NoMessages 1/0") // the next one is not due
		s.Pull(pull("a", 9))
		w.expect("billing", "a")
		time.Sleep(10*time.Second - time.Millisecond)
		w.expect("billing", "a")
		time.Sleep(2 * time.Millisecond)
		w.expect("billing", "a", "2")
		time.Sleep(5 * time.Second)
		w.expect("billing", "a", "4")
		time.Sleep(time.Second)
		w.shard.publish("o", "o")
		w.expect("billing", "a", "5", "6")
	})
}

func TestARateBoundsDeliveries(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		for range 40 {
			w.shard.publish("o")
		}
		spec := earliest()
		spec.Rate = 10
		spec.Ack.Wait = time.Hour
		w.declare("billing", 1, spec)
		s := w.find("billing")
		s.Pull(pull("a", 40))
		var sum int
		for second := range 3 {
			time.Sleep(time.Second)
			synctest.Wait()
			got := len(w.box("billing").take("a"))
			if sum += got; got < 9 || got > 11 {
				t.Errorf("in second %d it delivered %d", second, got)
			}
		}
		// Whoever does not wait gets nothing meanwhile, and peeks wait, too.
		peeks := 0
		s.PullFunc(Pull{To: []byte("b"), Batch: 1, Peek: true}, func(Outcome) { peeks++ })
		synctest.Wait()
		if peeks != 0 {
			t.Error("a peek says that a record may be delivered")
		}
		// Redeliveries count.
		if err := w.ackNow(s, 1, Retry); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Second)
		synctest.Wait()
		if sum += len(w.box("billing").take("a")); sum != 40 || peeks != 1 {
			t.Errorf("it delivered %d, and told %d peeks", sum, peeks)
		}
		// Unused time is not kept.
		spec.Ack.Wait = time.Minute
		spec.Rate = 20
		w.declare("billing", 1, spec)
		for range 40 {
			w.shard.publish("o")
		}
		s.Pull(pull("c", 40))
		time.Sleep(time.Second)
		synctest.Wait()
		if got := len(w.box("billing").take("c")); got < 19 || got > 22 {
			t.Errorf("at the higher rate it delivered %d", got)
		}
	})
}

// TestAResetIsDurable: a Subscription that was moved is there after a crash, and acks of what was
// delivered before have no effect.
func TestAResetIsDurable(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.shard.publish("o", "o", "o", "o")
		w.declare("billing", 1, earliest())
		s := w.find("billing")
		s.Pull(pull("a", 4))
		w.expect("billing", "a", "1", "2", "3", "4")
		if err := w.ackNow(s, 1, Done); err != nil {
			t.Fatal(err)
		}
		reset := func(to, want uint64) {
			t.Helper()
			done := make(chan error, 1)
			at, err := s.Reset(to, func(err error) { done <- err })
			if err == nil {
				err = <-done
			}
			if at != want || err != nil {
				t.Fatalf("reset to %d: it is at %d: %v", to, at, err)
			}
		}
		reset(0, 2)
		if err := w.ackNow(s, 3, Done); err == nil {
			t.Error("an ack of a forgotten delivery counts")
		}
		w.crash()
		s = w.find("billing")
		if i := s.Info(); i.DeliveredOffset != 1 || i.DeliveredSequence != 0 || i.Pending != 0 || i.Lag != 3 {
			t.Errorf("it stands at %+v", i)
		}
		s.Pull(pull("b", 2))
		w.expect("billing", "b", "2", "3")
		reset(99, 5) // as far as the log goes
		w.shard.publish("o")
		s.Pull(pull("c", 1))
		w.expect("billing", "c", "5")
		reset(1, 1)
		s.Pull(pull("d", 1))
		w.expect("billing", "d", "1")
	})
}

// TestAChangedReaderIsDurable: its new settings are there after a crash, and its position stays.
func TestAChangedReaderIsDurable(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.shard.publish("o", "x", "o", "x")
		spec := earliest()
		spec.Subjects = []string{"o"}
		s, err := w.service.Create(t.Context(), topicID, "reader", spec, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		s.Pull(pull("a", 1))
		w.expect("reader", "a", "1")
		spec.Subjects, spec.Consumer.Description, spec.Consumer.InactiveThreshold = []string{"x"}, "changed", time.Hour
		if _, err := w.service.Update(t.Context(), topicID, "reader", spec); err != nil {
			t.Fatal(err)
		}
		w.crash()
		s = w.reads("reader")
		if s.Spec().Consumer.Description != "changed" {
			t.Errorf("it is %+v", *s.Spec())
		}
		time.Sleep(50 * time.Minute) // it lives for an hour now
		s.Pull(pull("b", 2))
		w.expect("reader", "b", "1 x2", "2")
		if _, err := w.service.Update(t.Context(), topicID, "nobody", spec); err == nil {
			t.Error("nobody was changed")
		}
		w.shard.mu.Lock()
		w.shard.hold = make(chan struct{})
		w.shard.mu.Unlock()
		soon, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if _, err := w.service.Update(soon, topicID, "reader", spec); err == nil {
			t.Error("a change was answered that the disk lacks")
		}
		close(w.shard.hold)
	})
}

// TestSamplingCountsPendingRecordsOnly: the share that was asked for, with the time since delivery.
func TestSamplingCountsPendingRecordsOnly(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.shard.publish("o", "o")
		spec := earliest()
		spec.Consumer.SampleFrequency, spec.Ack.Backoff = "100%", []time.Duration{time.Minute, time.Hour}
		w.declare("billing", 1, spec)
		s := w.find("billing")
		s.Pull(pull("a", 1))
		w.expect("billing", "a", "1")
		time.Sleep(3 * time.Second)
		if is, ok := s.Sample(1); !ok || is != (Sampled{1, 1, 3 * time.Second}) {
			t.Errorf("sampled %+v, %v", is, ok)
		}
		if _, ok := s.Sample(2); ok {
			t.Error("a record that is not pending is sampled")
		}
		spec.Consumer.SampleFrequency = "30"
		w.declare("billing", 1, spec)
		synctest.Wait()
		n := 0
		for range 10000 {
			if _, ok := s.Sample(1); ok {
				n++
			}
		}
		if n < 2500 || n > 3500 {
			t.Errorf("%d of 10000 are sampled, want 30 %%", n)
		}
		w.declare("billing", 1, earliest())
		synctest.Wait()
		if _, ok := s.Sample(1); ok {
			t.Error("it samples without being asked to")
		}
		if !s.ExpectsAcks() {
			t.Error("it expects no acks")
		}
		spec = earliest()
		spec.Ack.Policy = coordination.AckNone
		w.declare("silent", 2, spec)
		if w.find("silent").ExpectsAcks() {
			t.Error("it expects acks, and has none")
		}
	})
}
