package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/broker/attribute"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/live"
	"github.com/carillon-mq/carillon/broker/route"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/coordinator"
	"github.com/carillon-mq/carillon/internal/testutil"
)

const linkedCluster = "local/test"

// linked is a broker with links to others.
type linked struct {
	t             *testing.T
	address, http string
	stop          func()
}

func startLinked(t *testing.T, endpoints []string, name, users string) *linked {
	t.Helper()
	profile, err := limits.ForProfile("small")
	testutil.Must(t, err)
	ready, stopped := make(chan string, 1), make(chan error, 1)
	b := &linked{t: t, http: testutil.FreeAddress(t)}
	ctx, cancel := context.WithCancel(context.Background())
	config := Config{
		Name: name, Cluster: linkedCluster, Data: t.TempDir(), Profile: profile, Endpoints: endpoints, Users: users,
		Client: Address{Listen: "127.0.0.1:0"}, Route: Address{Listen: "127.0.0.1:0"}, HTTP: Address{Listen: b.http},
		Ready: func(address, _ string) { ready <- address },
	}
	go func() { stopped <- Run(ctx, config) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Errorf("broker %s ended with %v", name, err)
		}
	})
	t.Cleanup(b.stop)
	select {
	case b.address = <-ready:
	case err := <-stopped:
		stopped <- nil
		t.Fatalf("broker %s ended with %v", name, err)
	case <-time.After(testutil.Patience):
		t.Fatalf("broker %s is not ready", name)
	}
	return b
}

func (b *linked) connect(options ...nats.Option) *nats.Conn {
	b.t.Helper()
	nc, err := nats.Connect("nats://"+b.address, append(options, nats.NoReconnect(), nats.Timeout(testutil.Patience))...)
	testutil.Must(b.t, err)
	b.t.Cleanup(nc.Close)
	return nc
}

// count returns a figure of the broker's metrics.
func (b *linked) count(metric string) int {
	b.t.Helper()
	got, err := http.Get("http://" + b.http + "/metrics")
	testutil.Must(b.t, err)
	defer got.Body.Close()
	page, err := io.ReadAll(got.Body)
	testutil.Must(b.t, err)
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(metric) + ` (\S+)$`).FindSubmatch(page)
	if found == nil {
		b.t.Fatalf("broker %s has no metric %s", b.address, metric)
	}
	n, err := strconv.ParseFloat(string(found[1]), 64)
	testutil.Must(b.t, err)
	return int(n)
}

// awaitLinks waits until each broker has links to all others that carry messages.
func awaitLinks(t *testing.T, brokers ...*linked) {
	t.Helper()
	for i, from := range brokers {
		for j, to := range brokers {
			if i == j {
				continue
			}
			sub, err := to.connect(nats.Token("all")).SubscribeSync(fmt.Sprintf("link.%d.%d", i, j))
			testutil.Must(t, err)
			nc := from.connect(nats.Token("all"))
			testutil.Eventually(t, "a message crosses the link", func() error {
				if err := nc.Publish(sub.Subject, nil); err != nil {
					return err
				}
				_, err := sub.NextMsg(50 * time.Millisecond)
				return err
			})
		}
	}
}

// publisher changes attributes, and publishes.
type publisher struct {
	t  *testing.T
	nc *nats.Conn
}

// change makes a request until it is answered: changes may be repeated.
func (p publisher) change(request string, with any) {
	p.t.Helper()
	body, err := json.Marshal(with)
	testutil.Must(p.t, err)
	testutil.Eventually(p.t, "attributes are changed", func() error {
		m, err := p.nc.Request(request, body, testutil.Patience)
		if err != nil {
			return err
		}
		var is admin.SubjectAttributes
		if err := json.Unmarshal(m.Data, &is); err == nil && is.Error != nil {
			return errors.New(is.Error.Text)
		}
		return err
	})
}

func (p publisher) set(subject string, kind string) {
	p.t.Helper()
	p.change(admin.AttributesSetSubject, admin.AttributesChange{Subject: subject, Set: attribute.Set{"kind": attribute.String(kind)}})
}

func (p publisher) delete(subject string) {
	p.t.Helper()
	p.change(admin.AttributesDeleteSubject, admin.SubjectRequest{Subject: subject})
}

func (p publisher) publish(subject, payload string) {
	p.t.Helper()
	testutil.Must(p.t, p.nc.Publish(subject, []byte(payload)))
}

