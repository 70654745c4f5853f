package topic

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/protocol"
)

// slowly keeps logs from being opened until release is called.
func slowly(n *site) (release func()) {
	gate := make(chan struct{})
	n.fs.(*crashfs.FS).SetHook(func(op crashfs.Op) error {
		if op.Kind == "mkdir" {
			<-gate
		}
		return nil
	})
	open := false
	release = func() {
		if !open {
			open = true
			close(gate)
		}
	}
	n.t.Cleanup(release)
	return release
}

// What is published while the log is being opened waits for it, in its order, before what comes later.
func TestMessagesWaitForALogThatIsBeingOpened(t *testing.T) {
	n := newSite(t)
	n.serve()
	release := slowly(n)
	n.topic("orders", nil)
	n.tell()
	taker := (*taker)(n.service.Topic("orders"))
	// A client here is told at once that there is no leader; a broker that knows one is ahead of us.
	n.expect(n.ask("orders.a", "x"), "no: topic orders: no broker was chosen for it yet; try again")
	data := []byte("first")
	taker.Take([]protocol.Message{{Subject: []byte("orders.a"), Reply: []byte("r1"), Data: data}}, true)
	copy(data, "-----") // its memory was valid during the call only
	n.place("orders", self)
	n.tell()
	n.hub.publish(message("orders.a", "r2", "second"), message("orders.a", "r3", "third"))
	n.hub.publish(message("orders.a", "large", strings.Repeat("x", lobbyBytes)))
	n.expect(n.hub.answer(t, "large"), "no: topic orders: broker main-0 is opening its log; try again")
	n.hub.mu.Lock()
	if len(n.hub.answers["r1"])+len(n.hub.answers["r2"]) > 0 {
		t.Errorf("answered before it was open: %q", n.hub.answers)
	}
	n.hub.mu.Unlock()
	n.service.counts.lobbies.Add(lobbyBytesTogether)
	n.expect(n.ask("orders.a", "no room anywhere"), "no: topic orders: broker main-0 is opening its log; try again")
	n.service.counts.lobbies.Add(-lobbyBytesTogether)
	release()
	n.open("orders")
	n.expect(n.ask("orders.a", "fourth"), "orders@4")
	for i := range 3 {
		n.expect(n.hub.answer(t, fmt.Sprintf("r%d", i+1)), fmt.Sprintf("orders@%d", i+1))
	}
	if got := n.read("orders"); !slices.Equal(got, []string{"1 orders.a first", "2 orders.a second", "3 orders.a third", "4 orders.a fourth"}) {
		t.Errorf("kept %q", got)
	}
	if len(n.service.lobbies) > 0 || n.service.counts.lobbies.Load() != 0 {
		t.Error("somebody still waits")
	}
}

// They don't wait for ever: not for a leader that is never named, a log that can't be opened, a Topic that
// goes, or a broker that stops.
func TestMessagesThatWaitInVainAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		then func(n *site)
		want string
	}{
		"nobody leads":  {func(*site) {}, "no: topic orders: no broker was chosen for it yet; try again"},
		"led elsewhere": {func(n *site) { n.place("orders", "broker-b"); n.tell() }, "no: topic orders: broker main-1 leads it, and broker main-0 has no link there now; try again"},
		"deleted":       {func(n *site) { n.remove("orders"); n.tell() }, "no: topic orders: it is being deleted"},
		"stopping":      {func(n *site) { n.stop() }, "no: topic orders: broker main-0 is stopping; try again"},
		"can't be opened": {func(n *site) {
			n.fs.(*crashfs.FS).SetHook(func(op crashfs.Op) error {
				if op.Kind == "mkdir" {
					return fmt.Errorf("not now")
				}
				return nil
			})
			n.place("orders", self)
			n.tell()
		}, "no: topic orders: its log on broker main-0: log id-orders-0: open: mkdir data/shards/id-orders-0: not now"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newSite(t)
			n.serve()
			n.topic("orders", func(s *coordination.TopicSpec) {})
			n.tell()
			n.service.Topic("orders").shards[0].take([]protocol.Message{message("orders.a", "r", "x"), message("orders.a", "", "x")}, true)
			c.then(n)
			n.expect(n.hub.answer(t, "r"), c.want)
		})
	}
}

// A publisher that goes on while the log becomes open finds its messages in their order.
func TestWaitingKeepsTheOrder(t *testing.T) {
	n := newSite(t)
	n.serve()
	release := slowly(n)
	n.topic("orders", nil)
	n.place("orders", self)
	n.tell()
	taker := (*taker)(n.service.Topic("orders"))
	sent := 0
	publish := func() {
		sent++
		taker.Take([]protocol.Message{message("orders.a", "", fmt.Sprint(sent))}, false)
	}
	for sent < batchRecords {
		publish()
	}
	opening := make(chan struct{})
	go func() {
		defer close(opening)
		release()
	}()
	for n.service.Topic("orders").Shard() == nil { // the lobby is full, so these are refused
		publish()
	}
	for range 1000 {
		publish()
	}
	<-opening
	kept := 0
	n.eventually("all that came then are kept", func() bool {
		end := n.service.Topic("orders").Shard().Info().Last
		r, err := n.service.Topic("orders").Shard().Get(end)
		return err == nil && string(r.Data) == fmt.Sprint(sent)
	})
	for i, record := range n.read("orders") {
		var offset, seq int
		var on string
		if _, err := fmt.Sscan(record, &offset, &on, &seq); err != nil || seq <= kept || i < batchRecords && seq != i+1 {
			t.Fatalf("kept %q after %d", record, kept)
		}
		kept = seq
	}
}
