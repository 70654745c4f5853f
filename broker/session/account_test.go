package session_test

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestWorkCountsForTheUserElseForTheNetwork: two connections of a user, or of an address if there
// are no users, are one account.
func TestWorkCountsForTheUserElseForTheNetwork(t *testing.T) {
	account := func(of interface{ Account(uint64) string }, url string) string {
		t.Helper()
		nc, err := nats.Connect(url, nats.Timeout(testutil.Patience))
		testutil.Must(t, err)
		defer nc.Close()
		id, err := nc.GetClientID()
		testutil.Must(t, err)
		return of.Account(id)
	}
	users := newUsersHub(t, identity.User{Name: "ann"}, identity.User{Name: "bob"})
	for _, name := range []string{"ann", "bob", "ann"} {
		if got := account(users, "nats://"+name+":secret@"+users.address); got != "user "+name {
			t.Errorf("%s works for %q", name, got)
		}
	}
	hub, address := newTestHub(t, nil)
	for range 2 {
		if got := account(hub, "nats://"+address); got != "127.0.0.1" {
			t.Errorf("a client of this machine works for %q", got)
		}
	}
	if got := hub.Account(999); got != "" {
		t.Errorf("a client that is gone works for %q", got)
	}
}
