package live_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/broker/attribute"
	"github.com/carillon-mq/carillon/broker/live"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// resume opens the query of another client again, which knew its members.
func (f *follower) resume(of *follower, where string, change ...func(*live.OpenRequest)) reply {
	f.t.Helper()
	if of.token == "" {
		f.t.Fatal("the client has no token")
	}
	f.members, f.resumed = maps.Clone(of.members), true
	return f.open(where, append([]func(*live.OpenRequest){func(r *live.OpenRequest) { r.Resume = of.token }}, change...)...)
}

// untilKnown takes notices until all is known. The members of a query that was not resumed are
// those that the notices have.
func (f *follower) untilKnown() {
	f.t.Helper()
	known := f.members
	f.members = map[string]string{}
	for f.first == "" {
		f.next()
	}
	if f.first == "Change" {
		maps.Copy(known, f.members)
		for _, is := range f.order {
			if is[0] == '-' {
				delete(known, is[1:])
			}
		}
		f.members = known
	}
	f.untilWhole()
}

// TestAQueryIsResumed: after a reconnect the client gets what it has missed, and nothing twice.
func TestAQueryIsResumed(t *testing.T) {
	w := newWorld(t, nil)
	for _, name := range []string{"a", "b", "c"} {
		w.set(name, `{"on":true}`)
	}
	first := w.follow()
	first.open(`attributes.on`)
	first.untilWhole()
	first.nc.Close()
	w.set("b", `{"on":false}`)
	w.set("d", `{"on":true}`)
	w.set("e", `{"on":true}`)
	w.set("e", "")
	again := w.follow()
	if r := again.resume(first, `attributes.on`); r.Members != 3 {
		t.Errorf("opened with %+v", r)
	}
	again.untilKnown()
	if again.first != "Change" || !again.has("a", "c", "d") {
		t.Errorf("the first notice is %s; then there are %v", again.first, again.members)
	}
	if s := w.live.Stats(); s.Resumed != 1 {
		t.Errorf("%d queries were resumed", s.Resumed)
	}
	w.publish("b", "no")
	w.publish("a", "known")
	if subject, _ := again.next(); subject != "a" {
		t.Errorf("a message of %q", subject)
	}
}

// TestAResumptionWithoutADifferenceIsToldSo: by an empty change.
func TestAResumptionWithoutADifferenceIsToldSo(t *testing.T) {
	w := newWorld(t, nil)
	w.set("a", `{}`)
	first, again := w.follow(), w.follow()
	first.open(`true`)
	first.untilWhole()
	again.resume(first, `true`)
	again.untilKnown()
	if again.first != "Change" || len(again.order) > 0 || again.token != first.token {
		t.Errorf("%s with %v, and the token %s after %s", again.first, again.order, again.token, first.token)
	}
}

