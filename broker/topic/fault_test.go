package topic

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/acking"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/sender"
	"github.com/carillon-mq/carillon/broker/work"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestAFullDiskRefusesAndRecovers: on a full disk publishing is refused with the reason. A refused
// message is not kept, so its id stays free. Publishing continues when there is room again.
func TestAFullDiskRefusesAndRecovers(t *testing.T) {
	n := newSite(t)
	n.topic("orders", func(s *coordination.TopicSpec) { s.Deduplication = time.Hour })
	n.serve("orders", "bills")
	fs := n.fs.(*crashfs.FS)
	n.expect(n.ask("bills.a", "there is room in its segment"), "bills@1")
	n.expect(n.ask("orders.a", "and here", "Id: 1"), "orders@1")
	full := func(on bool) {
		fs.SetHook(func(op crashfs.Op) error {
			if on && op.Kind == "preallocate" {
				return syscall.ENOSPC
			}
			return nil
		})
	}
	full(true)
	kept := 1
	var refused string
	for i := 2; refused == ""; i++ {
		got := n.ask("orders.a", strings.Repeat("x", 1000), fmt.Sprintf("Id: %d", i))
		if got == fmt.Sprintf("orders@%d", i) {
			kept = i
		} else {
			refused = got
		}
	}
	if !strings.HasPrefix(refused, "no: topic orders: not kept: log id-orders-0: append: no room for the next segment") {
		t.Errorf("refused with %q", refused)
	}
	n.expect(n.ask("bills.a", "others go on"), "bills@2")
	if got := n.service.Stats().Refused["no_space"]; got != 1 {
		t.Errorf("counted %d", got)
	}
	// A read of which some are duplicates of what is there, and some of what is not kept.
	id := fmt.Sprintf("Id: %d", kept+1)
	n.hub.publish(message("orders.a", "r1", "x", "Id: 1"), message("orders.a", "r2", strings.Repeat("x", 1000), id), message("orders.a", "r3", "x", id))
	n.expect(n.hub.answer(t, "r1"), "orders@1 again")
	n.expect(n.hub.answer(t, "r2"), refused)
	n.expect(n.hub.answer(t, "r3"), refused)
	full(false)
	n.expect(n.ask("orders.a", "x", "Expect-Last-Id: "+strings.TrimPrefix(id, "Id: ")), fmt.Sprintf("no: topic orders: the last message has id %q", fmt.Sprint(kept)))
	n.expect(n.ask("orders.a", "x", id), fmt.Sprintf("orders@%d", kept+1))
	n.restart("orders", "bills")
	if got := len(n.read("orders")); got != kept+1 {
		t.Errorf("%d kept of %d", got, kept+1)
	}
}

// TestAFailedLogIsOpenedAgain: a failed write closes the log, since the content of its file is
// unknown. The disk works, so the log is opened again, and no other log is affected.
func TestAFailedLogIsOpenedAgain(t *testing.T) {
	t.Parallel()
	n := newSite(t)
	var opened []string
	n.told = func(s *ShardLeader, open bool) {
		if s.Topic().Name() == "orders" {
			opened = append(opened, fmt.Sprint(open))
		}
	}
	n.serve("orders", "bills")
	n.expect(n.ask("orders.a", "one"), "orders@1")
	first, shard := n.service.Topic("orders").Shard(), n.service.Topic("orders").shards[0]
	// It is not opened again before the disk works, however slow the test is.
	n.service.openMu.Lock()
	shard.backoff = work.Backoff{First: time.Hour, Last: time.Hour}
	n.service.openMu.Unlock()
	n.fs.(*crashfs.FS).SetHook(func(op crashfs.Op) error {
		if op.Kind == "write" && strings.Contains(op.Path, "id-orders-0/0") {
			return &crashfs.ShortWrite{N: op.Len / 2 &^ 511, Err: syscall.EIO} // a disk writes whole sectors
		}
		return nil
	})
	if got := n.ask("orders.a", "two"+strings.Repeat(" and more", 300)); !strings.HasPrefix(got, "no: topic orders: not kept: log id-orders-0 takes no appends since write") || !strings.Contains(got, "input/output error") {
		t.Errorf("refused with %q", got)
	}
	if got := n.ask("orders.a", "three"); !strings.HasPrefix(got, "no: topic orders: its log on broker main-0: log id-orders-0 takes no appends") {
		t.Errorf("refused with %q", got)
	}
	n.expect(n.ask("bills.a", "others go on"), "bills@1")
	n.eventually("its failure is noted", func() bool { return shard.trouble.Load() != nil })
	if trouble := n.service.Topic("orders").Trouble(); !strings.Contains(trouble, "input/output error") {
		t.Errorf("trouble: %q", trouble)
	}
	if got, err := readAll(first); err != nil || len(got) != 1 {
		t.Errorf("what it holds can't be read: %q, %v", got, err)
	}
	n.fs.(*crashfs.FS).SetHook(nil)
	shard.trouble.Store(&trouble{err: shard.trouble.Load().err, again: time.Now()})
	n.open("orders")
	n.expect(n.ask("orders.a", "four"), "orders@2")
	if got := n.read("orders"); !slices.Equal(got, []string{"1 orders.a one", "2 orders.a four"}) {
		t.Errorf("kept %q", got)
	}
	if trouble := n.service.Topic("orders").Trouble(); trouble != "" {
		t.Errorf("trouble: %q", trouble)
	}
	n.stop()
	if want := []string{"true", "false", "true", "false"}; !slices.Equal(opened, want) {
		t.Errorf("told of %q", opened)
	}
}

