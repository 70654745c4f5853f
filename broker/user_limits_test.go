package broker_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/broker"
	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/internal/testutil"
	"github.com/carillon-mq/carillon/internal/testutil/brokers"
)

// limited is a cluster whose users are in etcd. A user's token is its name.
type limited struct {
	t       *testing.T
	store   *coordination.Client
	brokers []string // their addresses
	http    []string
}

// startLimited starts so many brokers.
func startLimited(t *testing.T, count int) *limited {
	t.Helper()
	local, _ := brokers.Coordinator(t)
	store, err := coordination.Open(coordination.Config{Endpoints: local.Endpoints(), Cluster: "local/test"})
	testutil.Must(t, err)
	t.Cleanup(func() { store.Close() })
	l := &limited{t: t, store: store}
	for i := range count {
		l.http = append(l.http, testutil.FreeAddress(t))
		address, _ := brokers.Run(t, limits.DefaultProfile, broker.Config{
			Name: fmt.Sprintf("b%d", i), Cluster: "local/test", Data: t.TempDir(), Endpoints: local.Endpoints(), UsersFromEtcd: true,
			LameDuck: time.Millisecond, HTTP: broker.Address{Listen: l.http[i]},
		})
		l.brokers = append(l.brokers, address)
	}
	return l
}

// set makes ann a user with limits, and bob one without.
func (l *limited) set(limits identity.Limits) {
	l.t.Helper()
	var doc identity.Document
	for _, name := range []string{"ann", "bob"} {
		sum := sha256.Sum256([]byte(name))
		doc.Users = append(doc.Users, identity.User{Name: name, Tokens: []string{"sha256:" + hex.EncodeToString(sum[:])}})
	}
	doc.Users[0].Limits = limits
	_, err := l.store.PutUsers(l.t.Context(), &doc)
	testutil.Must(l.t, err)
}

// connect connects a user to a broker.
func (l *limited) connect(i int, user string) (*nats.Conn, jetstream.JetStream) {
	l.t.Helper()
	var nc *nats.Conn
	testutil.Eventually(l.t, user+" connects", func() (err error) {
		nc, err = nats.Connect("nats://"+l.brokers[i], nats.Token(user), nats.IgnoreDiscoveredServers(), nats.Timeout(testutil.Patience))
		return err
	})
	l.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(testutil.Patience/6)) // of the tries of Eventually
	testutil.Must(l.t, err)
	return nc, js
}

// make has a user make a stream, with a bound of its bytes or, if that is 0, without.
func (l *limited) make(js jetstream.JetStream, name string, bytes int64) error {
	if bytes == 0 {
		bytes = -1
	}
	_, err := js.CreateStream(l.t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{name}, MaxBytes: bytes})
	return err
}

// refuses fails unless the error has the code of nats-server and says more.
func (l *limited) refuses(err error, code jetstream.ErrorCode, says ...string) {
	l.t.Helper()
	api := (*jetstream.APIError)(nil)
	if !errors.As(err, &api) || api.ErrorCode != code {
		l.t.Fatalf("got %v, want the error %d", err, code)
	}
	for _, text := range says {
		if !strings.Contains(api.Description, text) {
			l.t.Errorf("the refusal lacks %q: %s", text, api.Description)
		}
	}
}

