package subscription

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/internal/testutil"
)

func startAt(start coordination.Start, subjects ...string) coordination.SubscriptionSpec {
	return coordination.SubscriptionSpec{Start: start, Subjects: subjects}
}

func TestASubscriptionStartsWhereItsSpecSays(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		var since time.Time
		for i := range 10 {
			w.shard.publish(fmt.Sprintf("orders.%d", i%3), "other")
			time.Sleep(time.Second)
			if i == 4 {
				since = time.Now().Add(-time.Millisecond) // the record at offset 11 is later
			}
		}
		if _, err := w.shard.data.Trim(3); err != nil {
			t.Fatal(err)
		}
		for i, c := range []struct {
			spec  coordination.SubscriptionSpec
			first []string
			lag   uint64
		}{
			{startAt(coordination.Start{}), []string{}, 0},
			{startAt(coordination.Start{From: coordination.FromEarliest}), []string{"3", "4"}, 18},
			{startAt(coordination.Start{From: coordination.FromOffset}), []string{"3", "4"}, 18},
			{startAt(coordination.Start{From: coordination.FromOffset, Offset: 19}), []string{"19", "20"}, 2},
			{startAt(coordination.Start{From: coordination.FromOffset, Offset: 1000}), []string{}, 0},
			{startAt(coordination.Start{From: coordination.FromTime, Time: since}), []string{"11", "12"}, 10},
			{startAt(coordination.Start{From: coordination.FromTime, Time: time.Unix(1, 0)}), []string{"3", "4"}, 18},
			{startAt(coordination.Start{From: coordination.FromTime, Time: time.Now().Add(time.Hour)}), []string{}, 0},
			{startAt(coordination.Start{From: coordination.FromLast}), []string{"20"}, 1},
			{startAt(coordination.Start{From: coordination.FromLast}, "orders.1"), []string{"15"}, 1},
			{startAt(coordination.Start{From: coordination.FromLast}, "nothing"), []string{}, 0},
			{startAt(coordination.Start{From: coordination.FromLastBySubject}, "orders.*"), []string{"15", "17", "19"}, 3},
			{startAt(coordination.Start{From: coordination.FromLastBySubject}, ">"), []string{"15", "17", "19"}, 4},
			{startAt(coordination.Start{From: coordination.FromEarliest}, "orders.2", "nothing"), []string{"5", "11", "17"}, 3},
		} {
			name := fmt.Sprintf("s%d", i)
			w.declare(name, int64(i+1), c.spec)
			s := w.find(name)
			if info := s.Info(); info.Lag != c.lag || !info.LagExact {
				t.Errorf("%+v: %d records are to come, not %d", c.spec, info.Lag, c.lag)
			}
			s.Pull(pull("a", len(c.first)+1))
			synctest.Wait()
			got := w.box(name).take("a")
			if fmt.Sprint(got[:min(len(got), len(c.first))]) != fmt.Sprint(c.first) {
				t.Errorf("%+v delivers %v first, not %v", c.spec, got, c.first)
			}
		}
	})
}

func TestTheLastRecordIsFoundFarBack(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.shard.publish("o", "o", "o", "rare", "o")
		many := make([]string, 1000)
		for i := range many {
			many[i] = "o"
		}
		for range 20 {
			w.shard.publish(many...)
		}
		w.declare("s", 1, startAt(coordination.Start{From: coordination.FromLast}, "rare"))
		w.find("s").Pull(pull("a", 2))
		w.expect("s", "a", "4")
	})
}

// TestTheNewestOfEachSubjectSurviveARestart: the broker restarts after some of the newest records
// were delivered.
func TestTheNewestOfEachSubjectSurviveARestart(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.shard.publish("a", "b", "c", "c", "b")
		w.declare("s", 1, startAt(coordination.Start{From: coordination.FromLastBySubject}))
		s := w.find("s")
		w.shard.publish("a", "a")
		s.Pull(pull("x", 1))
		w.expect("s", "x", "1")
		if err := w.ackNow(s, 1, Done); err != nil {
			t.Fatal(err)
		}
		w.restart()
		s = w.find("s")
		s.Pull(pull("x", 9))
		w.expect("s", "x", "4", "5", "6", "7")
	})
}

func TestFiltersSkipOtherSubjects(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.declare("s", 1, startAt(coordination.Start{}, "orders.*.paid", "alarm"))
		s := w.find("s")
		s.Pull(pull("a", 100))
		for range 100 {
			w.shard.publish("orders.1.made", "orders.1.paid", "noise", "noise")
		}
		w.shard.publish("noise", "alarm", "noise")
		synctest.Wait()
		got := w.box("s").take("a")
		if len(got) != 100 || got[0] != "2" || got[99] != "398" {
			t.Errorf("it got %d records: %v", len(got), got)
		}
		info := s.Info()
		if info.DeliveredSequence != 100 || info.Lag != 1 || !info.LagExact {
			t.Errorf("it stands at %+v", info)
		}
		if d := w.box("s").last(); d.Pending > 400 {
			t.Errorf("the last delivery says that %d are to come", d.Pending)
		}
		s.Pull(pull("a", 1))
		w.expect("s", "a", "402")
		if d := w.box("s").last(); d.Pending != 0 {
			t.Errorf("the last delivery says that %d are to come", d.Pending)
		}
		spec := startAt(coordination.Start{}, "other")
		w.declare("s", 1, spec)
		synctest.Wait()
		s.Pull(pull("a", 1))
		w.shard.publish("alarm", "other")
		w.expect("s", "a", "405")
	})
}