// queried is a client with a live query.
type queried struct {
	t       *testing.T
	nc      *nats.Conn
	sub     *nats.Subscription
	members map[string]bool
	first   string // kind of the first notice
	changes []string
	token   string
	done    bool
	end     string
}

const ofKindX = `attributes.kind == "x"`

func (b *linked) query(resume string, members map[string]bool, options ...nats.Option) *queried {
	b.t.Helper()
	q := &queried{t: b.t, nc: b.connect(options...), members: maps.Clone(members)}
	var err error
	q.sub, err = q.nc.SubscribeSync(nats.NewInbox())
	testutil.Must(b.t, err)
	testutil.Must(b.t, q.sub.SetPendingLimits(-1, -1))
	body, err := json.Marshal(live.OpenRequest{Where: ofKindX, Inbox: q.sub.Subject, Resume: resume})
	testutil.Must(b.t, err)
	testutil.Eventually(b.t, "the query is opened", func() error { // a broker has to read all attributes first
		m, err := q.nc.Request(live.OpenSubject, body, testutil.Patience)
		if err != nil {
			return err
		}
		var is struct{ Error *live.Error }
		if err := json.Unmarshal(m.Data, &is); err != nil || is.Error != nil {
			return errors.Join(err, is.Error)
		}
		return nil
	})
	for !q.done {
		q.next()
	}
	return q
}

// next takes the next message; of a notice it returns nothing. It fails if a message comes of a
// subject that is no member at that moment.
func (q *queried) next() (subject, payload string) {
	q.t.Helper()
	m, err := q.sub.NextMsg(testutil.Patience)
	testutil.Must(q.t, err)
	kind := m.Header.Get(live.Header)
	if kind == "" {
		if subject = m.Header.Get("Carillon-Subject"); !q.members[subject] {
			q.t.Fatalf("%q of %s, which is no member", m.Data, subject)
		}
		return subject, string(m.Data)
	}
	type member struct{ Subject string }
	var n struct {
		Members, New []member
		Del          []string
		Done         bool
		Resume       string
		Error        *live.Error
	}
	testutil.Must(q.t, json.Unmarshal(m.Data, &n))
	if q.first == "" {
		q.first = kind
		if kind == "Members" {
			q.members = map[string]bool{}
		}
	}
	for _, gone := range n.Del {
		delete(q.members, gone)
		q.changes = append(q.changes, "-"+gone)
	}
	for _, came := range append(n.Members, n.New...) {
		q.members[came.Subject] = true
		q.changes = append(q.changes, "+"+came.Subject)
	}
	if n.Resume != "" {
		q.token = n.Resume
	}
	if n.Error != nil {
		q.end = string(n.Error.Code)
	}
	q.done = q.done || n.Done
	return "", ""
}

// message takes the next message, and the notices before it.
func (q *queried) message() (subject, payload string) {
	q.t.Helper()
	for subject == "" {
		subject, payload = q.next()
	}
	return subject, payload
}

func (q *queried) has(want ...string) bool {
	return slices.Equal(slices.Sorted(maps.Keys(q.members)), want)
}

func (q *queried) until(what string, true func() bool) {
	q.t.Helper()
	for !true() {
		if subject, payload := q.next(); subject != "" {
			q.t.Fatalf("%q of %s before %s", payload, subject, what)
		}
	}
}

func startEtcd(t *testing.T) []string {
	t.Helper()
	etcd, err := coordinator.StartLocal(t.Context(), t.TempDir(), slog.New(slog.DiscardHandler))
	testutil.Must(t, err)
	t.Cleanup(func() { _ = etcd.Close() })
	return etcd.Endpoints()
}

