package subscription

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/flow"
	"github.com/carillon-mq/carillon/broker/log"
)

// pushing returns a spec that delivers to the subject "to", from the earliest record on.
func pushing(change func(*coordination.SubscriptionSpec)) coordination.SubscriptionSpec {
	spec := earliest()
	spec.Consumer.DeliverSubject = "to"
	if change != nil {
		change(&spec)
	}
	return spec
}

// publishSized publishes n records of that many bytes.
func (w *world) publishSized(n, size int) {
	w.t.Helper()
	for range n {
		record := []log.Record{{Time: time.Now().UnixNano(), Subject: []byte("o"), Data: make([]byte, size)}}
		if _, err := w.shard.data.Append(&log.Append{Epoch: w.shard.epoch, Records: record}); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := w.shard.data.Flush(); err != nil {
		w.t.Fatal(err)
	}
	w.shard.moved()
}

func TestAPushIsServedWhileSomebodyIsSubscribed(t *testing.T) {
	for _, group := range []string{"", "workers"} {
		story(t, func(t *testing.T, w *world) {
			box, place := w.box("billing"), "to"
			if group != "" {
				place = "to/" + group
			}
			box.leave(place)
			w.shard.publish("o", "o")
			w.declare("billing", 1, pushing(func(s *coordination.SubscriptionSpec) { s.Consumer.DeliverGroup = group }))
			s := w.find("billing")
			w.expect("billing", "to")
			if i := s.Info(); i.Bound || i.Waiting != 0 {
				t.Errorf("with nobody there: %+v", i)
			}
			box.come(place)
			w.expect("billing", "to", "1", "2")
			if i := s.Info(); !i.Bound || i.Pending != 2 || i.Lag != 0 {
				t.Errorf("with somebody there: %+v", i)
			}
			w.shard.publish("o")
			w.expect("billing", "to", "3")
			box.leave(place)
			w.shard.publish("o")
			time.Sleep(time.Minute) // past the ack wait
			w.expect("billing", "to")
			box.come(place)
			w.expect("billing", "to", "1 x2", "2 x2", "3 x2", "4")
			w.undeclare("billing")
			w.changed("billing")
			w.expect("billing", "to") // nobody is told that it is gone
			box.mu.Lock()
			defer box.mu.Unlock()
			if len(box.watchers) != 0 {
				t.Error("the subject of a deleted Subscription is watched")
			}
		})
	}
}

func TestAPushWaitsForAcks(t *testing.T) {
	for _, policy := range []coordination.AckPolicy{coordination.AckExplicit, coordination.AckAll} {
		story(t, func(t *testing.T, w *world) {
			w.declare("billing", 1, pushing(func(s *coordination.SubscriptionSpec) {
				s.Ack = coordination.Ack{Policy: policy, Wait: 10 * time.Second, MaxPending: 2, MaxDeliver: 2}
			}))
			s := w.find("billing")
			w.shard.publish("o", "o", "o", "o", "o")
			w.expect("billing", "to", "1", "2")
			s.Ack(2, 0, 1, Done, 0, nil)
			if policy == coordination.AckAll {
				w.expect("billing", "to", "3", "4")
			} else {
				w.expect("billing", "to", "3")
			}
			s.Ack(3, 0, 1, Retry, 0, nil)
			w.expect("billing", "to", "3 x2")
			time.Sleep(21 * time.Second)
			// What was delivered as often as permitted makes room for others.
			want := []string{"1 x2", "4", "4 x2", "5"}
			if policy == coordination.AckAll {
				want = []string{"4 x2", "5", "5 x2"}
			}
			synctest.Wait()
			if got := w.box("billing").take("to"); !slices.Equal(got, want) {
				t.Errorf("%s: then got %q, want %q", policy, got, want)
			}
		})
	}
}

func TestAPushWithoutAcksDeliversEachRecordOnce(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.shard.publishN("o", 600) // more than one step delivers
		w.declare("billing", 1, pushing(func(s *coordination.SubscriptionSpec) {
			s.Ack = coordination.Ack{Policy: coordination.AckNone, MaxDeliver: 1}
		}))
		s := w.find("billing")
		synctest.Wait()
		time.Sleep(time.Minute)
		if got := w.box("billing").take("to"); len(got) != 600 || got[0] != "1" || got[599] != "600" {
			t.Errorf("%d deliveries", len(got))
		}
		if i := s.Info(); i.Pending != 0 || i.FloorOffset != 600 {
			t.Errorf("it stands at %+v", i)
		}
	})
}

