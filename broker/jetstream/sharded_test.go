package jetstream

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// wide creates a Topic with several shards, whose leaders take turns, and publishes messages on
// each of some subjects.
func (w *world) wide(shards, subjects, each int) {
	w.t.Helper()
	spec := jsapi.StreamConfig{Name: "orders", Subjects: []string{"orders.>"}, AllowDirect: true}
	if err := spec.Normalize(); err != nil {
		w.t.Fatal(err)
	}
	asked := spec.TopicSpec()
	asked.Shards = shards
	_, err := w.CreateTopic(context.Background(), "orders", asked, client)
	testutil.Must(w.t, err)
	w.fill(subjects, 0, each)
}

// fill publishes the messages numbered from first up to, not including, end on each subject.
func (w *world) fill(subjects, first, end int) {
	w.t.Helper()
	for i := first; i < end; i++ {
		for s := range subjects {
			w.publish(fmt.Sprintf("orders.%d", s), fmt.Sprint(i))
		}
	}
}

// publish publishes a message at its shard's leader and waits for the ack.
func (w *world) publish(subject, payload string) {
	w.t.Helper()
	p := w.nodes[0].topics.Topic("orders").ShardFor([]byte(subject))
	n := w.node(p.Leader())
	if m := w.await(n.say(subject, payload)); !strings.Contains(string(m.Data), `"stream":"`+p.Name()+`"`) || !strings.Contains(string(m.Data), `"seq"`) {
		w.t.Fatalf("publishing to %s is answered with %s", subject, m.Data)
	}
}

func (w *world) node(id string) *node {
	for _, n := range w.nodes {
		if n.id == id {
			return n
		}
	}
	w.t.Fatalf("there is no broker %q", id)
	return nil
}

// pulled pulls through a broker until the pull has ended, and returns the messages and the status
// that ended it, if any.
func (w *world) pulled(n *node, consumer, request string, want int) (got []protocol.Message, status string) {
	w.t.Helper()
	inbox := n.say("$JS.API.CONSUMER.MSG.NEXT.orders."+consumer, request)
	w.whenever(inbox, func(all []protocol.Message) bool {
		got, status = nil, ""
		for _, m := range all {
			if m.To == nil && string(m.Subject) == inbox {
				status = strings.SplitN(string(m.Data), "\r\n", 2)[0]
			} else {
				got = append(got, m)
			}
		}
		return len(got) >= want || status != "" && !strings.Contains(status, "100")
	})
	return got, status
}