// TestLiveQueriesOfAllBrokersFollowAChange: a publisher sets attributes by one broker, and
// publishes as soon as that is answered. The clients of the other brokers hear of the subject
// before its first message, which they get. They get nothing of it after it has left.
func TestLiveQueriesOfAllBrokersFollowAChange(t *testing.T) {
	t.Parallel()
	endpoints := startEtcd(t)
	a, b, c := startLinked(t, endpoints, "a", ""), startLinked(t, endpoints, "b", ""), startLinked(t, endpoints, "c", "")
	awaitLinks(t, a, b, c)
	p := publisher{t, a.connect()}
	p.set("other", "y")
	const subjects = 150
	followers := []*queried{b.query("", nil), c.query("", nil), a.query("", nil)}
	for n := range subjects {
		subject := fmt.Sprint("p.", n)
		p.set(subject, "x")
		p.publish(subject, "first")
		if n%3 == 0 {
			p.delete(subject)
			p.publish(subject, "late")
		}
		p.publish("other", "no")
	}
	var want []string
	for n := range subjects {
		if n%3 != 0 {
			want = append(want, fmt.Sprint("p.", n))
		}
	}
	// What is published behind a change that all brokers had in time comes behind all the rest.
	late, end := a.count("carillon_queries_late_total"), ""
	for n, before := 0, -1; late != before; n++ {
		end, before = fmt.Sprint("end.", n), late
		p.set(end, "x")
		late, want = a.count("carillon_queries_late_total"), append(want, end)
	}
	p.publish(end, "first")
	slices.Sort(want)
	for i, q := range followers {
		heard := map[string]bool{}
		for !heard[end] {
			if subject, payload := q.next(); subject != "" {
				if payload != "first" || heard[subject] {
					t.Errorf("%q of %s", payload, subject)
				}
				heard[subject] = true
			}
		}
		if first := len(heard) - 1; first < subjects-late {
			t.Errorf("client %d got the first message of %d subjects of %d, and %d changes were answered before all brokers had them", i, first, subjects, late)
		}
		if !q.has(want...) {
			t.Errorf("client %d has %d members, want %d", i, len(q.members), len(want))
		}
	}
	if q := b.query("", nil); len(q.members) != len(followers[0].members) || q.first != "Members" {
		t.Errorf("a later client has %d members", len(q.members))
	}
	if n, members := b.count("carillon_queries_open"), b.count("carillon_queries_members"); n != 2 || members != 2*len(followers[0].members) {
		t.Errorf("%d queries are open, with %d members", n, members)
	}
}

// TestALiveQueryGoesOnAtAnotherBroker: its broker ends, and the client gets the difference from the
// next one.
func TestALiveQueryGoesOnAtAnotherBroker(t *testing.T) {
	t.Parallel()
	endpoints := startEtcd(t)
	a, b, c := startLinked(t, endpoints, "a", ""), startLinked(t, endpoints, "b", ""), startLinked(t, endpoints, "c", "")
	awaitLinks(t, a, b, c)
	p := publisher{t, a.connect()}
	for _, subject := range []string{"s.1", "s.2", "s.3"} {
		p.set(subject, "x")
	}
	var of *queried
	testutil.EventuallyTrue(t, "a token says all that the client knows, and both brokers know it", func() bool {
		// A change that came by a link, ahead of etcd's watch, is told without a token of its own.
		of = b.query("", nil)
		again := c.query(of.token, of.members)
		return of.has("s.1", "s.2", "s.3") && again.first == "Change" && len(again.changes) == 0
	})
	b.stop()
	p.set("s.2", "y")
	p.set("s.4", "x")
	p.set("s.5", "x")
	p.delete("s.5")
	q := c.query(of.token, of.members)
	q.until("the difference", func() bool { return q.has("s.1", "s.3", "s.4") })
	if q.first != "Change" || slices.Contains(q.changes, "+s.1") || slices.Contains(q.changes, "+s.3") {
		t.Errorf("the first notice is %s, the changes are %q", q.first, q.changes)
	}
	awaitLinks(t, a, c) // behind the interest in the members
	p.publish("s.2", "no")
	p.publish("s.1", "yes")
	testutil.Must(t, p.nc.Flush())
	if subject, payload := q.message(); subject != "s.1" || payload != "yes" {
		t.Errorf("%q of %s", payload, subject)
	}
}