// TestALogThatFailsDuringAPassIsOpenedAgain: a log fails while a pass over its shard is under way,
// which ends without an error. The trouble stands, and the log is opened again.
func TestALogThatFailsDuringAPassIsOpenedAgain(t *testing.T) {
	t.Parallel()
	n := newSite(t)
	n.serve("orders")
	n.expect(n.ask("orders.a", "one"), "orders@1")
	leader := n.service.Topic("orders").Shard()
	var failed atomic.Bool
	n.fs.(*crashfs.FS).SetHook(func(op crashfs.Op) error {
		if op.Kind == "write" && strings.Contains(op.Path, "id-orders-0/") && failed.CompareAndSwap(false, true) {
			// The write of the spec.
			leader.mu.Lock()
			defer leader.mu.Unlock()
			leader.fail(errors.New("an append failed"))
		}
		return nil
	})
	n.topic("orders", func(s *coordination.TopicSpec) { s.Retention.Messages = 1000 })
	n.tell()
	n.eventually("another leader serves", func() bool {
		now := n.service.Topic("orders").Shard()
		return failed.Load() && now != nil && now != leader
	})
	n.open("orders")
	n.expect(n.ask("orders.a", "two"), "orders@2")
}

// TestAnswersThatRestOnALostRecordAreRefused: an answer that depends on a lost record is a refusal,
// too.
func TestAnswersThatRestOnALostRecordAreRefused(t *testing.T) {
	t.Parallel()
	n := newSite(t)
	n.topic("orders", func(s *coordination.TopicSpec) { s.Deduplication = time.Hour })
	n.serve("orders")
	n.expect(n.ask("orders.a", "one"), "orders@1")
	var failing atomic.Bool
	gate := make(chan struct{})
	n.fs.(*crashfs.FS).SetHook(func(op crashfs.Op) error {
		if op.Kind == "write" && strings.Contains(op.Path, "id-orders-0/0") && failing.CompareAndSwap(false, true) {
			<-gate
			return syscall.EIO
		}
		return nil
	})
	n.hub.publish(message("orders.a", "r1", "two", "Id: 2"))
	n.hub.publish(message("orders.a", "r2", "two", "Id: 2"))
	n.hub.publish(message("orders.a", "r3", "x", "Expect-Last: 1"))
	n.hub.publish(message("orders.a", "r4", "two", "Id: 2"), message("orders.a", "r5", "three", "Id: 3"))
	close(gate)
	for i := range 5 {
		if got := n.hub.answer(t, fmt.Sprintf("r%d", i+1)); !strings.HasPrefix(got, "no: topic orders: not kept: log id-orders-0 takes no appends") {
			t.Errorf("r%d: %q", i+1, got)
		}
	}
	n.open("orders")
	n.expect(n.ask("orders.a", "two", "Id: 2"), "orders@2")
	n.eventually("nothing waits", func() bool { return n.service.Stats().Unanswered == 0 })
}

// TestAFailedDiskRefusesEverything: after a failed sync all appends to the disk are refused, with
// the reason. Reading continues.
func TestAFailedDiskRefusesEverything(t *testing.T) {
	n := newSite(t)
	n.serve("orders", "bills")
	n.expect(n.ask("orders.a", "one"), "orders@1")
	n.expect(n.ask("bills.a", "one"), "bills@1")
	n.fs.(*crashfs.FS).SetHook(func(op crashfs.Op) error {
		if op.Kind == "sync" {
			return syscall.EIO
		}
		return nil
	})
	for i, on := range []string{"orders.a", "orders.a", "bills.a", "bills.a"} {
		if got := n.ask(on, "two"); !strings.Contains(got, "disk data takes no appends since sync") || !strings.Contains(got, "see to the disk and restart the broker") {
			t.Errorf("message %d: refused with %q", i, got)
		}
	}
	if got := n.read("orders"); len(got) != 1 {
		t.Errorf("read %q", got)
	}
	var why *publish.NotServedError
	if !errors.As(n.service.Topic("bills").WhyNot(), &why) || why.Reason != publish.Troubled {
		t.Errorf("why not: %v", n.service.Topic("bills").WhyNot())
	}
	if got := n.service.Stats(); got.Troubled != 2 || got.Refused["failed"] != 2 || got.Refused["not_served"] != 2 {
		t.Errorf("counted %+v", got)
	}
	n.fs.(*crashfs.FS).SetHook(nil)
	n.expect(n.ask("orders.a", "three")[:4], "no: ") // not even when syncs work again
	n.restart("orders", "bills")
	n.expect(n.ask("bills.a", "after the restart")[:6], "bills@")
}

