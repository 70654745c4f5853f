package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestCallsReachTheLeader: a call reaches the leader from any broker, and the answer goes directly
// to the client.
func TestCallsReachTheLeader(t *testing.T) {
	w := newWorld(t, 3)
	w.place = func(string) string { return "broker-2" }
	made := ask[jsapi.StreamResponse](w.nodes[0], "STREAM.CREATE.orders", `{"name":"orders","subjects":["orders.>"]}`)
	if made.Error != nil || !made.DidCreate || made.Config.Name != "orders" || made.Cluster.Leader != "name-broker-2" {
		t.Fatalf("made: %+v", made)
	}
	for _, n := range w.nodes {
		info := ask[jsapi.StreamInfoResponse](n, "STREAM.INFO.orders", "")
		if info.Error != nil || info.Cluster.Leader != "name-broker-2" {
			t.Errorf("asked at %s: %+v", n.id, info)
		}
	}
	if forwarded := w.nodes[1].Stats().Forwarded; forwarded != 1 {
		t.Errorf("%d calls were handed on, not 1", forwarded)
	}
	if inbox := w.nodes[2].say("$JS.API.STREAM.INFO.orders", ""); len(w.await(inbox).Data) == 0 || len(w.received(inbox)) != 1 {
		t.Error("there is more than one answer")
	}
}

// TestAForwardedMessageIsNotForwardedAgain: a broker that does not lead refuses a forwarded
// message, even if brokers disagree about the leader.
func TestAForwardedMessageIsNotForwardedAgain(t *testing.T) {
	w := newWorld(t, 2)
	w.place = func(string) string { return "broker-1" }
	if made := ask[jsapi.StreamResponse](w.nodes[0], "STREAM.CREATE.s", `{"name":"s"}`); made.Error != nil {
		t.Fatal(made.Error)
	}
	inbox := "_INBOX.x"
	w.nodes[0].Take([]protocol.Message{{Subject: []byte("$JS.API.STREAM.INFO.s"), Reply: []byte(inbox)}}, nil, true)
	var answer jsapi.Response
	testutil.Must(t, json.Unmarshal(w.await(inbox).Data, &answer))
	if answer.Error == nil || answer.Error.ErrCode != jsapi.ErrStreamOfflineReason.ErrCode {
		t.Errorf("answered with %+v", answer)
	}
	if n := w.nodes[0].Stats().Forwarded; n != 0 {
		t.Errorf("%d were handed on", n)
	}
}

// TestTheLeaderChangesWhileAConsumerIsCreated: the next leader answers the call, whether it reached
// the former leader from a client or from another broker. Here that leader has no copy, and says
// so.
func TestTheLeaderChangesWhileAConsumerIsCreated(t *testing.T) {
	for asked := range 2 {
		w := newWorld(t, 3)
		w.place = func(string) string { return "broker-0" }
		if made := ask[jsapi.StreamResponse](w.nodes[0], "STREAM.CREATE.s", `{"name":"s"}`); made.Error != nil {
			t.Fatal(made.Error)
		}
		w.set(func() {
			w.created = func() {
				w.lead(w.topics["s"], 0, "broker-2")
				testutil.Eventually(t, "broker-0 stops leading", func() error {
					if w.nodes[0].topics.Shard("s").Led() != nil || w.nodes[0].subscriptions.Find(w.topics["s"].ID, "c") != nil {
						return errors.New("it still leads")
					}
					return nil
				})
			}
		})
		w.nodes[2].timeouts.open = 100 * time.Millisecond
		expect(t, "create", w.nodes[asked], "CONSUMER.DURABLE.CREATE.s.c", `{"stream_name":"s","config":{"durable_name":"c","ack_policy":"explicit"}}`,
			jsapi.ErrStreamOfflineReason.ErrCode, "name-broker-2 is opening its log")
		if n := w.nodes[0].Stats().Forwarded; n != 1 {
			t.Errorf("broker-0 handed %d calls on, not 1", n)
		}
	}
}

