package subscription

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/removal"
)

// where is earliest with a condition.
func where(text string) coordination.SubscriptionSpec {
	spec := earliest()
	spec.Where = text
	return spec
}

// say appends records with these payloads, each in a batch of its own.
func (w *world) say(payloads ...string) {
	w.t.Helper()
	for _, p := range payloads {
		w.shard.append(record("orders.eu", p))
	}
}

func record(subject, payload string) log.Record {
	return log.Record{Time: time.Now().UnixNano(), Subject: []byte(subject), Data: []byte(payload)}
}

func TestOnlyMatchingRecordsAreDelivered(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.say(`{"k": 1}`, `{"k": 2}`, `{"k": 1}`, `{"k": 3}`)
		w.declare("billing", 1, where("json.k == 1"))
		s := w.find("billing")
		if i := s.Info(); i.Lag != 2 || !i.LagExact {
			t.Errorf("the lag is %d, exact: %v", i.Lag, i.LagExact)
		}
		s.Pull(pull("a", 9))
		w.expect("billing", "a", "1", "3")
		if last := w.box("billing").last(); last.Pending != 0 || last.Sequence != 2 {
			t.Errorf("the last one says %d pending, and is the %d.", last.Pending, last.Sequence)
		}
		w.say(`{"k": 2}`, `{"k": 1}`)
		w.expect("billing", "a", "6")
		if i := s.Info(); i.Lag != 0 || i.Pending != 3 || i.DeliveredOffset != 6 {
			t.Errorf("%+v", i)
		}
		// What does not match is acknowledged with what precedes it.
		for _, offset := range []uint64{1, 3, 6} {
			if err := w.ackNow(s, offset, Done); err != nil {
				t.Error(err)
			}
		}
		w.say(`{"k": 2}`)
		synctest.Wait()
		if i := s.Info(); i.FloorOffset < 6 || i.Lag != 0 {
			t.Errorf("%+v", i)
		}
		s.Pull(Pull{To: []byte("b"), Batch: 1, NoWait: true})
		w.expect("billing", "b", "NoMessages 1/0")
	})
}

func TestAConditionIsBesideTheFilterAndReadsHeaders(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		spec := where(`headers.Kind == "x" && time > timestamp("1999-01-01T00:00:00Z") && subject.endsWith("eu")`)
		spec.Subjects = []string{"orders.*"}
		w.declare("billing", 1, spec)
		s := w.find("billing")
		s.Pull(pull("a", 9))
		for _, subject := range []string{"orders.eu", "orders.us", "bills.eu"} {
			for _, kind := range []string{"x", "y"} {
				header := "NATS/1.0\r\nKind: " + kind + "\r\n\r\n"
				r := record(subject, header+"hello")
				r.Header = len(header)
				w.shard.append(r)
			}
		}
		w.expect("billing", "a", "1")
		if i := s.Info(); i.Lag != 0 || !i.LagExact || i.Unjudged != 0 {
			t.Errorf("%+v", i)
		}
	})
}

func TestWhatCannotBeJudgedDoesNotMatchAndIsCounted(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.declare("billing", 1, where("json.k == 1"))
		s := w.find("billing")
		s.Pull(pull("a", 9))
		w.say(`{"n": 1}`, `none`, `{"k": 1}`, `{"k": 2}`)
		w.expect("billing", "a", "3")
		if i := s.Info(); i.Unjudged != 2 || i.UnjudgedWhy == "" || i.Lag != 0 {
			t.Errorf("%+v", i)
		}
		for payload, why := range map[string]string{`{"n": 1}`: "no such key: k", `none`: "no JSON"} {
			time.Sleep(2 * whyRest)
			w.say(payload)
			synctest.Wait()
			if i := s.Info(); !strings.Contains(i.UnjudgedWhy, why) || i.Lag != 0 {
				t.Errorf("%+v", i)
			}
		}
		if n := w.service.Stats().Unjudged; n != 4 {
			t.Errorf("%d in all", n)
		}
		if r := s.Report(t.Context()); r.Unjudged != 4 || r.UnjudgedWhy == "" {
			t.Errorf("%+v", r)
		}
	})
}

