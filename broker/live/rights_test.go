package live_test

import (
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

// newUsersWorld returns a world with one user, ann, and what changes her rights.
func newUsersWorld(t *testing.T, ann identity.User) (w *world, change func(identity.User)) {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	testutil.Must(t, err)
	table := func(u identity.User) *identity.Table {
		u.Name, u.Passwords = "ann", []string{string(hash)}
		table, err := (&identity.Document{Users: []identity.User{u}}).Table()
		testutil.Must(t, err)
		return table
	}
	users, err := login.New(table(ann))
	testutil.Must(t, err)
	w = newWorld(t, func(c *session.Config) { c.Auth = users })
	return w, func(u identity.User) {
		users.Set(table(u))
		w.hub.Recheck()
	}
}

// TestWhoLosesTheRoleMeanwhileOpensNoQuery: while the request waits.
func TestWhoLosesTheRoleMeanwhileOpensNoQuery(t *testing.T) {
	subscriber := identity.User{Roles: []identity.Role{identity.Subscriber}}
	w, change := newUsersWorld(t, subscriber)
	w.live.Patience(time.Hour)
	f := w.follow(nats.UserInfo("ann", "secret"))
	w.set("s.1", `{"on":true}`)
	f.open(`attributes.on`)
	f.untilWhole()
	refused := make(chan reply, 1)
	go func() {
		refused <- f.ask(live.OpenSubject, live.OpenRequest{Where: `attributes.on`, Inbox: f.inbox, Resume: "1." + history + ".2.2.0"})
	}()
	testutil.EventuallyTrue(t, "it waits", func() bool { return w.live.Parked() == 1 })
	change(identity.User{Roles: []identity.Role{identity.Publisher}})
	w.set("s.2", `{"on":true}`)
	if r := <-refused; r.Error == nil || r.Error.Code != live.Forbidden {
		t.Errorf("answered with %+v", r)
	}
	testutil.EventuallyTrue(t, "no query is open", func() bool { return w.live.Stats().Queries == 0 })
}

// TestARightThatIsLostAndGivenAgainAtOnceLosesNoMember: nothing tells the client that a member
// left, so it has to get its messages.
func TestARightThatIsLostAndGivenAgainAtOnceLosesNoMember(t *testing.T) {
	all := identity.User{Roles: []identity.Role{identity.Subscriber}}
	w, change := newUsersWorld(t, all)
	f := w.follow(nats.UserInfo("ann", "secret"))
	w.set("s.1", `{"on":true}`)
	f.open(`attributes.on`)
	f.untilWhole()
	less := all
	less.Permissions = &identity.Permissions{Subscribe: &identity.Subjects{Deny: []string{"s.>"}}}
	release := w.live.Hold()
	change(less)
	change(all)
	release()
	w.live.Flush()
	w.publish("s.1", "yes")
	w.set("s.2", `{"on":true}`) // comes later, also if the message is lost
	if subject, payload := f.next(); subject != "s.1" || payload != "yes" {
		t.Errorf("got %q of %q", payload, subject)
	}
}