func TestRetentionDeletesUnreadRecords(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.declare("s", 1, earliest())
		w.declare("f", 2, startAt(coordination.Start{From: coordination.FromEarliest}, "orders.*"))
		s, f := w.find("s"), w.find("f")
		w.shard.publishN("orders", 10)
		for _, sub := range []*Subscription{s, f} {
			sub.Pull(pull("a", 3))
			w.expect(sub.Name(), "a", "1", "2", "3")
		}
		if _, err := w.shard.data.Trim(7); err != nil {
			t.Fatal(err)
		}
		for _, sub := range []*Subscription{s, f} {
			if i := sub.Info(); i.Pending != 0 || i.Lag != 4 || !i.LagExact || i.FloorOffset != 3 {
				t.Errorf("%s stands at %+v", sub.Name(), i)
			}
			sub.Pull(pull("a", 100))
			w.expect(sub.Name(), "a", "7", "8", "9", "10")
			if i := sub.Info(); i.Lost != 0 || i.Trouble != "" || i.Lag != 0 {
				t.Errorf("%s stands at %+v", sub.Name(), i)
			}
		}
		time.Sleep(31 * time.Second)
		w.expect("s", "a", "7 x2", "8 x2", "9 x2", "10 x2")
	})
}

func TestTooManySubjectsAreRefused(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.service.mostSubjects = 2
		w.shard.publish("a", "b", "c")
		spec := startAt(coordination.Start{From: coordination.FromLastBySubject})
		w.declare("s", 1, spec)
		var not *NotServedError
		if _, err := w.service.Wait(t.Context(), topicID, "s"); !errors.As(err, &not) || not.Reason != Unsupported {
			t.Errorf("a durable one: %v", err)
		}
		if _, err := w.service.Create(t.Context(), topicID, "e", spec, 0); !errors.As(err, &not) || not.Reason != Unsupported {
			t.Errorf("one in memory: %v", err)
		}
		if w.service.Find(topicID, "e") != nil {
			t.Error("it is there all the same")
		}
	})
}

// TestReadingIsTriedAgain: a failed read is tried again, and heartbeats go on meanwhile.
func TestReadingIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.shard.publish("a", "b", "a")
		w.stop()
		w.start() // so that the records are on the disk only
		defer func() { w.stop() }()
		var broken atomic.Bool
		broken.Store(true)
		w.fs.(*crashfs.FS).SetHook(func(op crashfs.Op) error {
			if broken.Load() && op.Kind == "read" && !strings.Contains(op.Path, "state") {
				return syscall.EIO
			}
			return nil
		})
		s, err := w.service.Create(t.Context(), topicID, "e", startAt(coordination.Start{From: coordination.FromLast}, "b"), 0)
		if err != nil {
			t.Fatal(err)
		}
		p := pull("a", 2)
		p.Expires, p.Heartbeat = time.Minute, 5*time.Second
		s.Pull(p)
		d, err := w.service.Create(t.Context(), topicID, "d", earliest(), 0)
		if err != nil {
			t.Fatal(err)
		}
		d.Pull(p)
		time.Sleep(6 * time.Second)
		w.expect("e", "a", "beat 0/0")
		w.expect("d", "a", "beat 0/0")
		if i := d.Info(); i.Trouble == "" || i.Lost != 0 {
			t.Errorf("it stands at %+v", i)
		}
		broken.Store(false)
		time.Sleep(1100 * time.Millisecond)
		w.expect("e", "a", "2")
		w.expect("d", "a", "1", "2")
		if i := d.Info(); i.Trouble != "" {
			t.Errorf("it stands at %+v", i)
		}
	})
}

// TestAStartThatTheLogHasNotReachedOutlivesLeaders: and what comes before it is not delivered.
func TestAStartThatTheLogHasNotReachedOutlivesLeaders(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.shard.publish("o", "o")
		spec := startAt(coordination.Start{From: coordination.FromOffset, Offset: 6})
		w.declare("billing", 1, spec)
		w.find("billing")
		_, err := w.service.Create(t.Context(), topicID, "watch", spec, time.Hour)
		testutil.Must(t, err)
		for range 2 {
			w.restart()
			w.shard.publish("o") // the cursor is of an earlier epoch than this
			synctest.Wait()
		}
		w.restart()
		w.shard.publish("o", "o", "o")
		for _, name := range []string{"billing", "watch"} {
			s := w.find(name)
			s.Pull(pull("a", 3))
			w.expect(name, "a", "6", "7")
			if _, err := s.Reset(0, func(error) {}); err != nil {
				t.Fatal(err)
			}
			s.Pull(pull("a", 1))
			w.expect(name, "a", "6", "7")
		}
	})
}

// TestAResetToTheFloorStaysBehindTheStart: also while the log has not reached that.
func TestAResetToTheFloorStaysBehindTheStart(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.shard.publish("o", "o")
		w.declare("billing", 1, startAt(coordination.Start{From: coordination.FromOffset, Offset: 5}))
		s := w.find("billing")
		for _, to := range []uint64{0, 5} {
			if at, err := s.Reset(to, func(error) {}); err != nil || at != 5 {
				t.Errorf("a reset to %d moves it to %d, %v", to, at, err)
			}
		}
		s.Pull(pull("a", 2))
		w.shard.publish("o", "o", "o")
		w.expect("billing", "a", "5")
	})
}
