package topic

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/removal"
	"github.com/carillon-mq/carillon/broker/sourcing"
)

var bills = coordination.StreamSource{Name: "bills"}

// copying declares the Topic orders with a source, and serves it.
func copying(t *testing.T, change func(*coordination.TopicSpec)) *site {
	t.Helper()
	n := newSite(t)
	n.copying(change)
	n.serve("orders")
	return n
}

func (n *site) copying(change func(*coordination.TopicSpec)) {
	n.topic("orders", func(s *coordination.TopicSpec) {
		s.Stream.Sources = []coordination.StreamSource{bills}
		if change != nil {
			change(s)
		}
	})
}

// copied is a batch of messages of bills: those from a sequence up to another one, the latter, too.
func copied(from, to uint64) *sourcing.Batch {
	b := &sourcing.Batch{Of: bills, Key: removal.KeyOf(bills.Index()), Origin: "id-bills"}
	for seq := from; seq <= to; seq++ {
		b.Messages = append(b.Messages, protocol.Message{Subject: []byte("bills.x"), Data: fmt.Append(nil, seq)})
		b.Sequences = append(b.Sequences, seq)
	}
	return b
}

// take has the leader append all of a batch.
func (n *site) take(b *sourcing.Batch) {
	n.t.Helper()
	n.eventually("the copies", func() bool {
		b.Wait = false
		n.leaderOf("orders").AppendSourced(b)
		return b.Err != nil || b.Taken == len(b.Messages)
	})
	if b.Err != nil {
		n.t.Fatal(b.Err)
	}
}

// come returns how far bills have come, by the log.
func (n *site) come() uint64 {
	p := n.leaderOf("orders").removing.Progress()
	s, _ := p.Of(removal.KeyOf(bills.Index()))
	return s.Sequence
}

// payloads returns what orders has, without offsets and subjects.
func (n *site) payloads() string {
	var all []string
	for _, record := range n.read("orders") {
		all = append(all, record[strings.LastIndexByte(record, ' ')+1:])
	}
	return strings.Join(all, " ")
}

func TestCopiesAreThereOnce(t *testing.T) {
	n := copying(t, nil)
	n.take(copied(1, 3))
	n.take(copied(2, 5)) // what is there is passed
	n.expect(n.ask("orders.a", "own"), "orders@6")
	if got := n.payloads(); got != "1 2 3 4 5 own" { // own is acknowledged, and so is all before it
		t.Errorf("it has %s", got)
	}
	if got := n.come(); got != 5 {
		t.Errorf("the source has come to %d", got)
	}
	b := copied(6, 6)
	b.Of.Filter = "other.>"
	if n.leaderOf("orders").AppendSourced(b); b.Err == nil || b.Taken > 0 {
		t.Errorf("a source that is none: %d taken, %v", b.Taken, b.Err)
	}
}

// TestCopiesOfAnOriginThatLostItsEnd: its new records have later epochs. They are copied although
// their sequences are not new, and each is there once, also behind a restart.
func TestCopiesOfAnOriginThatLostItsEnd(t *testing.T) {
	n := copying(t, nil)
	of := func(epoch, from, to uint64) *sourcing.Batch {
		b := copied(from, to)
		b.Epochs = slices.Repeat([]uint64{epoch}, len(b.Messages))
		return b
	}
	n.take(copied(1, 5)) // of an earlier version
	n.take(of(1, 4, 7))
	n.take(of(3, 5, 6))
	n.take(of(3, 5, 6))
	n.take(of(1, 5, 7))
	for range 2 {
		n.restart("orders")
		n.take(of(3, 5, 6))
	}
	n.take(of(3, 6, 7))
	n.eventually("each once", func() bool { return n.payloads() == "1 2 3 4 5 6 7 5 6 7" })
}

