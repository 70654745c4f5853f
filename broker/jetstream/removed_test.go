package jetstream

import (
	"slices"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestRemovedMessagesAreGone: of removed messages, infos name the sequences if they are asked for,
// and a get of one says that there is none.
func TestRemovedMessagesAreGone(t *testing.T) {
	w := newWorldOn(t, 1, log.Options{})
	n := w.nodes[0]
	stream := jsapi.StreamConfig{Name: "orders", Subjects: []string{"orders.>"}, AllowDirect: true}
	if err := stream.Normalize(); err != nil {
		t.Fatal(err)
	}
	_, err := w.CreateTopic(t.Context(), "orders", stream.TopicSpec(), client)
	testutil.Must(t, err)
	for range 10 {
		w.publish("orders.eu", "x")
	}
	shard := n.topics.Topic("orders").Shard()
	shard.Removed().Add(1, 3)
	shard.Removed().Add(5, 6)
	shard.Removed().Add(10, 11)
	state := ask[jsapi.StreamInfoResponse](n, "STREAM.INFO.orders", `{"deleted_details":true}`).State
	if state.Messages != 6 || state.FirstSeq != 3 || state.LastSeq != 10 || state.NumDeleted != 2 || !slices.Equal(state.Deleted, []uint64{5, 10}) {
		t.Errorf("of ten messages 1, 2, 5 and 10 are removed, and said is %+v", state)
	}
	expect(t, "get a removed message", n, "STREAM.MSG.GET.orders", `{"seq":5}`, 10037, "no message found")
	if m := w.await(n.say("$JS.API.DIRECT.GET.orders", `{"seq":5}`)); !strings.HasPrefix(string(m.Data), "NATS/1.0 404") {
		t.Errorf("directly: %q", m.Data)
	}
	if m := ask[jsapi.MessageResponse](n, "STREAM.MSG.GET.orders", `{"last_by_subj":"orders.eu"}`).Message; m == nil || m.Sequence != 9 {
		t.Errorf("the last one that is left is %+v, want 9", m)
	}
	if m := ask[jsapi.MessageResponse](n, "STREAM.MSG.GET.orders", `{"seq":5,"next_by_subj":"orders.eu"}`).Message; m == nil || m.Sequence != 6 {
		t.Errorf("the next one from 5 on is %+v, want 6", m)
	}
}
