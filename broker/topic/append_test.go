package topic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/dedup"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/protocol"
)

func TestPublishedMessagesAreKeptAndAnswered(t *testing.T) {
	n := newSite(t)
	n.serve("orders")
	n.expect(n.ask("orders.eu", "one"), "orders@1")
	n.expect(n.ask("orders.us", "two"), "orders@2")
	n.hub.publish(message("orders.eu", "", "nobody waits for an answer"))
	n.expect(n.ask("orders.eu", "four"), "orders@4")
	want := []string{"1 orders.eu one", "2 orders.us two", "3 orders.eu nobody waits for an answer", "4 orders.eu four"}
	if got := n.read("orders"); !slices.Equal(got, want) {
		t.Fatalf("kept %q", got)
	}
	n.restart("orders")
	if got := n.read("orders"); !slices.Equal(got, want) {
		t.Fatalf("kept after a restart: %q", got)
	}
	n.expect(n.ask("orders.eu", "five"), "orders@5")
	if e := n.service.Topic("orders").Shard().Epoch(); e != 2 {
		t.Errorf("epoch %d", e)
	}
}

// hold keeps syncs of segments from happening until release is called.
func hold(n *site) (release func()) {
	gate := make(chan struct{})
	n.fs.(*crashfs.FS).SetHook(func(op crashfs.Op) error {
		if (op.Kind == "sync" || op.Kind == "syncall") && !strings.HasSuffix(op.Path, ".new") && !strings.HasSuffix(op.Path, "/manifest") {
			<-gate
		}
		return nil
	})
	var once bool
	release = func() {
		if !once {
			once = true
			close(gate)
		}
	}
	n.t.Cleanup(release)
	return release
}

func TestMessagesOfOneReadShareABatchAndASend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newSite(t)
		n.serve("orders", "bills")
		n.ask("orders.eu", "first")
		rounds := n.disk.Stats().Rounds
		first, others := make(chan struct{}), make(chan struct{})
		var syncs atomic.Int32
		n.fs.(*crashfs.FS).SetHook(func(op crashfs.Op) error {
			if (op.Kind == "sync" || op.Kind == "syncall") && !strings.HasSuffix(op.Path, ".new") && !strings.HasSuffix(op.Path, "/manifest") {
				if syncs.Add(1) == 1 {
					<-first
				} else {
					<-others
				}
			}
			return nil
		})
		release := sync.OnceFunc(func() { close(first) })
		releaseOthers := sync.OnceFunc(func() { close(others) })
		t.Cleanup(release)
		t.Cleanup(releaseOthers)
		n.hub.publish(message("orders.eu", "r0", "held")) // the disk is at this one while the others come
		synctest.Wait()                                   // the disk is busy
		for read := range 3 {
			var messages []protocol.Message
			for i := range 4 {
				messages = append(messages, message("orders.eu", fmt.Sprintf("r%d.%d", read, i), "x"), message("bills.eu", fmt.Sprintf("b%d.%d", read, i), "x"))
			}
			n.hub.publish(messages...)
		}
		release()
		n.expect(n.hub.answer(t, "r0"), "orders@2")
		n.hub.mu.Lock()
		n.hub.sends = nil
		n.hub.mu.Unlock()
		releaseOthers()
		n.expect(n.hub.answer(t, "r2.3"), "orders@14")
		n.expect(n.hub.answer(t, "b2.3"), "bills@12")
		n.hub.mu.Lock()
		defer n.hub.mu.Unlock()
		if sends := n.hub.sends; len(sends) != 1 || len(sends[0]) != 24 {
			t.Errorf("the answers of a round went out as %d sends: %q", len(sends), sends)
		}
		if got := n.disk.Stats().Rounds - rounds; got != 2 {
			t.Errorf("%d rounds", got)
		}
	})
}

