package client_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/client"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// change sets the room of subjects, each as name=room; without a room it has none.
func change(t testing.TB, nc *nats.Conn, rooms ...string) {
	t.Helper()
	var request struct {
		Changes []map[string]any `json:"changes"`
	}
	for _, one := range rooms {
		name, room, ok := strings.Cut(one, "=")
		c := map[string]any{"subject": name, "set": map[string]string{"room": room}}
		if !ok {
			c = map[string]any{"subject": name, "delete": []string{"room"}}
		}
		request.Changes = append(request.Changes, c)
	}
	data, err := json.Marshal(request)
	testutil.Must(t, err)
	testutil.EventuallyTrue(t, "the attributes are set", func() bool {
		m, err := nc.Request("$CARILLON.API.ATTRIBUTES.SET", data, patience)
		return err == nil && !strings.Contains(string(m.Data), `"error"`)
	})
}

// events takes events of a query until there is one of that kind, and returns all but that one, in
// one word each.
func events(t testing.TB, q *client.LiveQuery, until client.EventKind) (words []string) {
	t.Helper()
	for {
		e, err := q.Next(within(t))
		if err != nil {
			t.Fatalf("after %q: %v", words, err)
		}
		if e.Kind == until {
			return words
		}
		word := e.Kind.String() + ":" + e.Subject
		if e.Kind == client.EventMessage {
			word += "=" + string(e.Data)
		}
		words = append(words, word)
	}
}

// message takes events of a query up to a message, and returns those before it.
func message(t testing.TB, q *client.LiveQuery, want string) (words []string) {
	t.Helper()
	for {
		e, err := q.Next(within(t))
		testutil.Must(t, err)
		word := e.Kind.String() + ":" + e.Subject
		if e.Kind != client.EventMessage {
			words = append(words, word)
			continue
		}
		if got := e.Subject + "=" + string(e.Data); got != want {
			t.Fatalf("a message %s, want %s", got, want)
		}
		return words
	}
}

func wantWords(t testing.TB, got []string, want string) {
	t.Helper()
	if text := strings.Join(got, " "); text != want {
		t.Errorf("told\n%s\nwant\n%s", text, want)
	}
}

// untilMembers takes events of a query until it was opened again and is ready, and its members are
// these. It returns the changes of members.
func untilMembers(t testing.TB, q *client.LiveQuery, want string) (words []string) {
	t.Helper()
	reopened, ready := false, false
	for !ready || names(q) != want {
		e, err := q.Next(within(t))
		if err != nil {
			t.Fatalf("after %q the members are %s: %v", words, names(q), err)
		}
		switch e.Kind {
		case client.EventReopened:
			reopened, ready = true, false
		case client.EventReady:
			ready = reopened
		case client.EventNew, client.EventDel:
			words = append(words, e.Kind.String()+":"+e.Subject)
		}
	}
	slices.Sort(words)
	return words
}

func names(q *client.LiveQuery) string {
	return strings.Join(slices.Sorted(maps.Keys(q.Members())), " ")
}

