package session_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"golang.org/x/crypto/bcrypt"

	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/login"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// usersHub is a hub whose users change.
type usersHub struct {
	*session.Hub
	t       testing.TB
	login   *login.Login
	address string
	secret  string // hash of the password "secret"
}

func newUsersHub(t testing.TB, users ...identity.User) *usersHub {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	testutil.Must(t, err)
	h := &usersHub{t: t, secret: string(hash)}
	h.login, err = login.New(h.table(users))
	testutil.Must(t, err)
	h.Hub, h.address = newTestHub(t, func(c *session.Config) { c.Auth = h.login })
	return h
}

func (h *usersHub) table(users []identity.User) *identity.Table {
	h.t.Helper()
	for i := range users {
		if len(users[i].NKeys) == 0 {
			users[i].Passwords = []string{h.secret}
		}
	}
	table, err := (&identity.Document{Users: users}).Table()
	testutil.Must(h.t, err)
	return table
}

// change replaces the users.
func (h *usersHub) change(users ...identity.User) {
	h.t.Helper()
	h.apply(h.table(users))
}

func (h *usersHub) apply(table *identity.Table) {
	h.login.Set(table)
	h.Recheck()
}

func (h *usersHub) dial(user string) *wire {
	h.t.Helper()
	return dial(h.t, h.address, fmt.Sprintf(`,"user":%q,"pass":"secret"`, user))
}

func may(publish, subscribe *identity.Subjects) *identity.Permissions {
	return &identity.Permissions{Publish: publish, Subscribe: subscribe}
}

func allow(patterns ...string) *identity.Subjects { return &identity.Subjects{Allow: patterns} }
func deny(patterns ...string) *identity.Subjects  { return &identity.Subjects{Deny: patterns} }

func TestWhoLosesARightLosesItsSubscriptions(t *testing.T) {
	h := newUsersHub(t, identity.User{Name: "ann"}, identity.User{Name: "bob"})
	ann, bob := h.dial("ann"), h.dial("bob")
	ann.send("SUB a.* 1\r\nSUB b 2\r\nSUB b workers 3\r\n")
	ann.sync()
	h.change(identity.User{Name: "ann", Permissions: may(allow("a.>"), &identity.Subjects{Allow: []string{"a.>"}, Deny: []string{"a.secret"}})}, identity.User{Name: "bob"})
	gone := map[string]bool{ann.line(): true, ann.line(): true}
	for _, want := range []string{"-ERR 'Permissions Violation for Subscription to \"b\"'", "-ERR 'Permissions Violation for Subscription to \"b\" using queue \"workers\"'"} {
		if !gone[want] {
			t.Errorf("told %v, and not %s", gone, want)
		}
	}
	bob.send("PUB b 1\r\nx\r\nPUB a.secret 1\r\ny\r\nPUB a.open 1\r\nz\r\n")
	bob.sync()
	ann.expect("MSG a.open 1 1")
	ann.expect("z")
	ann.send("PUB b 1\r\nx\r\n")
	ann.expect(`-ERR 'Permissions Violation for Publish to "b"'`)
	if n := h.Stats().Subscriptions; n != 1 {
		t.Errorf("%d subscriptions are left", n)
	}
	// A subscription that is filtered still ends after as many messages as it was told.
	ann.send("UNSUB 1 2\r\n")
	ann.sync()
	bob.send("PUB a.1 1\r\nx\r\nPUB a.2 1\r\ny\r\n")
	bob.sync()
	ann.expect("MSG a.1 1 1")
	ann.expect("x")
	ann.sync()
	// What was taken away may be given again.
	h.change(identity.User{Name: "ann"}, identity.User{Name: "bob"})
	ann.send("SUB a.secret 4\r\n")
	ann.sync()
	bob.send("PUB a.secret 1\r\nw\r\n")
	ann.expect("MSG a.secret 4 1")
	ann.expect("w")
}