func TestConditionsAreJudgedAtTheEndOfTheLog(t *testing.T) {
	n := newSite(t)
	n.topic("orders", func(s *coordination.TopicSpec) { s.MaxMessage = 100 })
	n.serve("orders")
	n.expect(n.ask("orders.eu", "a", "Expect-Last: 0"), "orders@1")
	n.expect(n.ask("orders.eu", "b", "Expect-Last: 0"), "no: topic orders: the last message is at offset 1")
	n.expect(n.ask("orders.eu", "b", "Expect-Last: 1", "Expect-Topic: orders", "Id: b"), "orders@2")
	n.expect(n.ask("orders.eu", "c", "Expect-Topic: bills"), "no: topic orders keeps this subject, not bills")
	n.expect(n.ask("orders.eu", "c", "Expect-Last-Id: a"), `no: topic orders: the last message has id "b"`)
	n.restart("orders")
	n.expect(n.ask("orders.eu", "c", "Expect-Last-Id: b"), "orders@3")
	n.expect(n.ask("orders.eu", "d", "Expect-Last-Id: b"), `no: topic orders: the last message has id ""`)
	n.expect(n.ask("orders.eu", strings.Repeat("x", 101)), "no: topic orders: a message of 101 bytes; it takes 100 with headers (spec.maxMessage)")
	// Within one read, each message counts for the next.
	n.hub.publish(message("orders.eu", "r1", "d", "Expect-Last: 3"), message("orders.eu", "r2", "e", "Expect-Last: 3"), message("orders.eu", "r3", "e", "Expect-Last: 4"))
	n.expect(n.hub.answer(t, "r1"), "orders@4")
	n.expect(n.hub.answer(t, "r2"), "no: topic orders: the last message is at offset 4")
	n.expect(n.hub.answer(t, "r3"), "orders@5")
	if got := n.service.Stats().Refused; got["condition"] != 2 || got["too_large"] != 1 || got["request"] != 0 {
		t.Errorf("counted %v", got)
	}
}

func TestTheLastMessageOfASubjectCanBeExpected(t *testing.T) {
	t.Parallel()
	n := newSite(t)
	n.serve("orders")
	n.expect(n.ask("orders.eu", "a", "Expect-Last-By-Subject: 0"), "orders@1")
	n.expect(n.ask("orders.us", "b", "Expect-Last-By-Subject: 0"), "orders@2")
	n.expect(n.ask("orders.eu", "c", "Expect-Last-By-Subject: 0"), "no: topic orders: the last message of subject orders.eu is at offset 1")
	n.expect(n.ask("orders.eu", "c", "Expect-Last-By-Subject: 1"), "orders@3")
	n.expect(n.ask("orders.eu", "d", "Expect-Last-By-Subject: 2", "Expect-Subject: orders.us"), "orders@4")
	n.expect(n.ask("orders.eu", "e", "Expect-Last-By-Subject: 3", "Expect-Subject: orders.*"), "no: topic orders: the last message of subject orders.* is at offset 4")
	// Of two in one read, the first counts for the second.
	n.hub.publish(message("orders.ap", "r1", "x", "Expect-Last-By-Subject: 0"), message("orders.ap", "r2", "x", "Expect-Last-By-Subject: 0"), message("orders.ap", "r3", "x", "Expect-Last-By-Subject: 5"))
	n.expect(n.hub.answer(t, "r1"), "orders@5")
	n.expect(n.hub.answer(t, "r2"), "no: topic orders: the last message of subject orders.ap is at offset 5")
	n.expect(n.hub.answer(t, "r3"), "orders@6")
	// So it does if it is the first for which a leader needs to know: what came before it in the
	// read is not in the log yet.
	n.restart("orders")
	n.hub.publish(message("orders.first", "r1", "x"), message("orders.first", "r2", "x", "Expect-Last-By-Subject: 0"), message("orders.first", "r3", "x", "Expect-Last-By-Subject: 7"))
	n.expect(n.hub.answer(t, "r1"), "orders@7")
	n.expect(n.hub.answer(t, "r2"), "no: topic orders: the last message of subject orders.first is at offset 7")
	n.expect(n.hub.answer(t, "r3"), "orders@8")
	n.restart("orders")
	n.expect(n.ask("orders.us", "x", "Expect-Last-By-Subject: 0"), "no: topic orders: the last message of subject orders.us is at offset 2")
	// What was let go of counts no more.
	if _, err := n.service.Topic("orders").Shard().Purge(context.Background(), 3); err != nil {
		t.Fatal(err)
	}
	n.expect(n.ask("orders.us", "x", "Expect-Last-By-Subject: 0"), "orders@9")
	// The subjects of a large log are indexed in the background; until then nothing is judged by what
	// is not known.
	n.topic("large", nil)
	n.place("large", self)
	n.tell()
	n.open("large")
	n.ask("large.first", "x")
	for range 20 {
		n.ask("large.many", strings.Repeat("x", batchBytes*9/10))
	}
	release := n.hangIndex("large")
	if got := n.ask("large.first", "x", "Expect-Last-By-Subject: 0"); !strings.HasPrefix(got, "no: topic large: expecting the last message of a subject is not possible: ") || !strings.HasSuffix(got, "again in a moment") {
		t.Errorf("while it is being indexed: %s", got)
	}
	release()
	n.eventually("it is indexed", func() bool {
		return n.ask("large.first", "x", "Expect-Last-By-Subject: 0") == "no: topic large: the last message of subject large.first is at offset 1"
	})
	n.expect(n.ask("large.first", "x", "Expect-Last-By-Subject: 1"), "large@22")
	n.expect(n.ask("large.many", "x", "Expect-Last-By-Subject: 21"), "large@23")
	n.expect(n.ask("large.new", "x", "Expect-Last-By-Subject: 0"), "large@24")
}