// TestOneNameForSeveralShards: a Topic of four shards on three brokers is one stream by its own
// name. Counts are added up, and a durable consumer delivers each message once, those of a subject
// in order, through every broker.
func TestOneNameForSeveralShards(t *testing.T) {
	w := newWorld(t, 3)
	w.wide(4, 20, 10)

	for _, n := range w.nodes {
		whole := ask[jsapi.StreamInfoResponse](n, "STREAM.INFO.orders", "")
		if whole.StreamInfo == nil || whole.Config.Name != "orders" || whole.State.Messages != 200 || whole.State.LastSeq != 200 || whole.State.FirstSeq != 1 {
			t.Fatalf("broker %s says of the whole: %+v %+v", n.id, whole.Error, whole.StreamInfo)
		}
		total := uint64(0)
		for shard := range 4 {
			one := ask[jsapi.StreamInfoResponse](n, fmt.Sprintf("STREAM.INFO.orders--%d", shard), "")
			if one.StreamInfo == nil || one.State.LastSeq != one.State.Messages {
				t.Fatalf("broker %s says of shard %d: %+v", n.id, shard, one.Error)
			}
			total += one.State.Messages
		}
		if total != 200 {
			t.Errorf("the shards have %d", total)
		}
	}
	for request, want := range map[string]string{"": "orders orders--0 orders--1 orders--2 orders--3", `{"subject":"orders.7"}`: "orders", `{"subject":"bills"}`: ""} {
		if names := ask[jsapi.StreamNamesResponse](w.nodes[0], "STREAM.NAMES", request).Streams; strings.Join(names, " ") != want {
			t.Errorf("named %q by %s", names, request)
		}
	}
	list := ask[jsapi.StreamListResponse](w.nodes[1], "STREAM.LIST", "")
	if len(list.Streams) != 5 || len(list.Missing) != 0 || list.Streams[0].State.Messages != 200 || list.Streams[0].Config.Name != "orders" {
		t.Errorf("listed %d, missing %q", len(list.Streams), list.Missing)
	}

	made := ask[jsapi.ConsumerResponse](w.nodes[1], "CONSUMER.CREATE.orders.billing", `{"stream_name":"orders","config":{"durable_name":"billing","name":"billing","ack_policy":"explicit"}}`)
	if made.ConsumerInfo == nil || made.Stream != "orders" || made.NumPending != 200 {
		t.Fatalf("made %+v %+v", made.Error, made.ConsumerInfo)
	}
	seen, last := map[string]bool{}, map[string]int{}
	take := func(messages []protocol.Message) {
		for _, m := range messages {
			var i int
			_, err := fmt.Sscan(string(m.Data), &i)
			testutil.Must(t, err)
			subject := string(m.Subject)
			if seen[subject+" "+string(m.Data)] {
				t.Errorf("%s %d came twice", subject, i)
			}
			if before, ok := last[subject]; ok && i != before+1 || !ok && i != 0 {
				t.Errorf("%s %d came after %d", subject, i, before)
			}
			seen[subject+" "+string(m.Data)], last[subject] = true, i
			if d, ok := jsapi.ParseAckSubject(m.Reply); !ok || !strings.HasPrefix(string(d.Stream), "orders--") {
				t.Fatalf("to be acknowledged at %s", m.Reply)
			} else { // acks reach their shard from any broker
				w.await(w.nodes[len(seen)%3].say(string(m.Reply), ""))
			}
		}
	}
	for round := 0; len(seen) < 200; round++ {
		want := min(7, 200-len(seen))
		got, _ := w.pulled(w.nodes[round%3], "billing", fmt.Sprintf(`{"batch":%d,"expires":20000000000}`, want), want)
		if len(got) > want {
			t.Fatalf("a pull of %d brought %d", want, len(got))
		}
		take(got)
	}
	is := ask[jsapi.ConsumerResponse](w.nodes[2], "CONSUMER.INFO.orders.billing", "")
	if is.ConsumerInfo == nil || is.NumPending != 0 || is.NumAckPending != 0 || is.AckFloor.Consumer != 200 || is.Delivered.Stream != 200 {
		t.Errorf("in the end: %+v %+v", is.Error, is.ConsumerInfo)
	}

	// Without messages, a pull with no_wait ends, and a waiting pull gets new messages up to its
	// batch.
	if got, status := w.pulled(w.nodes[0], "billing", `{"batch":5,"no_wait":true}`, 1); len(got) != 0 || status != "NATS/1.0 404 No Messages" {
		t.Errorf("without waiting: %d, %q", len(got), status)
	}
	if got, status := w.pulled(w.nodes[0], "billing", `{"batch":5,"expires":50000000}`, 1); len(got) != 0 || status != "NATS/1.0 408 Request Timeout" {
		t.Errorf("after a moment: %d, %q", len(got), status)
	}
	inbox := w.nodes[1].say("$JS.API.CONSUMER.MSG.NEXT.orders.billing", `{"batch":5,"expires":20000000000}`)
	w.fill(5, 10, 11)
	take(w.awaitAll(inbox, 5))

	// A new message per subject, some in each shard, bounded by bytes.
	w.fill(20, 11, 12)
	got, status := w.pulled(w.nodes[2], "billing", `{"batch":100,"max_bytes":400,"expires":20000000000}`, 100)
	if len(got) == 0 || len(got) > 8 || !strings.HasPrefix(status, "NATS/1.0 409 Message Size Exceeds MaxBytes") {
		t.Errorf("bounded by bytes: %d, %q", len(got), status)
	}

	done := ask[jsapi.DoneResponse](w.nodes[0], "CONSUMER.DELETE.orders.billing", "")
	if !done.Success || len(ask[jsapi.ConsumerNamesResponse](w.nodes[0], "CONSUMER.NAMES.orders", "").Consumers) != 0 {
		t.Errorf("deleted: %+v", done)
	}
	purged := ask[jsapi.PurgeResponse](w.nodes[1], "STREAM.PURGE.orders", "")
	if purged.Purged != 225 {
		t.Errorf("purged: %+v", purged)
	}
	w.fill(8, 12, 15)
	for filter, want := range map[string]uint64{"orders.2": 3, "other.>": 0} {
		if got := ask[jsapi.PurgeResponse](w.nodes[0], "STREAM.PURGE.orders", fmt.Sprintf(`{"filter":%q}`, filter)); got.Error != nil || got.Purged != want {
			t.Errorf("%s: %+v %v", filter, got, got.Error)
		}
	}
}