func TestAnIdlePushSendsHeartbeats(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.declare("billing", 1, pushing(func(s *coordination.SubscriptionSpec) {
			s.Consumer.IdleHeartbeat, s.Ack.MaxPending, s.Ack.Wait = 5*time.Second, 1, time.Hour
		}))
		w.find("billing")
		time.Sleep(6 * time.Second)
		w.expect("billing", "to", "beat 0/0")
		w.shard.publish("o", "o")
		w.expect("billing", "to", "1")
		time.Sleep(4500 * time.Millisecond)
		w.expect("billing", "to") // a delivery restarts the interval
		time.Sleep(time.Second)
		w.expect("billing", "to", "beat 1/1") // also while it waits for acks
		w.box("billing").leave("to")
		time.Sleep(20 * time.Second)
		w.expect("billing", "to")
		w.box("billing").come("to")
		time.Sleep(6 * time.Second)
		w.expect("billing", "to", "beat 1/1")
	})
}

func TestFlowControlBoundsWhatIsNotConfirmed(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		box := w.box("billing")
		w.declare("billing", 1, pushing(func(s *coordination.SubscriptionSpec) {
			s.Consumer.FlowControl, s.Consumer.IdleHeartbeat = true, 5*time.Second
			s.Ack.Policy = coordination.AckNone
		}))
		s := w.find("billing")
		w.publishSized(100, 100<<10)
		w.expect("billing", "to", "1", "2", "3", "flow", "4", "5", "6") // 512 KiB, and a request at half of it
		time.Sleep(11 * time.Second)
		w.expect("billing", "to", "beat 6/6 stalled true", "beat 6/6 stalled true")
		s.FlowControlled(box.token.Load() + 2) // an answer to another request
		w.expect("billing", "to")
		first := box.token.Load()
		s.FlowControlled(first)
		w.expect("billing", "to", "7", "8", "9", "flow", "10", "11", "12", "13", "14") // 1 MiB
		s.FlowControlled(first)
		w.expect("billing", "to")
		// Who was asked goes. The next one is asked again, since nobody else would answer.
		box.leave("to")
		w.expect("billing", "to")
		box.come("to")
		w.expect("billing", "to", "flow")
		for range 10 {
			s.FlowControlled(box.token.Load())
			synctest.Wait()
		}
		got := box.take("to")
		got = slices.DeleteFunc(got, func(line string) bool { return line == "flow" })
		if len(got) != 86 || got[0] != "15" || got[85] != "100" {
			t.Errorf("the rest: %q", got)
		}
		if limit := s.push.flow.Limit(); limit > flow.LastWindow {
			t.Errorf("the window grew to %d", limit)
		}
	})
}

func TestARateIsKept(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.declare("billing", 1, pushing(func(s *coordination.SubscriptionSpec) {
			s.Consumer.RateLimit, s.Ack.Policy = 8<<20, coordination.AckNone // 1 MiB/s
		}))
		w.find("billing")
		w.publishSized(30, 100<<10)
		synctest.Wait()
		total := 0
		for second := range 3 {
			time.Sleep(time.Second)
			synctest.Wait()
			n := len(w.box("billing").take("to"))
			if n < 9 || n > 11 {
				t.Errorf("%d records of 100 KiB in second %d", n, second)
			}
			total += n
		}
		time.Sleep(time.Minute)
		w.publishSized(20, 100<<10) // unused time is not kept
		synctest.Wait()
		if n := len(w.box("billing").take("to")) + total; n > 31 {
			t.Errorf("%d records at once after a pause", n-30)
		}
	})
}

func TestNobodyPullsFromAPush(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.shard.publish("o")
		w.declare("billing", 1, pushing(nil))
		s := w.find("billing")
		w.expect("billing", "to", "1")
		s.Pull(pull("a", 2))
		s.Pull(Pull{To: []byte("b"), Batch: 1, Expires: time.Minute, Heartbeat: time.Second})
		w.shard.publish("o")
		w.expect("billing", "a", "Pushed 2/0")
		w.expect("billing", "b", "Pushed 1/0")
		w.expect("billing", "to", "2")
	})
}