func TestAMessageWithAnIDIsKeptOnce(t *testing.T) {
	n := newSite(t)
	n.topic("orders", func(s *coordination.TopicSpec) { s.Deduplication = time.Hour })
	n.serve("orders", "bills")
	n.expect(n.ask("orders.eu", "a", "Id: 1"), "orders@1")
	n.expect(n.ask("orders.eu", "a", "Id: 1"), "orders@1 again")
	n.expect(n.ask("bills.eu", "a", "Id: 1"), "bills@1")
	n.expect(n.ask("bills.eu", "a", "Id: 1"), "bills@2") // it asks for no deduplication
	n.hub.publish(message("orders.eu", "r1", "b", "Id: 2"), message("orders.eu", "r2", "b", "Id: 2"), message("orders.eu", "r3", "c", "Id: 3"))
	n.expect(n.hub.answer(t, "r1"), "orders@2")
	n.expect(n.hub.answer(t, "r2"), "orders@2 again")
	n.expect(n.hub.answer(t, "r3"), "orders@3")
	n.restart("orders", "bills")
	n.expect(n.ask("orders.eu", "b", "Id: 2"), "orders@2 again")
	n.expect(n.ask("orders.eu", "d", "Id: 4"), "orders@4")
	// A shorter window forgets what is older.
	n.topic("orders", func(s *coordination.TopicSpec) { s.Deduplication = time.Nanosecond })
	n.tell()
	n.expect(n.ask("orders.eu", "e", "Id: 1"), "orders@5")
	if got := n.service.Stats(); got.Duplicates != 1 || got.IDs != 1 {
		t.Errorf("counted %+v", got)
	}
}

// TestOpeningALogWithoutIDsDoesNotReadIt: opening a log reads its message ids only if a message
// with an id was ever published.
func TestOpeningALogWithoutIDsDoesNotReadIt(t *testing.T) {
	n := newSite(t)
	n.options.SegmentSmallest = 1 << 20
	n.topic("orders", func(s *coordination.TopicSpec) { s.Deduplication = time.Hour })
	n.serve("orders")
	n.hub.quiet = true
	for range 200 {
		n.hub.publish(message("orders.a", "", strings.Repeat("x", 1000)))
	}
	n.restart("orders")
	reads := func() (bytes int) {
		n.stop()
		n.fs.(*crashfs.FS).SetHook(func(op crashfs.Op) error {
			if op.Kind == "read" && op.Off > 0 { // recovery reads the last segment once, from the front
				bytes += op.Len
			}
			return nil
		})
		n.serve("orders")
		n.fs.(*crashfs.FS).SetHook(nil)
		return bytes
	}
	without := reads()
	n.hub.publish(message("orders.a", "r1", "first", "Id: 1"), message("orders.a", "r2", "second", "Id: 2"), message("orders.a", "r3", "again", "Id: 1"))
	n.expect(n.hub.answer(t, "r1"), "orders@201")
	n.expect(n.hub.answer(t, "r2"), "orders@202")
	n.expect(n.hub.answer(t, "r3"), "orders@201 again")
	with := reads()
	if with < without+190_000 {
		t.Errorf("read %d bytes without ids and %d with", without, with)
	}
	n.expect(n.ask("orders.a", "again", "Id: 2"), "orders@202 again")
	// Neither what else is kept beside the log, nor a damaged meta file makes the broker forget
	// that there are some.
	n.topic("orders", func(s *coordination.TopicSpec) { s.MaxMessage = 12345 })
	n.tell()
	data := n.service.Topic("orders").Shard().Data()
	n.eventually("the change is kept", func() bool { return strings.Contains(string(data.Meta().Spec), "12345") })
	n.restart("orders")
	n.expect(n.ask("orders.a", "again", "Id: 2"), "orders@202 again")
	n.stop()
	n.loseManifest()
	n.doubt = true
	// The file is made again, and then the broker ends before it writes anything else to it.
	made := false
	n.fs.(*crashfs.FS).SetHook(func(op crashfs.Op) error {
		switch {
		case op.Kind == "create" && strings.HasSuffix(op.Path, "id-orders-0/manifest.new"):
			made = true
		case made && op.Kind == "open" && strings.HasSuffix(op.Path, "id-orders-0/manifest"):
			return errors.New("the broker is about to end")
		}
		return nil
	})
	if err := n.start(); err != nil {
		t.Fatal(err)
	}
	n.place("orders", self)
	n.tell()
	n.eventually("it has opened its copy, and can't keep what it knows of it", func() bool {
		return strings.Contains(n.service.Topic("orders").Trouble(), "about to end")
	})
	n.crash()
	n.fs.(*crashfs.FS).SetHook(nil)
	n.serve("orders")
	n.expect(n.ask("orders.a", "again", "Id: 2"), "orders@202 again")
}

