package live_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/crypto/bcrypt"

	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/live"
	"github.com/carillon-mq/carillon/broker/login"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// annAndBob are two users who may open queries.
func annAndBob(t *testing.T) func(*session.Config) {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	testutil.Must(t, err)
	var all identity.Document
	for _, name := range []string{"ann", "bob"} {
		all.Users = append(all.Users, identity.User{Name: name, Passwords: []string{string(hash)}, Roles: []identity.Role{identity.Subscriber}})
	}
	table, err := all.Table()
	testutil.Must(t, err)
	users, err := login.New(table)
	testutil.Must(t, err)
	return func(c *session.Config) { c.Auth = users }
}

// flood sends requests, as fast as the broker reads them, and few enough at once that each has its
// answer.
func (f *follower) flood(n int, subject, reply string, body []byte) {
	f.t.Helper()
	for i := range n {
		testutil.Must(f.t, f.nc.PublishRequest(subject, reply, body))
		if i%32 == 31 || i == n-1 {
			testutil.Must(f.t, f.nc.FlushTimeout(testutil.Patience))
		}
	}
}

// answersOf returns where answers to a follower come.
func (f *follower) answers() *nats.Subscription {
	f.t.Helper()
	sub, err := f.nc.SubscribeSync(nats.NewInbox())
	testutil.Must(f.t, err)
	testutil.Must(f.t, sub.SetPendingLimits(-1, -1))
	return sub
}

// answer takes the next answer.
func answer(t *testing.T, from *nats.Subscription) (r reply) {
	t.Helper()
	m, err := from.NextMsg(testutil.Patience)
	testutil.Must(t, err)
	testutil.Must(t, json.Unmarshal(m.Data, &r))
	return r
}

// TestUsersShareThePlacesOfThoseAhead: ann resumes with tokens that no broker knows, and takes all
// places. Bob, who comes from a broker that is ahead, waits all the same, and gets the difference.
func TestUsersShareThePlacesOfThoseAhead(t *testing.T) {
	users := annAndBob(t)
	ahead, behind := newWorld(t, users), newWorld(t, users)
	behind.live.Patience(time.Hour)
	ahead.set("a", `{}`)
	ahead.set("b", `{}`)
	behind.set("a", `{}`)
	bob := nats.UserInfo("bob", "secret")
	first, again, ann := ahead.follow(bob), behind.follow(bob), behind.follow(nats.UserInfo("ann", "secret"))
	first.open(`true`)
	first.untilWhole()
	answers := ann.answers()
	body, err := json.Marshal(live.OpenRequest{Where: "true", Inbox: ann.inbox, Resume: first.token})
	testutil.Must(t, err)
	const beyond = 10
	for range 2 { // so that none is refused on a slow machine, since too many wait for their turn
		ann.flood((live.MaxAhead+beyond)/2, live.OpenSubject, answers.Subject, body)
		testutil.EventuallyTrue(t, "all have had their turn", func() bool { return behind.live.Waiting() == 0 })
	}
	for range beyond {
		if r := answer(t, answers); r.Error != nil || r.Query == "" {
			t.Fatalf("a request beyond the places is answered by %+v", r)
		}
	}
	if n := behind.live.Parked(); n != live.MaxAhead {
		t.Fatalf("%d requests wait", n)
	}
	opened := make(chan struct{})
	go func() {
		defer close(opened)
		again.resume(first, `true`)
	}()
	if r := answer(t, answers); r.Error != nil { // one of hers has made room
		t.Error(r.Error)
	}
	if n := behind.live.Parked(); n != live.MaxAhead {
		t.Errorf("%d requests wait", n)
	}
	behind.set("b", `{}`)
	<-opened
	again.untilKnown()
	if again.first != "Change" || !again.has("a", "b") {
		t.Errorf("the first notice is %s, the members are %v", again.first, again.members)
	}
	testutil.EventuallyTrue(t, "nobody waits", func() bool { return behind.live.Parked() == 0 && behind.live.Waiting() == 0 })
}

