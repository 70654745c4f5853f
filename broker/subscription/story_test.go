package subscription

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
)

func TestRecordsAreDeliveredToTheirRequests(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.shard.publishN("orders", 3)
		w.declare("billing", 1, earliest())
		s := w.find("billing")
		s.Pull(pull("a", 2))
		w.expect("billing", "a", "1", "2")
		s.Pull(pull("b", 2))
		w.expect("billing", "b", "3")
		w.shard.publish("o", "o")
		w.expect("billing", "b", "4")
		if d := w.box("billing").last(); d != (Delivery{Topic: "orders", Name: "billing", Delivered: 1, Offset: 4, Sequence: 4, Time: d.Time, Pending: 1}) {
			t.Errorf("the last delivery was %+v", d)
		}
		if err := w.ackNow(s, 1, Done); err != nil {
			t.Error(err)
		}
		i := s.Info()
		if i.DeliveredOffset != 4 || i.FloorOffset != 1 || i.Pending != 3 || i.Lag != 1 || !i.LagExact || i.Waiting != 0 {
			t.Errorf("it stands at %+v", i)
		}
	})
}

func TestRequestsTakeTurns(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.declare("billing", 1, earliest())
		s := w.find("billing")
		s.Pull(pull("a", 2))
		s.Pull(pull("b", 1))
		s.Pull(pull("c", 5))
		w.shard.publish("o", "o", "o", "o", "o", "o")
		w.expect("billing", "a", "1", "4")
		w.expect("billing", "b", "2")
		w.expect("billing", "c", "3", "5", "6")
	})
}

func TestRequestsEndWhenTheirTimeIsOver(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.declare("billing", 1, earliest())
		s := w.find("billing")
		p := pull("a", 3)
		p.Expires, p.Heartbeat, p.MaxBytes = 10*time.Second, 4*time.Second, 100
		s.Pull(p)
		time.Sleep(5 * time.Second)
		w.expect("billing", "a", "beat 0/0")
		w.shard.publish("o")
		w.expect("billing", "a", "1")
		time.Sleep(3 * time.Second)
		w.expect("billing", "a") // a delivery restarts the heartbeat interval
		time.Sleep(3 * time.Second)
		w.expect("billing", "a", "beat 1/1", "Expired 2/98")
		w.shard.publish("o")
		w.expect("billing", "a")
		if n := s.Info().Waiting; n != 0 {
			t.Errorf("%d requests wait", n)
		}
	})
}

func TestRequestsThatDontWait(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.declare("billing", 1, earliest())
		s := w.find("billing")
		now := Pull{To: []byte("a"), Batch: 5, NoWait: true}
		s.Pull(now)
		w.expect("billing", "a", "NoMessages 5/0")
		w.shard.publish("o", "o")
		s.Pull(now)
		w.expect("billing", "a", "1", "2", "NoMessages 3/0")
		now.Expires = time.Second // for the first message
		s.Pull(now)
		w.expect("billing", "a")
		w.shard.publish("o", "o")
		w.expect("billing", "a", "3", "4", "NoMessages 3/0")
		s.Pull(now)
		time.Sleep(2 * time.Second)
		w.expect("billing", "a", "Expired 5/0")
	})
}

func TestRequestsEndAtTheirBytes(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.shard.publish("oo", "oo", "oo", "large-one", "oo") // subject and payload count
		w.declare("billing", 1, earliest())
		s := w.find("billing")
		s.Pull(Pull{To: []byte("a"), Batch: 2, MaxBytes: 10})
		w.expect("billing", "a", "1", "2", "BatchDone 0/2")
		s.Pull(Pull{To: []byte("a"), Batch: 9, MaxBytes: 10})
		w.expect("billing", "a", "3", "MaxBytes 8/6")
		s.Pull(Pull{To: []byte("a"), Batch: 9, MaxBytes: 10})
		s.Pull(Pull{To: []byte("b"), Batch: 9, MaxBytes: 20})
		w.expect("billing", "a", "MaxBytes 9/10")
		w.expect("billing", "b", "4", "MaxBytes 8/2")
		s.Pull(pull("c", 1))
		w.expect("billing", "c", "5")
	})
}

func TestRequestsBeyondMaxWaitingDoNotWait(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		spec := earliest()
		spec.Consumer.MaxWaiting = 2
		w.declare("billing", 1, spec)
		s := w.find("billing")
		s.Pull(pull("a", 1))
		s.Pull(pull("b", 1))
		s.Pull(pull("c", 1))
		s.Pull(Pull{To: []byte("d"), Batch: 1, Expires: time.Minute, Heartbeat: time.Second})
		w.expect("billing", "c", "TooManyWaiting 1/0")
		w.expect("billing", "d")
		w.box("billing").leave("a") // its place is free for another
		s.Pull(pull("e", 1))
		w.shard.publish("o", "o")
		w.expect("billing", "a")
		w.expect("billing", "b", "1")
		w.expect("billing", "e", "2")
	})
}