// TestALiveQueryIsKeptCurrent: at a broker, by one client, while another changes attributes and
// publishes.
func TestALiveQueryIsKeptCurrent(t *testing.T) {
	nc, _ := oneBroker(t)
	change(t, nc, "a=410", "b=411", "c=410")
	q, err := client.Query(within(t), nc, client.QueryOptions{Where: `room = '410'`, Syntax: "cqbs"})
	testutil.Must(t, err)
	got := events(t, q, client.EventReady)
	slices.Sort(got)
	wantWords(t, got, "new:a new:c")
	testutil.Must(t, nc.PublishMsg(&nats.Msg{Subject: "a", Reply: "back", Header: nats.Header{"K": {"v"}}, Data: []byte("1")}))
	e, err := q.Next(within(t))
	if err != nil || e.Kind != client.EventMessage || e.Subject != "a" || e.Reply != "back" || string(e.Data) != "1" || fmt.Sprint(e.Header) != "map[K:[v]]" {
		t.Errorf("%+v, %v", e, err)
	}
	change(t, nc, "b=410")
	testutil.Must(t, nc.Publish("b", []byte("2")))
	wantWords(t, message(t, q, "b=2"), "new:b")
	change(t, nc, "a=1", "c")
	testutil.Must(t, nc.Publish("a", []byte("late")))
	testutil.Must(t, nc.Publish("b", []byte("3")))
	wantWords(t, message(t, q, "b=3"), "del:a del:c")
	if got := fmt.Sprintf("%s", q.Members()); got != `map[b:{"room":"410"}]` {
		t.Errorf("the members are %s", got)
	}
	testutil.Must(t, q.Close())
	if _, err := q.Next(within(t)); !errors.Is(err, client.ErrClosed) || !errors.Is(q.Close(), client.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestALiveQueryBringsWhatItsContentAccepts, and tells all members.
func TestALiveQueryBringsWhatItsContentAccepts(t *testing.T) {
	nc, _ := oneBroker(t)
	change(t, nc, "a=410", "b=410")
	q, err := client.Query(within(t), nc, client.QueryOptions{Content: `json.n > 1`})
	testutil.Must(t, err)
	defer q.Close()
	if got := events(t, q, client.EventReady); len(got) != 2 {
		t.Errorf("told %q", got)
	}
	for _, data := range []string{`{"n":1}`, `none`, `{"n":2}`} {
		testutil.Must(t, nc.Publish("a", []byte(data)))
	}
	wantWords(t, message(t, q, `a={"n":2}`), "")
}

// TestALiveQueryWithoutMessages tells members alone.
func TestALiveQueryWithoutMessages(t *testing.T) {
	nc, _ := oneBroker(t)
	change(t, nc, "a=410")
	q, err := client.Query(within(t), nc, client.QueryOptions{NoMessages: true})
	testutil.Must(t, err)
	defer q.Close()
	wantWords(t, events(t, q, client.EventReady), "new:a")
	testutil.Must(t, nc.Publish("a", []byte("1")))
	change(t, nc, "b=410")
	if e, err := q.Next(within(t)); err != nil || e.Kind != client.EventNew || e.Subject != "b" {
		t.Errorf("%v of %s, %v", e.Kind, e.Subject, err)
	}
}

// TestALiveQueryOutlivesItsConnection: it is opened again with the difference to what it has told.
func TestALiveQueryOutlivesItsConnection(t *testing.T) {
	address, _ := newCluster(t).broker("main-0", "127.0.0.1:0", t.TempDir())
	nc, other := connect(t, address), connect(t, address)
	change(t, other, "a=410", "b=410")
	q, err := client.Query(within(t), nc, client.QueryOptions{Where: `attributes.room == "410"`})
	testutil.Must(t, err)
	defer q.Close()
	events(t, q, client.EventReady)
	for round := range 5 {
		comes, goes := fmt.Sprint("new", round), fmt.Sprint("new", round-1)
		if round == 0 {
			goes = "a"
		}
		testutil.Must(t, nc.ForceReconnect())
		change(t, other, comes+"=410", goes+"=1")
		wantWords(t, untilMembers(t, q, "b "+comes), "del:"+goes+" new:"+comes)
		testutil.Must(t, other.Publish(comes, []byte("1")))
		message(t, q, comes+"=1")
	}
}

// TestALiveQueryOutlivesItsBroker: a broker that comes back knows no changes of before, and lists
// all members. The query tells the difference.
func TestALiveQueryOutlivesItsBroker(t *testing.T) {
	c, data := newCluster(t), t.TempDir()
	address, stop := c.broker("main-0", testutil.FreeAddress(t), data)
	second, _ := c.broker("main-1", "127.0.0.1:0", t.TempDir())
	nc, err := nats.Connect("nats://"+address, nats.Timeout(patience), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond), nats.IgnoreDiscoveredServers())
	testutil.Must(t, err)
	defer nc.Close()
	other := connect(t, second)
	change(t, other, "a=410", "b=410")
	q, err := client.Query(within(t), nc, client.QueryOptions{Where: `attributes.room == "410"`, Subjects: "*"})
	testutil.Must(t, err)
	defer q.Close()
	told := events(t, q, client.EventReady)
	for len(told) < 2 { // the broker may hear of them later
		e, err := q.Next(within(t))
		testutil.Must(t, err)
		told = append(told, e.Kind.String()+":"+e.Subject)
	}
	slices.Sort(told)
	wantWords(t, told, "new:a new:b")
	stop()
	change(t, other, "a=1", "c=410")
	c.broker("main-0", address, data)
	wantWords(t, untilMembers(t, q, "b c"), "del:a new:c")
}

// TestWhatIsNoLiveQueryIsRefused: by the broker, or before it is asked.
func TestWhatIsNoLiveQueryIsRefused(t *testing.T) {
	nc, _ := oneBroker(t)
	for _, options := range []client.QueryOptions{{Where: "attributes.room = 410"}, {Where: "true", Syntax: "sql"}, {Subjects: "a..b"}, {Content: `json.text.contains("x")`}} {
		_, err := client.Query(within(t), nc, options)
		if e, ok := errors.AsType[*client.QueryError](err); !ok || e.Code != "BadRequest" {
			t.Errorf("%+v: %v", options, err)
		}
	}
	for _, options := range []client.QueryOptions{{MaxPending: -1}, {Syntax: "cqbs"}, {NoMessages: true, Content: "json.n > 1"}} {
		if _, err := client.Query(within(t), nc, options); err == nil {
			t.Errorf("%+v is opened", options)
		}
	}
	nc.Close()
	if _, err := client.Query(within(t), nc, client.QueryOptions{}); !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("on a closed connection: %v", err)
	}
}

// TestALiveQueryEndsWithItsReason: its connection was closed, or its program takes nothing.
func TestALiveQueryEndsWithItsReason(t *testing.T) {
	address, _ := newCluster(t).broker("main-0", "127.0.0.1:0", t.TempDir())
	nc, other := connect(t, address), connect(t, address)
	change(t, other, "a=1")
	slow, err := client.Query(within(t), nc, client.QueryOptions{MaxPending: 10})
	testutil.Must(t, err)
	defer slow.Close()
	closed, err := client.Query(within(t), nc, client.QueryOptions{})
	testutil.Must(t, err)
	defer closed.Close()
	events(t, closed, client.EventReady)
	open := nc.NumSubscriptions()
	for range 100 {
		testutil.Must(t, other.Publish("a", []byte("x")))
	}
	testutil.EventuallyTrue(t, "the end of the slow query", func() bool { return nc.NumSubscriptions() == open-1 })
	// slow has the list of members, which is two events, and 9 messages
	n := 0
	for _, err = range slow.Events(within(t)) {
		if err == nil {
			n++
		}
	}
	if !errors.Is(err, client.ErrSlowConsumer) || n != 11 {
		t.Errorf("after %d events: %v", n, err)
	}
	nc.Close()
	for _, err = range closed.Events(within(t)) {
	}
	if !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("its connection was closed: %v", err)
	}
}