// TestTheLeaderChangesWhileAnotherBrokerAsks: one broker asks another about a consumer of a shard.
// That broker leads the shard no more when it is to answer. It says so at once, since the next
// leader's answer would reach nobody.
func TestTheLeaderChangesWhileAnotherBrokerAsks(t *testing.T) {
	w := newWorld(t, 2)
	w.place = func(string) string { return "broker-0" }
	if made := ask[jsapi.StreamResponse](w.nodes[0], "STREAM.CREATE.s", `{"name":"s"}`); made.Error != nil {
		t.Fatal(made.Error)
	}
	n := w.nodes[0]
	w.set(func() { w.lead(w.topics["s"], 0, "broker-1") })
	shard := n.topics.Shard("s")
	testutil.Eventually(t, "broker-0 stops leading", func() error {
		if shard.Led() != nil || shard.Leader() != "broker-1" {
			return errors.New("it still leads")
		}
		return nil
	})
	c := newCall(&protocol.Message{Subject: []byte(jsapi.APIPrefix + "CONSUMER.INFO.s.c")}, true, n.timeouts.answer)
	answered := make(chan []byte, 1)
	c.respond = func(answer []byte) { answered <- answer }
	n.refuseConsumer(c, shard, consumerOffline(nil))
	select {
	case answer := <-answered:
		var refused jsapi.Response
		if err := json.Unmarshal(answer, &refused); err != nil || refused.Error == nil || refused.Error.ErrCode != jsapi.ErrConsumerOfflineReason.ErrCode {
			t.Errorf("it answered %s (%v)", answer, err)
		}
	case <-time.After(testutil.Patience):
		t.Error("it did not answer")
	}
	if n := n.Stats().Forwarded; n != 0 {
		t.Errorf("it handed %d calls on", n)
	}
}

// TestAStreamWhoseBrokerIsAway: the refusal names the leader that is away, and the stream can be
// deleted.
func TestAStreamWhoseBrokerIsAway(t *testing.T) {
	w := newWorld(t, 2)
	w.place = func(string) string { return "broker-1" }
	if made := ask[jsapi.StreamResponse](w.nodes[0], "STREAM.CREATE.s", `{"name":"s"}`); made.Error != nil {
		t.Fatal(made.Error)
	}
	w.set(func() { w.cut["broker-1"] = true })
	expect(t, "info", w.nodes[0], "STREAM.INFO.s", "", jsapi.ErrStreamOfflineReason.ErrCode, "name-broker-1")
	expect(t, "consumer", w.nodes[0], "CONSUMER.CREATE.s.c", `{"stream_name":"s","config":{"name":"c"}}`, jsapi.ErrStreamOfflineReason.ErrCode)
	if m := w.await(w.nodes[0].say("$JS.API.CONSUMER.MSG.NEXT.s.c", "")); !strings.HasPrefix(string(m.Data), "NATS/1.0 503") {
		t.Errorf("a pull is answered with %q", m.Data)
	}
	list := ask[jsapi.StreamListResponse](w.nodes[0], "STREAM.LIST", "")
	if len(list.Streams) != 0 || len(list.Missing) != 1 || list.Missing[0] != "s" || list.Total != 0 {
		t.Errorf("listed: %+v", list)
	}
	if done := ask[jsapi.DoneResponse](w.nodes[0], "STREAM.DELETE.s", ""); !done.Success {
		t.Errorf("deletion: %+v", done)
	}
	expect(t, "after it is deleted", w.nodes[0], "STREAM.INFO.s", "", jsapi.ErrStreamNotFound.ErrCode)
}

// TestAStreamThatIsNotPlaced: a stream without a leader is created, and the client is told so
// before it times out.
func TestAStreamThatIsNotPlaced(t *testing.T) {
	w := newWorld(t, 1)
	w.place = func(string) string { return "" }
	w.nodes[0].timeouts.answer = 300 * time.Millisecond
	began := time.Now()
	expect(t, "create", w.nodes[0], "STREAM.CREATE.s", `{"name":"s"}`, jsapi.ErrStreamOfflineReason.ErrCode, "was made", "no broker")
	if took := time.Since(began); took > patience/2 {
		t.Errorf("the answer came after %v", took)
	}
	if defaultTimeouts.answer >= 5*time.Second {
		t.Error("clients give up before they are answered")
	}
	w.place = func(string) string { return "broker-0" }
	w.set(func() { w.lead(w.topics["s"], 0, "broker-0") })
	w.nodes[0].timeouts.answer = defaultTimeouts.answer
	if again := ask[jsapi.StreamResponse](w.nodes[0], "STREAM.CREATE.s", `{"name":"s"}`); again.Error != nil {
		t.Errorf("made again once it is served: %v", again.Error)
	}
}