// TestALagIsJudgedAhead: more records match than are remembered, and then most don't.
func TestALagIsJudgedAhead(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		const n = 3 * mostMatches
		var all []log.Record
		for i := range n {
			all = append(all, record("o", fmt.Sprintf(`{"k": %d}`, i%2)))
		}
		for range 5000 {
			all = append(all, record("o", `{"k": 0}`))
		}
		w.shard.append(all...)
		w.declare("billing", 1, where("json.k == 1"))
		s := w.find("billing")
		for range 10 {
			s.Info()
		}
		if i := s.Info(); i.Lag != n/2 || !i.LagExact {
			t.Fatalf("the lag is %d, exact: %v", i.Lag, i.LagExact)
		}
		if err := w.shard.Remove([]removal.Span{{Epoch: 1, From: 2, Next: 3}}, func(error) {}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for range 10 {
			s.Info()
		}
		if i := s.Info(); i.Lag != n/2-1 || !i.LagExact {
			t.Errorf("the lag is %d without a removed record, exact: %v", i.Lag, i.LagExact)
		}
		for left := n/2 - 1; left > 0; {
			batch := min(left, 100)
			s.Pull(pull("a", batch))
			synctest.Wait()
			if got := len(w.box("billing").take("a")); got != batch {
				t.Fatalf("%d came, want %d", got, batch)
			}
			left -= batch
			last := w.box("billing").last()
			if (last.Pending == 0) != (left == 0) || last.Pending < uint64(left) {
				t.Fatalf("the last one says that %d are left of %d", last.Pending, left)
			}
			s.Ack(last.Offset, 0, 0, Done, 0, nil)
			if i := s.Info(); i.Lag != uint64(left) && i.LagExact || i.Lag < uint64(left) {
				t.Fatalf("the lag is %d of %d, exact: %v", i.Lag, left, i.LagExact)
			}
			for _, d := range w.box("billing").all {
				s.Ack(d.Offset, 0, 0, Done, 0, nil)
			}
		}
	})
}

func TestAConditionAndItsCursorSurviveTheLeader(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.declare("billing", 1, where("json.k == 1"))
		s := w.find("billing")
		s.Pull(pull("a", 2))
		w.say(`{"k": 1}`, `{"k": 2}`, `{"k": 1}`, `{"k": 2}`)
		w.expect("billing", "a", "1", "3")
		if err := w.ackNow(s, 1, Done); err != nil {
			t.Fatal(err)
		}
		reader, err := w.service.Create(t.Context(), topicID, "reader", where("json.k == 2"), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		reader.Pull(pull("r", 1))
		w.expect("reader", "r", "2")
		w.restart()
		w.say(`{"k": 2}`, `{"k": 1}`)
		w.find("billing").Pull(pull("b", 9))
		w.find("reader").Pull(pull("r", 9))
		w.expect("billing", "b", "6")
		w.expect("reader", "r", "4", "5")
		time.Sleep(defaultAckWait + time.Second)
		w.expect("billing", "b", "3 x2", "6 x2")
	})
}

func TestAChangedConditionJudgesWhatIsNotDelivered(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.declare("billing", 1, where("json.k == 1"))
		w.find("billing").Pull(pull("a", 1))
		w.say(`{"k": 1}`, `{"k": 2}`, `{"k": 1}`, `{"k": 2}`)
		w.expect("billing", "a", "1")
		w.declare("billing", 1, where("json.k == 2"))
		synctest.Wait()
		if i := w.find("billing").Info(); i.Lag != 2 {
			t.Errorf("the lag is %d", i.Lag)
		}
		w.find("billing").Pull(pull("a", 1))
		w.expect("billing", "a", "2")
		w.declare("billing", 1, earliest())
		synctest.Wait()
		w.find("billing").Pull(pull("a", 9))
		w.expect("billing", "a", "3", "4")
		w.declare("billing", 1, where("json.k =="))
		synctest.Wait()
		err := w.service.WhyNot(topicID, "billing")
		if not := (*NotServedError)(nil); !errors.As(err, &not) || !strings.Contains(not.Why, "column 10") {
			t.Error(err)
		}
	})
}

