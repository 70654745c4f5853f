package jetstream

import (
	"fmt"
	"slices"
	"testing"

	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/removal"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// gone returns the offsets of a stream on a broker that are removed or below its start.
func (n *node) gone(stream string) (out []uint64) {
	shard := n.topics.Topic(stream).Shard()
	start, end := shard.Offsets()
	for offset := uint64(1); offset < end; offset++ {
		if offset < start || shard.Removed().Has(offset) {
			out = append(out, offset)
		}
	}
	return out
}

// TestDeletingMessages: a message is deleted through any broker. One that is not there, or not any
// more, is not found. A sealed stream, or one that denies it, keeps its messages.
func TestDeletingMessages(t *testing.T) {
	w := newWorld(t, 2)
	leader, other := w.nodes[0], w.nodes[1]
	orders(t, w, leader, 5)
	for n, call := range map[*node]string{leader: `{"seq":2}`, other: `{"seq":4,"no_erase":true}`} {
		if done := ask[jsapi.DoneResponse](n, "STREAM.MSG.DELETE.orders", call); !done.Success || done.Type != "io.nats.jetstream.api.v1.stream_msg_delete_response" {
			t.Errorf("%s: %+v %v", call, done, done.Error)
		}
	}
	if got := leader.gone("orders"); !slices.Equal(got, []uint64{2, 4}) {
		t.Errorf("removed: %v", got)
	}
	expect(t, "deleted before", leader, "STREAM.MSG.DELETE.orders", `{"seq":2}`, 10043, "sequence 2 not found")
	expect(t, "beyond the end", other, "STREAM.MSG.DELETE.orders", `{"seq":6}`, 10043)
	expect(t, "no sequence", leader, "STREAM.MSG.DELETE.orders", `{"seq":0}`, 10043)
	expect(t, "nothing named", leader, "STREAM.MSG.DELETE.orders", ``, 10003)
	for _, setting := range []string{`"deny_delete":true`, `"sealed":true`} {
		number := map[string]int{`"deny_delete":true`: 10057, `"sealed":true`: 10109}[setting]
		config := fmt.Sprintf(`{"name":"orders","subjects":["orders.>"],"deny_delete":true,%s}`, setting)
		if updated := ask[jsapi.StreamResponse](leader, "STREAM.UPDATE.orders", config); updated.Error != nil {
			t.Fatal(updated.Error)
		}
		expect(t, setting, leader, "STREAM.MSG.DELETE.orders", `{"seq":1}`, number)
	}
	if got := leader.gone("orders"); !slices.Equal(got, []uint64{2, 4}) {
		t.Errorf("removed after refusals: %v", got)
	}
}

// TestPurgingSubjects: a purge with a filter removes the messages whose subjects match: all, those
// below a sequence, or all but the newest. It counts what it removes, and not what was removed
// before. What is removed at the front of the log moves the start.
func TestPurgingSubjects(t *testing.T) {
	w := newWorld(t, 2)
	n, other := w.nodes[0], w.nodes[1]
	orders(t, w, n, 0)
	for i := range 24 { // eu: 1, 4, ..., us: 2, 5, ..., us.east: 3, 6, ...
		w.await(n.say([]string{"orders.eu", "orders.us", "orders.us.east"}[i%3], "a message"))
	}
	purge := func(n *node, request string, want uint64) {
		t.Helper()
		if got := ask[jsapi.PurgeResponse](n, "STREAM.PURGE.orders", request); got.Error != nil || !got.Success || got.Purged != want {
			t.Errorf("%s: %d were purged (%v), want %d", request, got.Purged, got.Error, want)
		}
	}
	purge(n, `{"filter":"orders.ap"}`, 0)
	purge(other, `{"filter":"orders.us","seq":8}`, 2)
	purge(n, `{"filter":"orders.us","seq":8}`, 0)
	if got := n.gone("orders"); !slices.Equal(got, []uint64{2, 5}) {
		t.Errorf("purged below a sequence: %v", got)
	}
	purge(n, `{"filter":"orders.us.*","keep":6}`, 2)
	purge(n, `{"filter":"orders.us","keep":6}`, 0)
	purge(n, `{"filter":"orders.us","keep":5}`, 1)
	if got := n.gone("orders"); !slices.Equal(got, []uint64{2, 3, 5, 6, 8}) {
		t.Errorf("purged but some: %v", got)
	}
	purge(n, `{"filter":"orders.eu"}`, 8)
	if start, _ := n.topics.Topic("orders").Shard().Offsets(); start != 9 {
		t.Errorf("the log begins with %d", start)
	}
	purge(n, `{"filter":"*.us.>"}`, 6)
	w.await(n.say("orders.us.east", "later"))
	if got := n.gone("orders"); !slices.Contains(got, 24) || slices.Contains(got, 25) {
		t.Errorf("purged by a pattern: %v", got)
	}
}

// TestAPurgeOfManyMessages: a purge takes several removals if it has to.
func TestAPurgeOfManyMessages(t *testing.T) {
	w := newWorldOn(t, 1, log.Options{SegmentSmallest: 64 << 10, SegmentLargest: 64 << 10, TailBytes: 1})
	n := w.nodes[0]
	orders(t, w, n, 0)
	const some = removal.ItemSpans*2 + 300
	messages := make([]protocol.Message, 2*some)
	for i := range messages {
		messages[i] = protocol.Message{Subject: fmt.Append(nil, "orders.", i%2), Reply: fmt.Append(nil, "ack.", i)}
	}
	n.mu.Lock()
	var takers []publish.Taker
	for _, o := range n.offers {
		if slices.Contains(o.patterns, "orders.>") {
			takers = append(takers, o.taker)
		}
	}
	n.mu.Unlock()
	for _, taker := range takers {
		memory := testutil.LendMessages(messages)
		taker.Take(messages, memory, false)
		memory.Release()
	}
	w.await(fmt.Sprint("ack.", len(messages)-1))
	if got := ask[jsapi.PurgeResponse](n, "STREAM.PURGE.orders", `{"filter":"orders.1","keep":10}`); got.Purged != some-10 {
		t.Errorf("%d were purged (%v)", got.Purged, got.Error)
	}
	if got := n.gone("orders"); len(got) != some-10 || got[0] != 2 || got[len(got)-1] != 2*(some-10) {
		t.Errorf("%d are removed, from %d to %d", len(got), got[0], got[len(got)-1])
	}
}

// TestKeepFrom: removed messages don't count among those that a purge keeps.
func TestKeepFrom(t *testing.T) {
	var removed removal.Set
	removed.Add(3, 6)
	removed.Add(8, 9)
	for keep, want := range map[uint64]uint64{1: 10, 2: 9, 3: 7, 4: 6, 5: 2, 6: 1, 7: 1, 100: 1} {
		if got := keepFrom(&removed, 1, 11, keep); got != want {
			t.Errorf("the last %d begin with %d, want %d", keep, got, want)
		}
	}
}