func TestWhoLosesItsAccountIsClosed(t *testing.T) {
	h := newUsersHub(t, identity.User{Name: "ann"}, identity.User{Name: "bob"})
	ann, bob := h.dial("ann"), h.dial("bob")
	ann.send("SUB a 1\r\n")
	ann.sync()
	bob.send("SUB b 1\r\n")
	bob.sync()
	h.change(identity.User{Name: "bob"})
	// Until the end of the connection, which is soon, what it still sends has no effect.
	ann.send("PUB b 1\r\nx\r\n")
	ann.expect("-ERR 'User Authentication Revoked'")
	if n := h.Stats().Subscriptions; n != 1 {
		t.Errorf("%d subscriptions are left, and one is bob's", n)
	}
	testutil.EventuallyTrue(t, "it is refused", func() bool { return h.Stats().Violations == 1 })
	bob.sync()
	ann.conn.Close()
	testutil.EventuallyTrue(t, "it is closed as revoked", func() bool { return h.Stats().Ended[session.Revoked] == 1 })
	if _, err := nats.Connect("nats://ann:secret@"+h.address, nats.Timeout(testutil.Patience)); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("it is back: %v", err)
	}
}

func TestAccessExpires(t *testing.T) {
	// On a busy machine access may have ended before the client is in: then it gets longer.
	for left := time.Second; ; left *= 2 {
		h := newUsersHub(t, identity.User{Name: "ann", Expires: time.Now().Add(left)})
		conn, err := net.Dial("tcp", h.address)
		testutil.Must(t, err)
		defer conn.Close()
		ann := &wire{t: t, conn: conn, in: bufio.NewReader(conn)}
		ann.line()
		ann.send("CONNECT {\"verbose\":false,\"user\":\"ann\",\"pass\":\"secret\"}\r\nPING\r\n")
		first := ann.line()
		if first != "PONG" && left < testutil.Patience/4 {
			continue
		}
		if first != "PONG" {
			t.Fatalf("a client with access for %v is told %s", left, first)
		}
		ann.expect("-ERR 'User Authentication Expired'")
		conn.Close()
		testutil.EventuallyTrue(t, "it is closed as expired", func() bool { return h.Stats().Ended[session.Expired] == 1 })
		return
	}
}

func TestLimitsOfAUser(t *testing.T) {
	h := newUsersHub(t, identity.User{Name: "ann", Limits: identity.Limits{Connections: 2, Subscriptions: 1, Payload: 10}}, identity.User{Name: "bob"})
	first, second := h.dial("ann"), h.dial("ann")
	if _, err := nats.Connect("nats://ann:secret@"+h.address, nats.Timeout(testutil.Patience)); err == nil || !strings.Contains(err.Error(), "maximum account active connections exceeded") {
		t.Errorf("a third connection: %v", err)
	}
	h.dial("bob")
	second.send("SUB a 1\r\nSUB b 2\r\n")
	second.expect("-ERR 'maximum subscriptions exceeded'")
	second.send("PUB x 10\r\n0123456789\r\n")
	second.sync()
	second.send("PUB x 11\r\n01234567890\r\n")
	second.expect("-ERR 'Maximum Payload Violation'")
	_, _ = io.Copy(io.Discard, second.in)
	second.conn.Close()
	testutil.EventuallyTrue(t, "another connection has its place", func() bool {
		nc, err := nats.Connect("nats://ann:secret@"+h.address, nats.Timeout(testutil.Patience))
		if err != nil {
			return false
		}
		defer nc.Close()
		testutil.Must(t, nc.Flush())
		if nc.MaxPayload() != 10 {
			t.Errorf("INFO says %d bytes", nc.MaxPayload())
		}
		return true
	})
	first.sync()
}

