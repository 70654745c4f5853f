package live_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/broker/attribute"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/live"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/broker/work"
	"github.com/carillon-mq/carillon/internal/testutil"
)

func TestMain(m *testing.M) { testutil.RunWithoutLeaks(m) }

// history is the name of that of etcd.
const history = "7-0"

// world is a broker's hub, its copy of all attributes, and its live queries. Revisions are counted
// as etcd does.
type world struct {
	t        testing.TB
	hub      *session.Hub
	url      string
	store    *attribute.Store
	live     *live.Server
	revision int64
	close    func() // the Server
}

func newWorld(t testing.TB, change func(*session.Config)) *world {
	t.Helper()
	profile, err := limits.ForProfile(limits.DefaultProfile)
	testutil.Must(t, err)
	config := session.Config{ServerID: "ID", ServerName: "test", Version: "2.14.0-test", Profile: profile, Loops: 2}
	if change != nil {
		change(&config)
	}
	w := &world{t: t, hub: session.NewHub(config), store: attribute.NewStore()}
	w.store.Of(history)
	w.store.Listed(0)
	w.live, err = live.New(w.hub, w.store, slog.New(slog.DiscardHandler))
	testutil.Must(t, err)
	w.close = sync.OnceFunc(w.live.Close)
	w.hub.Offer(w.live).Set([]string{live.Prefix + ">"})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	testutil.Must(t, err)
	w.url = "nats://" + ln.Addr().String()
	served := make(chan error, 1)
	go func() { served <- w.hub.Serve(ln) }()
	t.Cleanup(func() {
		w.close()
		w.hub.Close()
		testutil.Must(t, <-served)
	})
	return w
}

// set changes a subject's attributes as the watch of etcd brings it; without attributes it has none
// any more. It returns the revision.
func (w *world) set(subject, attributes string) int64 {
	w.revision++
	if attributes == "" {
		w.store.Delete(subject, w.revision)
	} else {
		w.store.Put(attribute.Entry{Subject: subject, Revision: w.revision, Text: attributes})
	}
	w.store.Watched(w.revision)
	return w.revision
}

// follower is a client with an inbox. It knows the members of its query.
type follower struct {
	t       testing.TB
	nc      *nats.Conn
	inbox   string
	sub     *nats.Subscription
	name    string // of the query
	members map[string]string
	whole   bool // all members have come
	resumed bool // what leaves may be unknown
	order   []string
	at      uint64
	token   string // to resume with
	first   string // the kind of the first notice
	end     string
}

func (w *world) follow(options ...nats.Option) *follower {
	w.t.Helper()
	nc, err := nats.Connect(w.url, append(options, nats.Timeout(testutil.Patience))...)
	testutil.Must(w.t, err)
	w.t.Cleanup(nc.Close)
	f := &follower{t: w.t, nc: nc, inbox: nats.NewInbox(), members: map[string]string{}}
	f.sub, err = nc.SubscribeSync(f.inbox)
	testutil.Must(w.t, err)
	testutil.Must(w.t, f.sub.SetPendingLimits(-1, -1))
	return f
}

type reply struct {
	Query    string
	Revision uint64
	Members  int
	Queries  []live.Listed
	Total    int
	Next     string
	Error    *live.Error
}

func (f *follower) ask(subject string, request any) (r reply) {
	f.t.Helper()
	data, ok := request.([]byte)
	if !ok {
		var err error
		data, err = json.Marshal(request)
		testutil.Must(f.t, err)
	}
	m, err := f.nc.Request(subject, data, testutil.Patience)
	testutil.Must(f.t, err)
	testutil.Must(f.t, json.Unmarshal(m.Data, &r))
	return r
}

// open opens a query, and returns what the broker has answered.
func (f *follower) open(where string, change ...func(*live.OpenRequest)) reply {
	f.t.Helper()
	request := live.OpenRequest{Where: where, Inbox: f.inbox}
	for _, c := range change {
		c(&request)
	}
	r := f.ask(live.OpenSubject, request)
	if r.Error != nil {
		f.t.Fatalf("%s: %v", where, r.Error)
	}
	f.name = r.Query
	return r
}