// TestADuplicateOfAMessageUnderWayWaitsForIt: an answer that depends on a record waits until that
// record is safe.
func TestADuplicateOfAMessageUnderWayWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newSite(t)
		n.topic("orders", func(s *coordination.TopicSpec) { s.Deduplication = time.Hour })
		n.serve("orders")
		n.ask("orders.eu", "first")
		release := hold(n)
		n.hub.publish(message("orders.eu", "r1", "a", "Id: 1"))
		n.hub.publish(message("orders.eu", "r2", "a", "Id: 1"))
		n.hub.publish(message("orders.eu", "r3", "b", "Expect-Last: 1"))
		synctest.Wait()
		n.hub.mu.Lock()
		if len(n.hub.answers) != 1 {
			t.Errorf("answered before anything was safe: %q", n.hub.answers)
		}
		n.hub.mu.Unlock()
		if got := n.read("orders"); len(got) != 1 {
			t.Errorf("readers see what is not safe yet: %q", got)
		}
		release()
		n.expect(n.hub.answer(t, "r1"), "orders@2")
		n.expect(n.hub.answer(t, "r2"), "orders@2 again")
		n.expect(n.hub.answer(t, "r3"), "no: topic orders: the last message is at offset 2")
		n.eventually("nothing waits", func() bool { return n.service.Stats().Unanswered == 0 })
	})
}

func TestAWildcardDoesNotKeepSystemSubjects(t *testing.T) {
	n := newSite(t)
	n.topic("all", func(s *coordination.TopicSpec) { s.Subjects = []string{">"} })
	n.topic("some", func(s *coordination.TopicSpec) { s.Subjects = []string{"*.x", "$KV.a.>"} })
	n.serve("all", "some")
	n.hub.publish(message("$JS.API.INFO", "r1", ""), message("_INBOX.a.b", "r2", ""), message("$KV.a.b", "r3", "kept"), message("orders.eu", "r4", "kept"), message("$x.x", "r5", ""))
	n.expect(n.hub.answer(t, "r4"), "all@1")
	n.expect(n.hub.answer(t, "r3"), "some@1")
	n.stop()
	if len(n.hub.answers) != 2 {
		t.Errorf("answered %q", n.hub.answers)
	}
}

func TestAStreamWithoutAcksAnswersNothing(t *testing.T) {
	n := newSite(t)
	n.topic("quiet", func(s *coordination.TopicSpec) { s.Stream.NoAck, s.MaxMessage = true, 10 })
	n.serve("quiet")
	n.hub.publish(message("quiet.a", "r1", "kept"), message("quiet.a", "r2", "much too large"))
	n.eventually("it is kept", func() bool { return len(n.read("quiet")) == 1 })
	n.stop()
	if len(n.hub.sends) > 0 {
		t.Errorf("answered %q", n.hub.sends)
	}
}