// TestWhoCantResumeGetsAllMembers: whatever the reason, the query is opened.
func TestWhoCantResumeGetsAllMembers(t *testing.T) {
	const where = `attributes.on`
	later := func(token string) string { // another version of this program gave it
		return "2" + strings.TrimPrefix(token, "1")
	}
	for what, tc := range map[string]struct {
		between func(w *world)
		change  func(w *world, r *live.OpenRequest)
		where   string
	}{
		"another condition":  {where: `attributes.on || subject == "c"`},
		"other subjects":     {change: func(_ *world, r *live.OpenRequest) { r.Subjects = "*" }},
		"another version":    {change: func(_ *world, r *live.OpenRequest) { r.Resume = later(r.Resume) }},
		"another etcd":       {between: func(w *world) { w.store.Of("8-0"); w.store.Watched(w.revision) }},
		"another generation": {between: func(w *world) { w.store.Of("7-1"); w.store.Watched(w.revision) }},
		"a gap in the watch": {between: func(w *world) { w.revision++; w.store.Listed(w.revision) }},
		"a restored etcd": {between: func(w *world) {
			w.store.Distrust()
			w.live.Flush()
			w.store.Put(attribute.Entry{Subject: "a", Revision: 1, Text: `{"on":true}`})
			w.store.Put(attribute.Entry{Subject: "b", Revision: 2, Text: `{"on":true}`})
			w.store.Listed(2)
		}},
		"a restored etcd with later changes": {between: func(w *world) {
			w.store.Distrust()
			w.live.Flush()
			w.store.Listed(2)
			w.live.Flush()
			w.set("a", `{"on":true,"x":1}`)
		}},
		"a restored etcd that is not read": {between: func(w *world) { w.store.Distrust() }},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, nil)
			w.live.Patience(time.Millisecond)
			w.set("a", `{"on":true}`)
			w.set("b", `{"on":true}`)
			w.set("c", `{"on":false}`)
			first, again := w.follow(), w.follow()
			first.open(where)
			first.untilWhole()
			first.nc.Close()
			if tc.between != nil {
				tc.between(w)
			}
			as := where
			if tc.where != "" {
				as = tc.where
			}
			again.resume(first, as, func(r *live.OpenRequest) {
				if tc.change != nil {
					tc.change(w, r)
				}
			})
			again.members = map[string]string{}
			again.untilWhole()
			if again.first != "Members" || again.members["a"] == "" || again.members["b"] == "" {
				t.Errorf("the first notice is %s, the members are %v", again.first, again.members)
			}
		})
	}
}

// TestAnUnfinishedQueryCantBeResumed: a client that was not told all members has no token.
func TestAnUnfinishedQueryCantBeResumed(t *testing.T) {
	w := newWorld(t, nil)
	const subjects = 3000
	for n := range subjects {
		w.set(fmt.Sprint("s.", n), `{"on":true}`)
	}
	f := w.follow()
	f.open(`attributes.on`)
	for n := range 100 {
		w.set(fmt.Sprint("s.", n), `{"on":false}`)
	}
	notices := 0
	for !f.whole {
		if f.token != "" {
			t.Fatalf("a token after %d notices, before all members have come", notices)
		}
		f.next()
		notices++
	}
	if f.token == "" || notices < 3 {
		t.Errorf("the token is %q after %d notices", f.token, notices)
	}
}

// TestAClientThatKnowsMoreIsWaitedFor: it comes from a broker whose watch is ahead. When this one's
// has come as far, the client gets the difference.
func TestAClientThatKnowsMoreIsWaitedFor(t *testing.T) {
	ahead, behind := newWorld(t, nil), newWorld(t, nil)
	behind.live.Patience(time.Hour)
	for _, w := range []*world{ahead, behind} {
		w.set("a", `{"on":true}`)
		w.set("b", `{"on":true}`)
	}
	ahead.set("a", "")
	ahead.set("c", `{"on":true}`)
	first, again := ahead.follow(), behind.follow()
	first.open(`attributes.on`)
	first.untilWhole()
	opened := make(chan struct{})
	go func() {
		defer close(opened)
		again.resume(first, `attributes.on`)
	}()
	testutil.EventuallyTrue(t, "the request waits", func() bool { return behind.live.Parked() == 1 })
	behind.set("a", "")
	if behind.live.Flush(); behind.live.Parked() != 1 {
		t.Error("the request does not wait any more")
	}
	behind.set("c", `{"on":true}`)
	<-opened
	again.untilKnown()
	if again.first != "Change" || !again.has("b", "c") || len(again.order) > 0 {
		t.Errorf("the first notice is %s, the members are %v by %v", again.first, again.members, again.order)
	}
	if n := behind.live.Parked(); n != 0 {
		t.Errorf("%d requests wait", n)
	}
}

// TestAClientThatKnowsMoreIsNotWaitedForForever: this broker may never know that.
func TestAClientThatKnowsMoreIsNotWaitedForForever(t *testing.T) {
	ahead, behind := newWorld(t, nil), newWorld(t, nil)
	behind.live.Patience(time.Millisecond)
	behind.set("a", `{}`)
	ahead.set("a", `{}`)
	ahead.set("b", `{}`)
	first, again := ahead.follow(), behind.follow()
	first.open(`true`)
	first.untilWhole()
	again.resume(first, `true`)
	again.members = map[string]string{}
	again.untilWhole()
	if again.first != "Members" || !again.has("a") {
		t.Errorf("the first notice is %s, the members are %v", again.first, again.members)
	}
}