func TestARefusedCopyIsNotPassedOver(t *testing.T) {
	n := copying(t, func(s *coordination.TopicSpec) { s.Stream.DiscardNew, s.Retention.Messages = true, 2 })
	b := copied(1, 4)
	n.eventually("a refusal", func() bool {
		b.Wait = false
		n.leaderOf("orders").AppendSourced(b)
		return b.Err != nil
	})
	if b.Taken != 2 || n.come() != 2 {
		t.Errorf("%d are taken, and the source has come to %d", b.Taken, n.come())
	}
	n.eventually("they are readable", func() bool { return len(n.read("orders")) == 2 })
	if _, err := n.leaderOf("orders").Purge(context.Background(), 3); err != nil {
		t.Fatal(err)
	}
	n.take(copied(3, 4))
	n.eventually("the rest", func() bool { return n.payloads() == "3 4" })
}

func TestACopyOfAnIDIsPassed(t *testing.T) {
	n := copying(t, func(s *coordination.TopicSpec) { s.Deduplication = 1 << 40 })
	n.expect(n.ask("orders.a", "1", "Id: one"), "orders@1")
	b := copied(1, 2)
	own := message("bills.x", "", "again", "Id: one")
	b.Messages[0] = own
	n.take(b)
	n.eventually("only one of them is copied", func() bool { return n.payloads() == "1 2" && n.come() == 2 })
}

// TestDuplicatesAtTheEndAreNotCopiedLater: the last messages of a source are duplicates. The next
// leader knows that the source has come to them, when their ids are long forgotten.
func TestDuplicatesAtTheEndAreNotCopiedLater(t *testing.T) {
	n := copying(t, func(s *coordination.TopicSpec) { s.Deduplication = 1 << 40 })
	n.take(copied(1, 1))
	n.expect(n.ask("orders.a", "2", "Id: one"), "orders@2")
	b := copied(2, 2)
	b.Messages[0] = message("bills.x", "", "again", "Id: one")
	n.take(b)
	s := n.leaderOf("orders")
	n.eventually("it is to be noted", s.removing.Unnoted)
	s.removing.Note(log.Synced, func(error) {})
	n.eventually("it is noted", func() bool { return !s.removing.Unnoted() })
	n.restart("orders")
	if got := n.come(); got != 2 {
		t.Errorf("after a restart the source has come to %d", got)
	}
}

// TestNoCrashForgetsHowFarSourcesHaveCome: the power is cut at each step while copies are appended,
// noted and purged. What is there and what the source has come to agree, and nothing is there
// twice.
func TestNoCrashForgetsHowFarSourcesHaveCome(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 1))
	for step := 0; step < 80; step += 3 {
		fs := crashfs.New()
		n := newSite(t)
		n.fs = fs
		n.copying(nil)
		n.serve("orders")
		n.leaderOf("orders")
		fs.StopAfter(step)
		s := n.leaderOf("orders")
		purged := uint64(0)
		for first := uint64(1); first <= 9; first += 3 {
			b := copied(first, first+2)
			tries := 0 // a Mark that the disk did not get is waited for in vain
			n.eventually("it is appended, or the disk stopped", func() bool {
				tries++
				b.Wait = false
				s.AppendSourced(b)
				return b.Err != nil || b.Taken == len(b.Messages) || s.failure() != nil || tries > 100
			})
			if b.Taken < len(b.Messages) {
				break
			}
			s.removing.Note(log.Synced, func(error) {})
			if first == 4 {
				ctx, cancel := context.WithCancel(context.Background())
				n.eventually("what is appended is readable, or the disk stopped", func() bool {
					_, end := s.Offsets()
					tries++
					return end == 7 || s.failure() != nil || tries > 100
				})
				if _, end := s.Offsets(); end < 7 {
					cancel()
				}
				if _, err := s.Purge(ctx, s.high.Load()); err == nil {
					purged = s.data.Start() - 1
				}
				cancel()
			}
		}
		n.stop()
		n.fs = fs.Crash(rng)
		n.serve("orders")
		s = n.leaderOf("orders")
		come := n.come()
		if _, end := s.Offsets(); come != end-1 || come < purged {
			t.Errorf("cut at step %d, the log ends before %d, and the source has come to %d; %d were purged", step, end, come, purged)
		}
		n.take(copied(come+1, 12))
		n.eventually("the rest", func() bool {
			start, end := n.leaderOf("orders").Offsets()
			return end == 13 && len(n.read("orders")) == int(end-start)
		})
		n.stop()
	}
}