// TestClientsCannotChangeWhatAManifestDeclares: clients can use and not change what a manifest
// declares.
func TestClientsCannotChangeWhatAManifestDeclares(t *testing.T) {
	w := newWorld(t, 1)
	n := w.nodes[0]
	owner := coordination.Owner{Kind: coordination.ManifestOwner, Namespace: "shop", Name: "orders", UID: "u"}
	config := jsapi.StreamConfig{Name: "orders", Subjects: []string{"orders.>"}}
	if err := config.Normalize(); err != nil {
		t.Fatal(err)
	}
	declared, err := w.CreateTopic(t.Context(), "orders", config.TopicSpec(), owner)
	testutil.Must(t, err)
	_, err = w.CreateSubscription(t.Context(), "orders", "billing", (&jsapi.ConsumerConfig{Name: "billing", Durable: "billing", AckPolicy: jsapi.AckExplicit, DeliverPolicy: jsapi.DeliverAll}).SubscriptionSpec(), owner)
	testutil.Must(t, err)
	same := `{"name":"orders","subjects":["orders.>"]}`
	if made := ask[jsapi.StreamResponse](n, "STREAM.CREATE.orders", same); made.Error != nil {
		t.Errorf("making what is declared just so: %v", made.Error)
	}
	expect(t, "making another", n, "STREAM.CREATE.orders", `{"name":"orders","subjects":["orders.>"],"max_msgs":3}`, jsapi.ErrStreamNameExist.ErrCode, "shop/orders")
	expect(t, "update", n, "STREAM.UPDATE.orders", `{"name":"orders","subjects":["orders.>"],"max_msgs":3}`, jsapi.ErrStreamUpdate.ErrCode, "shop/orders")
	expect(t, "delete", n, "STREAM.DELETE.orders", "", jsapi.ErrStreamDelete.ErrCode, "shop/orders")
	expect(t, "delete of the consumer", n, "CONSUMER.DELETE.orders.billing", "", jsapi.ErrConsumerCreate.ErrCode, "shop/orders")
	if info := ask[jsapi.StreamInfoResponse](n, "STREAM.INFO.orders", ""); info.Error != nil || !info.Created.Equal(declared.Created) {
		t.Errorf("info: %+v", info)
	}
}

// TestWithoutEtcd: without etcd, calls that need it are refused in time with a reason, and others
// work.
func TestWithoutEtcd(t *testing.T) {
	w := newWorld(t, 1)
	n := w.nodes[0]
	if made := ask[jsapi.StreamResponse](n, "STREAM.CREATE.s", `{"name":"s"}`); made.Error != nil {
		t.Fatal(made.Error)
	}
	w.set(func() { w.down = errors.New("etcd does not answer") })
	for _, call := range []struct{ call, payload string }{
		{"STREAM.CREATE.new", `{"name":"new"}`},
		{"STREAM.UPDATE.s", `{"name":"s","max_msgs":3}`},
		{"STREAM.DELETE.s", ""},
		{"STREAM.INFO.unknown", ""},
		{"CONSUMER.CREATE.s.d", `{"stream_name":"s","config":{"name":"d","durable_name":"d","ack_policy":"explicit"}}`},
		{"CONSUMER.DELETE.s.d", ""},
	} {
		expect(t, call.call, n, call.call, call.payload, jsapi.ErrClusterNotAvailable.ErrCode, "etcd does not answer")
	}
	if info := ask[jsapi.StreamInfoResponse](n, "STREAM.INFO.s", ""); info.Error != nil {
		t.Errorf("info: %v", info.Error)
	}
	if names := ask[jsapi.StreamNamesResponse](n, "STREAM.NAMES", ""); len(names.Streams) != 1 {
		t.Errorf("names: %+v", names)
	}
}

// stuck is an etcd that does not answer until it is released.
type stuck struct {
	*world
	free chan struct{}
}

func (s *stuck) CreateTopic(ctx context.Context, _ string, _ coordination.TopicSpec, _ coordination.Owner) (*coordination.Topic, error) {
	select {
	case <-s.free:
	case <-ctx.Done():
	}
	return nil, ctx.Err()
}

func (s *stuck) GetTopic(ctx context.Context, _ string) (*coordination.Topic, error) {
	return s.CreateTopic(ctx, "", coordination.TopicSpec{}, client)
}

