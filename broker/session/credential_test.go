package session_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"golang.org/x/crypto/bcrypt"

	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/env/testca"
	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/login"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// credential is one that a client may log in with, and another one of that kind.
type credential struct {
	name       string
	list       func(*identity.User) *[]string
	own, other string
	option     nats.Option
}

func bcryptOf(t *testing.T, password string) string {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	testutil.Must(t, err)
	return string(hash)
}

func userKey(t *testing.T) (public string, sign nats.SignatureHandler) {
	t.Helper()
	key, err := nkeys.CreateUser()
	testutil.Must(t, err)
	public, err = key.PublicKey()
	testutil.Must(t, err)
	return public, key.Sign
}

func tokenOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// TestAConnectionEndsWithItsCredential, and with no other one of its user: during a rotation, and
// when the list has another order, it stays.
func TestAConnectionEndsWithItsCredential(t *testing.T) {
	ownKey, sign := userKey(t)
	otherKey, _ := userKey(t)
	passwords := func(u *identity.User) *[]string { return &u.Passwords }
	byKey := credential{"nkey", func(u *identity.User) *[]string { return &u.NKeys }, ownKey, otherKey, nats.Nkey(ownKey, sign)}
	byPassword := credential{"password", passwords, bcryptOf(t, "old"), bcryptOf(t, "new"), nats.UserInfo("ann", "old")}
	byToken := credential{"token", func(u *identity.User) *[]string { return &u.Tokens }, tokenOf("old"), tokenOf("new"), nats.Token("old")}

	for _, c := range []credential{byPassword, byToken, byKey} {
		t.Run(c.name, func(t *testing.T) {
			endsWithItsCredential(t, c, func(config func(*session.Config)) (*session.Hub, dialer) {
				h := newTLSHub(t, session.TLS{First: session.FirstNo}, config)
				return h.Hub, func(options ...nats.Option) *nats.Conn { return h.mustConnect(h.client(), options...) }
			})
		})
		for name, secure := range map[string]bool{"ws": false, "wss": true} {
			t.Run(name+" "+c.name, func(t *testing.T) {
				endsWithItsCredential(t, c, func(config func(*session.Config)) (*session.Hub, dialer) {
					h := newWebHub(t, secure, config)
					return h.Hub, h.mustConnectWeb
				})
			})
		}
	}
	byCertificate := credential{"certificate", func(u *identity.User) *[]string { return &u.Certificates }, "dns:localhost", "dns:other", func(*nats.Options) error { return nil }}
	t.Run("certificate", func(t *testing.T) {
		endsWithItsCredential(t, byCertificate, func(config func(*session.Config)) (*session.Hub, dialer) {
			h := newTLSHub(t, session.TLS{First: session.FirstNo, Verify: true}, config)
			client := h.client()
			client.Certificates = []tls.Certificate{certificate(t, h.ca)}
			return h.Hub, func(options ...nats.Option) *nats.Conn { return h.mustConnect(client, options...) }
		})
	})
	t.Run("wss certificate", func(t *testing.T) {
		endsWithItsCredential(t, byCertificate, func(config func(*session.Config)) (*session.Hub, dialer) {
			ca, dir := testca.New(t), t.TempDir()
			ca.Issue(t, dir)
			files, err := env.LoadServerTLS(dir, true)
			testutil.Must(t, err)
			h := newWebHub(t, false, func(c *session.Config) {
				config(c)
				c.WebSocket.TLS = files.Server()
			})
			h.ca, h.dir, h.secure = ca, dir, true
			client := h.client()
			client.Certificates = []tls.Certificate{certificate(t, ca)}
			return h.Hub, func(options ...nats.Option) *nats.Conn {
				return h.mustConnectWeb(append(options, nats.Secure(client))...)
			}
		})
	})
}

type dialer func(...nats.Option) *nats.Conn