type noticed struct {
	Revision uint64
	Members  []struct {
		Subject    string
		Attributes json.RawMessage
	}
	New []struct {
		Subject    string
		Attributes json.RawMessage
	}
	Del    []string
	Done   bool
	Resume string
	Error  *live.Error
}

// next takes the next message of the inbox. Of a notice it returns nothing. It fails if a message
// comes of a subject that is no member.
func (f *follower) next() (subject, payload string) {
	f.t.Helper()
	m, err := f.sub.NextMsg(testutil.Patience)
	testutil.Must(f.t, err)
	of := m.Header.Get("Carillon-Query")
	if of == "" {
		subject = m.Header.Get("Carillon-Subject")
		if _, member := f.members[subject]; !member {
			f.t.Fatalf("a message of %s, which is no member", subject)
		}
		return subject, string(m.Data)
	}
	var n noticed
	testutil.Must(f.t, json.Unmarshal(m.Data, &n))
	if n.Revision < f.at && of != "End" {
		f.t.Errorf("revision %d comes after %d", n.Revision, f.at)
	}
	f.at = n.Revision
	if f.first == "" {
		f.first = of
	}
	if n.Resume != "" {
		f.token = n.Resume
	}
	switch of {
	case "Members", "Change":
		for _, gone := range n.Del {
			if _, member := f.members[gone]; !member && !f.resumed {
				f.t.Errorf("%s leaves, and is no member", gone)
			}
			delete(f.members, gone)
			f.order = append(f.order, "-"+gone)
		}
		for _, came := range append(n.Members, n.New...) {
			if _, member := f.members[came.Subject]; member && !f.resumed {
				f.t.Errorf("%s joins twice", came.Subject)
			}
			f.members[came.Subject] = string(came.Attributes)
			f.order = append(f.order, "+"+came.Subject)
		}
		f.whole = f.whole || n.Done
	case "End":
		f.end = string(n.Error.Code)
	default:
		f.t.Fatalf("an unknown notice %q", of)
	}
	return "", ""
}

// until takes messages until a condition is true.
func (f *follower) until(what string, true func() bool) {
	f.t.Helper()
	for !true() {
		f.next()
	}
}

func (f *follower) untilWhole() {
	f.t.Helper()
	f.until("all members have come", func() bool { return f.whole })
}

func (f *follower) has(want ...string) bool {
	return slices.Equal(slices.Sorted(maps.Keys(f.members)), want)
}

func (w *world) publish(subject, payload string) {
	w.hub.Publish([]session.Message{{Subject: []byte(subject), Data: []byte(payload)}})
}

// TestAQueryIsKeptCurrent: a client is told the members, what comes and goes, and gets the messages
// of members only.
func TestAQueryIsKeptCurrent(t *testing.T) {
	w := newWorld(t, nil)
	w.set("s.1", `{"room":"410"}`)
	w.set("s.2", `{"room":"411"}`)
	w.set("s.3", `{"floor":4,"room":"410"}`)
	f := w.follow()
	if r := f.open(`attributes.room == "410"`); r.Members != 2 || r.Revision != 3 || !strings.HasPrefix(r.Query, "q-") {
		t.Errorf("opened with %+v", r)
	}
	f.untilWhole()
	if !f.has("s.1", "s.3") || f.members["s.3"] != `{"floor":4,"room":"410"}` {
		t.Fatalf("the members are %v", f.members)
	}
	w.publish("s.2", "no")
	w.publish("s.1", "yes")
	if subject, payload := f.next(); subject != "s.1" || payload != "yes" {
		t.Fatalf("%q of %s", payload, subject)
	}
	w.set("s.2", `{"room":"410"}`)
	f.until("s.2 has come", func() bool { return f.has("s.1", "s.2", "s.3") })
	w.publish("s.2", "now")
	if subject, payload := f.next(); subject != "s.2" || payload != "now" {
		t.Fatalf("%q of %s", payload, subject)
	}
	w.set("s.1", "")
	w.set("s.3", `{"floor":4}`)
	f.until("two have left", func() bool { return f.has("s.2") })
	w.publish("s.1", "late")
	w.publish("s.2", "last")
	if subject, payload := f.next(); subject != "s.2" || payload != "last" {
		t.Fatalf("%q of %s", payload, subject)
	}
}