// TestRetentionLeavesHowFarSourcesHaveCome: all copies are removed, and the state log is written
// anew. The next leader knows how far the source has come.
func TestRetentionLeavesHowFarSourcesHaveCome(t *testing.T) {
	n := copying(t, nil)
	n.take(copied(1, 3))
	n.eventually("they are readable", func() bool { return len(n.read("orders")) == 3 })
	s := n.leaderOf("orders")
	if purged, err := s.Purge(context.Background(), 4); err != nil || purged != 3 {
		t.Fatalf("purged %d, %v", purged, err)
	}
	if s.removing.Unnoted() {
		t.Error("the state log may lack how far the source has come")
	}
	n.restart("orders")
	if got := n.come(); got != 3 {
		t.Errorf("after a restart the source has come to %d", got)
	}
	n.take(copied(2, 4))
	n.eventually("the rest", func() bool { return n.payloads() == "4" })
}

// mirrored is a batch of messages of bills for a mirror, with these sequences.
func mirrored(sequences ...uint64) *sourcing.Batch {
	b := &sourcing.Batch{Of: bills, Key: removal.KeyOf(bills.Index()), Origin: "id-bills"}
	b.Of.Mirrored = true
	for _, seq := range sequences {
		b.Messages = append(b.Messages, protocol.Message{Subject: []byte("bills.x"), Data: fmt.Append(nil, seq)})
		b.Sequences, b.Times = append(b.Sequences, seq), append(b.Times, int64(seq)*1e9)
	}
	return b
}

// mirroring declares the Topic orders as a mirror.
func (n *site) mirroring(change func(*coordination.TopicSpec)) {
	n.topic("orders", func(s *coordination.TopicSpec) {
		s.Subjects, s.Stream.Mirror = nil, &bills
		if change != nil {
			change(s)
		}
	})
}

func TestAMirrorHasTheOffsetsAndTimesOfItsStream(t *testing.T) {
	n := newSite(t)
	n.mirroring(nil)
	n.serve("orders")
	check := func(when string, want ...string) {
		t.Helper()
		n.eventually(when, func() bool { return slices.Equal(n.read("orders"), want) })
		s := n.leaderOf("orders")
		if is := s.Info(); is.Messages != uint64(len(want)) {
			t.Errorf("%s: it says %+v", when, is)
		}
		for _, r := range want {
			var offset uint64
			fmt.Sscan(r, &offset)
			if got, err := s.Get(offset); err != nil || got.Time != int64(offset)*1e9 {
				t.Errorf("%s: record %d is of %d, %v", when, offset, got.Time, err)
			}
		}
	}
	n.take(mirrored(3, 4, 7))
	check("with gaps", "3 bills.x 3", "4 bills.x 4", "7 bills.x 7")
	n.take(mirrored(4, 7, 8, 200_000_000))
	all := []string{"3 bills.x 3", "4 bills.x 4", "7 bills.x 7", "8 bills.x 8", "200000000 bills.x 200000000"}
	check("with a large gap", all...)
	n.restart("orders")
	check("after a restart", all...)
	n.take(mirrored(8, 200_000_001))
	check("and on", append(all, "200000001 bills.x 200000001")...)
	b := mirrored(800_000_000)
	n.leaderOf("orders").AppendSourced(b)
	if b.Err == nil || b.Taken > 0 || b.Wait {
		t.Errorf("behind a gap that is too large: %d taken, %v", b.Taken, b.Err)
	}
}

func TestAMirrorMayBeginWithAHighOffset(t *testing.T) {
	n := newSite(t)
	n.mirroring(nil)
	n.serve("orders")
	n.take(mirrored(1<<36, 1<<36+1))
	n.eventually("they are readable", func() bool { return len(n.read("orders")) == 2 })
	s := n.leaderOf("orders")
	if is := s.Info(); is.Messages != 2 || is.Last != 1<<36+1 {
		t.Errorf("it says %+v", is)
	}
	if _, err := s.Purge(context.Background(), 1<<36); err != nil {
		t.Fatal(err)
	}
	n.restart("orders")
	if is := n.leaderOf("orders").Info(); is.Messages != 2 || is.First != 1<<36 {
		t.Errorf("after a purge of what it lacks it says %+v", is)
	}
	n.restart("orders")
	n.take(mirrored(1<<36+1, 1<<36+5))
	n.eventually("a gap that counts as removed", func() bool { return n.leaderOf("orders").Removed().Len() == 3 })
	b := mirrored(1 << 50)
	n.topic("bills", func(s *coordination.TopicSpec) { s.Subjects, s.Stream.Mirror = nil, &bills })
	n.place("bills", self)
	n.tell()
	n.open("bills")
	if n.leaderOf("bills").AppendSourced(b); b.Err == nil {
		t.Error("it begins with any offset")
	}
}