// TestASecondCONNECTOfAnotherUser has that one's rights, and none of the first one's subscriptions.
func TestASecondCONNECTOfAnotherUser(t *testing.T) {
	h := newUsersHub(t, identity.User{Name: "ann"}, identity.User{Name: "bob", Permissions: may(deny("a"), deny("a")), Limits: identity.Limits{Connections: 1}})
	c := h.dial("ann")
	c.send("SUB a 1\r\n")
	c.sync()
	c.send("CONNECT {\"verbose\":false,\"user\":\"bob\",\"pass\":\"secret\"}\r\nPUB a 1\r\nx\r\n")
	c.expect(`-ERR 'Permissions Violation for Publish to "a"'`)
	if n := h.Stats().Subscriptions; n != 0 {
		t.Errorf("%d subscriptions are left", n)
	}
	if _, err := nats.Connect("nats://bob:secret@"+h.address, nats.Timeout(testutil.Patience)); err == nil {
		t.Error("bob has two connections, and may have one")
	}
	c.send("CONNECT {\"verbose\":false,\"user\":\"ann\",\"pass\":\"secret\"}\r\n")
	c.sync()
	h.dial("bob")
}

// TestASecondCONNECTLosesOpenReplies: they were the first user's.
func TestASecondCONNECTLosesOpenReplies(t *testing.T) {
	responder := may(nil, nil)
	responder.AllowResponses = &identity.Responses{}
	h := newUsersHub(t, identity.User{Name: "ann", Permissions: responder}, identity.User{Name: "bob", Permissions: responder}, identity.User{Name: "cat"})
	c, asks := h.dial("ann"), h.dial("cat")
	c.send("SUB a 1\r\n")
	c.sync()
	asks.send("PUB a r.1 0\r\n\r\nPUB a r.2 0\r\n\r\n")
	c.expect("MSG a 1 r.1 0", "", "MSG a 1 r.2 0", "")
	c.send("PUB r.1 0\r\n\r\n")
	c.sync()
	c.send("CONNECT {\"verbose\":false,\"user\":\"bob\",\"pass\":\"secret\"}\r\nPUB r.2 0\r\n\r\n")
	c.expect(`-ERR 'Permissions Violation for Publish to "r.2"'`)
}

func TestATraceNeedsTheRightToItsDestination(t *testing.T) {
	h := newUsersHub(t, identity.User{Name: "ann", Permissions: may(deny("secret"), nil)}, identity.User{Name: "bob"})
	ann, bob := h.dial("ann"), h.dial("bob")
	bob.send("SUB secret 1\r\n")
	bob.sync()
	header := "NATS/1.0\r\nNats-Trace-Dest: secret\r\n\r\n"
	ann.send("HPUB a %d %d\r\n%s\r\n", len(header), len(header), header)
	ann.expect(`-ERR 'Permissions Violation for Publish to "secret"'`)
	bob.sync()
}

func TestAnNKeySignsTheNonceOfItsConnection(t *testing.T) {
	key, err := nkeys.CreateUser()
	testutil.Must(t, err)
	public, err := key.PublicKey()
	testutil.Must(t, err)
	h := newUsersHub(t, identity.User{Name: "keyed", NKeys: []string{public}})
	nc, err := nats.Connect("nats://"+h.address, nats.Nkey(public, key.Sign), nats.Timeout(testutil.Patience))
	testutil.Must(t, err)
	defer nc.Close()
	testutil.Must(t, nc.Flush())
	old, err := key.Sign([]byte("another nonce"))
	testutil.Must(t, err)
	if _, err := nats.Connect("nats://"+h.address, nats.Nkey(public, func([]byte) ([]byte, error) { return old, nil }), nats.Timeout(testutil.Patience)); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("an old signature is taken: %v", err)
	}
}

// busyLogin has no turn for anybody.
type busyLogin struct{ session.Authenticator }

func (busyLogin) Nonce() bool { return false }

func (busyLogin) Authenticate(context.Context, *session.Credentials) (*identity.Identity, *identity.Credential, error) {
	return nil, nil, session.ErrBusy
}

// TestABusyBrokerDoesNotSayThatAPasswordIsWrong: after two such answers clients stop trying.
func TestABusyBrokerDoesNotSayThatAPasswordIsWrong(t *testing.T) {
	h, address := newTestHub(t, func(c *session.Config) { c.Auth = busyLogin{} })
	if _, err := nats.Connect("nats://ann:secret@"+address, nats.Timeout(testutil.Patience)); err == nil || errors.Is(err, nats.ErrAuthorization) || !strings.Contains(strings.ToLower(err.Error()), "authentication timeout") {
		t.Error(err)
	}
	testutil.EventuallyTrue(t, "it is closed for that", func() bool { return h.Stats().Ended[session.AuthTimedOut] == 1 })
}

