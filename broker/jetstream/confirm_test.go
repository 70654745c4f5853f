package jetstream

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// strand adds an unreachable broker to the in-sync set of a stream, so that its leader cannot
// confirm that it leads.
func (w *world) strand(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.topics[name]
	was := w.shards[t.ID]
	is := *was
	w.revision++
	is.Revision = w.revision
	is.Replicas = []string{was.Leader, "broker-9"}
	is.InSync = append(is.InSync[:1:1], coordination.Replica{Broker: "broker-9", Incarnation: 7})
	w.shards[t.ID] = &is
	w.tell(coordination.Changes{Shards: []coordination.Change[coordination.Shard]{{Before: was, After: &is}}})
	testutil.EventuallyTrue(w.t, "the leader counts on it", func() bool {
		return !w.nodes[0].topics.Topic(name).Shard().Confirm(func(error) {})
	})
}

// TestAnswersThatClaimToBeTheLatestAreConfirmed: a leader whose followers are unreachable refuses
// every answer that claims to be the latest. It still returns a message by its sequence.
func TestAnswersThatClaimToBeTheLatestAreConfirmed(t *testing.T) {
	w := newWorld(t, 1)
	n := w.nodes[0]
	if made := ask[jsapi.StreamResponse](n, "STREAM.CREATE.s", `{"name":"s","subjects":["s.>"],"allow_direct":true}`); made.Error != nil {
		t.Fatal(made.Error)
	}
	w.await(n.say("s.a", "one"))
	latest := func(payload string) protocol.Message {
		header := "NATS/1.0\r\nCarillon-Read: latest\r\n\r\n"
		inbox := n.say("", "")
		n.Server.Take([]protocol.Message{{Subject: []byte("$JS.API.DIRECT.GET.s"), Reply: []byte(inbox), Header: len(header), Data: []byte(header + payload)}}, nil, false)
		return w.await(inbox)
	}
	if m := latest(`{"last_by_subj":"s.a"}`); string(m.Data[m.Header:]) != "one" {
		t.Errorf("a direct get of the latest brings %q", m.Data)
	}
	expect(t, "no message yet", n, "STREAM.MSG.GET.s", `{"seq":2}`, 10037)

	w.strand("s")
	for what, call := range map[string][2]string{ // answers that stay true need no confirmation
		"by its sequence":      {"STREAM.MSG.GET.s", `{"seq":1}`},
		"the next from one on": {"STREAM.MSG.GET.s", `{"seq":1,"next_by_subj":"s.a"}`},
		"directly":             {"DIRECT.GET.s", `{"last_by_subj":"s.a"}`},
		"a reader from 1 on":   {"CONSUMER.CREATE.s.r", `{"stream_name":"s","config":{"name":"r","mem_storage":true,"ack_policy":"none","deliver_policy":"all"}}`},
	} {
		if m := w.await(n.say("$JS.API."+call[0], call[1])); strings.Contains(string(m.Data), `"error"`) || strings.HasPrefix(string(m.Data), "NATS/1.0 5") {
			t.Errorf("%s: %q", what, m.Data)
		}
	}
	calls := map[string]string{
		"STREAM.INFO.s": "",
		`STREAM.MSG.GET.s {"last_by_subj":"s.a"}`: "",
		`STREAM.MSG.GET.s {"seq":2}`:              "",
		`STREAM.PURGE.s`:                          "",
	}
	for i, start := range []string{"last", "new", "last_per_subject", `by_start_time","opt_start_time":"2026-01-31T00:00:00Z`} {
		name := fmt.Sprintf("o%d", i)
		calls[`CONSUMER.CREATE.s.`+name+` {"stream_name":"s","config":{"name":"`+name+`","mem_storage":true,"ack_policy":"none","filter_subject":"s.a","deliver_policy":"`+start+`"}}`] = ""
	}
	for call := range calls {
		name, payload, _ := strings.Cut(call, " ")
		calls[call] = n.say("$JS.API."+name, payload)
	}
	if m := latest(`{"last_by_subj":"s.a"}`); !strings.HasPrefix(string(m.Data), "NATS/1.0 503") {
		t.Errorf("a direct get of the latest brings %q", m.Data)
	}
	for call, inbox := range calls {
		var answer jsapi.Response
		if m := w.await(inbox); json.Unmarshal(m.Data, &answer) != nil || answer.Error == nil {
			t.Errorf("%s is answered with %q", call, m.Data)
		} else if !strings.Contains(answer.Error.Description, "have not confirmed") {
			t.Errorf("%s is refused with %q", call, answer.Error.Description)
		}
	}
}
