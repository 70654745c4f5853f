package topic

import (
	"fmt"
	"slices"
	"testing"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/sender"
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

// TestMessagesWaitForALogThatIsBeingOpened: messages published while the log is being opened wait
// for it, and come before later ones.
func TestMessagesWaitForALogThatIsBeingOpened(t *testing.T) {
	t.Parallel()
	n := newSite(t)
	n.serve()
	release := slowly(n)
	n.topic("orders", nil)
	n.tell()
	n.expect(n.ask("orders.a", "x"), "no: topic orders: no broker was chosen for it yet; try again")
	n.place("orders", self)
	n.tell()
	data := message("orders.a", "r1", "first")
	n.hub.publish(data)
	copy(data.Data, "-----") // its memory was valid during the call only
	n.hub.publish(message("orders.a", "r2", "second"), message("orders.a", "r3", "third"))
	n.hub.mu.Lock()
	if len(n.hub.answers["r1"])+len(n.hub.answers["r2"]) > 0 {
		t.Errorf("answered before it was open: %q", n.hub.answers)
	}
	n.hub.mu.Unlock()
	release()
	n.expect(n.ask("orders.a", "fourth"), "orders@4")
	for i := range 3 {
		n.expect(n.hub.answer(t, fmt.Sprintf("r%d", i+1)), fmt.Sprintf("orders@%d", i+1))
	}
	if got := n.read("orders"); !slices.Equal(got, []string{"1 orders.a first", "2 orders.a second", "3 orders.a third", "4 orders.a fourth"}) {
		t.Errorf("kept %q", got)
	}
	n.eventually("nothing waits", func() bool { return n.service.Stats().OutboxMessages == 0 })
}

// TestMessagesThatWaitForAnUnavailableLogAreRefused: messages don't wait for ever for a log that
// can't be opened, a Topic that is deleted, or a broker that stops.
func TestMessagesThatWaitForAnUnavailableLogAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		then func(n *site, release func())
		want string
	}{
		"deleted": {func(n *site, release func()) { n.remove("orders"); n.tell(); release() }, "no: topic orders: it is being deleted"},
		"stopping": {func(n *site, release func()) { release(); n.stop() },
			"no: topic orders: broker main-0 is stopping, and it isn't known whether the message was kept; publish it again, with a message id if it must not be kept twice"},
		"can't be opened": {func(n *site, release func()) {
			n.fs.(*crashfs.FS).SetHook(func(op crashfs.Op) error {
				if op.Kind == "create" {
					return fmt.Errorf("not now")
				}
				return nil
			})
			release()
		}, "no: topic orders: its log on broker main-0: log id-orders-0: open: create data/shards/id-orders-0/meta.json.new: not now"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newSite(t)
			n.serve()
			release := slowly(n)
			n.topic("orders", nil)
			n.place("orders", self)
			n.tell()
			n.hub.publish(message("orders.a", "r", "x"), message("orders.a", "", "x"))
			c.then(n, release)
			if got := n.hub.answer(t, "r"); got != c.want && !(name == "stopping" && got == "orders@1") {
				t.Errorf("answered %q, want %q", got, c.want)
			}
		})
	}
}

// TestWaitingKeepsTheOrder: all messages of a publisher that continues while the log is opened are
// kept in order.
func TestWaitingKeepsTheOrder(t *testing.T) {
	n := newSite(t)
	n.serve()
	release := slowly(n)
	n.topic("orders", nil)
	n.place("orders", self)
	n.tell()
	sent := 0
	publish := func() {
		sent++
		n.hub.publish(message("orders.a", "", fmt.Sprint(sent)))
	}
	for sent < batchRecords {
		publish()
	}
	opening := make(chan struct{})
	go func() {
		defer close(opening)
		release()
	}()
	for n.service.Topic("orders").Shard() == nil && sent < sender.OutboxMessages/2 {
		publish()
	}
	for range 1000 {
		publish()
	}
	<-opening
	n.eventually("all are kept", func() bool {
		shard := n.service.Topic("orders").Shard()
		return shard != nil && shard.Info().Last == uint64(sent)
	})
	for i, record := range n.read("orders") {
		if want := fmt.Sprintf("%d orders.a %d", i+1, i+1); record != want {
			t.Fatalf("kept %q, want %q", record, want)
		}
	}
}