// TestNobodyIsHeardBeforeItIsAnnounced: publishers come by thousands, and each publishes as soon as
// its attributes are answered. Each is a member before its first message, which is not lost.
func TestNobodyIsHeardBeforeItIsAnnounced(t *testing.T) {
	w := newWorld(t, nil)
	const publishers = 3000
	all, odd := w.follow(), w.follow()
	all.open(`true`)
	odd.open(`attributes.odd`, func(r *live.OpenRequest) { r.Subjects = "p.>" })
	var publishing sync.WaitGroup
	defer publishing.Wait()
	publishing.Go(func() {
		for n := range publishers {
			subject := fmt.Sprint("p.", n)
			w.set(subject, fmt.Sprintf(`{"odd":%v}`, n%2 == 1))
			w.live.Spread(t.Context(), nil)
			w.publish(subject, fmt.Sprint(n))
		}
	})
	for of, each := range map[*follower]int{all: 1, odd: 2} {
		for n := each - 1; n < publishers; {
			if subject, payload := of.next(); subject != "" {
				if payload != fmt.Sprint(n) || subject != fmt.Sprint("p.", n) {
					t.Fatalf("%q of %s, want %d", payload, subject, n)
				}
				n += each
			}
		}
		if len(of.members) != publishers/each {
			t.Errorf("%d members", len(of.members))
		}
	}
}

// TestAQueryIsOpenedWhileEverythingChanges: what the client knows at the end is what matches.
func TestAQueryIsOpenedWhileEverythingChanges(t *testing.T) {
	w := newWorld(t, nil)
	const subjects = 4000
	for n := range subjects {
		w.set(fmt.Sprint("s.", n), fmt.Sprintf(`{"on":%v}`, n%3 == 0))
	}
	changed := make(chan struct{})
	go func() {
		defer close(changed)
		for round := range 3 {
			for n := range subjects {
				w.set(fmt.Sprint("s.", n), fmt.Sprintf(`{"on":%v}`, (n+round)%2 == 0))
				if n%1000 == 0 {
					w.set(fmt.Sprint("s.", n), "")
				}
			}
		}
		w.set("end", `{"on":true}`)
	}()
	var followers []*follower
	for range 4 {
		f := w.follow()
		f.open(`attributes.on`)
		followers = append(followers, f)
	}
	<-changed
	var want []string
	for n := range subjects {
		if n%2 == 0 && n%1000 != 0 {
			want = append(want, fmt.Sprint("s.", n))
		}
	}
	want = append(want, "end")
	slices.Sort(want)
	for _, f := range followers {
		f.untilWhole()
		f.until("the end has come", func() bool { return f.members["end"] != "" })
		if !f.has(want...) {
			t.Errorf("%d members, want %d", len(f.members), len(want))
		}
	}
}

// TestAQueryEndsWithItsClient: by request, by UNSUB, and with the connection. Nothing stays.
func TestAQueryEndsWithItsClient(t *testing.T) {
	w := newWorld(t, nil)
	w.set("a", `{"x":1}`)
	for how, end := range map[string]func(f *follower){
		"request": func(f *follower) {
			other := w.follow()
			if r := other.ask(live.CloseSubject, live.CloseRequest{Query: f.name}); r.Error == nil || r.Error.Code != live.NotFound {
				t.Errorf("another client closes it: %+v", r)
			}
			if r := f.ask(live.CloseSubject, live.CloseRequest{Query: f.name}); r.Error != nil || r.Query != f.name {
				t.Errorf("closed with %+v", r)
			}
		},
		"unsub": func(f *follower) { testutil.Must(t, f.sub.Unsubscribe()) },
		"close": func(f *follower) { f.nc.Close() },
	} {
		f := w.follow()
		f.open(`attributes.x == 1.0`)
		f.untilWhole()
		if s := w.live.Stats(); s.Queries != 1 {
			t.Fatalf("%s: %d queries are open", how, s.Queries)
		}
		end(f)
		testutil.EventuallyTrue(t, "it has ended", func() bool { return w.live.Stats().Queries == 0 })
		testutil.EventuallyTrue(t, "nothing is left of it", func() bool { return !w.hub.Interested([]byte("a")) })
	}
}