// TestCallsThatNeedOneOrderAreRefusedForAWholeTopic: calls that need one order are refused by the
// Topic's name, with the reason, and work by a shard's name.
func TestCallsThatNeedOneOrderAreRefusedForAWholeTopic(t *testing.T) {
	w := newWorld(t, 3)
	w.wide(4, 12, 5)
	n := w.nodes[2]
	consumer := func(stream, config string) string {
		return fmt.Sprintf(`{"stream_name":%q,"config":{"name":"c","ack_policy":"explicit",%s}}`, stream, config)
	}
	const several = "topic orders has 4 shards, each with sequences of its own"
	for _, c := range []struct {
		what, call, payload string
		number              int
		says                string
	}{
		{"get by sequence", "STREAM.MSG.GET.orders", `{"seq":1}`, 10051, several},
		{"get by pattern", "STREAM.MSG.GET.orders", `{"last_by_subj":"orders.*"}`, 10051, several},
		{"purge by sequence", "STREAM.PURGE.orders", `{"seq":3}`, 10110, several},
		{"purge by number", "STREAM.PURGE.orders", `{"keep":3}`, 10110, several},
		{"delete a message", "STREAM.MSG.DELETE.orders", `{"seq":3}`, 10057, several},
		{"ordered", "CONSUMER.CREATE.orders.c", `{"stream_name":"orders","config":{"name":"c","ack_policy":"none","mem_storage":true,"num_replicas":1}}`, 10012, several + ", so it can't have an ordered consumer"},
		{"ordered, pushed", "CONSUMER.CREATE.orders.c", `{"stream_name":"orders","config":{"name":"c","deliver_subject":"in.box","ack_policy":"none","mem_storage":true,"num_replicas":1,"flow_control":true,"idle_heartbeat":5000000000}}`, 10012, several + ", so it can't have an ordered consumer"},
		{"start by sequence, pushed", "CONSUMER.CREATE.orders.c", consumer("orders", `"deliver_subject":"in.box","deliver_policy":"by_start_sequence","opt_start_seq":3`), 10012, "starts at a sequence"},
		{"start by sequence", "CONSUMER.CREATE.orders.c", consumer("orders", `"durable_name":"c","deliver_policy":"by_start_sequence","opt_start_seq":3`), 10012, "starts at a sequence"},
		{"a durable one of a shard", "CONSUMER.CREATE.orders--1.c", consumer("orders--1", `"durable_name":"c"`), 10012, "name stream orders"},
		{"update a shard", "STREAM.UPDATE.orders--1", `{"name":"orders--1","subjects":["orders.>"]}`, 10069, "can't be changed on its own"},
		{"delete a shard", "STREAM.DELETE.orders--1", "", 10050, "can't be deleted on its own"},
		{"a shard there isn't", "STREAM.INFO.orders--4", "", 10059, ""},
	} {
		expect(t, c.what, n, c.call, c.payload, c.number, c.says)
	}

	// The last message of a subject is in one shard, and the answer names its stream.
	for s := range 12 {
		subject := fmt.Sprintf("orders.%d", s)
		got := ask[jsapi.MessageResponse](n, "STREAM.MSG.GET.orders", fmt.Sprintf(`{"last_by_subj":%q}`, subject))
		if got.Message == nil || got.Message.Subject != subject || string(got.Message.Data) != "4" {
			t.Errorf("last of %s: %+v", subject, got.Error)
		}
		direct := w.await(n.say("$JS.API.DIRECT.GET.orders."+subject, ""))
		p := n.topics.Topic("orders").ShardFor([]byte(subject))
		if header := string(direct.Data[:direct.Header]); !strings.Contains(header, "Nats-Stream: "+p.Name()) || string(direct.Data[direct.Header:]) != "4" {
			t.Errorf("direct: %q", direct.Data)
		}
		if again := ask[jsapi.MessageResponse](n, "STREAM.MSG.GET."+p.Name(), fmt.Sprintf(`{"seq":%d}`, got.Message.Sequence)); again.Message == nil || again.Message.Subject != subject {
			t.Errorf("by its shard's sequence: %+v", again.Error)
		}
	}
	pushed := ask[jsapi.ConsumerResponse](n, "CONSUMER.CREATE.orders--1.p", `{"stream_name":"orders--1","config":{"name":"p","deliver_subject":"in.box"}}`)
	if pushed.ConsumerInfo == nil || pushed.NumPending == 0 {
		t.Fatalf("a push consumer of one shard: %+v", pushed.Error)
	}
	w.awaitAll("in.box", int(pushed.NumPending))
	// A consumer of one shard has an order and sequences without gaps.
	made := ask[jsapi.ConsumerResponse](n, "CONSUMER.CREATE.orders--1.c", consumer("orders--1", `"mem_storage":true,"deliver_policy":"by_start_sequence","opt_start_seq":3`))
	if made.ConsumerInfo == nil || made.Stream != "orders--1" || made.NumPending == 0 {
		t.Fatalf("made %+v", made.Error)
	}
	inbox := n.say("$JS.API.CONSUMER.MSG.NEXT.orders--1.c", fmt.Sprint(made.NumPending))
	for i, m := range w.awaitAll(inbox, int(made.NumPending)) {
		if d, ok := jsapi.ParseAckSubject(m.Reply); !ok || d.StreamSeq != uint64(i)+3 {
			t.Errorf("message %d is to be acknowledged at %s", i, m.Reply)
		}
	}
	// An update by the Topic's name applies to all shards.
	is := ask[jsapi.StreamInfoResponse](n, "STREAM.INFO.orders", "")
	is.Config.Description = "all of them"
	config, err := json.Marshal(is.Config)
	testutil.Must(t, err)
	updated := ask[jsapi.StreamResponse](n, "STREAM.UPDATE.orders", string(config))
	if updated.StreamInfo == nil || updated.Config.Description != "all of them" || w.topics["orders"].Spec.Shards != 4 {
		t.Errorf("updated: %+v", updated.Error)
	}
	if ask[jsapi.StreamInfoResponse](w.nodes[0], "STREAM.INFO.orders--3", "").Config.Description != "all of them" {
		t.Error("a shard has not heard of the change")
	}
	if done := ask[jsapi.DoneResponse](n, "STREAM.DELETE.orders", ""); !done.Success {
		t.Errorf("deleted: %+v", done.Error)
	}
	expect(t, "afterwards", n, "STREAM.INFO.orders--0", "", 10059)
}