// TestReadsDoNotWaitForEtcd: calls for unknown streams wait for etcd; calls for known ones do not
// wait behind them.
func TestReadsDoNotWaitForEtcd(t *testing.T) {
	w := newWorld(t, 1)
	n := w.nodes[0]
	n.timeouts.unknown, n.timeouts.answer = patience, patience
	if made := ask[jsapi.StreamResponse](n, "STREAM.CREATE.s", `{"name":"s"}`); made.Error != nil {
		t.Fatal(made.Error)
	}
	n.config.Store = &stuck{w, make(chan struct{})}
	var unknown []string
	for range 2 * readsAtOnce {
		unknown = append(unknown, n.say("$JS.API.STREAM.INFO.unknown", ""))
	}
	if info := ask[jsapi.StreamInfoResponse](n, "STREAM.INFO.s", ""); info.Error != nil {
		t.Error(info.Error)
	}
	for _, inbox := range unknown {
		if len(w.received(inbox)) > 0 {
			t.Fatal("etcd was not waited for, so this shows nothing")
		}
	}
}

// TestOverload: calls beyond the pools' bounds are refused at once, reads go on, and Close ends
// waiting calls.
func TestOverload(t *testing.T) {
	w := newWorld(t, 1)
	n := w.nodes[0]
	n.config.Store = &stuck{w, make(chan struct{})}
	n.timeouts.answer = patience // a call that is over leaves its place
	n.pace.unbounded()
	var waiting []string
	n.config.Account = func(client uint64) string { return fmt.Sprint(client) }
	for client := range uint64(slowAtOnce) { // one of each user
		inbox := fmt.Sprint("_INBOX.of.", client)
		n.TakeOf(1+client, []protocol.Message{{Subject: []byte("$JS.API.STREAM.CREATE.s"), Reply: []byte(inbox), Data: []byte(`{"name":"s"}`)}}, nil, nil)
		waiting = append(waiting, inbox)
	}
	for range slowWaiting {
		waiting = append(waiting, n.say("$JS.API.STREAM.CREATE.s", `{"name":"s"}`))
	}
	expect(t, "one too many", n, "STREAM.CREATE.s", `{"name":"s"}`, jsapi.ErrInsufficientResources.ErrCode)
	if names := ask[jsapi.StreamNamesResponse](n, "STREAM.NAMES", ""); names.Error != nil {
		t.Errorf("names: %v", names.Error)
	}
	if stats := n.Stats(); stats.Overloaded != 1 {
		t.Errorf("stats %+v", stats)
	}
	began := time.Now()
	n.Server.Close()
	if took := time.Since(began); took > patience/2 {
		t.Errorf("closing took %v", took)
	}
	for _, inbox := range waiting {
		if len(w.received(inbox)) != 1 {
			t.Fatalf("%d answers on %s", len(w.received(inbox)), inbox)
		}
	}
}

// TestListsAcrossBrokers: lists contain the streams of all leaders.
func TestListsAcrossBrokers(t *testing.T) {
	w := newWorld(t, 3)
	at := 0
	w.place = func(string) string { at++; return fmt.Sprintf("broker-%d", at%3) }
	var names []string
	for i := range 9 {
		name := fmt.Sprintf("s%d", i)
		if made := ask[jsapi.StreamResponse](w.nodes[i%3], "STREAM.CREATE."+name, fmt.Sprintf(`{"name":%q}`, name)); made.Error != nil {
			t.Fatal(made.Error)
		}
		names = append(names, name)
	}
	list := ask[jsapi.StreamListResponse](w.nodes[1], "STREAM.LIST", "")
	var listed []string
	leaders := map[string]int{}
	for _, info := range list.Streams {
		listed = append(listed, info.Config.Name)
		leaders[info.Cluster.Leader]++
	}
	if !reflect.DeepEqual(listed, names) || len(list.Missing) != 0 || len(leaders) != 3 {
		t.Errorf("listed %v of %v, without %v", listed, leaders, list.Missing)
	}
	filtered := ask[jsapi.StreamNamesResponse](w.nodes[0], "STREAM.NAMES", `{"subject":"s4"}`)
	if !reflect.DeepEqual(filtered.Streams, []string{"s4"}) || filtered.Total != 1 {
		t.Errorf("filtered: %+v", filtered)
	}
	page := ask[jsapi.StreamNamesResponse](w.nodes[0], "STREAM.NAMES", `{"offset":7}`)
	if !reflect.DeepEqual(page.Streams, []string{"s7", "s8"}) || page.Total != 9 {
		t.Errorf("page: %+v", page)
	}
	account := ask[jsapi.AccountResponse](w.nodes[2], "INFO", "")
	if account.Error != nil || account.Streams != 9 || account.Limits.MaxStreams != -1 || account.API.Total == 0 {
		t.Errorf("account: %+v", account.Account)
	}
}

