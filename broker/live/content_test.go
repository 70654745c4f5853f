package live_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/broker/live"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// withContent has a query deliver messages with that content only.
func withContent(text string) func(*live.OpenRequest) {
	return func(r *live.OpenRequest) { r.Content = text }
}

// TestAQueryDeliversWhatItsContentAccepts: members are told as without it. What can't be judged is
// counted, and not delivered.
func TestAQueryDeliversWhatItsContentAccepts(t *testing.T) {
	w := newWorld(t, nil)
	w.set("a", `{"on":true}`)
	f := w.follow()
	f.open(`attributes.on`, withContent(`json.n > 10 && headers.K == "v" && subject != "c"`))
	f.untilWhole()
	w.set("b", `{"on":true}`)
	w.set("c", `{"on":true}`)
	f.until("all have come", func() bool { return f.has("a", "b", "c") })
	publish := func(subject, header, payload string) {
		if header != "" {
			header = "NATS/1.0\r\n" + header + "\r\n\r\n"
		}
		w.hub.Publish([]session.Message{{Subject: []byte(subject), Data: []byte(header + payload), Header: len(header)}})
	}
	publish("a", "K: v", `{"n":10}`)
	publish("b", "", `{"n":11}`)
	publish("b", "K: v", `none`)
	publish("c", "K: v", `{"n":11}`)
	publish("b", "K: v", `{"n":11}`)
	publish("a", "K: v", `{"n":12}`)
	for _, want := range []string{`b {"n":11}`, `a {"n":12}`} {
		if subject, payload := f.next(); subject+" "+payload != want {
			t.Errorf("%s of %s, want %s", payload, subject, want)
		}
	}
	if list := f.ask(live.ListSubject, live.ListRequest{}); len(list.Queries) != 1 || list.Queries[0].Unjudged != 2 || !strings.HasPrefix(list.Queries[0].Content, "json.n") {
		t.Errorf("listed %+v", list)
	}
	if s := w.live.Stats(); s.Unjudged != 2 {
		t.Errorf("%d messages could not be judged", s.Unjudged)
	}
}

// TestAQueryWithoutMessages: members are told, and nothing that is published on them comes.
func TestAQueryWithoutMessages(t *testing.T) {
	w := newWorld(t, nil)
	w.set("a", `{"on":true}`)
	f := w.follow()
	none := func(r *live.OpenRequest) { r.Messages = new(bool) }
	f.open(`attributes.on`, none)
	f.untilWhole()
	w.publish("a", "1")
	w.set("b", `{"on":true}`)
	w.publish("b", "2")
	members := func(want ...string) {
		for !f.has(want...) {
			if subject, payload := f.next(); subject != "" {
				t.Fatalf("%q of %s", payload, subject)
			}
		}
	}
	members("a", "b")
	w.publish("b", "3")
	w.set("a", "")
	members("b")
	if list := f.ask(live.ListSubject, live.ListRequest{}); len(list.Queries) != 1 || list.Queries[0].Messages == nil || *list.Queries[0].Messages {
		t.Errorf("listed %+v", list)
	}
	r := f.ask(live.OpenSubject, live.OpenRequest{Where: "true", Inbox: f.inbox, Content: "json.n > 1", Messages: new(bool)})
	if r.Error == nil || r.Error.Code != live.BadRequest {
		t.Errorf("with content: %+v", r.Error)
	}
}

// TestContentThatIsRefused: with the reason.
func TestContentThatIsRefused(t *testing.T) {
	w := newWorld(t, nil)
	f := w.follow()
	for content, words := range map[string]string{
		`json.n >`:                                 "column",
		`json.items.exists(i, i == 1)`:             "can't be judged while messages are delivered",
		`json.text.contains("x")`:                  "can't be judged while messages are delivered",
		`json.text.matches("x")`:                   "can't be judged while messages are delivered",
		`attributes.room == "410"`:                 "attributes",
		`time > timestamp("2026-01-01T00:00:00Z")`: "leave time out",
	} {
		r := f.ask(live.OpenSubject, live.OpenRequest{Where: "true", Inbox: f.inbox, Content: content})
		if r.Error == nil || r.Error.Code != live.BadRequest || !strings.Contains(r.Error.Text, words) {
			t.Errorf("%s: %+v", content, r.Error)
		}
	}
}

// TestContentTakesBoundedMemory: what is beyond the bound is refused, until other queries end.
func TestContentTakesBoundedMemory(t *testing.T) {
	w := newWorld(t, nil)
	f := w.follow()
	large := func(n int) string { return fmt.Sprintf(`json.n != "%d%s"`, n, strings.Repeat("x", 3000)) }
	var names []string
	var refused *live.Error
	for n := 0; n < 200 && refused == nil; n++ {
		r := f.ask(live.OpenSubject, live.OpenRequest{Where: "true", Inbox: f.inbox, Content: large(n)})
		if refused = r.Error; refused == nil {
			names = append(names, r.Query)
		}
	}
	if refused == nil || refused.Code != live.TooLarge || len(names) < 20 {
		t.Fatalf("%d are open, and then: %v", len(names), refused)
	}
	for _, name := range names {
		f.ask(live.CloseSubject, live.CloseRequest{Query: name})
	}
	for n := range names {
		if r := f.ask(live.OpenSubject, live.OpenRequest{Where: "true", Inbox: f.inbox, Content: large(n)}); r.Error != nil {
			t.Fatal(r.Error)
		}
	}
}

// TestContentThatTakesTooMuchEndsItsQuery: with the reason. Others of the client, and of others, go
// on.
func TestContentThatTakesTooMuchEndsItsQuery(t *testing.T) {
	w := newWorld(t, nil)
	w.set("large", `{}`)
	w.set("small", `{}`)
	f, other := w.follow(), w.follow()
	// What a condition may look at counts, so the machine needs no time for it: the first part
	// decides.
	parts := []string{`headers.A == "no"`}
	for n := range 60 {
		parts = append(parts, fmt.Sprintf(`headers.B%d == ""`, n))
	}
	costly := withContent(strings.Join(parts, " && "))
	f.open(`subject == "large"`, costly)
	f.untilWhole()
	other.open(`subject == "small"`, withContent(`json.n == 1`))
	other.untilWhole()
	all := []*follower{f}
	for range 50 { // on one connection
		g := &follower{t: t, nc: f.nc, inbox: nats.NewInbox(), members: map[string]string{}}
		var err error
		g.sub, err = f.nc.SubscribeSync(g.inbox)
		testutil.Must(t, err)
		g.open(`subject == "large"`, costly)
		g.untilWhole()
		all = append(all, g)
	}
	header := "NATS/1.0\r\nA: v\r\nPad: " + strings.Repeat("x", 60_000) + "\r\n\r\n"
	testutil.EventuallyTrue(t, "a query ends", func() bool {
		w.hub.Publish([]session.Message{{Subject: []byte("large"), Data: []byte(header), Header: len(header)}})
		return w.live.Stats().Queries < 52
	})
	w.publish("small", `{"n":1}`)
	if subject, _ := other.next(); subject != "small" {
		t.Errorf("a message of %q", subject)
	}
	testutil.EventuallyTrue(t, "the end is told", func() bool {
		for _, g := range all {
			if pending, _, err := g.sub.Pending(); g.end == "" && err == nil && pending > 0 {
				g.next()
			}
			if g.end == string(live.TooSlow) {
				return true
			}
		}
		return false
	})
}