// TestPullsGoOnWithoutAShard: a shard whose broker is away or unreachable does not keep the others
// from delivering, and the client learns why it gets no more.
func TestPullsGoOnWithoutAShard(t *testing.T) {
	w := newWorld(t, 3)
	w.wide(3, 30, 1)
	testutil.Must(t, func() error {
		_, err := w.CreateSubscription(context.Background(), "orders", "c", coordination.SubscriptionSpec{Start: coordination.Start{From: coordination.FromEarliest}}, client)
		return err
	}())
	ask[jsapi.ConsumerResponse](w.nodes[0], "CONSUMER.INFO.orders.c", "")
	w.set(func() { w.cut["broker-2"] = true })
	there := 0
	for s := range 30 {
		if w.nodes[0].topics.Topic("orders").ShardFor(fmt.Appendf(nil, "orders.%d", s)).Number() < 2 {
			there++
		}
	}
	got, status := w.pulled(w.nodes[0], "c", fmt.Sprintf(`{"batch":%d,"expires":20000000000}`, there), there)
	if len(got) != there {
		t.Errorf("%d of %d, %q", len(got), there, status)
	}
	got, status = w.pulled(w.nodes[0], "c", `{"batch":30,"expires":300000000}`, 1)
	if len(got) != 0 || status != "NATS/1.0 408 Request Timeout" {
		t.Errorf("%d more, %q", len(got), status)
	}
	w.set(func() { delete(w.cut, "broker-2") })
	if got, _ = w.pulled(w.nodes[0], "c", `{"batch":30,"expires":20000000000}`, 30-there); len(got) != 30-there {
		t.Errorf("afterwards %d of %d", len(got), 30-there)
	}
}