func TestAClientCertificateNamesItsUser(t *testing.T) {
	table, err := (&identity.Document{Users: []identity.User{{Name: "ann", Certificates: []string{"dns:localhost"}, Permissions: may(deny("a"), nil)}}}).Table()
	testutil.Must(t, err)
	users, err := login.New(table)
	testutil.Must(t, err)
	h := newTLSHub(t, session.TLS{First: session.FirstNo, Verify: true}, func(c *session.Config) { c.Auth = users })
	config := h.client()
	config.Certificates = []tls.Certificate{certificate(t, h.ca)}
	nc := h.mustConnect(config)
	violated := make(chan error, 1)
	nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { violated <- err })
	testutil.Must(t, nc.Publish("a", nil))
	testutil.Must(t, nc.Flush())
	if err := <-violated; !strings.Contains(err.Error(), `Publish to "a"`) {
		t.Error(err)
	}
}

// TestRightsChangeWhileClientsAreBusy: whatever is under way, no message on a denied subject
// arrives after Recheck has returned.
func TestRightsChangeWhileClientsAreBusy(t *testing.T) {
	free := []identity.User{{Name: "ann"}, {Name: "bob"}}
	bound := []identity.User{{Name: "ann", Permissions: may(nil, deny("a.secret"))}, {Name: "bob"}}
	h := newUsersHub(t, free...)
	all, fewer := h.table(free), h.table(bound)
	sub := h.dial("ann")
	nc, err := nats.Connect("nats://bob:secret@"+h.address, nats.Timeout(testutil.Patience))
	testutil.Must(t, err)
	defer nc.Close()
	for round := range 50 {
		h.apply(all)
		sub.send("SUB a.* %d\r\n", round)
		var changing sync.WaitGroup
		changing.Go(func() { h.apply(fewer) })
		for range 20 {
			testutil.Must(t, nc.Publish("a.secret", []byte("x")))
		}
		testutil.Must(t, nc.Flush())
		changing.Wait()
		sub.send("PING\r\n")
		for sub.line() != "PONG" {
		}
		testutil.Must(t, nc.Publish("a.secret", []byte("late")))
		testutil.Must(t, nc.Publish("a.open", []byte("end")))
		testutil.Must(t, nc.Flush())
		for line := ""; line != "end"; {
			if line = sub.line(); line == "late" {
				t.Fatalf("round %d: a denied message arrived", round)
			}
		}
		sub.send("UNSUB %d\r\n", round)
		sub.sync()
	}
}

// TestUsersOfAWebSocket: they have the same rights, with and without TLS, and sign the nonce.
func TestUsersOfAWebSocket(t *testing.T) {
	key, err := nkeys.CreateUser()
	testutil.Must(t, err)
	public, err := key.PublicKey()
	testutil.Must(t, err)
	table, err := (&identity.Document{Users: []identity.User{{Name: "keyed", NKeys: []string{public}, Permissions: may(deny("a"), nil)}}}).Table()
	testutil.Must(t, err)
	for _, secure := range []bool{false, true} {
		users, err := login.New(table)
		testutil.Must(t, err)
		h := newWebHub(t, secure, func(c *session.Config) { c.Auth = users })
		violated := make(chan error, 1)
		nc := h.mustConnectWeb(nats.Nkey(public, key.Sign), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { violated <- err }))
		exchange(t, nc, nc, 10)
		testutil.Must(t, nc.Publish("a", nil))
		if err := <-violated; !strings.Contains(err.Error(), `Publish to "a"`) {
			t.Error(err)
		}
		nothing, err := (&identity.Document{}).Table()
		testutil.Must(t, err)
		users.Set(nothing)
		h.Recheck()
		if err := <-violated; !strings.Contains(strings.ToLower(err.Error()), "revoked") {
			t.Errorf("it ended with %v", err)
		}
	}
}
