package advisory

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/work"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// fakeHub has subscribers to everything below a prefix. While it is held, nothing gets through.
type fakeHub struct {
	prefix string
	held   sync.Mutex

	mu   sync.Mutex
	sent []protocol.Message
}

func (h *fakeHub) Reaches(subject []byte) bool { return strings.HasPrefix(string(subject), h.prefix) }
func (h *fakeHub) Publish(messages []protocol.Message) (behind work.Behind) {
	h.held.Lock()
	defer h.held.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent = append(h.sent, messages...)
	return behind
}

func (h *fakeHub) await(t *testing.T, count int) []protocol.Message {
	t.Helper()
	var sent []protocol.Message
	testutil.Eventually(t, "advisories", func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		sent = h.sent
		if len(sent) < count {
			return fmt.Errorf("%d advisories, want %d", len(sent), count)
		}
		return nil
	})
	return sent
}

// TestAdvisoriesAreThoseOfNatsServer: subjects, types and fields are nats-server's, in the order of
// the events.
func TestAdvisoriesAreThoseOfNatsServer(t *testing.T) {
	hub := &fakeHub{prefix: "$JS.EVENT."}
	p := NewPublisher(hub, "main-0")
	defer p.Close()
	m := Message{Stream: "S", Consumer: "c", Sequence: 3, Offset: 2, Deliveries: 1}
	p.Audit([]byte("$JS.API.INFO"), []byte("{}"), []byte(`{"type":"t"}`))
	p.Stream("S", Created)
	p.Stream("S", Changed)
	p.Consumer("S", "c", Created)
	p.Refused(m)
	p.Terminated(m, "because")
	p.Exhausted(m)
	p.Acked(m, 5*time.Millisecond)
	p.Elected("S", func() *jsapi.ClusterInfo {
		return &jsapi.ClusterInfo{Leader: "main-0", Replicas: []*jsapi.PeerInfo{{Name: "main-1", Current: true}}}
	})
	p.Paused("S", "c", true, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	p.Pinned("S", "c", "g", "xyz")
	p.Unpinned("S", "c", "g", ByTimeout)
	p.Consumer("S", "c", Deleted)
	p.Stream("S", Deleted)
	want := []string{
		`$JS.EVENT.ADVISORY.API io.nats.jetstream.advisory.v1.api_audit {"client":{"acc":"$G"},"request":"{}","response":"{\"type\":\"t\"}","server":"main-0","subject":"$JS.API.INFO"}`,
		`$JS.EVENT.ADVISORY.STREAM.CREATED.S io.nats.jetstream.advisory.v1.stream_action {"action":"create","stream":"S"}`,
		`$JS.EVENT.ADVISORY.STREAM.UPDATED.S io.nats.jetstream.advisory.v1.stream_action {"action":"modify","stream":"S"}`,
		`$JS.EVENT.ADVISORY.CONSUMER.CREATED.S.c io.nats.jetstream.advisory.v1.consumer_action {"action":"create","consumer":"c","stream":"S"}`,
		`$JS.EVENT.ADVISORY.CONSUMER.MSG_NAKED.S.c io.nats.jetstream.advisory.v1.nak {"consumer":"c","consumer_seq":3,"deliveries":1,"stream":"S","stream_seq":2}`,
		`$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.S.c io.nats.jetstream.advisory.v1.terminated {"consumer":"c","consumer_seq":3,"deliveries":1,"reason":"because","stream":"S","stream_seq":2}`,
		`$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.S.c io.nats.jetstream.advisory.v1.max_deliver {"consumer":"c","deliveries":1,"stream":"S","stream_seq":2}`,
		`$JS.EVENT.METRIC.CONSUMER.ACK.S.c io.nats.jetstream.metric.v1.consumer_ack {"ack_time":5000000,"consumer":"c","consumer_seq":3,"deliveries":1,"stream":"S","stream_seq":2}`,
		`$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.S io.nats.jetstream.advisory.v1.stream_leader_elected {"leader":"main-0","replicas":[{"active":0,"current":true,"name":"main-1"}],"stream":"S"}`,
		`$JS.EVENT.ADVISORY.CONSUMER.PAUSE.S.c io.nats.jetstream.advisory.v1.consumer_pause {"consumer":"c","pause_until":"2026-01-02T03:04:05Z","paused":true,"stream":"S"}`,
		`$JS.EVENT.ADVISORY.CONSUMER.PINNED.S.c io.nats.jetstream.advisory.v1.consumer_group_pinned {"account":"$G","consumer":"c","group":"g","pinned_id":"xyz","stream":"S"}`,
		`$JS.EVENT.ADVISORY.CONSUMER.UNPINNED.S.c io.nats.jetstream.advisory.v1.consumer_group_unpinned {"account":"$G","consumer":"c","group":"g","reason":"timeout","stream":"S"}`,
		`$JS.EVENT.ADVISORY.CONSUMER.DELETED.S.c io.nats.jetstream.advisory.v1.consumer_action {"action":"delete","consumer":"c","stream":"S"}`,
		`$JS.EVENT.ADVISORY.STREAM.DELETED.S io.nats.jetstream.advisory.v1.stream_action {"action":"delete","stream":"S"}`,
	}
	ids := map[any]bool{}
	for i, m := range hub.await(t, len(want)) {
		var fields map[string]any
		testutil.Must(t, json.Unmarshal(m.Data, &fields))
		kind, id := fields["type"], fields["id"]
		if at, err := time.Parse(time.RFC3339Nano, fmt.Sprint(fields["timestamp"])); err != nil || time.Since(at) > time.Minute {
			t.Errorf("%s: at %v: %v", m.Subject, fields["timestamp"], err)
		}
		if ids[id] || id == "" {
			t.Errorf("%s: its id %v is not its own", m.Subject, id)
		}
		ids[id] = true
		for _, name := range []string{"type", "id", "timestamp"} {
			delete(fields, name)
		}
		rest, err := json.Marshal(fields)
		testutil.Must(t, err)
		if got := fmt.Sprintf("%s %s %s", m.Subject, kind, rest); got != want[i] {
			t.Errorf("%s\nwant\n%s", got, want[i])
		}
	}
}

// TestAdvisoriesOfNobodyCostNothing: without a subscriber nothing is encoded or counted.
func TestAdvisoriesOfNobodyCostNothing(t *testing.T) {
	p := NewPublisher(&fakeHub{prefix: "orders"}, "main-0")
	defer p.Close()
	p.Elected("S", func() *jsapi.ClusterInfo { t.Error("it was asked for replicas"); return nil })
	if stats := p.Stats(); stats != (Stats{}) {
		t.Errorf("%+v", stats)
	}
	var none *Publisher
	none.Stream("S", Created)
	none.Close()
}

// TestAdvisoriesNeverBlock: while subscribers take nothing, a bounded number of advisories waits,
// in a bounded number of bytes. The others are dropped and counted.
func TestAdvisoriesNeverBlock(t *testing.T) {
	for name, test := range map[string]struct{ size, most int }{
		"short ones": {10, waiting}, "long ones": {1 << 20, waitingBytes >> 20},
	} {
		t.Run(name, func(t *testing.T) {
			hub := &fakeHub{}
			p := NewPublisher(hub, "main-0")
			defer p.Close()
			hub.held.Lock()
			payload := make([]byte, test.size)
			for range 2 * waiting {
				p.Audit([]byte("$JS.API.INFO"), nil, payload)
			}
			dropped := p.Stats().Dropped
			hub.held.Unlock()
			kept := 2*waiting - int(dropped)
			if kept < test.most/2 || kept > test.most+2 {
				t.Errorf("%d advisories were kept, want about %d", kept, test.most)
			}
			hub.await(t, kept)
			if published := p.Stats().Published; published != uint64(kept) {
				t.Errorf("%d were published, want %d", published, kept)
			}
		})
	}
}
