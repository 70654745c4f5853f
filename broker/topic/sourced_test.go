package topic

import (
	"context"
	"fmt"
	"math/rand/v2"
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

// TestNoCrashForgetsHowFarSourcesHaveCome: the power is cut at each step while copies are appended,
// noted and purged. What is there and what the source has come to agree, and nothing is there twice.
func TestNoCrashForgetsHowFarSourcesHaveCome(t *testing.T) {
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