// metric returns a line of a broker's metrics.
func (l *limited) metric(i int, name string) (line string) {
	l.t.Helper()
	got, err := http.Get("http://" + l.http[i] + "/metrics")
	testutil.Must(l.t, err)
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	testutil.Must(l.t, err)
	for line := range strings.Lines(string(body)) {
		if strings.HasPrefix(line, name) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// TestBrokersDivideWhatAUserMayPublish: while a user publishes more than it may, all brokers report
// to each other, and afterwards none does.
func TestBrokersDivideWhatAUserMayPublish(t *testing.T) {
	l := startLimited(t, 3)
	l.set(identity.Limits{Messages: 50})
	nc, _ := l.connect(0, "ann")
	heard := func(n string) {
		t.Helper()
		for i := range l.brokers {
			testutil.EventuallyTrue(t, "the broker hears "+n+" others", func() bool {
				return l.metric(i, `carillon_user_rate_brokers{state="heard"}`) == `carillon_user_rate_brokers{state="heard"} `+n
			})
		}
	}
	heard("0")
	for range 20_000 { // six minutes', so little that sockets hold it
		testutil.Must(t, nc.Publish("work", nil))
	}
	heard("2")
	testutil.EventuallyTrue(t, "the connection waits", func() bool {
		return l.metric(0, "carillon_user_rate_wait_seconds_total") != "carillon_user_rate_wait_seconds_total 0"
	})
	l.set(identity.Limits{})
	testutil.Must(t, nc.FlushTimeout(testutil.Patience))
	heard("0")
}

// TestAUserMayHaveSoManyStreams: a user makes two streams through two brokers, and the next one is
// refused by both, as nats-server refuses it. An equal one, changes, and other users' are not. A
// lower limit deletes nothing.
func TestAUserMayHaveSoManyStreams(t *testing.T) {
	l := startLimited(t, 2)
	l.set(identity.Limits{Streams: 2})
	_, here := l.connect(0, "ann")
	_, there := l.connect(1, "ann")
	testutil.Must(t, l.make(here, "one", 0))
	testutil.Must(t, l.make(there, "two", 0))
	for i, js := range []jetstream.JetStream{here, there} {
		testutil.EventuallyTrue(t, "the broker knows both", func() bool {
			_, errOne := js.Stream(t.Context(), "one")
			_, errTwo := js.Stream(t.Context(), "two")
			return errOne == nil && errTwo == nil
		})
		l.refuses(l.make(js, "three", 0), 10027, "maximum number of streams reached", `user "ann"`, "may have 2", "limits.streams")
		testutil.Must(t, l.make(js, "one", 0))
		if got := l.metric(i, `carillon_client_definitions_refused_total{limit="streams"}`); !strings.HasSuffix(got, " 2") {
			t.Errorf("the metric of broker %d is %q", i, got) // an equal one is found after it was refused
		}
	}
	_, bobs := l.connect(0, "bob")
	testutil.Must(t, l.make(bobs, "bobs", 0))
	l.set(identity.Limits{Streams: 1})
	_, err := there.UpdateStream(t.Context(), jetstream.StreamConfig{Name: "one", Subjects: []string{"one", "uno"}})
	testutil.Must(t, err)
	testutil.Must(t, bobs.DeleteStream(t.Context(), "two"))
	testutil.EventuallyTrue(t, "the new limit holds", func() bool {
		err := l.make(here, "three", 0)
		if err == nil {
			testutil.Must(t, here.DeleteStream(t.Context(), "three"))
		}
		return err != nil
	})
	testutil.Must(t, here.DeleteStream(t.Context(), "one"))
	testutil.Must(t, l.make(here, "three", 0))
}

// TestAUsersStreamsMayStoreSoMuch: each stream of a user needs a bound, and so has the sum of all.
func TestAUsersStreamsMayStoreSoMuch(t *testing.T) {
	l := startLimited(t, 1)
	l.set(identity.Limits{StoredBytes: 1 << 20})
	_, js := l.connect(0, "ann")
	l.refuses(l.make(js, "one", 0), 10113, "account requires a stream config to have max bytes set", "max_bytes")
	testutil.Must(t, l.make(js, "one", 600<<10))
	l.refuses(l.make(js, "two", 600<<10), 10047, "insufficient storage resources available", "614400 of 1048576", "limits.storedBytes")
	testutil.Must(t, l.make(js, "two", 400<<10))
	update := func(bytes int64) error {
		_, err := js.UpdateStream(t.Context(), jetstream.StreamConfig{Name: "one", Subjects: []string{"one"}, MaxBytes: bytes})
		return err
	}
	l.refuses(update(700<<10), 10047)
	l.refuses(update(-1), 10113)
	testutil.Must(t, update(100<<10))
	testutil.Must(t, update(600<<10))
}

// TestStreamsThatAStreamAsksForAreRefused: a user can't evade its limits by a stream that
// republishes requests to make streams.
func TestStreamsThatAStreamAsksForAreRefused(t *testing.T) {
	l := startLimited(t, 1)
	l.set(identity.Limits{Streams: 1})
	_, js := l.connect(0, "ann")
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "one", Subjects: []string{"make.*"}, RePublish: &jetstream.RePublish{Source: "make.*", Destination: "$JS.API.STREAM.CREATE.{{wildcard(1)}}"},
	})
	testutil.Must(t, err)
	_, err = js.Publish(t.Context(), "make.two", []byte(`{"name":"two","subjects":["two"],"retention":"limits","storage":"file","discard":"old","num_replicas":1}`))
	testutil.Must(t, err)
	testutil.EventuallyTrue(t, "the request was refused", func() bool {
		return l.metric(0, "carillon_api_errors_total") == "carillon_api_errors_total 1"
	})
	if _, err := js.Stream(t.Context(), "two"); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("the stream was made: %v", err)
	}
}