// TestWhatIsAskedWrongly is answered with the reason.
func TestWhatIsAskedWrongly(t *testing.T) {
	w := newWorld(t, nil)
	f := w.follow()
	for _, tc := range []struct {
		subject, body string
		code          live.Code
		words         string
	}{
		{live.OpenSubject, `{`, live.BadRequest, "can't be read"},
		{live.OpenSubject, `{"where":"true","inbox":"i","contents":"true"}`, live.BadRequest, `unknown field "contents"`},
		{live.OpenSubject, `{"where":"true","inbox":"i"}{}`, live.BadRequest, "more than one"},
		{live.OpenSubject, `{"where":"true","inbox":"a.*"}`, live.BadRequest, "no subject"},
		{live.OpenSubject, `{"where":"true","inbox":"nobody.1"}`, live.BadRequest, "subscribe to it first"},
		{live.OpenSubject, `{"where":"true","inbox":"` + f.inbox + `","subjects":"a..b"}`, live.BadRequest, "no pattern"},
		{live.OpenSubject, `{"where":"true","inbox":"` + f.inbox + `","syntax":"sql"}`, live.BadRequest, "cel or cqbs"},
		{live.OpenSubject, `{"where":"attributes.x == ","inbox":"` + f.inbox + `"}`, live.BadRequest, "column"},
		{live.OpenSubject, `{"where":"true","inbox":"` + f.inbox + `","resume":{"revision":-1}}`, live.BadRequest, "can't be read"},
		{live.OpenSubject, `{"where":"true","inbox":"` + f.inbox + `","resume":"812"}`, live.BadRequest, "resume: it is none"},
		{live.OpenSubject, `{"where":"true","inbox":"` + f.inbox + `","resume":"1.a.-1.b"}`, live.BadRequest, "resume: it is none"},
		{live.OpenSubject, `{"where":"true","inbox":"` + f.inbox + `","resume":"1.` + strings.Repeat("a", 200) + `.1.1"}`, live.BadRequest, "resume: it is none"},
		{live.OpenSubject, strings.Repeat(" ", 32<<10) + `{"where":"true","inbox":"` + f.inbox + `"}`, live.BadRequest, "32768 at most"},
		{live.OpenSubject, `{"where":"true","inbox":"` + f.inbox + `","subjects":"` + strings.Repeat("a", 1025) + `"}`, live.BadRequest, "1024 at most"},
		{live.OpenSubject, `{"where":"true","inbox":"` + strings.Repeat("a", 1025) + `"}`, live.BadRequest, "1024 at most"},
		{live.ListSubject, `{"limit":-1}`, live.BadRequest, "limit"},
		{live.CloseSubject, `{"query":"q-none"}`, live.NotFound, "q-none"},
		{live.Prefix + "NONE", ``, live.BadRequest, "no request"},
	} {
		if r := f.ask(tc.subject, []byte(tc.body)); r.Error == nil || r.Error.Code != tc.code || !strings.Contains(r.Error.Text, tc.words) {
			t.Errorf("%s %s: %+v", tc.subject, tc.body, r.Error)
		}
	}
	if s := w.live.Stats(); s.Queries != 0 {
		t.Errorf("%d queries are open", s.Queries)
	}
}

// TestTheSyntaxOfCQBS is understood.
func TestTheSyntaxOfCQBS(t *testing.T) {
	w := newWorld(t, nil)
	w.set("a", `{"room":"410"}`)
	w.set("b", `{"floor":"4","room":"410"}`)
	f := w.follow()
	f.open(`room = '410' and not has floor`, func(r *live.OpenRequest) { r.Syntax = "cqbs" })
	f.untilWhole()
	if !f.has("a") {
		t.Errorf("the members are %v", f.members)
	}
}