// TestAFlippedBitIsReportedAndTheRestServed: a flipped bit makes the records of its batch
// unreadable and is reported; all others are served.
func TestAFlippedBitIsReportedAndTheRestServed(t *testing.T) {
	n := newSite(t)
	n.serve("orders", "bills")
	for i := range 40 {
		n.ask("orders.a", fmt.Sprintf("%d %s", i+1, strings.Repeat("x", 800)))
	}
	n.ask("bills.a", "one")
	n.stop()
	fs := n.fs.(*crashfs.FS)
	if err := fs.Flip("data/shards/id-orders-0/00000000000000000001.log", 4300*8); err != nil {
		t.Fatal(err)
	}
	n.doubt = true
	n.serve("orders", "bills")
	topic := n.service.Topic("orders")
	n.expect(n.ask("orders.a", "goes on"), "orders@41")
	n.expect(n.ask("bills.a", "goes on"), "bills@2")
	lost := 0
	for offset := uint64(1); offset <= 41; offset++ {
		if _, err := topic.Shard().Get(offset); err != nil {
			if _, ok := errors.AsType[*log.CorruptError](err); !ok {
				t.Errorf("offset %d: %v", offset, err)
			}
			lost++
		}
	}
	if lost != 1 {
		t.Errorf("%d records can't be read", lost)
	}
	// A search that would have to see the damaged record says so; one that needn't does not.
	shard := topic.Shard()
	if r, err := shard.LastFor("orders.a"); err != nil || r.Offset != 41 {
		t.Errorf("the last behind the damage: %v, %v", r.Offset, err)
	}
	if r, err := shard.NextFor("orders.a", 1); err != nil || r.Offset != 1 {
		t.Errorf("the first before the damage: %v, %v", r.Offset, err)
	}
	for what, search := range map[string]func() (log.Record, error){
		"the last of another subject": func() (log.Record, error) { return shard.LastFor("orders.nothing") },
		"the next of another subject": func() (log.Record, error) { return shard.NextFor("orders.nothing", 1) },
	} {
		if _, err := search(); err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%s: %v", what, err)
		}
	}
	// Damage to what says who the log is.
	n.stop()
	n.loseManifest()
	n.serve("orders", "bills")
	if trouble := n.service.Topic("orders").Trouble(); !strings.Contains(trouble, "manifest was damaged") {
		t.Errorf("trouble: %q", trouble)
	}
	n.expect(n.ask("orders.a", "goes on"), "orders@42")
	if n.service.Topic("bills").Trouble() != "" {
		t.Error("the other Topic is in trouble, too")
	}
}

// TestALogThatCanNotBeOpenedIsTriedAgain: opening a log is retried; other logs are served
// meanwhile.
func TestALogThatCanNotBeOpenedIsTriedAgain(t *testing.T) {
	t.Parallel()
	n := newSite(t)
	n.serve("bills")
	n.fs.(*crashfs.FS).SetHook(func(op crashfs.Op) error {
		if op.Kind == "create" && strings.Contains(op.Path, "orders") {
			return syscall.ENOSPC
		}
		return nil
	})
	n.topic("orders", nil)
	n.place("orders", self)
	n.tell()
	n.eventually("there is trouble", func() bool { return n.service.Topic("orders").Trouble() != "" })
	if got := n.ask("orders.a", "one"); !strings.HasPrefix(got, "no: topic orders: its log on broker main-0: log id-orders-0: open: ") {
		t.Errorf("refused with %q", got)
	}
	n.expect(n.ask("bills.a", "one"), "bills@1")
	n.fs.(*crashfs.FS).SetHook(nil)
	n.open("orders")
	n.expect(n.ask("orders.a", "one"), "orders@1")
}

// TestALogThatIsMissingIsReported: a missing log that was led before is created anew, and the
// possible loss is reported.
func TestALogThatIsMissingIsReported(t *testing.T) {
	n := newSite(t)
	n.serve("orders")
	n.ask("orders.a", "one")
	n.stop()
	n.fs, n.doubt = crashfs.New(), true
	n.serve("orders")
	if trouble := n.service.Topic("orders").Trouble(); !strings.Contains(trouble, "was not there in epoch 2 and begins anew; if it had messages, they are lost") {
		t.Errorf("trouble: %q", trouble)
	}
}