func TestUnacknowledgedRecordsAreRedelivered(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		spec := earliest()
		spec.Ack.Wait, spec.Ack.MaxDeliver = 10*time.Second, 3
		w.declare("billing", 1, spec)
		s := w.find("billing")
		s.Pull(pull("a", 100))
		w.shard.publish("o", "o", "o")
		w.expect("billing", "a", "1", "2", "3")
		s.Ack(2, 0, 0, Done, 0, nil)
		time.Sleep(11 * time.Second)
		w.expect("billing", "a", "1 x2", "3 x2")
		if i := s.Info(); i.Redelivered != 2 || i.Pending != 2 || i.FloorOffset != 0 || i.DeliveredSequence != 5 {
			t.Errorf("it stands at %+v", i)
		}
		s.Ack(3, 0, 1, Done, 0, nil) // with the number of an earlier delivery
		time.Sleep(10 * time.Second)
		w.expect("billing", "a", "1 x3")
		w.shard.publish("o")
		w.expect("billing", "a", "4")
		s.Ack(4, 0, 0, Done, 0, nil)
		time.Sleep(time.Minute)
		w.expect("billing", "a") // at most three times
		if i := s.Info(); i.Pending != 0 || i.Exhausted != 1 || i.FloorOffset != 4 || i.Redelivered != 0 {
			t.Errorf("it stands at %+v", i)
		}
	})
}

func TestRedeliveriesFollowTheBackoff(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		spec := earliest()
		spec.Ack.Backoff = []time.Duration{time.Second, 5 * time.Second}
		w.declare("billing", 1, spec)
		s := w.find("billing")
		s.Pull(pull("a", 100))
		w.shard.publish("o")
		w.expect("billing", "a", "1")
		time.Sleep(1100 * time.Millisecond)
		w.expect("billing", "a", "1 x2")
		time.Sleep(4 * time.Second)
		w.expect("billing", "a")
		time.Sleep(time.Second)
		w.expect("billing", "a", "1 x3")
		time.Sleep(5100 * time.Millisecond)
		w.expect("billing", "a", "1 x4")
	})
}

func TestAcksOfEveryKind(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		spec := earliest()
		spec.Ack.Wait = 10 * time.Second
		w.declare("billing", 1, spec)
		s := w.find("billing")
		s.Pull(pull("a", 100))
		w.shard.publish("o", "o", "o", "o")
		w.expect("billing", "a", "1", "2", "3", "4")
		s.Ack(1, 0, 1, Retry, 0, nil)
		w.expect("billing", "a", "1 x2")
		s.Ack(1, 0, 1, Retry, 0, nil) // with the number of a delivery that was followed by another
		w.expect("billing", "a")
		s.Ack(2, 0, 1, Retry, 3*time.Second, nil)
		s.Ack(3, 0, 1, Term, 0, nil)
		time.Sleep(4 * time.Second)
		w.expect("billing", "a", "2 x2")
		time.Sleep(4 * time.Second)
		s.Ack(4, 0, 1, Progress, 0, nil)
		time.Sleep(2500 * time.Millisecond)
		w.expect("billing", "a", "1 x3")
		time.Sleep(6 * time.Second)
		w.expect("billing", "a", "2 x3")
		time.Sleep(2 * time.Second)
		w.expect("billing", "a", "4 x2")
		if err := w.ackNow(s, 77, Done); !errors.Is(err, errNotDelivered) {
			t.Errorf("an ack of what was never delivered: %v", err)
		}
	})
}

func TestAckAllAcknowledgesAllBefore(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		spec := earliest()
		spec.Ack.Policy = coordination.AckAll
		w.declare("billing", 1, spec)
		s := w.find("billing")
		s.Pull(pull("a", 100))
		w.shard.publish("o", "o", "o", "o")
		w.expect("billing", "a", "1", "2", "3", "4")
		s.Ack(3, 0, 1, Done, 0, nil)
		time.Sleep(31 * time.Second)
		w.expect("billing", "a", "4 x2")
	})
}

func TestAckNoneExpectsNoAcks(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		spec := earliest()
		spec.Ack.Policy, spec.Ack.MaxPending = coordination.AckNone, 1
		w.declare("billing", 1, spec)
		s := w.find("billing")
		s.Pull(pull("a", 100))
		w.shard.publish("o", "o", "o")
		time.Sleep(time.Minute)
		w.expect("billing", "a", "1", "2", "3")
		if i := s.Info(); i.FloorOffset != 3 || i.FloorSequence != 3 || i.Pending != 0 {
			t.Errorf("it stands at %+v", i)
		}
		w.restart()
		w.expect("billing", "a", "Stopping 97/0")
		w.find("billing").Pull(pull("a", 100))
		w.shard.publish("o")
		w.expect("billing", "a", "4")
	})
}

func TestPendingDeliveriesAreBounded(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		spec := earliest()
		spec.Ack.MaxPending = 2
		w.declare("billing", 1, spec)
		s := w.find("billing")
		s.Pull(pull("a", 100))
		w.shard.publish("o", "o", "o", "o")
		w.expect("billing", "a", "1", "2")
		s.Pull(Pull{To: []byte("b"), Batch: 1, NoWait: true})
		w.expect("billing", "b", "NoMessages 1/0")
		s.Ack(1, 0, 1, Done, 0, nil)
		w.expect("billing", "a", "3")
		s.Ack(3, 0, 1, Retry, 0, nil) // redeliveries are not bounded by MaxPending
		w.expect("billing", "a", "3 x2")
	})
}

func TestARequestWithoutInterestEnds(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.declare("billing", 1, earliest())
		s := w.find("billing")
		s.Pull(pull("a", 100))
		s.Pull(pull("b", 100))
		synctest.Wait()
		w.box("billing").leave("a")
		if n := s.Info().Waiting; n != 1 {
			t.Errorf("%d requests wait", n)
		}
		w.shard.publish("o", "o")
		w.expect("billing", "a")
		w.expect("billing", "b", "1", "2")
	})
}