func TestAPushWithAnotherSubjectDeliversAgainThere(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.declare("billing", 1, pushing(nil))
		s := w.find("billing")
		w.shard.publish("o", "o", "o")
		w.expect("billing", "to", "1", "2", "3")
		s.Ack(2, 0, 1, Done, 0, nil)
		w.declare("billing", 1, pushing(func(s *coordination.SubscriptionSpec) { s.Consumer.DeliverSubject = "there" }))
		w.expect("billing", "to")
		w.expect("billing", "there", "1 x2", "3 x2")
		w.box("billing").leave("to") // nobody watches it any more
		w.shard.publish("o")
		w.expect("billing", "there", "4")
	})
}

func TestAPushGoesOnAfterARestart(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.declare("billing", 1, pushing(func(s *coordination.SubscriptionSpec) {
			s.Consumer.FlowControl, s.Consumer.IdleHeartbeat = true, time.Minute
		}))
		s := w.find("billing")
		w.publishSized(10, 100<<10)
		w.expect("billing", "to", "1", "2", "3", "flow", "4", "5", "6")
		if err := w.ackNow(s, 1, Done); err != nil {
			t.Fatal(err)
		}
		w.restart()
		w.find("billing")
		w.expect("billing", "to", "7", "8", "9", "flow", "10") // with a window of its own
		time.Sleep(31 * time.Second)
		got := w.box("billing").take("to")
		if !strings.HasPrefix(strings.Join(got, " "), "2 x2 3 x2") {
			t.Errorf("after the ack wait: %q", got)
		}
	})
}

func TestAnEphemeralPushLivesWhileSomebodyIsSubscribed(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		made, err := w.service.Create(t.Context(), topicID, "watcher", pushing(nil), 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		there := func() bool { return w.service.Find(topicID, "watcher") == made }
		time.Sleep(time.Hour)
		w.box("watcher").leave("to")
		time.Sleep(4 * time.Second)
		if !there() {
			t.Fatal("it was deleted too early")
		}
		w.box("watcher").come("to") // a client that reconnects
		time.Sleep(4 * time.Second)
		w.box("watcher").leave("to")
		time.Sleep(4 * time.Second)
		if !there() {
			t.Fatal("an earlier absence counted")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if there() {
			t.Error("it lives on without a subscriber")
		}
	})
}

// TestAPushBeginsWhenItsStartIsDurable: a crash before that would search the start position again,
// and leave out what was delivered.
func TestAPushBeginsWhenItsStartIsDurable(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		hold := make(chan struct{})
		release := sync.OnceFunc(func() { close(hold) })
		defer release()
		w.shard.mu.Lock()
		w.shard.hold = hold
		w.shard.mu.Unlock()
		w.shard.publish("o")
		w.declare("billing", 1, pushing(nil))
		w.expect("billing", "to")
		w.shard.publish("o")
		w.expect("billing", "to")
		release()
		w.expect("billing", "to", "1", "2")
	})
}

// TestWhoCreatesAPushSeesTheStateBeforeItsFirstDelivery: the answer to whoever created a push has
// the state before the first delivery, once.
func TestWhoCreatesAPushSeesTheStateBeforeItsFirstDelivery(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.shard.publishN("o", 3)
		w.declare("billing", 1, pushing(nil))
		ephemeral, err := w.service.Create(t.Context(), topicID, "watcher", pushing(nil), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, s := range []*Subscription{w.find("billing"), ephemeral} {
			if i := s.InitialInfo(); i.DeliveredSequence != 0 || i.Lag != 3 || !i.Bound {
				t.Errorf("%s: at first %+v", s.Name(), i)
			}
			if i := s.InitialInfo(); i.DeliveredSequence != 3 || i.Lag != 0 {
				t.Errorf("%s: then %+v", s.Name(), i)
			}
		}
	})
}

// TestAHeldPushDeliversNothing: the answer to whoever creates a push comes before its first
// delivery, since clients may act on deliveries before they look at the answer.
func TestAHeldPushDeliversNothing(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.shard.publish("o")
		release, again := w.service.Hold(topicID, "billing"), w.service.Hold(topicID, "billing")
		w.declare("billing", 1, pushing(nil))
		w.expect("billing", "to")
		release()
		w.expect("billing", "to")
		again()
		w.expect("billing", "to", "1")
	})
}