// TestClientsAreNotHeardOnBrokersSubjects: messages of clients on the subjects between brokers are
// ignored.
func TestClientsAreNotHeardOnBrokersSubjects(t *testing.T) {
	w := newWorld(t, 2)
	inbox := w.nodes[0].say(createdSubject, `{"from":"broker-1","stream":"x","within":1}`)
	w.nodes[0].say(usageSubject, `{"from":"broker-1"}`)
	// A later call is answered, so the earlier message was handled.
	ask[jsapi.StreamNamesResponse](w.nodes[0], "STREAM.NAMES", "")
	if got := w.received(inbox); len(got) != 0 {
		t.Errorf("it was answered: %q", got[0].Data)
	}
	w.nodes[0].mu.Lock()
	defer w.nodes[0].mu.Unlock()
	if w.nodes[0].forwards != 0 {
		t.Error("another broker was told")
	}
}

// TestSettingsOfThisVersionNeedAllBrokers: a broker of an earlier version would ignore them.
func TestSettingsOfThisVersionNeedAllBrokers(t *testing.T) {
	w := newWorld(t, 2)
	n := w.nodes[0]
	orders(t, w, n, 0)
	between := func(earlier map[string]bool) {
		w.set(func() {
			w.earlier = earlier
			w.tell(coordination.Changes{Brokers: true})
		})
	}
	const reader, durable = `{"stream_name":"orders","config":{"name":"reader","ack_policy":"explicit"}}`, `{"stream_name":"orders","config":{"durable_name":"reader","ack_policy":"explicit"}}`
	if made := ask[jsapi.ConsumerResponse](n, "CONSUMER.CREATE.orders.reader", reader); made.Error != nil {
		t.Fatal(made.Error)
	}
	between(map[string]bool{w.nodes[1].id: true})
	expect(t, "making a consumer durable", n, "CONSUMER.DURABLE.CREATE.orders.reader", durable, 10012, "of an earlier one")
	const group = `{"stream_name":"orders","config":{"name":"c","priority_policy":"overflow","priority_groups":["A"]}}`
	expect(t, "discarding new messages", n, "STREAM.CREATE.n", `{"name":"n","discard":"new"}`, 10052)
	expect(t, "a work queue", n, "STREAM.CREATE.q", `{"name":"q","retention":"workqueue"}`, 10052, "retention: workqueue is not supported until broker")
	expect(t, "a retention by interest", n, "STREAM.UPDATE.orders", `{"name":"orders","retention":"interest"}`, 10052, "retention: interest is not supported until broker")
	expect(t, "publishing again", n, "STREAM.UPDATE.orders", `{"name":"orders","republish":{"src":">","dest":"again.>"}}`, 10052, "republish is not supported until broker")
	expect(t, "schedules", n, "STREAM.UPDATE.orders", `{"name":"orders","allow_msg_schedules":true}`, 10052, "allow_msg_schedules is not supported until broker")
	expect(t, "fast batches", n, "STREAM.UPDATE.orders", `{"name":"orders","allow_batched":true}`, 10052, "allow_batched is not supported until broker")
	expect(t, "priority groups", n, "CONSUMER.CREATE.orders.c", group, 10012)
	w.await(n.say("orders.eu", "one"))
	expect(t, "deleting a message", n, "STREAM.MSG.DELETE.orders", `{"seq":1}`, 10057, "of an earlier one")
	expect(t, "purging a subject", n, "STREAM.PURGE.orders", `{"filter":"orders.eu"}`, 10110, "of an earlier one")
	between(nil)
	if made := ask[jsapi.ConsumerResponse](n, "CONSUMER.DURABLE.CREATE.orders.reader", durable); made.Error != nil || made.Config.Durable != "reader" {
		t.Errorf("made durable: %v", made.Error)
	}
	for call, payload := range map[string]string{"STREAM.CREATE.n": `{"name":"n","discard":"new"}`, "STREAM.CREATE.q": `{"name":"q","retention":"workqueue"}`, "CONSUMER.CREATE.orders.c": group, "STREAM.MSG.DELETE.orders": `{"seq":1}`} {
		if made := ask[jsapi.Response](n, call, payload); made.Error != nil {
			t.Errorf("%s: %v", call, made.Error)
		}
	}
}

