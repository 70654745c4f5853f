package topic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/records"
)

// fill publishes so many messages of about 1 KB, each on a subject of its own among three.
func (n *site) fill(name string, count int) {
	n.t.Helper()
	for i := range count {
		n.ask(fmt.Sprintf("%s.%d", name, i%3), strings.Repeat("x", 1000))
	}
}

func TestReadersSeeExactlyAsManyMessagesAsAreKept(t *testing.T) {
	t.Parallel()
	n := newSite(t)
	n.topic("orders", func(s *coordination.TopicSpec) { s.Retention.Messages = 10 })
	n.serve("orders")
	n.fill("orders", 7)
	s := n.service.Topic("orders").Shard()
	see := func(start, end uint64) {
		t.Helper()
		if from, to := n.service.Topic("orders").Shard().Offsets(); from != start || to != end {
			t.Errorf("readers see %d up to %d, want %d up to %d", from, to, start, end)
		}
	}
	see(1, 8)
	n.fill("orders", 93)
	see(91, 101)
	if got := len(n.read("orders")); got != 10 {
		t.Errorf("%d are read", got)
	}
	if _, err := s.Get(90); !strings.Contains(fmt.Sprint(err), "no record at offset 90") {
		t.Errorf("a record that is not kept: %v", err)
	}
	n.eventually("files go", func() bool { return s.Data().Start() > 60 })
	// More is to be kept: what nobody saw any more does not come back, not even after a restart.
	n.topic("orders", func(s *coordination.TopicSpec) { s.Retention.Messages = 50 })
	n.tell()
	see(91, 101)
	n.eventually("that is on the disk", func() bool { return s.Data().Start() == 91 })
	n.restart("orders")
	see(91, 101)
	n.fill("orders", 45)
	see(96, 146)
	// Less is: at once.
	n.topic("orders", func(s *coordination.TopicSpec) { s.Retention.Messages = 3 })
	n.tell()
	see(143, 146)
}

// TestRemovedRecordsDoNotCountAsKept: a Topic keeps so many records that are left, readers begin
// with one of them, and segments that begin the log and have none go.
func TestRemovedRecordsDoNotCountAsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // for segments become old enough in more than a minute
		n := newSite(t)
		n.topic("orders", func(s *coordination.TopicSpec) { s.Retention.Messages = 50 })
		n.topic("all", nil)
		n.serve("orders", "all")
		n.fill("orders", 55)
		s := n.service.Topic("orders").Shard()
		s.Removed().Add(40, 50) // of 6 to 55, before anybody looks
		n.fill("orders", 12)
		if start, end := s.Offsets(); start != 8 || end != 68 || s.Messages(start, end) != 50 {
			t.Errorf("readers see %d up to %d, %d messages; want 50 from 8 on", start, end, s.Messages(start, end))
		}
		s.Removed().Add(8, 10)
		if start, _ := s.Offsets(); start != 10 {
			t.Errorf("the first two are removed, and readers begin at %d, want 10", start)
		}
		if info := s.Info(); info.First != 10 || info.Messages != 48 || info.FirstTime.IsZero() {
			t.Errorf("readers see %+v, want 48 messages from 10 on", info)
		}
		if _, err := s.Get(45); err == nil {
			t.Error("a removed record is returned")
		}

		n.fill("all", 200)
		a := n.service.Topic("all").Shard()
		if a.Data().Roll(); len(a.Data().SegmentInfos()) == 1 {
			n.fill("all", 1)
		}
		_, end := a.Offsets()
		a.Removed().Add(1, end)
		n.eventually("segments without a record go", func() bool { return a.Data().Start() > 100 })
		n.eventually("the set forgets what the log lacks", func() bool { return a.Removed().Len() < 101 })
		if info := a.Info(); info.Messages != 0 || info.First != end || info.Last != end-1 {
			t.Errorf("nothing is left, and readers see %+v; the end is %d", info, end)
		}
	})
}

func TestRetentionDeletesByAgeAndBytes(t *testing.T) {
	t.Parallel()
	n := newSite(t)
	n.topic("large", func(s *coordination.TopicSpec) { s.Retention.Bytes = 50 << 10 })
	n.topic("old", func(s *coordination.TopicSpec) { s.Retention.Age = 300 * time.Millisecond })
	n.serve("large", "old")
	n.fill("old", 5)
	n.fill("large", 200)
	large, old := n.service.Topic("large").Shard(), n.service.Topic("old").Shard()
	n.eventually("what is too much goes", func() bool { return large.Info().Bytes <= 66<<10 })
	if info := large.Info(); info.Last != 200 || info.Bytes < 50<<10 || info.Messages != info.Last-info.First+1 {
		t.Errorf("kept %+v", info)
	}
	n.eventually("what is too old goes", func() bool { return old.Info().Messages == 0 })
	if info := old.Info(); info.First != 6 || info.Last != 5 || info.Bytes != 0 {
		t.Errorf("kept %+v", info)
	}
	n.expect(n.ask("old.a", "new"), "old@6")
}

