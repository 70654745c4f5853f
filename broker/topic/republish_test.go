package topic

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/work"
)

// listener receives what streams publish again: "subject data: sequence last".
type listener struct {
	mu    sync.Mutex
	heard []string
}

func (l *listener) Publish(messages []protocol.Message) (behind work.Behind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range messages {
		h := protocol.Header(m.Data[:m.Header])
		sequence, _ := h.Get("Nats-Sequence")
		last, _ := h.Get("Nats-Last-Sequence")
		l.heard = append(l.heard, fmt.Sprintf("%s %s: %s %s", m.Subject, m.Data[m.Header:], sequence, last))
	}
	return behind
}

// hears waits until everything that is wanted was heard, in order and nothing else.
func (l *listener) hears(n *site, when string, want ...string) {
	n.t.Helper()
	n.eventually(when+": as much is heard", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.heard) >= len(want)
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.heard, want) {
		n.t.Fatalf("%s: heard %q, want %q", when, l.heard, want)
	}
	l.heard = nil
}

// again has a Topic publish again all that it stores.
func again(s *coordination.TopicSpec) {
	s.Stream.Republish = &coordination.Republish{Source: ">", Destination: "again.>"}
}

// TestWhatIsStoredIsPublishedAgain: in the order of the stream, with the last message of the
// subject, also if that is gone, in the same batch, from a former life, or carried by the same
// message. What is refused or known is not published.
func TestWhatIsStoredIsPublishedAgain(t *testing.T) {
	n, l := newSite(t), &listener{}
	n.again = l
	n.topic("orders", func(s *coordination.TopicSpec) {
		again(s)
		s.Stream.MaxPerSubject = 1
	})
	n.serve("orders")
	n.hub.publish(message("orders.a", "", "1"), message("orders.a", "", "2"), message("orders.b", "", "3"))
	l.hears(n, "a batch", "again.orders.a 1: 1 0", "again.orders.a 2: 2 1", "again.orders.b 3: 3 0")
	n.expect(n.ask("orders.a", "x", "Expect-Last: 7"), "no: topic orders: the last message is at offset 3")
	n.expect(n.ask("orders.a", "\x014\x015", "Records: 2"), "orders@5/2")
	l.hears(n, "records", "again.orders.a 4: 4 2", "again.orders.a 5: 5 4")
	n.restart("orders")
	n.ask("orders.b", "6")
	n.ask("orders.a", "7")
	l.hears(n, "the next life", "again.orders.b 6: 6 3", "again.orders.a 7: 7 5")
	n.crash()
	n.serve("orders")
	n.ask("orders.a", "8")
	n.ask("orders.b", "9")
	l.hears(n, "after a crash", "again.orders.a 8: 8 7", "again.orders.b 9: 9 6")
	if st := n.service.Stats().Republish; st.Published != 2 || st.Dropped != 0 {
		t.Errorf("counted are %+v", st)
	}
}

// TestALastMessageThatIsNotKnown: the message is published without it.
func TestALastMessageThatIsNotKnown(t *testing.T) {
	n, l := newSite(t), &listener{}
	n.again = l
	n.topic("orders", again)
	n.serve("orders")
	n.ask("orders.*", "x") // never is known of a subject with a wildcard
	n.ask("orders.a", "y")
	l.hears(n, "unknown", "again.orders.a y: 2 0")
}

// TestNothingUncommittedIsPublishedAgain: a leader that is cut off has appended a message, which is
// truncated later. The next leader publishes what it stores, and nothing is published twice.
func TestNothingUncommittedIsPublishedAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	var all []*listener
	for _, n := range c.sites {
		l := &listener{}
		n.again, all = l, append(all, l)
		n.topic("orders", again)
	}
	a, b := c.sites[0], c.sites[1]
	c.begin()
	a.expect(a.ask("orders.a", "one"), "orders@1")
	all[0].hears(a, "the first leader", "again.orders.a one: 1 0")
	c.mu.Lock()
	c.cut[a.self] = true
	for conn := range c.conns {
		conn.Close()
	}
	c.mu.Unlock()
	a.hub.publish(message("orders.a", "alone", "two"))
	a.eventually("it is appended", func() bool {
		_, end, _ := a.service.Topic("orders").shards[0].leading.Load().data.Offsets()
		return end == 3
	})
	c.elect(1, 1, 2)
	c.lives[a.self] = 0 // its lease has run out, and it doesn't hear that
	c.tell()
	b.open("orders")
	b.expect(b.ask("orders.a", "other two"), "orders@2")
	all[1].hears(b, "the next leader", "again.orders.a other two: 2 1")
	c.mu.Lock()
	c.cut[a.self] = false
	c.lives[a.self] = a.life
	c.mu.Unlock()
	c.settle("it is in sync again", func() bool { return len(c.inSync()) == 3 })
	join(a, b)
	a.expect(a.hub.answer(t, "alone"), "orders@3")
	all[1].hears(b, "after the truncation", "again.orders.a two: 3 2")
	for i, l := range all {
		if len(l.heard) > 0 {
			t.Errorf("broker %d has published %q, too", i, l.heard)
		}
	}
}

// TestAMessageThatIsNotAppendedIsNotPublishedAgain: the disk is full, and has room later.
func TestAMessageThatIsNotAppendedIsNotPublishedAgain(t *testing.T) {
	n, l := newSite(t), &listener{}
	n.again = l
	n.topic("orders", again)
	n.serve("orders")
	s := n.leaderOf("orders")
	s.mu.Lock()
	before := s.end
	s.mu.Unlock()
	failed := errors.New("no room")
	s.failed.Store(&failed)
	if got := n.ask("orders.a", "lost"); !strings.HasPrefix(got, "no: ") {
		t.Fatalf("it is kept: %s", got)
	}
	s.failed.Store(nil)
	n.expect(n.ask("orders.a", "kept"), fmt.Sprintf("orders@%d", before))
	l.hears(n, "kept", "again.orders.a kept: 1 0")
}
