package session_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/internal/testutil"
)

func perSecond(messages, bytes int) identity.User {
	return identity.User{Name: "ann", Limits: identity.Limits{Messages: messages, Bytes: bytes}}
}

// TestWhoPublishesTooFastWaits: nothing is dropped, nobody else waits, and new limits apply at
// once.
func TestWhoPublishesTooFastWaits(t *testing.T) {
	for _, limit := range []identity.User{perSecond(1, 0), perSecond(0, 1)} {
		bob := identity.User{Name: "bob"}
		h := newUsersHub(t, limit, bob)
		ann, other := h.dial("ann"), h.dial("bob")
		other.send("SUB a 1\r\n")
		other.sync()
		const sent = 2000 // more than half an hour's
		ann.send("%sPING\r\n", strings.Repeat("PUB a 1\r\nx\r\n", sent))
		other.expect("MSG a 1 1")
		other.expect("x")
		other.send("PUB b 1\r\ny\r\n")
		other.sync()
		h.change(identity.User{Name: "ann"}, bob)
		for range sent - 1 {
			other.expect("MSG a 1 1")
			other.expect("x")
		}
		ann.expect("PONG")
	}
}

// TestConnectionsOfAUserShareItsRoom: each connection alone would have had room in its burst.
func TestConnectionsOfAUserShareItsRoom(t *testing.T) {
	h := newUsersHub(t, perSecond(200, 0))
	one, two := h.dial("ann"), h.dial("ann")
	start := time.Now()
	for _, c := range []*wire{one, two} {
		c.send("%sPING\r\n", strings.Repeat("PUB a 1\r\nx\r\n", 150))
	}
	one.expect("PONG")
	two.expect("PONG")
	if took := time.Since(start); took < 500*time.Millisecond {
		t.Errorf("300 messages took %v with 200 a second", took)
	}
	// Who comes back does not begin anew.
	one.conn.Close()
	two.conn.Close()
	testutil.EventuallyTrue(t, "both are gone", func() bool { return h.Connections() == 0 })
	again := h.dial("ann")
	again.send("%sPING\r\n", strings.Repeat("PUB a 1\r\nx\r\n", 100))
	again.expect("PONG")
	if took := time.Since(start); took < time.Second {
		t.Errorf("400 messages took %v with 200 a second", took)
	}
}

// TestDrainHandlesWhatWasRead: the last input of a connection above its limit is not lost.
func TestDrainHandlesWhatWasRead(t *testing.T) {
	h := newUsersHub(t, perSecond(1, 0))
	ann := h.dial("ann")
	ann.send("%s", strings.Repeat("PUB a 1\r\nx\r\n", 100)) // fewer bytes than one read takes
	testutil.EventuallyTrue(t, "the first is handled", func() bool { return h.Stats().InMsgs > 0 })
	ctx, cancel := context.WithTimeout(t.Context(), testutil.Patience)
	defer cancel()
	testutil.Must(t, h.Leave(ctx, 10*time.Millisecond))
	if n := h.Stats().InMsgs; n != 100 {
		t.Errorf("%d of 100 messages were handled", n)
	}
}

// TestSubscriptionsOfAUserAreBounded: by their memory and by their tokens. New
// limits apply at once.
func TestSubscriptionsOfAUserAreBounded(t *testing.T) {
	bounded := identity.User{Name: "ann", Limits: identity.Limits{SubscriptionBytes: 10_000, Tokens: 3}}
	h := newUsersHub(t, bounded)
	ann := h.dial("ann")
	ann.send("SUB a.b.c.d 1\r\n")
	ann.expect(`-ERR 'Permissions Violation for Subscription to "a.b.c.d", too many tokens'`)
	long := strings.Repeat("x", 3000) // one has room, and two have not
	ann.send("SUB a.b.%s 2\r\n", long)
	ann.sync()
	ann.send("SUB a.c.%s 3\r\n", long)
	ann.expect("-ERR 'maximum subscriptions exceeded'")
	h.change(identity.User{Name: "ann"})
	ann.send("SUB a.b.c.d 1\r\nSUB a.c.%s 3\r\n", long)
	ann.sync()
	if n := h.Stats().Subscriptions; n != 3 {
		t.Errorf("%d subscriptions, want 3", n)
	}
}