// TestALostRightLeavesLiveQueries: the users change, and the client is told that members have left.
// Without the role the query ends.
func TestALostRightLeavesLiveQueries(t *testing.T) {
	t.Parallel()
	endpoints := startEtcd(t)
	users := filepath.Join(t.TempDir(), "users.json")
	write := func(of ...identity.User) {
		t.Helper()
		data, err := json.Marshal(identity.Document{Users: append(of, bearer("all"))})
		testutil.Must(t, err)
		testutil.Must(t, os.WriteFile(users+".new", data, 0o600))
		testutil.Must(t, os.Rename(users+".new", users))
	}
	write(bearer("ann", "secret.>"))
	a, b := startLinked(t, endpoints, "a", users), startLinked(t, endpoints, "b", users)
	awaitLinks(t, a, b)
	p := publisher{t, a.connect(nats.Token("all"))}
	for _, subject := range []string{"s.1", "s.2", "secret.1"} {
		p.set(subject, "x")
	}
	q := b.query("", nil, nats.Token("ann"))
	q.until("those that she may see have come", func() bool { return q.has("s.1", "s.2") })
	write(bearer("ann", "secret.>", "s.1"))
	q.until("what she lost has left", func() bool { return q.has("s.2") })
	if slices.Contains(q.changes, "+secret.1") {
		t.Errorf("the changes are %q", q.changes)
	}
	awaitLinks(t, a, b) // behind the interest in the members
	p.publish("s.1", "no")
	p.publish("secret.1", "no")
	p.publish("s.2", "yes")
	testutil.Must(t, p.nc.Flush())
	if subject, payload := q.message(); subject != "s.2" || payload != "yes" {
		t.Errorf("%q of %s", payload, subject)
	}
	gone := bearer("ann", "secret.>", "s.1")
	gone.Roles = []identity.Role{identity.Publisher}
	write(gone)
	q.until("the query ends", func() bool { return q.end != "" })
	if q.end != string(live.Forbidden) {
		t.Errorf("it ends with %s", q.end)
	}
	if _, err := q.nc.Request(live.OpenSubject, []byte(`{}`), 100*time.Millisecond); err == nil {
		t.Error("a request without the role is answered")
	}
}

// TestABrokerWithoutNoticesOfAttributesIsSpared: one of an earlier version ends its link if it gets
// one, and is not waited for.
func TestABrokerWithoutNoticesOfAttributesIsSpared(t *testing.T) {
	t.Parallel()
	endpoints := startEtcd(t)
	store, err := coordination.Open(coordination.Config{Endpoints: endpoints, Cluster: linkedCluster, LeaseTTL: testutil.Patience})
	testutil.Must(t, err)
	defer store.Close()
	profile, err := limits.ForProfile("small")
	testutil.Must(t, err)
	hub := session.NewHub(session.Config{ServerID: "OLD", ServerName: "old", Version: ProtocolVersion, Profile: profile})
	defer hub.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testutil.Must(t, err)
	earlier := coordination.MakeFeatureSet(coordination.FeatureGenerations)
	mesh, err := route.Start(route.Config{
		ID: "old", Name: "old", Cluster: linkedCluster, Hub: route.Clients(hub), Listener: listener, MaxPayload: profile.Payload, Features: earlier,
	})
	testutil.Must(t, err)
	defer mesh.Close()
	registered, leave := context.WithCancel(t.Context())
	joined := make(chan int64, 1)
	var running sync.WaitGroup
	defer running.Wait()
	defer leave()
	running.Go(func() {
		_ = store.Join(registered, coordination.Broker{ID: "old", Name: "old", Client: "127.0.0.1:1", Route: listener.Addr().String(), Features: earlier}, func(life int64) { joined <- life })
	})
	<-joined
	a := startLinked(t, endpoints, "a", "") // which is ready once it has the link
	clients, err := net.Listen("tcp", "127.0.0.1:0")
	testutil.Must(t, err)
	served := make(chan error, 1)
	go func() { served <- hub.Serve(clients) }()
	defer func() {
		mesh.Close()
		hub.Close()
		testutil.Must(t, <-served)
	}()
	old := &linked{t: t, address: clients.Addr().String()}
	awaitLinks(t, a, old)
	before := mesh.Stats().Peers[0]
	p := publisher{t, a.connect()}
	q := a.query("", nil)
	for n := range 20 {
		p.set(fmt.Sprint("s.", n), "x")
	}
	q.until("all have come", func() bool { return len(q.members) == 20 })
	awaitLinks(t, a, old) // what comes on the link comes behind the notices, if there were any
	if after := mesh.Stats().Peers[0]; !after.Up || !after.Since.Equal(before.Since) {
		t.Errorf("the link is up: %v, since %v, and was since %v", after.Up, after.Since, before.Since)
	}
	if late := a.count("carillon_queries_late_total"); late != 0 {
		t.Errorf("%d changes waited for it", late)
	}
	if !strings.Contains(string(coordination.Features()), string(coordination.FeatureAttributeNotices)) {
		t.Error("the present version does not announce the feature")
	}
}