// TestARelayPullsForAPush: only a relay pulls from a Subscription whose push is relayed. It gets
// the record that exceeds its bytes, and no further one, and waits for nothing.
func TestARelayPullsForAPush(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.declare("billing", 1, earliest())
		s := w.find("billing")
		s.mu.Lock()
		s.settings.relayed = true // as it is with several shards
		s.mu.Unlock()
		for range 4 {
			w.shard.publish("o")
		}
		var got []Outcome
		ask := func(p Pull) Outcome {
			t.Helper()
			p.To, p.NoWait = []byte("relay"), true
			before := len(got)
			s.PullFunc(p, func(o Outcome) { got = append(got, o) })
			synctest.Wait()
			if len(got) != before+1 {
				t.Fatalf("%+v has no result", p)
			}
			return got[before]
		}
		if o := ask(Pull{Batch: 4}); o.Why != Pushed {
			t.Errorf("a pull of a client ends with %v", o.Why)
		}
		if o := ask(Pull{Batch: 4, MaxBytes: 1, Relay: true}); o.Why != 0 || o.Messages != 3 {
			t.Errorf("with room for one byte: %+v", o)
		}
		if o := ask(Pull{Batch: 2, MaxBytes: 1 << 20, Relay: true, Expires: time.Hour}); o.Why != BatchDone || o.Messages != 0 {
			t.Errorf("with room for all: %+v", o)
		}
		if o := ask(Pull{Batch: 4, MaxBytes: 1 << 20, Relay: true, Expires: time.Hour}); o.Why != NoMessages || o.Messages != 3 {
			t.Errorf("of what is left: %+v", o)
		}
		if n := len(w.box("billing").take("relay")); n != 4 {
			t.Errorf("%d records were delivered", n)
		}
	})
}

// TestALaterClaimEndsTheRequestsOfEarlierOnes: a relay with a later claim ends what waits of the
// one before, which gets nothing any more. It learns whose that was.
func TestALaterClaimEndsTheRequestsOfEarlierOnes(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.declare("billing", 1, earliest())
		s := w.find("billing")
		s.mu.Lock()
		s.settings.relayed = true
		s.mu.Unlock()
		former, next := Claim{Epoch: 2, Holder: "a"}, Claim{Epoch: 3, Holder: "b"}
		var watched, pulled []Outcome
		pull := func(c Claim, into *[]Outcome, p Pull) {
			p.To, p.Relay, p.Claim = []byte("relay"), true, c
			s.PullFunc(p, func(o Outcome) { *into = append(*into, o) })
			synctest.Wait()
		}
		claim := func(c Claim) (before Claim, why End) {
			calls := 0
			s.Claim(c, func(f Claim, e End) { before, why, calls = f, e, calls+1 })
			synctest.Wait()
			if calls != 1 {
				t.Fatalf("the claim of %+v is answered %d times", c, calls)
			}
			return before, why
		}
		if before, why := claim(former); before != (Claim{}) || why != 0 {
			t.Errorf("the first claim follows %+v and ends with %v", before, why)
		}
		pull(former, &watched, Pull{Peek: true, Expires: time.Hour})
		if before, why := claim(next); before != former || why != 0 {
			t.Errorf("the next claim follows %+v and ends with %v", before, why)
		}
		if len(watched) != 1 || watched[0].Why != Superseded {
			t.Errorf("the watch of the former relay ends with %+v", watched)
		}
		w.shard.publish("o")
		pull(former, &pulled, Pull{NoWait: true})
		if len(pulled) != 1 || pulled[0].Why != Superseded {
			t.Errorf("the former relay pulls: %+v", pulled)
		}
		if before, why := claim(former); before != next || why != Superseded {
			t.Errorf("the former relay's claim follows %+v and ends with %v", before, why)
		}
		if _, why := claim(Claim{Generation: 1, Epoch: 1, Holder: "a"}); why != 0 {
			t.Errorf("the claim of a later generation ends with %v", why)
		}
		pull(Claim{Generation: 1, Epoch: 1, Holder: "a"}, &pulled, Pull{NoWait: true})
		if n := len(w.box("billing").take("relay")); n != 1 || len(pulled) != 2 || pulled[1].Why != 0 {
			t.Errorf("the last relay gets %d records and %+v", n, pulled)
		}
	})
}