// TestAConsumerOfAllShardsIsResetToItsAckFloors: what was delivered and not acknowledged comes
// again, of each shard, and nothing else.
func TestAConsumerOfAllShardsIsResetToItsAckFloors(t *testing.T) {
	w := newWorld(t, 3)
	w.wide(4, 20, 5)
	n := w.nodes[1]
	made := ask[jsapi.ConsumerResponse](n, "CONSUMER.DURABLE.CREATE.orders.work", `{"stream_name":"orders","config":{"durable_name":"work","ack_policy":"all","ack_wait":3600000000000}}`)
	if made.ConsumerInfo == nil {
		t.Fatalf("made %+v", made.Error)
	}
	var acked int
	first, _ := w.pulled(n, "work", `{"batch":100,"expires":20000000000}`, 100)
	for _, m := range first[:40] {
		w.await(n.say(string(m.Reply), ""))
	}
	before := ask[jsapi.ConsumerResponse](n, "CONSUMER.INFO.orders.work", "")
	if before.ConsumerInfo == nil || before.NumPending != 0 || before.NumAckPending == 0 || before.AckFloor.Stream == 0 {
		t.Fatalf("before it is %+v, %v", before.ConsumerInfo, before.Error)
	}
	acked = int(before.AckFloor.Stream)
	expect(t, "to a sequence", n, "CONSUMER.RESET.orders.work", `{"seq":3}`, 10204, "4 shards")
	expect(t, "a consumer that does not exist", n, "CONSUMER.RESET.orders.none", "", 10014, "")
	is := ask[jsapi.ResetResponse](n, "CONSUMER.RESET.orders.work", "")
	if is.ConsumerInfo == nil || is.Stream != "orders" || is.Sequence != uint64(acked+1) || is.NumAckPending != 0 || int(is.NumPending) != 100-acked {
		t.Fatalf("reset: %+v %+v, after %d acks", is, is.ConsumerInfo, acked)
	}
	again, _ := w.pulled(n, "work", fmt.Sprintf(`{"batch":%d,"expires":20000000000}`, 100-acked), 100-acked)
	seen := map[string]bool{}
	for _, m := range again {
		if !strings.HasPrefix(string(m.Reply), "$JS.ACK.") || seen[string(m.Subject)+" "+string(m.Data)] {
			t.Errorf("%s came again twice, as %s", m.Subject, m.Reply)
		}
		seen[string(m.Subject)+" "+string(m.Data)] = true
	}
	if len(again) != 100-acked {
		t.Errorf("%d came again, want %d", len(again), 100-acked)
	}
	if more, status := w.pulled(n, "work", `{"batch":100,"expires":300000000}`, 1); len(more) != 0 {
		t.Errorf("%d more came, and %q", len(more), status)
	}
}