// TestRefusals: unknown, malformed and excessive requests get nats-server's error codes.
func TestRefusals(t *testing.T) {
	w := newWorld(t, 1)
	n := w.nodes[0]
	if made := ask[jsapi.StreamResponse](n, "STREAM.CREATE.s", `{"name":"s","deny_delete":true}`); made.Error != nil {
		t.Fatal(made.Error)
	}
	for _, test := range []struct {
		what, call, payload string
		number              int
	}{
		{"a call that brokers decline", "STREAM.SNAPSHOT.s", "", 10051},
		{"no such stream", "STREAM.INFO.none", "", 10059},
		{"consumer of no such stream", "CONSUMER.INFO.none.c", "", 10059},
		{"no such consumer", "CONSUMER.INFO.s.none", "", 10014},
		{"names that differ", "STREAM.CREATE.s", `{"name":"t"}`, 10056},
		{"nothing asked", "STREAM.CREATE.s", "", 10003},
		{"a body too much", "STREAM.DELETE.s", `{"a":1}`, 10038},
		{"not JSON", "STREAM.CREATE.s", `{`, 10025},
		{"what we have not", "STREAM.CREATE.s", `{"name":"s","placement":{"cluster":"c"}}`, 10052},
		{"sealed from the start", "STREAM.CREATE.s", `{"name":"s","sealed":true}`, 10052},
		{"pedantic", "STREAM.CREATE.p", `{"name":"p","max_msgs":-2,"pedantic":true}`, 10157},
		{"pedantic consumer", "CONSUMER.CREATE.s.c", `{"stream_name":"s","config":{"name":"c","max_waiting":-1},"pedantic":true}`, 10157},
		{"update of none", "CONSUMER.CREATE.s.c", `{"stream_name":"s","config":{"name":"c"},"action":"update"}`, 10149},
		{"subjects of no pattern", "STREAM.INFO.s", `{"subjects_filter":"a..b"}`, 10003},
		{"purge of no pattern", "STREAM.PURGE.s", `{"filter":"a..b"}`, 10003},
		{"purge with too much kept", "STREAM.PURGE.s", `{"filter":"a","keep":1048577}`, 10110},
		{"purge by sequence and number", "STREAM.PURGE.s", `{"filter":"a","seq":3,"keep":2}`, 10003},
		{"deletion of a message, denied", "STREAM.MSG.DELETE.s", `{"seq":1}`, 10057},
		{"no such message", "STREAM.MSG.GET.s", `{"seq":1}`, 10037},
		{"no message named", "STREAM.MSG.GET.s", `{}`, 10003},
		{"a long request", "STREAM.CREATE.s", strings.Repeat(" ", requestBytes+1), 10003},
	} {
		expect(t, test.what, n, test.call, test.payload, test.number)
	}
	header := "NATS/1.0\r\nNats-Required-Api-Level: 5\r\n\r\n"
	n.Take([]protocol.Message{{Subject: []byte("$JS.API.STREAM.NAMES"), Reply: []byte("level"), Header: len(header), Data: []byte(header)}}, nil, false)
	if m := w.await("level"); !strings.Contains(string(m.Data), "10185") {
		t.Errorf("a level that is not served: %s", m.Data)
	}
	if m := w.await(n.say("$JS.API.DIRECT.GET.s", `{"seq":1}`)); !strings.HasPrefix(string(m.Data), "NATS/1.0 503") {
		t.Errorf("a direct get that is not allowed: %q", m.Data)
	}
	if stats := n.Stats(); stats.Errors == 0 || stats.Calls <= stats.Errors {
		t.Errorf("stats %+v", stats)
	}
}

