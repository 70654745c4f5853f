package mirror

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// says returns a broker whose answer to /topics is text.
func says(t *testing.T, status int, text string) coordination.Broker {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/topics" {
			status = http.StatusNotFound
		}
		w.WriteHeader(status)
		fmt.Fprint(w, text)
	}))
	t.Cleanup(server.Close)
	return coordination.Broker{ID: "b0", Name: "main-0", HTTP: strings.TrimPrefix(server.URL, "http://")}
}

func TestAnswersOfBrokers(t *testing.T) {
	n := newNumbers(time.Hour)
	good, err := n.ask(t.Context(), says(t, 200, `{"broker": "b0", "later": 1, "topics": [
		{"id": "x", "name": "orders", "epoch": 3, "first": 1, "last": 9, "messages": 9, "bytes": 1234, "trouble": "bad",
		 "subscriptions": [{"name": "billing", "lag": 5, "pending": 2, "redelivered": 1, "deadLettered": 4, "givenUp": 3, "deadLetterTrouble": "full", "endangered": "old", "endpoint": "Gone", "endpointWhy": "410"}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if x := good.shards["x"]; good.clients != nil || x.Epoch != 3 || x.Messages != 9 || x.Bytes != 1234 || x.Trouble != "bad" || x.Subscriptions["billing"] != (SubscriptionNumbers{5, 2, 1, 4, 3, "full", "old", "Gone", "410", 0, 0}) {
		t.Errorf("a good answer is %+v, %v", good, err)
	}
	for what, broker := range map[string]coordination.Broker{
		"an error":          says(t, 500, `{"broker": "b0", "topics": []}`),
		"another broker":    says(t, 200, `{"broker": "b1", "topics": []}`),
		"half an answer":    says(t, 200, `{"broker": "b0", "topics": [`),
		"something else":    says(t, 200, `<html>`),
		"no address":        {ID: "b0", Name: "main-0"},
		"nobody is there":   {ID: "b0", Name: "main-0", HTTP: "127.0.0.1:1"},
		"a strange address": {ID: "b0", Name: "main-0", HTTP: "%"},
	} {
		if found, err := n.ask(t.Context(), broker); err == nil || !strings.Contains(err.Error(), "main-0") {
			t.Errorf("%s: %v, %v; want an error that names the broker", what, found, err)
		}
	}
}

// TestAnswersAreSharedAndNeverOlderThanTheQuestion: a caller gets an answer to a request that began
// after the call, and concurrent callers share one.
func TestAnswersAreSharedAndNeverOlderThanTheQuestion(t *testing.T) {
	var mu sync.Mutex
	asked, began, release := 0, make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		asked++
		n := asked
		mu.Unlock()
		if n == 1 {
			close(began)
			<-release
		}
		fmt.Fprintf(w, `{"broker": "b0", "topics": [{"id": "x", "messages": %d}]}`, n)
	}))
	defer server.Close()
	broker := coordination.Broker{ID: "b0", HTTP: strings.TrimPrefix(server.URL, "http://")}
	n := newNumbers(time.Hour)
	var all sync.WaitGroup
	ask := func(least int64) {
		found, err := n.ask(t.Context(), broker)
		if err != nil || found.shards["x"].Messages < least {
			t.Errorf("the answer is %v, %v; want one of the %dth or later", found, err, least)
		}
	}
	all.Go(func() { ask(1) })
	<-began
	const others = 50 // callers while the first request is under way, whose answer may be too old for them
	var started sync.WaitGroup
	started.Add(others)
	for range others {
		all.Go(func() { started.Done(); ask(2) })
	}
	started.Wait()
	close(release)
	all.Wait()
	if asked > others {
		t.Errorf("%d asked, one by one", asked)
	}
}

func TestOnlyChangedNumbersAreReported(t *testing.T) {
	n := newNumbers(time.Hour)
	first := map[string]Numbers{"x": {Epoch: 1, Messages: 3}, "y": {Epoch: 1}}
	if changed := n.take("b0", &told{shards: first}); len(changed) != 2 {
		t.Errorf("at first %v changed", changed)
	}
	if changed := n.take("b0", &told{shards: map[string]Numbers{"x": {Epoch: 2, Messages: 3}, "y": {Epoch: 1}}}); len(changed) != 0 {
		t.Errorf("%v changed, though the numbers did not", changed)
	}
	for what, x := range map[string]Numbers{
		"messages":                        {Epoch: 2, Messages: 4},
		"bytes":                           {Epoch: 2, Messages: 3, Bytes: 1},
		"trouble":                         {Epoch: 2, Messages: 3, Trouble: "bad"},
		"a subscription":                  {Epoch: 2, Messages: 3, Subscriptions: map[string]SubscriptionNumbers{"s": {}}},
		"a log that is not open any more": {Trouble: "can't be opened"},
	} {
		n.take("b0", &told{shards: map[string]Numbers{"x": {Epoch: 2, Messages: 3}}})
		if changed := n.take("b0", &told{shards: map[string]Numbers{"x": x}}); !slices.Equal(changed, []string{"x"}) {
			t.Errorf("%s: %v changed", what, changed)
		}
	}
	// A log that is not open is not empty: its last numbers stand, or they are unknown.
	n.take("b0", &told{shards: map[string]Numbers{"x": {Epoch: 2, Messages: 3}}})
	n.take("b0", &told{shards: map[string]Numbers{"x": {Trouble: "bad"}, "z": {Trouble: "bad"}}})
	kept := n.of("b0").regular
	if x, z := kept["x"], kept["z"]; x.Messages != 3 || x.Trouble != "bad" || x.Uncounted || !z.Uncounted {
		t.Errorf("what is not open is %+v and %+v", x, z)
	}
}

// TestShardsAddUp: the numbers of shards on several brokers are added up, and trouble names its
// broker.
func TestShardsAddUp(t *testing.T) {
	m := &Mirror{numbers: newNumbers(time.Hour)}
	m.state.Store(coordination.NewState(1, nil, []*coordination.Topic{{Name: "wide", ID: "x"}}, []*coordination.Shard{
		{Topic: "x", Number: 0, Leader: "b0"}, {Topic: "x", Number: 1, Leader: "b1"}, {Topic: "x", Number: 2, Leader: "b0"},
	}, nil))
	answer := func(id, text string) {
		broker := says(t, 200, fmt.Sprintf(`{"broker": %q, "topics": [%s]}`, id, text))
		broker.ID = id
		found, err := m.numbers.ask(t.Context(), broker)
		if err != nil {
			t.Fatal(err)
		}
		m.numbers.take(id, found)
	}
	answer("b0", `{"id": "x", "epoch": 1, "messages": 2}, {"id": "x", "shard": 2, "epoch": 1, "messages": 3}`)
	if sum, ok := m.Numbers("x"); ok {
		t.Errorf("without a word of the second shard they are %+v", sum)
	}
	answer("b1", `{"id": "x", "shard": 1, "epoch": 1, "messages": 5, "trouble": "disk is full"}`)
	if sum, ok := m.Numbers("x"); !ok || sum.Messages != 10 || sum.Trouble != "disk is full" || sum.Troubled != "b1" {
		t.Errorf("they are %+v, %v", sum, ok)
	}
}

// TestMembersAddUp: the clients of all brokers are added up, those of brokers that lead nothing,
// too; an endpoint that shards' leaders reach is one member. While a broker does not count its
// clients, their number is unknown.
func TestMembersAddUp(t *testing.T) {
	m := &Mirror{numbers: newNumbers(time.Hour)}
	m.state.Store(coordination.NewState(1, []coordination.Broker{{ID: "b0"}, {ID: "b1"}, {ID: "b2"}}, []*coordination.Topic{{Name: "wide", ID: "x"}}, []*coordination.Shard{
		{Topic: "x", Number: 0, Leader: "b0"}, {Topic: "x", Number: 1, Leader: "b1"},
	}, nil))
	answer := func(id, text string) []string {
		broker := says(t, 200, fmt.Sprintf(`{"broker": %q, %s}`, id, text))
		broker.ID = id
		found, err := m.numbers.ask(t.Context(), broker)
		if err != nil {
			t.Fatal(err)
		}
		return m.numbers.take(id, found)
	}
	leads := func(shard int, endpoint string) string {
		return fmt.Sprintf(`"topics": [{"id": "x", "shard": %d, "epoch": 1, "subscriptions": [{"name": "pulled"}, {"name": "idle"},
			{"name": "pushed", "endpoint": %q, "push": {"answer": "200 OK"}}, {"name": "unsent", "push": {}}]}]`, shard, endpoint)
	}
	wants := func(when string, known bool, members map[string]int64) {
		t.Helper()
		sum, ok := m.Numbers("x")
		if !ok || sum.MembersKnown != known {
			t.Errorf("%s: they are %+v, %v", when, sum, ok)
		}
		for name, want := range members {
			if got := sum.Subscriptions[name].Members(); got != want {
				t.Errorf("%s: %s has %d members, want %d", when, name, got, want)
			}
		}
	}
	answer("b0", leads(0, "")+`, "clients": [{"topic": "x", "subscription": "pulled", "clients": 2}]`)
	answer("b1", leads(1, "")+`, "clients": []`)
	answer("b2", `"topics": []`)
	wants("an earlier version", false, nil)
	flips := func(when string, want bool) {
		t.Helper()
		if got := m.numbers.countedChanged(m.State().Brokers); got != want {
			t.Errorf("%s: whether members are known has changed: %v", when, got)
		}
	}
	flips("an earlier version", false)
	if changed := answer("b2", `"topics": [], "clients": []`); len(changed) != 0 {
		t.Errorf("when one without clients told, %v changed", changed)
	}
	flips("the last one has told that it has no clients", true)
	flips("the poll behind it", false)
	if changed := answer("b2", `"topics": [], "clients": [{"topic": "x", "subscription": "pulled", "clients": 1}]`); !slices.Equal(changed, []string{"x"}) {
		t.Errorf("when clients came, %v changed", changed)
	}
	wants("all tell", true, map[string]int64{"pulled": 3, "idle": 0, "pushed": 1, "unsent": 0})
	if changed := answer("b2", `"topics": [], "clients": [{"topic": "x", "subscription": "pulled", "clients": 1}]`); len(changed) != 0 {
		t.Errorf("%v changed, though no client did", changed)
	}
	if changed := answer("b2", `"topics": [], "clients": []`); !slices.Equal(changed, []string{"x"}) {
		t.Errorf("when clients went, %v changed", changed)
	}
	answer("b0", leads(0, "Unreachable")+`, "clients": []`)
	wants("one leader does not reach it", true, map[string]int64{"pulled": 0, "pushed": 1})
	answer("b1", leads(1, "Unreachable")+`, "clients": []`)
	wants("no leader reaches it", true, map[string]int64{"pushed": 0})
}