// TestAnEphemeralConsumerOfAllShards: a consumer by the Topic's name without a durable name
// survives a change of leaders, delivers each message once, and is deleted when it is unused in all
// shards.
func TestAnEphemeralConsumerOfAllShards(t *testing.T) {
	w := newWorld(t, 3)
	w.wide(4, 20, 5)
	n := w.nodes[1]
	request := func(settings string) string {
		return fmt.Sprintf(`{"stream_name":"orders","config":{"name":"watch","ack_policy":"explicit","inactive_threshold":%d%s}}`, time.Hour, settings)
	}
	made := ask[jsapi.ConsumerResponse](n, "CONSUMER.CREATE.orders.watch", request(""))
	if made.ConsumerInfo == nil || made.Stream != "orders" || made.Config.Durable != "" || made.Config.InactiveThreshold != time.Hour || made.NumPending != 100 {
		t.Fatalf("made %+v %+v", made.Error, made.ConsumerInfo)
	}
	if again := ask[jsapi.ConsumerResponse](w.nodes[2], "CONSUMER.CREATE.orders.watch", request("")); again.ConsumerInfo == nil || !again.Created.Equal(made.Created) {
		t.Errorf("made again: %+v", again.Error)
	}
	if changed := ask[jsapi.ConsumerResponse](n, "CONSUMER.CREATE.orders.watch", request(`,"description":"other"`)); changed.ConsumerInfo == nil || changed.Config.Description != "other" {
		t.Errorf("changed: %+v", changed.Error)
	}
	until := time.Now().Add(time.Hour).UTC()
	paused := ask[jsapi.PauseResponse](w.nodes[0], "CONSUMER.PAUSE.orders.watch", fmt.Sprintf(`{"pause_until":%q}`, until.Format(time.RFC3339Nano)))
	if !paused.Paused || !paused.Until.Equal(until) || paused.Remaining > time.Hour {
		t.Errorf("paused in all shards: %+v", paused)
	}
	if is := ask[jsapi.ConsumerResponse](n, "CONSUMER.INFO.orders.watch", ""); is.ConsumerInfo == nil || !is.Paused {
		t.Errorf("during the pause it is %+v, %v", is.ConsumerInfo, is.Error)
	}
	if resumed := ask[jsapi.PauseResponse](n, "CONSUMER.PAUSE.orders.watch", ""); resumed.Error != nil || resumed.Paused {
		t.Errorf("resumed: %+v", resumed)
	}
	expect(t, "paused in one shard", n, "CONSUMER.PAUSE.orders--1.watch", "", 10012, "can't be paused alone")
	expect(t, "reset by the topic's name", n, "CONSUMER.RESET.orders.watch", `{"seq":3}`, 10204, "4 shards")
	expect(t, "made durable", n, "CONSUMER.DURABLE.CREATE.orders.watch", `{"stream_name":"orders","config":{"durable_name":"watch","ack_policy":"explicit"}}`, 10012, "durable name can not be updated")
	unnamed := ask[jsapi.ConsumerResponse](n, "CONSUMER.CREATE.orders", `{"stream_name":"orders","config":{"ack_policy":"none"}}`)
	if unnamed.ConsumerInfo == nil || unnamed.Name == "" || unnamed.Config.InactiveThreshold != jsapi.DefaultInactiveThreshold {
		t.Fatalf("unnamed: %+v", unnamed.Error)
	}
	if names := ask[jsapi.ConsumerNamesResponse](n, "CONSUMER.NAMES.orders", "").Consumers; len(names) != 2 {
		t.Errorf("named %q", names)
	}

	seen := map[string]bool{}
	take := func(want int) {
		t.Helper()
		got, _ := w.pulled(n, "watch", fmt.Sprintf(`{"batch":%d,"expires":20000000000}`, want), want)
		for _, m := range got {
			if seen[string(m.Subject)+" "+string(m.Data)] {
				t.Errorf("%s %s came twice", m.Subject, m.Data)
			}
			seen[string(m.Subject)+" "+string(m.Data)] = true
			w.await(n.say(string(m.Reply), ""))
		}
	}
	take(60)
	for shard := range 4 { // a new epoch of each, with the state of the one before
		of := w.nodes[0].topics.Topic("orders").Shards()[shard]
		w.set(func() { w.lead(w.topics["orders"], shard, of.Leader()) })
	}
	take(40)
	if len(seen) != 100 {
		t.Errorf("%d of 100 came", len(seen))
	}

	// The first shard is unused, another one is used.
	of := n.topics.Topic("orders")
	leader := w.node(of.Leader())
	used := func(within time.Duration) bool {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		return leader.usedInAShard(ctx, of, "watch", within)
	}
	if !used(time.Hour) || used(time.Nanosecond) {
		t.Error("what was delivered and acknowledged in other shards doesn't count, or for ever")
	}
	w.set(func() { w.cut["broker-2"] = true })
	if !used(time.Nanosecond) {
		t.Error("it is not in use though a shard can't be asked")
	}
	w.set(func() { delete(w.cut, "broker-2") })
	inbox := n.say("$JS.API.CONSUMER.MSG.NEXT.orders.watch", `{"batch":1,"expires":20000000000}`)
	eventually := func(what string, ok func() bool) {
		t.Helper()
		// Shards are watched a while longer.
		ctx, cancel := context.WithTimeout(context.Background(), watchTime+patience)
		defer cancel()
		if !leader.until(ctx, ok) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
	eventually("the pull has come to the shards", func() bool { return used(time.Nanosecond) })
	w.fill(1, 5, 6)
	w.await(inbox)
	// Then all shards are unused.
	spec := *w.subs[of.ID()+"/watch"].Spec
	spec.Consumer.InactiveThreshold = time.Millisecond
	_, err := w.UpdateSubscription(context.Background(), "orders", "watch", coordination.SubscriptionUpdate{By: client, Spec: spec})
	testutil.Must(t, err)
	eventually("all consumers are gone", func() bool { return w.consumers() == 0 })
	if _, status := w.pulled(n, "watch", `{"batch":1,"no_wait":true}`, 1); !strings.Contains(status, "503") {
		t.Errorf("it is pulled from when it is gone: %q", status)
	}
}

// consumers returns the number of Subscriptions.
func (w *world) consumers() (n int) {
	w.set(func() { n = len(w.subs) })
	return n
}

// TestConsumersThatAreNotDurableAreBounded: shardedEphemerals bounds the consumers without a
// durable name.
func TestConsumersThatAreNotDurableAreBounded(t *testing.T) {
	w := newWorld(t, 1)
	w.wide(2, 1, 1)
	spec := coordination.SubscriptionSpec{Start: coordination.Start{From: coordination.FromEarliest}, Consumer: coordination.ConsumerSettings{Ephemeral: true, InactiveThreshold: time.Hour}}
	for i := range shardedEphemerals {
		_, err := w.CreateSubscription(context.Background(), "orders", fmt.Sprint("one-", i), spec, client)
		testutil.Must(t, err)
	}
	testutil.EventuallyTrue(t, "all are served", func() bool { // a new one waits for those before it
		for _, p := range w.nodes[0].topics.Shards() {
			if len(w.nodes[0].subscriptions.List(p.Key())) < shardedEphemerals {
				return false
			}
		}
		return true
	})
	expect(t, "one too many", w.nodes[0], "CONSUMER.CREATE.orders", `{"stream_name":"orders","config":{"ack_policy":"none"}}`, 10012, "has 1024 consumers that are not durable")
	if made := ask[jsapi.ConsumerResponse](w.nodes[0], "CONSUMER.CREATE.orders.d", `{"stream_name":"orders","config":{"name":"d","durable_name":"d","ack_policy":"explicit"}}`); made.ConsumerInfo == nil {
		t.Errorf("a durable one: %+v", made.Error)
	}
}

// TestLeadersInTurnWriteNoConsumersThatExcludeEachOther: the former leader of the first shard of a
// work queue has written a consumer, which the State of the next one lacks still.
func TestLeadersInTurnWriteNoConsumersThatExcludeEachOther(t *testing.T) {
	w := newWorld(t, 2)
	config := jsapi.StreamConfig{Name: "orders", Subjects: []string{"orders.>"}, Retention: "workqueue"}
	if err := config.Normalize(); err != nil {
		t.Fatal(err)
	}
	asked := config.TopicSpec()
	asked.Shards = 2
	_, err := w.CreateTopic(t.Context(), "orders", asked, client)
	testutil.Must(t, err)
	n := w.nodes[0]
	w.set(func() { w.stale = map[string]bool{n.id: true} })
	former, err := w.CreateSubscription(t.Context(), "orders", "former", coordination.SubscriptionSpec{Start: coordination.Start{From: coordination.FromEarliest}}, client)
	testutil.Must(t, err)
	before := 0
	w.set(func() { before = w.asked })
	inbox := n.say("$JS.API.CONSUMER.CREATE.orders.next", `{"stream_name":"orders","config":{"name":"next","durable_name":"next","ack_policy":"explicit"}}`)
	testutil.EventuallyTrue(t, "the next leader wants to write one", func() (is bool) {
		w.set(func() { is = w.asked > before })
		return is
	})
	w.set(func() {
		w.stale = nil
		w.tell(coordination.Changes{Subscriptions: []coordination.Change[coordination.Subscription]{{After: former}}})
	})
	if answer := w.await(inbox); !strings.Contains(string(answer.Data), `"err_code":10099`) {
		t.Errorf("the next consumer is answered %s", answer.Data)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.subs) != 1 {
		t.Errorf("there are %d consumers", len(w.subs))
	}
}

// TestAConsumerThatAnotherBrokerDeletedExcludesNoNewOne: this broker's State has it still, and etcd
// does not.
func TestAConsumerThatAnotherBrokerDeletedExcludesNoNewOne(t *testing.T) {
	for name, limit := range map[string]func(c *jsapi.StreamConfig){
		"work queue":    func(c *jsapi.StreamConfig) { c.Retention = "workqueue" },
		"max_consumers": func(c *jsapi.StreamConfig) { c.MaxConsumers = 1 },
	} {
		w := newWorld(t, 1)
		config := jsapi.StreamConfig{Name: "orders", Subjects: []string{"orders.>"}}
		limit(&config)
		if err := config.Normalize(); err != nil {
			t.Fatal(err)
		}
		asked := config.TopicSpec()
		asked.Shards = 2
		of, err := w.CreateTopic(t.Context(), "orders", asked, client)
		testutil.Must(t, err)
		create := func(consumer string) *jsapi.Error {
			made := ask[jsapi.ConsumerResponse](w.nodes[0], "CONSUMER.CREATE.orders."+consumer, `{"stream_name":"orders","config":{"name":"`+consumer+`","durable_name":"`+consumer+`","ack_policy":"explicit"}}`)
			return made.Error
		}
		if refusal := create("former"); refusal != nil {
			t.Fatal(refusal)
		}
		if refusal := create("other"); refusal == nil {
			t.Errorf("%s: a second consumer is created", name)
		}
		w.mu.Lock()
		delete(w.subs, of.ID+"/former")
		w.mu.Unlock()
		if refusal := create("next"); refusal != nil {
			t.Errorf("%s: the next consumer is refused: %v", name, refusal)
		}
	}
}