// TestAnAnswerThatDoesNotFit: an answer beyond the payload limit is refused with the reason, and a
// consumer delivers the message.
func TestAnAnswerThatDoesNotFit(t *testing.T) {
	w := newWorld(t, 1)
	n := w.nodes[0]
	n.config.Payload = 4096
	if made := ask[jsapi.StreamResponse](n, "STREAM.CREATE.s", `{"name":"s","allow_direct":true}`); made.Error != nil {
		t.Fatal(made.Error)
	}
	large := strings.Repeat("x", 3500)
	w.await(n.say("s", large))
	expect(t, "get", n, "STREAM.MSG.GET.s", `{"seq":1}`, jsapi.ErrStreamGeneral.ErrCode, "4096")
	if m := w.await(n.say("$JS.API.DIRECT.GET.s", `{"seq":1}`)); string(m.Data[m.Header:]) != large {
		t.Errorf("a direct get has %d bytes", len(m.Data))
	}
	w.await(n.say("s", strings.Repeat("x", 4096)))
	if m := w.await(n.say("$JS.API.DIRECT.GET.s", `{"seq":2}`)); !strings.HasPrefix(string(m.Data), "NATS/1.0 500 ") {
		t.Errorf("a direct get that does not fit is answered with %.40q", m.Data)
	}
}

// TestGarbage: arbitrary bytes on the API's subjects, from clients and other brokers, do no harm.
func TestGarbage(t *testing.T) {
	w := newWorld(t, 1)
	n := w.nodes[0]
	if made := ask[jsapi.StreamResponse](n, "STREAM.CREATE.s", `{"name":"s"}`); made.Error != nil {
		t.Fatal(made.Error)
	}
	for _, subject := range []string{
		"$JS.API.", "$JS.API..", "$JS.API.STREAM", "$JS.API.STREAM.INFO", "$JS.API.CONSUMER.MSG.NEXT.s", "$JS.API.CONSUMER.MSG.NEXT.s.c",
		"$JS.API.CONSUMER.CREATE.s", "$JS.API.CONSUMER.CREATE.s.c.>", "$JS.API.DIRECT.GET.s.x", "$JS.ACK.", "$JS.ACK.s", "$JS.ACK.s.c.1.1.1.1.1",
		"$JS.ACK.s.c.x.1.1.1.1", "$JS.ACK.s.c.1.99999999999999999999.1.1.1", createdSubject, streamInfoSubject, usageSubject, answerSubject, peerPrefix + "ELSE",
	} {
		for _, payload := range []string{"", "{", "[]", "null", `"x"`, "{}", "-NAK {", "+NXT {", "\x00\xff", `{"from":"nobody","streams":["a"],"stream":"b","number":7}`, `{"batch":-1,"expires":-1}`} {
			for _, forwarded := range []bool{false, true} {
				for _, reply := range []string{"", "inbox"} {
					m := protocol.Message{Subject: []byte(subject), Reply: []byte(reply), Data: []byte(payload)}
					n.Take([]protocol.Message{m}, nil, forwarded)
					m.Header = len(payload)
					n.Take([]protocol.Message{m}, nil, forwarded)
				}
			}
		}
	}
	if info := ask[jsapi.StreamInfoResponse](n, "STREAM.INFO.s", ""); info.Error != nil {
		t.Errorf("afterwards: %v", info.Error)
	}
}

// TestARefusalSaysThatTheDefinitionsOfClientsAreFull: it has the code of an account without room,
// and how much is used.
func TestARefusalSaysThatTheDefinitionsOfClientsAreFull(t *testing.T) {
	w := newWorld(t, 1)
	n := w.nodes[0]
	n.config.Store = full{w}
	answer := w.await(n.say("$JS.API.STREAM.CREATE.orders", `{"name":"orders","subjects":["orders"]}`))
	for _, want := range []string{"10002", "resource limits exceeded for account", "67108000 of 67108864 bytes", "1234 more", "delete streams, consumers or views"} {
		if !strings.Contains(string(answer.Data), want) {
			t.Errorf("the answer lacks %q: %s", want, answer.Data)
		}
	}
}

// full is a Store without room for what clients declare.
type full struct{ *world }

func (full) CreateTopic(_ context.Context, name string, _ coordination.TopicSpec, _ coordination.Owner) (*coordination.Topic, error) {
	return nil, &coordination.FullError{What: "topic " + name, Bytes: 1234, Used: 67108000, Most: coordination.ClientBytes}
}