// TestIdleShardsCostNothing: the keeper does no work for idle shards.
func TestIdleShardsCostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newSite(t)
		n.topic("idle", func(s *coordination.TopicSpec) {
			s.Retention = coordination.Retention{Age: time.Hour, Messages: 10, Bytes: 1 << 20}
		})
		n.serve("idle", "unbounded")
		n.fill("idle", 5)
		shards := n.service.Leaders()
		time.Sleep(2 * tick) // they are looked at
		synctest.Wait()
		if slices.ContainsFunc(shards, func(s *ShardLeader) bool {
			return s.retention.IsDue(s.shard.view.Load().retention, n.service.config.Clock.Mono())
		}) {
			t.Fatal("they are not looked at")
		}
		var ops atomic.Int64
		n.fs.(*crashfs.FS).SetHook(func(crashfs.Op) error { ops.Add(1); return nil })
		time.Sleep(20 * tick)
		synctest.Wait()
		if ops.Load() > 0 {
			t.Errorf("%d operations on the disk", ops.Load())
		}
		n.fill("idle", 1)
		if !slices.ContainsFunc(shards, func(s *ShardLeader) bool {
			return s.retention.IsDue(s.shard.view.Load().retention, n.service.config.Clock.Mono())
		}) {
			t.Error("a change is not noticed")
		}
	})
}

func TestPurging(t *testing.T) {
	n := newSite(t)
	n.serve("orders")
	n.fill("orders", 30)
	s := n.service.Topic("orders").Shard()
	purge := func(below, want uint64) {
		t.Helper()
		if got, err := s.Purge(context.Background(), below); err != nil || got != want {
			t.Errorf("purged %d, want %d: %v", got, want, err)
		}
	}
	purge(11, 10)
	purge(11, 0)
	purge(5, 0)
	if info := s.Info(); info.First != 11 || info.Messages != 20 || info.FirstTime.IsZero() || info.LastTime.Before(info.FirstTime) {
		t.Errorf("kept %+v", info)
	}
	hold := s.Data().Hold(15)
	purge(20, 4)
	hold.Release()
	purge(1000, 16)
	if info := s.Info(); info != (records.Info{First: 31, Last: 30}) {
		t.Errorf("kept %+v", info)
	}
	n.restart("orders")
	n.expect(n.ask("orders.a", "x"), "orders@31")
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := n.service.Topic("orders").Shard().Purge(ended, 32); !errors.Is(err, context.Canceled) {
		t.Errorf("purged for nobody: %v", err)
	}
}

func TestRecordsAreFoundByOffsetAndSubject(t *testing.T) {
	n := newSite(t)
	n.serve("orders")
	n.ask("orders.first", "only once")
	n.fill("orders", 600) // on 0, 1, 2, in turn
	n.ask("orders.last", "only once")
	s := n.service.Topic("orders").Shard()
	if _, err := s.Purge(context.Background(), 2); err != nil {
		t.Fatal(err)
	}
	at := func(r log.Record, err error) string {
		if err != nil {
			_, none := errors.AsType[*records.NoRecordError](err)
			return fmt.Sprint("none ", none)
		}
		return fmt.Sprint(r.Offset, " ", string(r.Subject))
	}
	for i, c := range []struct {
		got  string
		want string
	}{
		{at(s.Get(2)), "2 orders.0"},
		{at(s.Get(1)), "none true"},
		{at(s.Get(603)), "none true"},
		{at(s.Get(602)), "602 orders.last"},
		{at(s.NextFor("orders.1", 0)), "3 orders.1"},
		{at(s.NextFor("orders.1", 4)), "6 orders.1"},
		{at(s.NextFor("orders.*", 100)), "100 orders.2"},
		{at(s.NextFor(">", 602)), "602 orders.last"},
		{at(s.NextFor("orders.first", 0)), "none true"},
		{at(s.NextFor("orders.1", 601)), "none true"},
		{at(s.LastFor("orders.0")), "599 orders.0"},
		{at(s.LastFor("orders.*")), "602 orders.last"},
		{at(s.LastFor("orders.first")), "none true"},
		{at(s.LastFor("bills.>")), "none true"},
	} {
		if c.got != c.want {
			t.Errorf("case %d: %s, want %s", i, c.got, c.want)
		}
	}
	// What is found outlives the log.
	r, err := s.LastFor("orders.last")
	n.stop()
	if err != nil || string(r.Data) != "only once" {
		t.Errorf("%q, %v", r.Data, err)
	}
}

func TestWatchersAreNotifiedOfSafeRecords(t *testing.T) {
	n := newSite(t)
	n.serve("orders")
	s := n.service.Topic("orders").Shard()
	heard := make(chan uint64, 100)
	var other atomic.Int64
	stop := s.Watch(func() {
		_, end := s.Offsets()
		heard <- end
	})
	stopOther := s.Watch(func() { other.Add(1) })
	n.ask("orders.a", "x")
	if end := <-heard; end != 2 {
		t.Errorf("it ended at %d", end)
	}
	n.eventually("the other hears", func() bool { return other.Load() == 1 })
	stopOther()
	n.ask("orders.a", "x")
	if end := <-heard; end != 3 || other.Load() != 1 {
		t.Errorf("it ended at %d; the other one heard %d times", end, other.Load())
	}
	stop()
	n.ask("orders.a", "x")
	n.stop()
	if len(heard) > 0 {
		t.Error("heard after the end")
	}
}