func endsWithItsCredential(t *testing.T, c credential, open func(func(*session.Config)) (*session.Hub, dialer)) {
	kept := bcryptOf(t, "kept")
	table := func(listed ...string) *identity.Table {
		t.Helper()
		u := identity.User{Name: "ann", Passwords: []string{kept}}
		list := c.list(&u)
		*list = append(listed, *list...)
		table, err := (&identity.Document{Users: []identity.User{u}}).Table()
		testutil.Must(t, err)
		return table
	}
	users, err := login.New(table(c.own))
	testutil.Must(t, err)
	h, connect := open(func(config *session.Config) { config.Auth = users })
	told := make(chan error, 10)
	nc := connect(c.option, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { told <- err }))
	other := connect(nats.UserInfo("ann", "kept"))
	for _, listed := range [][]string{{c.own, c.other}, {c.other, c.own}, {c.own}} {
		users.Set(table(listed...))
		h.Recheck()
		testutil.Must(t, nc.Flush())
	}
	users.Set(table(c.other))
	h.Recheck()
	testutil.EventuallyTrue(t, "its connection ends", func() bool { return h.Stats().Ended[session.Revoked] == 1 })
	if err := <-told; !strings.Contains(strings.ToLower(err.Error()), "revoked") {
		t.Errorf("it is told %v", err)
	}
	testutil.Must(t, other.Flush())
}

// between is a Login whose users change between the check of a client and its entry.
type between struct {
	*login.Login
	change func()
}

func (b between) Authenticate(ctx context.Context, c *session.Credentials) (*identity.Identity, *identity.Credential, error) {
	is, by, err := b.Login.Authenticate(ctx, c)
	if err == nil {
		b.change()
	}
	return is, by, err
}

// TestACredentialIsRemovedDuringTheLogin: the client does not come in by it, though it is another
// user's, or anybody's, meanwhile.
func TestACredentialIsRemovedDuringTheLogin(t *testing.T) {
	own := bcryptOf(t, "secret")
	table := func(anonymous string, users ...identity.User) *identity.Table {
		t.Helper()
		table, err := (&identity.Document{Users: users, Anonymous: anonymous}).Table()
		testutil.Must(t, err)
		return table
	}
	users, err := login.New(table("", identity.User{Name: "ann", Passwords: []string{own}}))
	testutil.Must(t, err)
	var hub *session.Hub
	h, address := newTestHub(t, func(c *session.Config) {
		c.Auth = between{users, func() {
			users.Set(table("ann", identity.User{Name: "ann", Passwords: []string{bcryptOf(t, "other")}}, identity.User{Name: "bob", Passwords: []string{own}}))
			hub.Recheck()
		}}
	})
	hub = h
	_, err = nats.Connect("nats://ann:secret@"+address, nats.NoReconnect(), nats.Timeout(testutil.Patience))
	if err == nil || !strings.Contains(strings.ToLower(err.Error()), "user authentication revoked") {
		t.Errorf("it is told %v", err)
	}
	testutil.EventuallyTrue(t, "its connection ends", func() bool { return h.Stats().Ended[session.Revoked] == 1 })
}

// TestASecondCONNECTByAnotherCredential: from then on, that one counts.
func TestASecondCONNECTByAnotherCredential(t *testing.T) {
	table := func(anonymous string, tokens ...string) *identity.Table {
		t.Helper()
		table, err := (&identity.Document{Users: []identity.User{{Name: "ann", Tokens: tokens}}, Anonymous: anonymous}).Table()
		testutil.Must(t, err)
		return table
	}
	one, two := tokenOf("one"), tokenOf("two")
	users, err := login.New(table("ann", one, two))
	testutil.Must(t, err)
	h, address := newTestHub(t, func(c *session.Config) { c.Auth = users })
	c := dial(t, address, `,"auth_token":"one"`)
	connect := func(credential string) {
		t.Helper()
		c.send("CONNECT {\"verbose\":false%s}\r\n", credential)
		c.sync()
	}
	for _, step := range []struct {
		credential string
		then       *identity.Table
	}{
		{`,"auth_token":"two"`, table("ann", two)},
		{"", table("ann")},
	} {
		connect(step.credential)
		users.Set(step.then)
		h.Recheck()
		c.sync()
	}
	users.Set(table("", one, two))
	h.Recheck()
	c.expect("-ERR 'User Authentication Revoked'")
}