// TestPublishersAreHeldUpWhileTheDiskIsBehind: a publisher that is faster than the disk has to
// wait, and messages from links are finally refused.
func TestPublishersAreHeldUpWhileTheDiskIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newSite(t)
		n.options.Backlog = 64 << 10
		n.serve("orders")
		n.ask("orders.a", "one")
		release := hold(n)
		n.hub.publish(message("orders.a", "r", "held"))
		synctest.Wait() // the disk is busy
		payload := strings.Repeat("x", 10<<10)
		i := 0
		for behind := false; !behind; i++ {
			behind = n.hub.publish(message("orders.a", fmt.Sprintf("r%d", i), payload))
		}
		if i < 5 || i > 8 {
			t.Errorf("held up after %d messages", i)
		}
		waited := make(chan struct{})
		go func() {
			(*taker)(n.service.Topic("orders")).Wait()
			close(waited)
		}()
		synctest.Wait()
		select {
		case <-waited:
			t.Error("nobody was held up")
		default:
		}
		for range 20 { // a link does not wait
			n.hub.publish(message("orders.a", fmt.Sprintf("r%d", i), payload))
			i++
		}
		if got := n.hub.answer(t, fmt.Sprintf("r%d", i-1)); !strings.Contains(got, "the disk is behind") {
			t.Errorf("answered %q", got)
		}
		release()
		<-waited
		n.expect(n.hub.answer(t, "r0"), "orders@3")
		if got := n.service.Stats().Refused["overloaded"]; got == 0 {
			t.Error("not counted")
		}
	})
}

// TestAPublisherWaitsForItsOwnShards: another shard of the Topic is led by a broker that answers
// nothing, and is full. A publisher that has to wait for other reasons does not wait for that one,
// too.
func TestAPublisherWaitsForItsOwnShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newSite(t)
		n.topic("orders", func(s *coordination.TopicSpec) { s.Shards = 2 })
		testutil.Must(t, n.start())
		n.placeShard("orders", 0, self)
		n.placeShard("orders", 1, "broker-z")
		n.tell()
		n.open("orders")
		topic := n.service.Topic("orders")
		silent := newWay()
		silent.deaf = true
		link := n.service.Attach("broker-z", silent)
		t.Cleanup(n.service.senders.Hold("broker-z", sender.OutboxBytes))
		var behind work.Behind
		topic.shards[1].publish(7, []protocol.Message{message("orders.z", "", "x")}, nil, &behind)
		t.Cleanup(n.service.senders.Hold("broker-z", sender.OutboxBytes*3/4))
		if !topic.shards[1].out.Load().Publish(topic.shards[1].view.Load(), []protocol.Message{message("orders.z", "", "x")}, nil) {
			t.Fatal("the silent shard is not full")
		}
		n.service.acker.Expect(acking.MaxUnanswered + 1)
		topic.shards[0].publish(8, []protocol.Message{message("orders.a", "r1", "x")}, nil, &behind)
		if !behind.Any() {
			t.Fatal("answers pile up, and nobody waits")
		}
		n.service.acker.Expect(-acking.MaxUnanswered - 1)
		if got := n.hub.answer(t, "r1"); !strings.HasSuffix(got, "@1") {
			t.Errorf("answered %q", got)
		}
		n.service.acker.WakePublishers()
		var on atomic.Bool
		go func() {
			behind.Wait()
			on.Store(true)
		}()
		if synctest.Wait(); !on.Load() {
			t.Error("it waits for a shard that it did not publish to")
		}
		link.Detach()
	})
}

// TestPublishersAreHeldUpWhileAnswersPileUp: publishers wait while too many answers are pending,
// and messages from links are refused.
func TestPublishersAreHeldUpWhileAnswersPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newSite(t)
		n.serve("orders")
		topic := n.service.Topic("orders")
		n.service.acker.Expect(acking.MaxUnanswered + 1)
		if !n.hub.publish(message("orders.a", "r1", "one")) {
			t.Error("nobody was held up")
		}
		n.expect(n.hub.answer(t, "r1"), "orders@1")
		waited := make(chan struct{})
		go func() {
			(*taker)(topic).Wait()
			close(waited)
		}()
		n.service.acker.Expect(acking.MaxUnanswered)
		// It stays with its sender.
		topic.shards[0].publish(nobody, []protocol.Message{message("orders.a", "r2", "two")}, nil, &work.Behind{})
		synctest.Wait()
		select {
		case <-waited:
			t.Error("it did not wait")
		default:
		}
		n.service.acker.Expect(-2*acking.MaxUnanswered - 1)
		n.expect(n.hub.answer(t, "r2"), "orders@2")
		n.expect(n.ask("orders.a", "three"), "orders@3") // after which there is room
		<-waited
	})
}
