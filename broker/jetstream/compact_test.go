package jetstream

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestAStreamWithGaps: a compacted stream reports the number of deleted messages, finds no message
// in a gap, and its consumers skip gaps. The same holds after a purge within its oldest segment.
func TestAStreamWithGaps(t *testing.T) {
	w := newWorldOn(t, 1, log.Options{SegmentSmallest: 16 << 10, SegmentLargest: 16 << 10, TailBytes: 1})
	n := w.nodes[0]
	stream := jsapi.StreamConfig{Name: "orders", Subjects: []string{"orders.>"}, AllowDirect: true}
	if err := stream.Normalize(); err != nil {
		t.Fatal(err)
	}
	spec := stream.TopicSpec()
	spec.Compaction, spec.Deduplication = coordination.LatestOnly, 0
	_, err := w.CreateTopic(context.Background(), "orders", spec, client)
	testutil.Must(t, err)
	const last = 400
	for i := 1; i <= last; i++ { // every fourth subject occurs once
		subject := fmt.Sprint("orders.often.", i%3)
		if i%4 == 0 {
			subject = fmt.Sprint("orders.once.", i)
		}
		w.publish(subject, strings.Repeat("x", 300))
	}

	// kept returns the sequences that have a message, and a stream state that matches them.
	kept := func() (seqs []uint64, state jsapi.StreamState) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		settled := n.until(ctx, func() bool {
			seqs, state = nil, ask[jsapi.StreamInfoResponse](n, "STREAM.INFO.orders", "").State
			for next := uint64(1); next <= last; {
				m := ask[jsapi.MessageResponse](n, "STREAM.MSG.GET.orders", fmt.Sprintf(`{"seq":%d,"next_by_subj":">"}`, next)).Message
				if m == nil {
					t.Fatalf("there is no message from %d on", next)
				}
				seqs = append(seqs, m.Sequence)
				next = m.Sequence + 1
			}
			// When all sealed segments are compacted, subjects that occur often remain in the
			// active segment, and with their newest record each before it: within eight offsets.
			often := slices.IndexFunc(seqs, func(seq uint64) bool { return seq%4 != 0 })
			segments := n.topics.Topic("orders").Shard().Data().SegmentInfos()
			return seqs[often]+8 >= segments[len(segments)-1].Base && reflect.DeepEqual(state, ask[jsapi.StreamInfoResponse](n, "STREAM.INFO.orders", "").State)
		})
		if !settled {
			t.Fatalf("%d of %d messages are kept in the end, and said is %+v", len(seqs), last, state)
		}
		if state.FirstSeq != seqs[0] || state.LastSeq != last || state.Messages != uint64(len(seqs)) || state.NumDeleted != int(last+1-seqs[0])-len(seqs) || state.FirstTime.IsZero() {
			t.Errorf("%d messages are kept from %d on, and said is %+v", len(seqs), seqs[0], state)
		}
		return seqs, state
	}
	seqs, state := kept()
	if seqs[0] == 1 || state.NumDeleted == 0 {
		t.Fatalf("nothing was compacted: %+v", state)
	}
	for _, gone := range []uint64{1, seqs[0] + 1, seqs[1] + 1} {
		if slices.Contains(seqs, gone) {
			t.Fatalf("%d is kept: %v", gone, seqs)
		}
		expect(t, "get a message that went", n, "STREAM.MSG.GET.orders", fmt.Sprintf(`{"seq":%d}`, gone), 10037, "no message found")
		if m := w.await(n.say("$JS.API.DIRECT.GET.orders", fmt.Sprintf(`{"seq":%d}`, gone))); !strings.HasPrefix(string(m.Data), "NATS/1.0 404") {
			t.Errorf("directly: %q", m.Data)
		}
	}

	read := func(consumer string, want []uint64) {
		t.Helper()
		made := ask[jsapi.ConsumerResponse](n, "CONSUMER.CREATE.orders."+consumer, fmt.Sprintf(`{"stream_name":"orders","config":{"durable_name":%q,"name":%q,"ack_policy":"explicit"}}`, consumer, consumer))
		if made.ConsumerInfo == nil {
			t.Fatal(made.Error)
		}
		got, _ := w.pulled(n, consumer, fmt.Sprintf(`{"batch":%d,"expires":20000000000}`, len(want)), len(want))
		for i, m := range got {
			d, ok := jsapi.ParseAckSubject(m.Reply)
			if !ok || d.StreamSeq != want[i] || d.ConsumerSeq != uint64(i+1) || d.Pending != last-d.StreamSeq {
				t.Fatalf("message %d is to be acknowledged at %s, want sequence %d", i, m.Reply, want[i])
			}
			w.await(n.say(string(m.Reply), ""))
		}
		if is := ask[jsapi.ConsumerResponse](n, "CONSUMER.INFO.orders."+consumer, ""); is.ConsumerInfo == nil || is.NumPending != 0 || is.AckFloor.Stream != last || is.AckFloor.Consumer != uint64(len(want)) {
			t.Errorf("in the end: %+v %+v", is.Error, is.ConsumerInfo)
		}
		if more, status := w.pulled(n, consumer, `{"batch":1,"no_wait":true}`, 1); len(more) > 0 {
			t.Errorf("%d more came (%s)", len(more), status)
		}
	}
	read("before", seqs)

	// Purge within the oldest segment, up to a gap.
	below := seqs[2] + 1
	if purged := ask[jsapi.PurgeResponse](n, "STREAM.PURGE.orders", fmt.Sprintf(`{"seq":%d}`, below)); purged.Purged != 3 {
		t.Errorf("purged: %+v", purged)
	}
	after, _ := kept()
	if !slices.Equal(after, seqs[3:]) {
		t.Errorf("kept are %v, were %v", after, seqs)
	}
	read("after", after)
}