// TestAClientMayKnowAChangeAheadOfTheWatch: it is told what came by a link. A broker that does not
// know that a member has left must not deliver its messages to a client that does.
func TestAClientMayKnowAChangeAheadOfTheWatch(t *testing.T) {
	ahead, behind := newWorld(t, nil), newWorld(t, nil)
	behind.live.Patience(time.Hour)
	for _, w := range []*world{ahead, behind} {
		w.set("a", `{"on":true}`)
		w.set("b", `{"on":true}`)
	}
	first, again := ahead.follow(), behind.follow()
	first.open(`attributes.on`)
	first.untilWhole()
	ahead.store.DeleteAhead("a", 3, true)
	first.until("a has left", func() bool { return first.has("b") })
	opened := make(chan struct{})
	go func() {
		defer close(opened)
		again.resume(first, `attributes.on`)
	}()
	testutil.EventuallyTrue(t, "the request waits", func() bool { return behind.live.Parked() == 1 })
	behind.publish("a", "no")
	behind.set("a", "")
	<-opened
	again.untilKnown()
	if again.first != "Change" || !again.has("b") {
		t.Errorf("the first notice is %s, the members are %v", again.first, again.members)
	}
}

// TestWaitingRequestsEndWithTheBroker: they are answered.
func TestWaitingRequestsEndWithTheBroker(t *testing.T) {
	ahead, behind := newWorld(t, nil), newWorld(t, nil)
	behind.live.Patience(time.Hour)
	ahead.set("a", `{}`)
	first, again := ahead.follow(), behind.follow()
	first.open(`true`)
	first.untilWhole()
	answered := make(chan *nats.Msg, 1)
	sub, err := again.nc.Subscribe("answer", func(m *nats.Msg) { answered <- m })
	testutil.Must(t, err)
	defer sub.Unsubscribe()
	body, err := json.Marshal(live.OpenRequest{Where: "true", Inbox: again.inbox, Resume: first.token})
	testutil.Must(t, err)
	testutil.Must(t, again.nc.PublishRequest(live.OpenSubject, "answer", body))
	testutil.EventuallyTrue(t, "the request waits", func() bool { return behind.live.Parked() == 1 })
	go behind.close()
	if m := <-answered; !strings.Contains(string(m.Data), string(live.NotReady)) {
		t.Errorf("answered with %s", m.Data)
	}
}

// TestQueriesAreListed: those of the connection, in pages.
func TestQueriesAreListed(t *testing.T) {
	w := newWorld(t, nil)
	w.set("a", `{"n":1}`)
	f, other := w.follow(), w.follow()
	other.open(`true`)
	opened := map[string]bool{}
	for n := range 5 {
		f.open(fmt.Sprintf("attributes.n == %d.0", n), func(r *live.OpenRequest) { r.Subjects = "a" })
		opened[f.name] = true
	}
	var names []string
	after := ""
	for pages := 0; ; pages++ {
		r := f.ask(live.ListSubject, live.ListRequest{After: after, Limit: 2})
		if r.Error != nil || r.Total != 5 || pages > 2 {
			t.Fatalf("the list is %+v", r)
		}
		for _, q := range r.Queries {
			names = append(names, q.Query)
			one := 0
			if q.Where == "attributes.n == 1.0" {
				one = 1
			}
			if !opened[q.Query] || q.Inbox != f.inbox || q.Subjects != "a" || q.Members != one {
				t.Errorf("%+v is listed", q)
			}
		}
		if after = r.Next; after == "" {
			break
		}
	}
	if len(names) != 5 || !slices.IsSorted(names) {
		t.Errorf("%q are listed", names)
	}
	if r := w.follow().ask(live.ListSubject, []byte(`{}`)); r.Error != nil || len(r.Queries) != 0 {
		t.Errorf("a client without queries has %+v", r)
	}
}