// TestAUserMayHaveSoManyConsumers: durable consumers, and others, count for the user who made them
// until they are gone. Another user's do not. An existing one may be asked for again, and be made
// durable.
func TestAUserMayHaveSoManyConsumers(t *testing.T) {
	l := startLimited(t, 1)
	l.set(identity.Limits{Consumers: 3})
	_, js := l.connect(0, "ann")
	_, bobs := l.connect(0, "bob")
	testutil.Must(t, l.make(js, "orders", 0))
	consume := func(js jetstream.JetStream, config jetstream.ConsumerConfig) error {
		t.Helper()
		config.AckPolicy = jetstream.AckExplicitPolicy
		_, err := js.CreateOrUpdateConsumer(t.Context(), "orders", config)
		return err
	}
	durable := func(name string) jetstream.ConsumerConfig { return jetstream.ConsumerConfig{Durable: name} }
	other := func(name string, memory bool) jetstream.ConsumerConfig {
		return jetstream.ConsumerConfig{Name: name, InactiveThreshold: time.Hour, MemoryStorage: memory}
	}
	testutil.Must(t, consume(js, durable("d1")))
	testutil.Must(t, consume(js, other("e1", false)))
	testutil.Must(t, consume(js, other("e2", true)))
	full := func() {
		t.Helper()
		for _, config := range []jetstream.ConsumerConfig{durable("d2"), other("e3", false), other("e3", true)} {
			l.refuses(consume(js, config), 10026) // nats.go has a description of its own
		}
	}
	full()
	testutil.Must(t, consume(bobs, durable("d2")))
	testutil.Must(t, consume(bobs, other("e3", false)))
	testutil.Must(t, bobs.DeleteConsumer(t.Context(), "orders", "d2"))
	testutil.Must(t, bobs.DeleteConsumer(t.Context(), "orders", "e3"))
	testutil.Must(t, consume(js, durable("d1")))
	changed := other("e1", false)
	changed.Durable, changed.Description = "e1", "it is durable now"
	testutil.Must(t, consume(js, changed))
	changed = other("e2", true)
	changed.Description = "changed by another user"
	testutil.Must(t, consume(bobs, changed))
	full()
	testutil.Must(t, js.DeleteConsumer(t.Context(), "orders", "e2"))
	testutil.Must(t, consume(js, other("e4", false)))
	full()
	testutil.Must(t, js.DeleteConsumer(t.Context(), "orders", "d1"))
	testutil.Eventually(t, "there is room for another", func() error { return consume(js, durable("d3")) })
	full()
}

// waiting returns how many pulls of the consumer wait.
func (l *limited) waiting(js jetstream.JetStream) int {
	l.t.Helper()
	c, err := js.Consumer(l.t.Context(), "orders", "c")
	testutil.Must(l.t, err)
	return c.CachedInfo().NumWaiting
}

// pulls sends so many pulls and returns how many of them were refused. The others wait.
func (l *limited) pulls(js jetstream.JetStream, subject, payload string, header nats.Header, n int) (refused int) {
	l.t.Helper()
	nc, inbox, before := js.Conn(), nats.NewInbox(), l.waiting(js)
	sub, err := nc.SubscribeSync(inbox + ".*")
	testutil.Must(l.t, err)
	for i := range n {
		testutil.Must(l.t, nc.PublishMsg(&nats.Msg{Subject: subject, Reply: fmt.Sprintf("%s.%d", inbox, i), Header: header, Data: []byte(payload)}))
	}
	testutil.EventuallyTrue(l.t, "each pull waits or is refused", func() bool {
		for m, err := sub.NextMsg(time.Millisecond); err == nil; m, err = sub.NextMsg(time.Millisecond) {
			if status := m.Header.Get("Status") + " " + m.Header.Get("Description"); status != "409 Exceeded MaxWaiting" {
				l.t.Fatalf("a pull got %q", status)
			}
			refused++
		}
		return refused+l.waiting(js)-before == n
	})
	return refused
}