// TestConditionsGoWithEveryKindOfDelivery: dead letters, resets, pauses, acks of all, pushes.
func TestConditionsGoWithEveryKindOfDelivery(t *testing.T) {
	payloads := []string{`{"k": 1}`, `{"k": 2}`, `{"k": 2}`, `{"k": 1}`, `{"k": 2}`, `{"k": 1}`}
	t.Run("reset", func(t *testing.T) {
		story(t, func(t *testing.T, w *world) {
			w.say(payloads...)
			w.declare("billing", 1, where("json.k == 1"))
			w.find("billing").Pull(pull("a", 3))
			w.expect("billing", "a", "1", "4", "6")
			w.desired.subs[0] = &coordination.Subscription{Topic: topicID, Name: "billing", Made: 1, Spec: w.desired.subs[0].Spec, Resets: 1, ResetTo: coordination.Start{From: coordination.FromOffset, Offset: 2}}
			w.changed("billing")
			synctest.Wait()
			w.find("billing").Pull(pull("b", 9))
			w.expect("billing", "b", "4", "6")
		})
	})
	t.Run("reset by a client", func(t *testing.T) {
		story(t, func(t *testing.T, w *world) {
			w.declare("billing", 1, where("json.k == 1"))
			s := w.find("billing")
			s.Pull(pull("a", 9))
			w.say(payloads...)
			w.expect("billing", "a", "1", "4", "6")
			for _, next := range []uint64{2, 1} {
				if _, err := s.Reset(next, func(error) {}); err != nil {
					t.Fatal(err)
				}
				want := []string{"1", "4", "6"}[min(next-1, 1):]
				w.expect("billing", "a", want...)
				s.Pull(pull("a", 9))
			}
			w.say(payloads[0])
			w.expect("billing", "a", "7")
			if i := s.Info(); i.Lag != 0 || !i.LagExact || i.Pending != 4 {
				t.Errorf("%+v", i)
			}
		})
	})
	t.Run("pause", func(t *testing.T) {
		story(t, func(t *testing.T, w *world) {
			spec := where("json.k == 1")
			spec.Consumer.PauseUntil = time.Now().Add(time.Minute)
			w.declare("billing", 1, spec)
			w.find("billing").Pull(pull("a", 9))
			w.say(payloads...)
			w.expect("billing", "a")
			time.Sleep(time.Minute + time.Second)
			w.expect("billing", "a", "1", "4", "6")
		})
	})
	t.Run("all", func(t *testing.T) {
		story(t, func(t *testing.T, w *world) {
			spec := where("json.k == 1")
			spec.Ack.Policy = coordination.AckAll
			w.declare("billing", 1, spec)
			w.find("billing").Pull(pull("a", 9))
			w.say(payloads...)
			w.expect("billing", "a", "1", "4", "6")
			if err := w.ackNow(w.find("billing"), 4, Done); err != nil {
				t.Error(err)
			}
			if i := w.find("billing").Info(); i.Pending != 1 || i.Lag != 0 {
				t.Errorf("%+v", i)
			}
		})
	})
	t.Run("none", func(t *testing.T) {
		story(t, func(t *testing.T, w *world) {
			spec := where("json.k == 1")
			spec.Ack.Policy = coordination.AckNone
			w.declare("billing", 1, spec)
			w.find("billing").Pull(pull("a", 2))
			w.say(payloads...)
			w.expect("billing", "a", "1", "4")
			w.restart()
			w.find("billing").Pull(pull("b", 2))
			w.expect("billing", "b", "6")
		})
	})
	t.Run("push", func(t *testing.T) {
		story(t, func(t *testing.T, w *world) {
			spec := pushing(nil)
			spec.Where = "json.k == 1"
			w.declare("billing", 1, spec)
			w.find("billing")
			w.say(payloads...)
			w.expect("billing", spec.Consumer.DeliverSubject, "1", "4", "6")
		})
	})
	t.Run("dead letters", func(t *testing.T) {
		story(t, func(t *testing.T, w *world) {
			w.dead = &morgue{}
			w.service.config.DeadLetters = w.dead
			spec := buried()
			spec.Where = "json.k == 1"
			w.declare("billing", 1, spec)
			w.find("billing").Pull(pull("a", 9))
			w.say(payloads...)
			w.expect("billing", "a", "1", "4", "6")
			w.find("billing").Ack(4, 0, 0, Term, 0, nil)
			synctest.Wait()
			if i := w.find("billing").Info(); i.GivenUp+int(i.DeadLettered) != 1 || i.Lag != 0 {
				t.Errorf("%+v", i)
			}
		})
	})
}

