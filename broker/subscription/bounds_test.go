package subscription

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/topic"
)

// TestALargeRequestDoesNotDelayOtherSubscriptions: with one worker, a small request does not wait
// for a large one of another Subscription.
func TestALargeRequestDoesNotDelayOtherSubscriptions(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		many := make([]string, 1000)
		for i := range many {
			many[i] = "o"
		}
		for range 50 {
			w.shard.publish(many...)
		}
		spec := earliest()
		spec.Ack.Policy = coordination.AckNone
		w.declare("greedy", 1, spec)
		w.declare("modest", 2, spec)
		greedy, modest := w.find("greedy"), w.find("modest")
		w.service.tasks.Close()
		w.service.tasks = newTasks(1)
		both, had := make(chan struct{}), -1
		w.box("greedy").delivering = func() { <-both }
		w.box("modest").delivering = func() { had = w.box("greedy").deliveries() }
		greedy.Pull(pull("a", 1<<20))
		synctest.Wait() // the worker steps the greedy one
		modest.Pull(pull("b", 1))
		close(both)
		synctest.Wait()
		if got := w.box("modest").take("b"); len(got) != 1 || had <= 0 || had > 10*stepRecords {
			t.Errorf("the modest one had %q, and the greedy one %d records before", got, had)
		}
	})
}

// TestCountingMatchesIsBounded: counting what matches a filter delays the first delivery by a
// bounded time, if the index of the subjects can't count.
func TestCountingMatchesIsBounded(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.service.countBytes = 1 << 20
		w.shard.counting = func(context.Context) error { return errors.New("it is being made") }
		many := make([]string, 1000)
		for i := range many {
			many[i] = "a-record-of-some-length"
		}
		for range 60 {
			w.shard.publish(many...)
		}
		w.declare("s", 1, startAt(coordination.Start{From: coordination.FromEarliest}, "a-record-of-some-length"))
		s := w.find("s")
		s.Pull(pull("a", 1))
		w.expect("s", "a", "1")
		if d := w.box("s").last(); d.Pending != 60_000-1 {
			t.Errorf("the first delivery says that %d are to come", d.Pending)
		}
		at := s.ahead.at
		if at < 2 || at >= 60_000 {
			t.Errorf("%d records were counted", at)
		}
		if i := s.Info(); i.Lag != 60_000-1 || !i.LagExact {
			t.Errorf("it stands at %+v", i)
		}
	})
}

// TestOnlyCountAsksTheIndex: Info reads a bounded part of the log, and doesn't ask the index. Count
// does, and ends with its context: so a list of many Subscriptions waits once.
func TestOnlyCountAsksTheIndex(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		many := make([]string, 1000)
		for i := range many {
			many[i] = "o"
		}
		for range 30 {
			w.shard.publish(many...)
		}
		asked := 0
		w.shard.counting = func(ctx context.Context) error {
			asked++
			<-ctx.Done()
			return ctx.Err()
		}
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for n := range 20 {
			name := fmt.Sprint("s", n)
			w.declare(name, int64(n+1), startAt(coordination.Start{From: coordination.FromEarliest}, "o"))
			w.find(name).Count(ctx)
		}
		if took := time.Since(began); asked != 1 || took != time.Second {
			t.Errorf("the index was asked %d times, for %v", asked, took)
		}
		asked = 0
		w.find("s3").Info()
		if asked > 0 {
			t.Error("Info asks the index")
		}
		w.shard.counting = func(context.Context) error { asked++; return nil }
		w.find("s4").Count(t.Context())
		if i := w.find("s4").Info(); i.Lag != 30_000 || !i.LagExact || asked != 1 {
			t.Errorf("it stands at %+v; the index was asked %d times", i, asked)
		}
	})
}