// TestAQueryWithTooManyMembersEnds: and says so.
func TestAQueryWithTooManyMembersEnds(t *testing.T) {
	w := newWorld(t, func(c *session.Config) { c.Profile.Interest = 200_000 })
	f := w.follow()
	f.open(`true`)
	f.untilWhole()
	for n := range 1000 {
		w.set(fmt.Sprint("s.", n), `{}`)
	}
	f.until("it ends", func() bool { return f.end != "" })
	if f.end != string(live.TooLarge) {
		t.Errorf("it ends with %s", f.end)
	}
	testutil.EventuallyTrue(t, "nothing is left of it", func() bool { return w.live.Stats().Queries == 0 && w.hub.Stats().Subscriptions <= 2 })
}

// fakeMesh notes the order in which a Server uses its links.
type fakeMesh struct {
	to    *live.Server
	calls []string
	late  int
	left  int
}

func (m *fakeMesh) Notify(of coordination.Feature, notice []byte) (left int) {
	m.calls = append(m.calls, "notify "+string(of))
	if err := m.to.Notice("b", notice); err != nil {
		m.calls = append(m.calls, err.Error())
	}
	return m.left
}

func (m *fakeMesh) Sync(_ context.Context, of coordination.Feature) (late int) {
	m.calls = append(m.calls, "sync "+string(of))
	return m.late
}

// TestAChangeIsSpread: linked brokers have it before whoever has made it is answered, ahead of
// their watches.
func TestAChangeIsSpread(t *testing.T) {
	here, there := newWorld(t, nil), newWorld(t, nil)
	mesh := &fakeMesh{to: there.live}
	here.live.Link(mesh, "attributes")
	f := there.follow()
	f.open(`has(attributes.x)`)
	f.untilWhole()
	of := attribute.Holder{Broker: "b", Process: 1, Connection: 2}
	e := attribute.Entry{Subject: "a", Revision: 7, Text: `{"x":1}`, Holder: of, User: "ann", Bytes: 100}
	here.store.PutAhead(e)
	here.live.Spread(t.Context(), []coordination.Outcome{{Entry: e, Written: true}, {Err: errors.New("it failed")}})
	if got := there.store.Get("a"); got != e {
		t.Errorf("the other broker has %+v", got)
	}
	there.publish("a", "first")
	f.until("a has come", func() bool { return f.has("a") })
	if subject, _ := f.next(); subject != "a" {
		t.Errorf("a message of %q", subject)
	}
	here.store.DeleteAhead("a", 8, true)
	mesh.late = 1
	here.live.Spread(t.Context(), []coordination.Outcome{{Entry: attribute.Entry{Subject: "a", Revision: 8}, Written: true}})
	f.until("a has left", func() bool { return f.has() })
	here.live.Spread(t.Context(), []coordination.Outcome{{Err: errors.New("it failed")}})
	if want := []string{"notify attributes", "sync attributes", "notify attributes", "sync attributes"}; !slices.Equal(mesh.calls, want) {
		t.Errorf("%q", mesh.calls)
	}
	if late := here.live.Stats().Late; late != 1 {
		t.Errorf("%d changes were late", late)
	}
	// A broker for which too much is queued has not been told.
	mesh.late, mesh.left = 0, 1
	here.live.Spread(t.Context(), []coordination.Outcome{{Entry: attribute.Entry{Subject: "a", Revision: 8}, Written: true}})
	if late := here.live.Stats().Late; late != 2 {
		t.Errorf("%d changes were late", late)
	}
	mesh.left = 0
	// What was found deleted was not written, so the watch does not bring it.
	here.live.Spread(t.Context(), []coordination.Outcome{{Entry: attribute.Entry{Subject: "none", Revision: 9}}})
	there.store.Delete("a", 8)
	if !there.store.Watched(20) {
		t.Error("the other broker waits for what was not written")
	}
	// It is of an etcd that was restored since, or before.
	there.store.Of("2")
	there.store.Watched(20)
	mesh.calls = nil
	here.live.Spread(t.Context(), []coordination.Outcome{{Entry: attribute.Entry{Subject: "a", Revision: 30, Text: `{"x":1}`}, Written: true}})
	if got := there.store.Get("a"); got.Text != "" || len(mesh.calls) != 2 {
		t.Errorf("the other broker has %+v after %q", got, mesh.calls)
	}
	for _, broken := range []string{"x", `{"history":"1"}`, `{"subject":"a"}`} {
		if err := there.live.Notice("b", []byte(broken)); err == nil {
			t.Errorf("the broken notice %s is taken", broken)
		}
	}
}