// TestInterestInRecordsThatAConditionPasses: what a condition leaves out is removed once the cursor
// has passed it, and what it lets through once it is acknowledged.
func TestInterestInRecordsThatAConditionPasses(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.desired.retention = coordination.InterestPolicy
		w.restart()
		w.declare("billing", 1, where("json.k == 1"))
		s := w.find("billing")
		w.say(`{"k": 1}`, `{"k": 2}`, `{"k": 1}`, `{"k": 2}`)
		time.Sleep(time.Second)
		if n := w.shard.gone.Len(); n != 0 {
			t.Errorf("%d records were removed before the cursor passed them", n)
		}
		s.Pull(pull("a", 9))
		w.expect("billing", "a", "1", "3")
		time.Sleep(time.Second)
		if w.shard.gone.Has(1) || w.shard.gone.Has(3) || !w.shard.gone.Has(2) {
			t.Errorf("of what is pending: %v %v, and of what does not match: %v", w.shard.gone.Has(1), w.shard.gone.Has(3), w.shard.gone.Has(2))
		}
		if err := w.ackNow(s, 1, Done); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		if !w.shard.gone.Has(1) || w.shard.gone.Has(3) {
			t.Error("an acknowledged record stays, or one that is pending went")
		}
	})
}

// TestCompactionTakesMatchesThatAreRemembered: the next record that the log has is one that was not
// judged.
func TestCompactionTakesMatchesThatAreRemembered(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		var all []log.Record
		for range 2 * mostMatches {
			all = append(all, record("same", `{"k": 1}`))
		}
		w.shard.append(append(all, record("last", `{"k": 1}`))...)
		w.shard.data.Roll()
		w.say(`{"k": 2}`)
		w.declare("billing", 1, where("json.k == 1"))
		time.Sleep(time.Second)
		w.restart() // the records are no longer in memory
		s := w.find("billing")
		s.Info() // remembers as many as it may
		_, end := w.shard.Offsets()
		if o, err := w.shard.data.Compact(t.Context(), log.CompactOptions{Below: end}); err != nil || o.Records == 0 {
			t.Fatal(o, err)
		}
		s.Pull(pull("a", 9))
		w.expect("billing", "a", fmt.Sprint(2*mostMatches), fmt.Sprint(2*mostMatches+1))
	})
}

// TestInterestOfWaitingSubscriptions: what no condition matches goes soon, although the cursors of
// those that wait are behind.
func TestInterestOfWaitingSubscriptions(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.desired.retention = coordination.InterestPolicy
		w.restart()
		for i := range 3 {
			name := fmt.Sprint("s", i)
			w.declare(name, int64(i+1), where(fmt.Sprintf("json.k == %d", i)))
			w.find(name).Pull(pull("a", 9))
		}
		for range 3 {
			w.say(`{"k": 9}`, `{"k": 9}`, `{"k": 9}`)
			w.holds("what nobody waits for")
		}
		w.say(`{"k": 9}`, `{"k": 1}`, `{"k": 9}`)
		w.holds("a match", 11)
		w.expect("s1", "a", "11")
		if err := w.ackNow(w.find("s1"), 11, Done); err != nil {
			t.Fatal(err)
		}
		w.holds("an ack")
	})
}

func TestAConditionOfAWorkQueueIsRefused(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.desired.retention = coordination.WorkQueue
		w.restart()
		w.declare("billing", 1, where("json.k == 1"))
		_, err := w.service.Wait(t.Context(), topicID, "billing")
		if err == nil || !strings.Contains(err.Error(), "work queue") {
			t.Error(err)
		}
		if _, err := w.service.Create(t.Context(), topicID, "reader", where("json.k == 1"), 0); err == nil || !strings.Contains(err.Error(), "work queue") {
			t.Error(err)
		}
	})
}