// TestAUserMayPullSoMuchAtATime: the pulls of a user that wait have a bound, whichever broker it is
// connected to, by whichever request it pulls, and of one shard or several. Another user's don't
// count, whatever it writes into its requests. A pull that ended makes room.
func TestAUserMayPullSoMuchAtATime(t *testing.T) {
	for _, shards := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d shards", shards), func(t *testing.T) {
			l := startLimited(t, 2-shards/2) // pulls from several shards wait where they are asked
			l.set(identity.Limits{Pulls: 3})
			_, js := l.connect(0, "ann")
			_, other := l.connect(len(l.brokers)-1, "ann")
			_, bobs := l.connect(0, "bob")
			_, err := l.store.CreateTopic(t.Context(), "orders", coordination.TopicSpec{Subjects: []string{"orders.*"}, Shards: shards, Replicas: 1}, coordination.Owner{Kind: coordination.ClientOwner})
			testutil.Must(t, err)
			testutil.Eventually(t, "the consumer is made", func() error {
				_, err := js.CreateOrUpdateConsumer(t.Context(), "orders", jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy})
				return err
			})
			const next, asks = "$JS.API.CONSUMER.MSG.NEXT.orders.c", `{"batch":1,"expires":60000000000}`
			if n := l.pulls(js, next, asks, nil, 2); n != 0 {
				t.Errorf("%d of 2 pulls were refused", n)
			}
			if n := l.pulls(other, next, asks, nil, 3); n != 2 {
				t.Errorf("%d of 3 more pulls were refused", n)
			}
			if n := l.pulls(bobs, next, asks, nats.Header{"Carillon-User": {"ann"}}, 5); n != 0 {
				t.Errorf("%d pulls of another user were refused", n)
			}
			// One of ann's pulls, and then those of bob, get a message each.
			for i := range 8 {
				_, err := bobs.Publish(t.Context(), fmt.Sprintf("orders.%d", i), nil)
				testutil.Must(t, err)
			}
			testutil.EventuallyTrue(t, "all ended", func() bool { return l.waiting(js) == 0 })
			if n := l.pulls(js, next, asks, nil, 4); n != 1 {
				t.Errorf("after all ended, %d of 4 pulls were refused", n)
			}
			// An ack that pulls is a pull.
			ack := map[int]string{1: "orders", 2: "orders--0"}[shards]
			if n := l.pulls(js, "$JS.ACK."+ack+".c.1.1.1.1.0", "+NXT "+asks, nil, 1); n != 1 {
				t.Errorf("%d pulls by an ack were refused", n)
			}
		})
	}
}

// TestAUserMayHoldSoManySnapshots: a second snapshot of a user is refused by whichever broker it
// asks, for a shard or for all, until the first one is released. It may renew the first one.
// Another user's don't count, whatever it writes into its requests.
func TestAUserMayHoldSoManySnapshots(t *testing.T) {
	l := startLimited(t, 2)
	l.set(identity.Limits{Snapshots: 1})
	here, _ := l.connect(0, "ann")
	there, _ := l.connect(1, "ann")
	bob, _ := l.connect(0, "bob")
	_, err := l.store.CreateTopic(t.Context(), "orders", coordination.TopicSpec{Subjects: []string{"orders.*"}, Shards: 2, Replicas: 1}, coordination.Owner{Kind: coordination.ClientOwner})
	testutil.Must(t, err)
	ask := func(nc *nats.Conn, of, payload string) (refusal string) {
		t.Helper()
		m, err := nc.RequestMsg(&nats.Msg{Subject: admin.SnapshotSubject + of, Header: nats.Header{"Carillon-User": {"ann"}}, Data: []byte(payload)}, testutil.Patience)
		testutil.Must(t, err)
		var answer struct{ Error *admin.Error }
		testutil.Must(t, json.Unmarshal(m.Data, &answer))
		if answer.Error != nil {
			return answer.Error.Text
		}
		return ""
	}
	must := func(nc *nats.Conn, of, payload string) {
		t.Helper()
		if refusal := ask(nc, of, payload); refusal != "" {
			t.Errorf("%s of %s: %s", payload, of, refusal)
		}
	}
	refused := func(nc *nats.Conn, of string) {
		t.Helper()
		refusal := ask(nc, of, `{"id":"b"}`)
		if !strings.Contains(refusal, `1 snapshots of user "ann", and may hold 1`) || !strings.Contains(refusal, "limits.snapshots") {
			t.Errorf("a second snapshot of %s: %q", of, refusal)
		}
	}
	for _, nc := range []*nats.Conn{here, there} {
		testutil.EventuallyTrue(t, "all shards are served", func() bool { return ask(nc, "orders", `{"id":"a"}`) == "" })
	}
	for _, nc := range []*nats.Conn{here, there} {
		refused(nc, "orders")
		refused(nc, "orders.0")
		refused(nc, "orders.1")
		must(nc, "orders", `{"id":"a"}`)
		must(nc, "orders.1", `{"id":"a"}`)
	}
	must(there, "orders", `{"id":"a","release":true}`)
	must(bob, "orders", `{"id":"c"}`)
	must(bob, "orders.0", `{"id":"d"}`)
	must(here, "orders", `{"id":"b"}`)
}