func TestLimitsOfAMirrorDoNotCountGaps(t *testing.T) {
	n := newSite(t)
	n.mirroring(func(s *coordination.TopicSpec) { s.Retention.Messages = 3 })
	n.serve("orders")
	n.take(mirrored(10, 20, 30, 40, 500_000))
	n.eventually("the last three", func() bool {
		return slices.Equal(n.read("orders"), []string{"30 bills.x 30", "40 bills.x 40", "500000 bills.x 500000"})
	})
}

// TestNoCrashMovesTheRecordsOfAMirror: the power is cut at each step while records and gaps are
// appended. What is there has its offset, and the rest follows.
func TestNoCrashMovesTheRecordsOfAMirror(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(4, 1))
	sequences := []uint64{2, 3, 7, 9000, 9001, 9003}
	for step := 0; step < 60; step += 3 {
		fs := crashfs.New()
		n := newSite(t)
		n.fs = fs
		n.mirroring(nil)
		n.serve("orders")
		s := n.leaderOf("orders")
		fs.StopAfter(step)
		tries, b := 0, mirrored(sequences...)
		n.eventually("it is appended, or the disk stopped", func() bool {
			tries++
			b.Wait = false
			s.AppendSourced(b)
			return b.Err != nil || b.Taken == len(b.Messages) || s.failure() != nil || tries > 100
		})
		n.stop()
		n.fs = fs.Crash(rng)
		n.serve("orders")
		n.take(mirrored(sequences...))
		n.eventually("all", func() bool { return len(n.read("orders")) == len(sequences) })
		for i, r := range n.read("orders") {
			if want := fmt.Sprintf("%d bills.x %d", sequences[i], sequences[i]); r != want {
				t.Errorf("cut at step %d: %s, want %s", step, r, want)
			}
		}
		n.stop()
	}
}

// totals is a batch of messages of bills, which has counters: each adds 1 and has one of these
// totals, from a sequence on.
func totals(from uint64, all ...string) *sourcing.Batch {
	b := &sourcing.Batch{Of: bills, Key: removal.KeyOf(bills.Index()), Origin: "id-bills"}
	for i, total := range all {
		m := message("bills.x", "", total, "Add: 1")
		b.Messages, b.Sequences, b.Subjects = append(b.Messages, m), append(b.Sequences, from+uint64(i)), append(b.Subjects, m.Subject)
	}
	return b
}

// TestCopiedCountersAreAddedUp: to what is counted here, once, whatever was passed, deleted, undone
// or read from the log meanwhile.
func TestCopiedCountersAreAddedUp(t *testing.T) {
	n := copying(t, func(s *coordination.TopicSpec) {
		s.Stream.AllowCounter, s.Deduplication, s.Subjects = true, 1<<40, []string{"orders.>", "bills.>"}
	})
	n.take(totals(1, "1", "2", "12"))
	n.expect(n.ask("bills.x", "", "Add: 100"), "orders@4 = 112")
	n.take(totals(2, "2", "12", "13"))
	n.restart("orders")
	n.take(totals(5, "10"))
	n.expect(n.ask("bills.x", "", "Add: 1", "Id: one"), "orders@7 = 111")
	b := totals(6, "11", "12")
	b.Messages[0] = message("bills.x", "", "11", "Add: 1", "Id: one")
	n.take(b)
	n.leaderOf("orders").totals.Forget()
	n.expect(n.ask("bills.x", "", "Add: 1"), "orders@9 = 114")
	if err := n.erase(n.leaderOf("orders"), 9); err != nil {
		t.Fatal(err)
	}
	n.take(totals(8, "14"))
	n.eventually("the last one is readable", func() bool { return len(n.read("orders")) == 10 })
	n.has("1 bills.x 1", "2 bills.x 2", "3 bills.x 12", "4 bills.x 112", "5 bills.x 113", "6 bills.x 110", "7 bills.x 111", "8 bills.x 113", "9 bills.x 114", "10 bills.x 115") // the deleted one, too
	b = totals(9, "x", "15")
	n.eventually("a refusal", func() bool {
		b.Wait = false
		n.leaderOf("orders").AppendSourced(b)
		return b.Err != nil
	})
	if b.Taken > 0 || n.come() != 8 {
		t.Errorf("%d are taken, and the source has come to %d: %v", b.Taken, n.come(), b.Err)
	}
	b = totals(9, "15")
	b.Messages[0] = message("bills.x", "", "15")
	if n.leaderOf("orders").AppendSourced(b); b.Err == nil || b.Taken > 0 {
		t.Errorf("without an increment: %d taken", b.Taken)
	}
}