func TestEveryDurabilityAnswers(t *testing.T) {
	for _, d := range []coordination.Durability{coordination.Synced, coordination.Replicated, coordination.Memory} {
		n := newSite(t)
		n.topic("orders", func(s *coordination.TopicSpec) { s.Durability, s.Deduplication = d, time.Hour })
		n.serve("orders")
		n.hub.publish(message("orders.a", "r1", "one", "Id: 1"), message("orders.a", "r2", "one", "Id: 1"), message("orders.a", "r3", "two"))
		n.expect(n.hub.answer(t, "r1"), "orders@1")
		n.expect(n.hub.answer(t, "r2"), "orders@1 again")
		n.expect(n.hub.answer(t, "r3"), "orders@2")
		if got := n.read("orders"); len(got) != 2 {
			t.Errorf("%s: kept %q", d, got)
		}
		n.stop()
	}
}

// TestALargeReadIsSeveralBatches: a read with more messages than a batch takes becomes several
// batches.
func TestALargeReadIsSeveralBatches(t *testing.T) {
	n := newSite(t)
	n.serve("orders")
	var read []protocol.Message
	for i := range 2*batchRecords + 10 {
		read = append(read, message("orders.a", fmt.Sprintf("r%d", i), "x"))
	}
	large := strings.Repeat("x", batchBytes*2/3)
	for i := range 3 {
		read = append(read, message("orders.a", fmt.Sprintf("l%d", i), large))
	}
	n.hub.publish(read...)
	n.expect(n.hub.answer(t, "r8201"), "orders@8202")
	n.expect(n.hub.answer(t, "l2"), "orders@8205")
	n.hub.publish(message("orders.a", "huge", strings.Repeat("x", n.payload+1)))
	if got := n.hub.answer(t, "huge"); !strings.HasPrefix(got, "no: topic orders: a message of 1048577 bytes") {
		t.Error(got)
	}
}

func TestTheDeduplicationWindowIsBounded(t *testing.T) {
	n := newSite(t)
	n.topic("orders", func(s *coordination.TopicSpec) { s.Deduplication = time.Hour })
	n.serve("orders")
	n.service.counts.ids.Add(dedup.MaxTogether) // as if other Topics had taken the room
	for i := range dedup.LeastIDs {             // and so many it may have nevertheless
		n.expect(n.ask("orders.a", "x", fmt.Sprintf("Id: %d", i)), fmt.Sprintf("orders@%d", i+1))
	}
	if got := n.ask("orders.a", "x", "Id: new"); !strings.HasPrefix(got, "no: topic orders: 256 message ids within the deduplication window of 1h0m0s are all that this broker keeps of this topic") {
		t.Error(got)
	}
	n.expect(n.ask("orders.a", "x", "Id: 0"), "orders@1 again")
	n.expect(n.ask("orders.a", "x"), "orders@257")
	n.service.counts.ids.Add(-dedup.MaxTogether)
	n.expect(n.ask("orders.a", "x", "Id: new"), "orders@258")
}

// TestATopicWithManyIDsLeavesRoomForOthers: one Topic has as many ids as it gets, and is refused
// more. Messages of another one are taken, and retries of either are duplicates.
func TestATopicWithManyIDsLeavesRoomForOthers(t *testing.T) {
	n := newSite(t)
	for _, name := range []string{"greedy", "bystander"} {
		n.topic(name, func(s *coordination.TopicSpec) { s.Deduplication = time.Hour })
	}
	n.serve("greedy", "bystander")
	const left = 1000
	n.service.counts.ids.Add(dedup.MaxTogether - 2*left) // of other Topics
	for i := range left {
		n.expect(n.ask("greedy.a", "x", fmt.Sprintf("Id: %d", i)), fmt.Sprintf("greedy@%d", i+1))
	}
	if got := n.ask("greedy.a", "x", "Id: more"); !strings.HasPrefix(got, "no: topic greedy: 1000 message ids") {
		t.Error(got)
	}
	for i := range left / 2 {
		n.expect(n.ask("bystander.a", "x", fmt.Sprintf("Id: %d", i)), fmt.Sprintf("bystander@%d", i+1))
	}
	n.expect(n.ask("bystander.a", "x", "Id: 3"), "bystander@4 again")
	n.expect(n.ask("greedy.a", "x", "Id: 3"), "greedy@4 again")
	n.service.counts.ids.Add(2*left - dedup.MaxTogether)
}