// TestAFloodOfRequestsWaitsForItself: of one connection. Few of its requests wait, the others are
// refused; another connection, of the same user, has its turn.
func TestAFloodOfRequestsWaitsForItself(t *testing.T) {
	w := newWorld(t, nil)
	w.set("a", `{"on":true}`)
	flooder, bystander := w.follow(), w.follow()
	floods, answers := flooder.answers(), bystander.answers()
	testutil.Must(t, bystander.nc.FlushTimeout(testutil.Patience))
	release := sync.OnceFunc(w.live.Hold())
	defer release()
	const more = 500
	flooder.flood(live.OpeningsWaiting+more, live.CloseSubject, floods.Subject, []byte(`{"query":"q-none"}`))
	body, err := json.Marshal(live.OpenRequest{Where: "attributes.on", Inbox: bystander.inbox})
	testutil.Must(t, err)
	bystander.flood(1, live.OpenSubject, answers.Subject, body)
	if n := w.live.Waiting(); n > live.OpeningsWaiting {
		t.Errorf("%d requests wait", n)
	}
	release()
	if r := answer(t, answers); r.Error != nil {
		t.Fatalf("the bystander is refused: %v", r.Error)
	}
	bystander.untilWhole()
	answered := map[live.Code]int{}
	for range live.OpeningsWaiting + more {
		answered[answer(t, floods).Error.Code]++
	}
	if busy := answered[live.Busy]; busy < more/2 || answered[live.NotFound]+busy != live.OpeningsWaiting+more {
		t.Errorf("the flood is answered by %v", answered)
	}
}

// TestAFloodOfQueriesDelaysNoChange: a client opens and closes queries as fast as it can. Each
// change reaches the query of another one, in order, and each of its requests is served.
func TestAFloodOfQueriesDelaysNoChange(t *testing.T) {
	w := newWorld(t, nil)
	flooder, bystander := w.follow(), w.follow()
	bystander.open(`attributes.on`)
	bystander.untilWhole()
	testutil.Must(t, flooder.sub.Unsubscribe())
	ignored, err := flooder.nc.Subscribe(flooder.inbox, func(*nats.Msg) {})
	testutil.Must(t, err)
	testutil.Must(t, ignored.SetPendingLimits(-1, -1))
	// Each answer closes its query, if it isn't one too many at once, and opens another one.
	ask := func(subject string, request any, reply string) {
		data, _ := json.Marshal(request)
		_ = flooder.nc.PublishRequest(subject, reply, data)
	}
	opened, round, n := nats.NewInbox(), make(chan struct{}, 1), 0
	open := func() {
		n++
		ask(live.OpenSubject, live.OpenRequest{Where: fmt.Sprintf("attributes.n == %d.0 || attributes.on", n), Inbox: flooder.inbox}, opened)
	}
	_, err = flooder.nc.Subscribe(opened, func(m *nats.Msg) {
		var r reply
		if json.Unmarshal(m.Data, &r) == nil && r.Query != "" {
			ask(live.CloseSubject, live.CloseRequest{Query: r.Query}, "")
		}
		select {
		case round <- struct{}{}:
		default:
		}
		open()
	})
	testutil.Must(t, err)
	for range 32 {
		open()
	}
	for i := range 100 {
		<-round // the flood goes on
		name := fmt.Sprintf("s.%03d", i)
		w.set(name, `{"on":true}`)
		bystander.until(name+" is there", func() bool { return bystander.members[name] != "" })
		if r := bystander.ask(live.ListSubject, live.ListRequest{}); r.Error != nil || r.Total != 1 {
			t.Fatalf("the bystander's request is answered by %+v", r)
		}
	}
	flooder.nc.Close()
	if stats := w.live.Stats(); stats.Queries > 1000 || w.live.Waiting() > live.OpeningsWaiting {
		t.Errorf("%d queries are open, and %d requests wait", stats.Queries, w.live.Waiting())
	}
}