// TestAMirrorKeepsTheTotalsOfItsStream: a mirror may have counters, too, and adds up none.
func TestAMirrorKeepsTheTotalsOfItsStream(t *testing.T) {
	n := newSite(t)
	n.mirroring(func(s *coordination.TopicSpec) { s.Stream.AllowCounter = true })
	n.serve("orders")
	b := mirrored(3, 4)
	b.Messages[0], b.Messages[1] = message("bills.x", "", "3", "Add: 1"), message("bills.x", "", "4", "Add: 1")
	n.take(b)
	n.eventually("the totals", func() bool { return slices.Equal(n.read("orders"), []string{"3 bills.x 3", "4 bills.x 4"}) })
}

// TestAFailedAppendPassesNoCopy: the log refuses copies. They are copied later, and count then.
func TestAFailedAppendPassesNoCopy(t *testing.T) {
	n := copying(t, func(s *coordination.TopicSpec) { s.Stream.AllowCounter = true })
	n.take(totals(1, "1"))
	s := n.leaderOf("orders")
	s.mu.Lock()
	was := s.epoch.Swap(0) // the log takes no append of an earlier epoch
	s.mu.Unlock()
	b := totals(2, "2", "3")
	n.eventually("a refusal", func() bool {
		b.Wait = false
		s.AppendSourced(b)
		return b.Err != nil
	})
	s.mu.Lock()
	s.epoch.Store(was)
	s.mu.Unlock()
	if got := n.come(); got != 1 {
		t.Errorf("the source has come to %d", got)
	}
	n.take(totals(2, "2", "3"))
	n.eventually("they are there", func() bool { return n.payloads() == "1 2 3" })
}

// TestCopiedCountersGoOnWithTheNextLeader: it lacks what the former one has copied last, and copies
// that again. Each record of the source counts once.
func TestCopiedCountersGoOnWithTheNextLeader(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	for _, n := range c.sites {
		n.copying(func(s *coordination.TopicSpec) {
			s.Replicas, s.Stream.AllowCounter, s.Subjects = 3, true, []string{"orders.>", "bills.>"}
		})
	}
	c.begin()
	a, b := c.sites[0], c.sites[1]
	join(a, b)
	a.take(totals(1, "1"))
	a.expect(a.ask("bills.x", "", "Add: 100"), "orders@2 = 101")
	c.alone(2)
	a.take(totals(2, "2", "3"))
	b.ends(5)
	c.alone(0)
	a.take(totals(4, "4", "5", "6"))
	a.ends(8)
	c.elect(1, 1, 2)
	c.tell()
	c.reach(0)
	c.reach(2)
	b.open("orders")
	if got := b.come(); got != 3 {
		t.Errorf("the source has come to %d", got)
	}
	b.take(totals(b.come()+1, "4", "5", "6", "7"))
	b.expect(b.ask("bills.x", "", "Add: 1000"), "orders@9 = 1107")
	if got := b.values(); !slices.Equal(got, []string{"1", "101", "102", "103", "104", "105", "106", "107", "1107"}) {
		t.Errorf("kept %q", got)
	}
}
