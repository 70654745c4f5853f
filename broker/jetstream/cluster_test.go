package jetstream

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestStreamInfoNamesLeaderAndReplicas: stream info names the leader and the replicas, and says
// which are in sync and which are offline.
func TestStreamInfoNamesLeaderAndReplicas(t *testing.T) {
	state := coordination.NewState(1, []coordination.Broker{
		{ID: "a", Name: "main-0", Incarnation: 1}, {ID: "b", Name: "main-1", Incarnation: 5}, {ID: "c", Name: "main-2", Incarnation: 6},
		{ID: "e", Name: "main-4", Incarnation: 8},
	}, nil, nil, nil)
	name := func(id string) string {
		if id == "d" {
			return "main-3" // a former member
		}
		b, _ := state.Broker(id)
		return b.Name
	}
	shard := &coordination.Shard{
		Epoch: 3, Leader: "b", Replicas: []string{"e", "d", "c", "b", "a"}, Adding: []string{"e"}, Removing: []string{"d"},
		// c has restarted since, and d is away.
		InSync: []coordination.Replica{{Broker: "a", Incarnation: 1}, {Broker: "b", Incarnation: 5}, {Broker: "c", Incarnation: 4}, {Broker: "d", Incarnation: 2}},
	}
	got, err := json.Marshal(clusterInfo("shop/main", state, shard, name))
	testutil.Must(t, err)
	want := `{"name":"shop/main","leader":"main-1","replicas":[` +
		`{"name":"main-0","current":true,"active":0,"peer":"a"},` +
		`{"name":"main-2","current":false,"active":0,"peer":"c"},` +
		`{"name":"main-3","current":false,"offline":true,"active":0,"peer":"d","pending":true},` +
		`{"name":"main-4","current":false,"active":0,"peer":"e","pending":true}]}`
	if string(got) != want {
		t.Errorf("told:\n%s\nwant:\n%s", got, want)
	}
	// Without a leader all replicas are listed.
	shard.Leader = ""
	if info := clusterInfo("shop/main", state, shard, name); info.Leader != "" || len(info.Replicas) != 5 {
		t.Errorf("without a leader: %+v", info)
	}
	if info := clusterInfo("shop/main", state, nil, name); info.Leader != "" || len(info.Replicas) != 0 {
		t.Errorf("not placed: %+v", info)
	}
}

// TestHowManyReplicasAStreamHas: a number of replicas left to the brokers is shown as the number
// placed.
func TestHowManyReplicasAStreamHas(t *testing.T) {
	shard := &coordination.Shard{Topic: "id", Epoch: 1, Replicas: []string{"a", "b", "c", "d"}, Removing: []string{"a"}}
	state := coordination.NewState(1, nil, nil, []*coordination.Shard{shard}, nil)
	for _, test := range []struct {
		id         string
		asks, want int
	}{{"id", 0, 3}, {"id", 2, 2}, {"unplaced", 0, 1}, {"unplaced", 5, 5}} {
		if got := replicasOf(state, &coordination.Topic{ID: test.id, Spec: coordination.TopicSpec{Replicas: test.asks}}); got != test.want {
			t.Errorf("%+v: %d", test, got)
		}
	}
}

// TestReplicasThatAStreamMayHave: more replicas than brokers are refused as nats-server does; other
// numbers become the Topic's.
func TestReplicasThatAStreamMayHave(t *testing.T) {
	alone := newWorld(t, 1)
	expect(t, "three on one broker", alone.nodes[0], "STREAM.CREATE.s", `{"name":"s","num_replicas":3}`, 10074)

	w := newWorld(t, 3)
	for _, n := range w.nodes {
		n.timeouts.answer = 3 * time.Second
	}
	expect(t, "five on three brokers", w.nodes[0], "STREAM.CREATE.s", `{"name":"s","num_replicas":5}`, 10005, "no suitable peers", "3 brokers")
	replicas := func(name string) int {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.topics[name] == nil {
			return -1
		}
		return w.topics[name].Spec.Replicas
	}
	if got := replicas("s"); got != -1 {
		t.Errorf("what was refused was made, with %d replicas", got)
	}
	for payload, want := range map[string]int{`{"name":"NAME"}`: 1, `{"name":"NAME","num_replicas":1}`: 1, `{"name":"NAME","num_replicas":3}`: 3} {
		name := "s" + strings.Trim(payload[len(payload)-2:], `"}`)
		w.await(w.nodes[1].say("$JS.API.STREAM.CREATE."+name, strings.ReplaceAll(payload, "NAME", name)))
		if got := replicas(name); got != want {
			t.Errorf("%s: the topic asks for %d", payload, got)
		}
	}

	// An update may raise or lower the number.
	if made := ask[jsapi.StreamResponse](w.nodes[0], "STREAM.CREATE.t", `{"name":"t"}`); made.Error != nil || made.Cluster.Leader != "name-broker-0" || len(made.Cluster.Replicas) != 0 {
		t.Fatalf("made: %+v", made)
	}
	expect(t, "more than there are brokers", w.nodes[0], "STREAM.UPDATE.t", `{"name":"t","num_replicas":4}`, 10005)
	if got := replicas("t"); got != 1 {
		t.Errorf("after a refusal the topic asks for %d", got)
	}
	w.await(w.nodes[0].say("$JS.API.STREAM.UPDATE.t", `{"name":"t","num_replicas":3}`))
	if got := replicas("t"); got != 3 {
		t.Errorf("after an update to 3 the topic asks for %d", got)
	}

	// A stream created when there were more brokers exists, and creating it again succeeds.
	config := jsapi.StreamConfig{Name: "old", Replicas: 3}
	if err := config.Normalize(); err != nil {
		t.Fatal(err)
	}
	_, err := alone.CreateTopic(t.Context(), "old", config.TopicSpec(), client)
	testutil.Must(t, err)
	alone.nodes[0].timeouts.answer = 3 * time.Second
	if number, text := refused(alone.nodes[0], "STREAM.CREATE.old", `{"name":"old","num_replicas":3}`); number == 10074 {
		t.Errorf("made again as it is: %s", text)
	}
	expect(t, "another number", alone.nodes[0], "STREAM.CREATE.old", `{"name":"old","num_replicas":2}`, 10074)
}

// TestDefaultReplicasEqualTheSameRequestedNumber: a stream whose manifest leaves the number of
// replicas to the brokers equals one with the number that a client requests.
func TestDefaultReplicasEqualTheSameRequestedNumber(t *testing.T) {
	w := newWorld(t, 3)
	config := jsapi.StreamConfig{Name: "orders"}
	if err := config.Normalize(); err != nil {
		t.Fatal(err)
	}
	spec := config.TopicSpec()
	spec.Replicas = 0
	_, err := w.CreateTopic(t.Context(), "orders", spec, client)
	testutil.Must(t, err)
	for _, asked := range []string{`{"name":"orders"}`, `{"name":"orders","num_replicas":3}`} {
		if made := ask[jsapi.StreamResponse](w.nodes[0], "STREAM.CREATE.orders", asked); made.Error != nil {
			t.Errorf("%s: %v", asked, made.Error)
		}
	}
	if updated := ask[jsapi.StreamResponse](w.nodes[0], "STREAM.UPDATE.orders", `{"name":"orders","max_msgs":7,"num_replicas":1}`); updated.Error != nil || updated.Config.MaxMessages != 7 {
		t.Errorf("updated: %+v", updated)
	}
	w.set(func() {
		if got := w.topics["orders"].Spec.Replicas; got != 0 {
			t.Errorf("an update that keeps the number fixed it to %d", got)
		}
	})
}