// TestQueriesWaitUntilAttributesAreKnown: what is incomplete is no answer.
func TestQueriesWaitUntilAttributesAreKnown(t *testing.T) {
	w := newWorld(t, nil)
	store := attribute.NewStore()
	s, err := live.New(w.hub, store, slog.New(slog.DiscardHandler))
	testutil.Must(t, err)
	defer s.Close()
	f := w.follow()
	answered := make(chan *nats.Msg, 1)
	sub, err := f.nc.Subscribe("answer", func(m *nats.Msg) { answered <- m })
	testutil.Must(t, err)
	defer sub.Unsubscribe()
	testutil.Must(t, f.nc.Flush())
	body, err := json.Marshal(live.OpenRequest{Where: "true", Inbox: f.inbox})
	testutil.Must(t, err)
	s.TakeOf(1, []session.Message{{Subject: []byte(live.OpenSubject), Reply: []byte("answer"), Data: body}}, nil, &work.Behind{})
	if m := <-answered; !strings.Contains(string(m.Data), string(live.NotReady)) {
		t.Errorf("answered with %s", m.Data)
	}
}

// TestRefusedRequestsHoldTheirClientUp: those beyond a bound do. Those that are refused for what
// they say do not.
func TestRefusedRequestsHoldTheirClientUp(t *testing.T) {
	w := newWorld(t, nil)
	ask := func(subject string, requests int) (paused time.Duration) {
		messages := make([]session.Message, requests)
		for i := range messages {
			messages[i] = session.Message{Subject: []byte(subject), Reply: []byte("nobody"), Data: []byte("{}")}
		}
		var behind work.Behind
		w.live.TakeOf(1, messages, nil, &behind)
		return behind.Pause()
	}
	for requests, want := range map[int]time.Duration{live.MaxAnswers: 0, live.MaxAnswers + 30: 30 * time.Millisecond} {
		if got := ask(live.CloseSubject, requests); got != want {
			t.Errorf("after %d requests a client is held up for %s, want %s", requests, got, want)
		}
	}
	if got := ask(live.Prefix+"NONE", 1000); got != 0 {
		t.Errorf("after requests that nobody knows a client is held up for %s", got)
	}
	defer w.live.Hold()()
	refused := 0
	for range (live.OpeningsWaiting + 2*live.MaxAnswers) / live.MaxAnswers {
		refused += int(ask(live.CloseSubject, live.MaxAnswers) / time.Millisecond)
	}
	if refused == 0 {
		t.Error("no pause when all places are taken")
	}
}

// BenchmarkSpread changes an attribute of one of 1,000 subjects, beside 500 queries of which each
// matches a tenth of them.
func BenchmarkSpread(b *testing.B) {
	w := newWorld(b, nil)
	for n := range 1000 {
		w.set(fmt.Sprint("s.", n), fmt.Sprintf(`{"n":%d}`, n%10))
	}
	for n := range 500 {
		f := w.follow()
		f.open(fmt.Sprintf(`attributes.n == %d.0 && attributes.n < %d.5`, n%10, n+10))
		go func() {
			for {
				if _, err := f.sub.NextMsg(time.Hour); err != nil {
					return
				}
			}
		}()
	}
	b.ResetTimer()
	for n := 0; b.Loop(); n++ {
		w.set(fmt.Sprint("s.", n%1000), fmt.Sprintf(`{"n":%d}`, (n+n/1000)%10))
		w.live.Spread(b.Context(), nil)
	}
}