// TestTheIndexCountsForDeliveries: if many messages are to be counted, the first delivery waits for
// the index, and says exactly how many messages follow.
func TestTheIndexCountsForDeliveries(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.service.countBytes = 1 // nothing else counts as much
		for range 30 {
			w.shard.publish(slices.Repeat([]string{"noise", "noise", "o"}, 300)...)
		}
		asked, answer := 0, make(chan struct{})
		w.shard.counting = func(context.Context) error {
			asked++
			<-answer
			return nil
		}
		w.declare("s", 1, startAt(coordination.Start{From: coordination.FromEarliest}, "o"))
		s := w.find("s")
		s.Pull(pull("a", 2))
		synctest.Wait()
		if got := w.box("s").deliveries(); got != 0 || asked != 1 {
			t.Fatalf("%d messages were delivered before they were counted, and the index was asked %d times", got, asked)
		}
		close(answer)
		w.expect("s", "a", "3", "6")
		if d := w.box("s").last(); d.Pending != 9000-2 {
			t.Errorf("it says that %d are to come", d.Pending)
		}
		w.shard.publish("noise", "o")
		s.Pull(pull("b", 1))
		w.expect("s", "b", "9")
		if d := w.box("s").last(); d.Pending != 9000-2 || asked != 1 {
			t.Errorf("it says that %d are to come; the index was asked %d times", d.Pending, asked)
		}
	})
}

// TestTheIndexCountsFewLargeMessages: what is too much to be read is counted by the index, however
// few messages it is.
func TestTheIndexCountsFewLargeMessages(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		asked := 0
		w.shard.counting = func(context.Context) error { asked++; return nil }
		large := make([]byte, 200<<10)
		for range 50 {
			w.shard.append(log.Record{Time: 1, Subject: []byte("o"), Data: large}, log.Record{Time: 1, Subject: []byte("noise"), Data: large})
		}
		w.declare("s", 1, startAt(coordination.Start{From: coordination.FromEarliest}, "o"))
		w.find("s").Count(t.Context())
		if i := w.find("s").Info(); i.Lag != 50 || !i.LagExact || asked != 1 {
			t.Errorf("it stands at %+v; the index was asked %d times", i, asked)
		}
	})
}

// TestAcksWaitForADiskThatIsBehind: acks wait while the disk is behind, and all are durable and
// answered after.
func TestAcksWaitForADiskThatIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.stop()
		w.opts.Backlog = 1000
		w.start()
		defer func() { w.stop() }()
		w.shard.publish("o", "o", "o", "o")
		w.declare("billing", 1, earliest())
		s := w.find("billing")
		s.Pull(pull("a", 4))
		w.expect("billing", "a", "1", "2", "3", "4")
		blocked := make(chan struct{})
		w.fs.(*crashfs.FS).SetHook(func(op crashfs.Op) error {
			if op.Kind == "write" {
				<-blocked
			}
			return nil
		})
		records := []log.Record{{Subject: []byte("o"), Data: make([]byte, 5000)}}
		if _, err := w.shard.data.Append(&log.Append{Epoch: w.shard.epoch, Records: records}); err != nil {
			t.Fatal(err)
		}
		var answers atomic.Int32
		for o := range uint64(3) {
			s.Ack(o+1, 0, 1, Done, 0, func(err error) {
				if err != nil {
					t.Errorf("ack of %d: %v", o+1, err)
				}
				answers.Add(1)
			})
			time.Sleep(time.Second)
		}
		if n := answers.Load(); n > 0 {
			t.Errorf("%d acks were answered, and the disk has not written any", n)
		}
		close(blocked)
		time.Sleep(time.Second)
		if n := answers.Load(); n != 3 {
			t.Errorf("%d of 3 acks were answered", n)
		}
		w.restart()
		if i := w.find("billing").Info(); i.FloorOffset != 3 || i.Pending != 1 {
			t.Errorf("it stands at %+v", i)
		}
	})
}

func TestUnusedDurableSubscriptionsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer func() { w.stop() }()
		if err := w.service.Close(); err != nil {
			t.Fatal(err)
		}
		var reports atomic.Int32
		w.service = New(Config{
			Sink:     func(_ *topic.Shard, name string) DeliverySink { return w.box(name) },
			Inactive: func(_ *topic.Shard, name string, _ int64) { reports.Add(1) },
		})
		w.service.lead(&servedShard{Source: w.shard, topicID: topicID, name: "orders"})
		spec := earliest()
		spec.Consumer.InactiveThreshold = time.Minute
		w.declare("billing", 1, spec)
		s := w.find("billing")
		time.Sleep(50 * time.Second)
		s.Pull(Pull{To: []byte("a"), Batch: 1, Expires: 30 * time.Second})
		time.Sleep(80 * time.Second)
		if n := reports.Load(); n != 0 {
			t.Errorf("it was reported %d times while it was used", n)
		}
		time.Sleep(20 * time.Second)
		if n := reports.Load(); n != 1 {
			t.Errorf("it was reported %d times", n)
		}
		time.Sleep(time.Minute) // it was not deleted
		if n := reports.Load(); n != 2 {
			t.Errorf("it was reported %d times", n)
		}
	})
}

// TestARecordPublishedDuringASearchIsDelivered: a record published while a Subscription finds
// nothing to deliver is delivered.
func TestARecordPublishedDuringASearchIsDelivered(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.declare("billing", 1, earliest())
		s := w.find("billing")
		synctest.Wait()
		w.shard.mu.Lock()
		w.shard.asked = func() { w.shard.publish("o") }
		w.shard.mu.Unlock()
		s.Pull(pull("a", 2))
		w.expect("billing", "a", "1")
	})
}

// TestAStepIsBoundedByBytesToo: a step delivers fewer records if they are large.
func TestAStepIsBoundedByBytesToo(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		for range 8 {
			if _, err := w.shard.data.Append(&log.Append{Epoch: w.shard.epoch, Records: []log.Record{{Subject: []byte("o"), Data: make([]byte, stepBytes/2)}}}); err != nil {
				t.Fatal(err)
			}
		}
		w.shard.publish("o")
		w.declare("billing", 1, earliest())
		s := w.find("billing")
		synctest.Wait()
		before := w.box("billing").flushed
		s.Pull(pull("a", 9))
		w.expect("billing", "a", "1", "2", "3", "4", "5", "6", "7", "8", "9")
		if steps := w.box("billing").flushed - before; steps < 4 {
			t.Errorf("eight records of half a step's bytes took %d steps", steps)
		}
	})
}

// TestNewRecordsWakeAllWaitingSubscriptions: new records wake all of a thousand waiting
// Subscriptions, and none without requests.
func TestNewRecordsWakeAllWaitingSubscriptions(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		const n = 1000
		for i := range n {
			name := fmt.Sprintf("s%d", i)
			if _, err := w.service.Create(t.Context(), topicID, name, coordination.SubscriptionSpec{}, 0); err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 {
				w.service.Find(topicID, name).Pull(pull("a", 5))
			}
		}
		synctest.Wait()
		for round := range 2 {
			w.shard.publish("o")
			synctest.Wait()
			for i := range n {
				want := 1 - i%2
				if got := w.box(fmt.Sprintf("s%d", i)).take("a"); len(got) != want {
					t.Fatalf("round %d: s%d got %v", round, i, got)
				}
			}
		}
		if stats := w.service.Stats(); stats.Ephemerals != n || stats.Waiting != n/2 || stats.Pending != n || stats.Delivered != n {
			t.Errorf("the counts are %+v", stats)
		}
	})
}

func TestAcksOfAWeakerDurabilityDoNotWaitForTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, fs: crashfs.New(), boxes: map[string]*mailbox{}, promise: log.Replicated}
		w.start()
		defer func() { w.stop() }()
		w.shard.publish("o")
		w.declare("billing", 1, earliest())
		s := w.find("billing")
		s.Pull(pull("a", 1))
		w.expect("billing", "a", "1")
		synced := make(chan struct{})
		w.fs.(*crashfs.FS).SetHook(func(op crashfs.Op) error {
			if op.Kind == "sync" || op.Kind == "syncall" {
				<-synced
			}
			return nil
		})
		if err := w.ackNow(s, 1, Done); err != nil {
			t.Error(err)
		}
		close(synced)
	})
}
