package login

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nkeys"
	"golang.org/x/crypto/bcrypt"

	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/internal/testutil"
)

func hashOf(t *testing.T, password string) string {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	testutil.Must(t, err)
	return string(hash)
}

func tableOf(t *testing.T, users ...identity.User) *identity.Table {
	t.Helper()
	table, err := (&identity.Document{Users: users}).Table()
	testutil.Must(t, err)
	return table
}

func loginOf(t *testing.T, users ...identity.User) *Login {
	t.Helper()
	l, err := New(tableOf(t, users...))
	testutil.Must(t, err)
	return l
}

// who returns the name of the user with the credentials, or why there is none.
func who(t *testing.T, l *Login, c protocol.Connect) string {
	t.Helper()
	is, _, err := l.Authenticate(t.Context(), &session.Credentials{Connect: &c, Nonce: "nonce", Address: "10.0.0.1"})
	if err != nil {
		return err.Error()
	}
	return is.Name
}

func TestUsersProveThemselvesInFourWays(t *testing.T) {
	key, err := nkeys.CreateUser()
	testutil.Must(t, err)
	public, err := key.PublicKey()
	testutil.Must(t, err)
	signed, err := key.Sign([]byte("nonce"))
	testutil.Must(t, err)
	other, err := key.Sign([]byte("other"))
	testutil.Must(t, err)
	sum := sha256.Sum256([]byte("t0ken"))
	l := loginOf(t,
		identity.User{Name: "ann", Passwords: []string{hashOf(t, "secret")}},
		identity.User{Name: "bot", Tokens: []string{"sha256:" + hex.EncodeToString(sum[:])}},
		identity.User{Name: "keyed", NKeys: []string{public}},
		identity.User{Name: "late", Passwords: []string{hashOf(t, "secret")}, Expires: time.Now().Add(-time.Second)},
	)
	if !l.Nonce() {
		t.Error("no nonce, and there is an nkey")
	}
	for i, c := range []struct {
		gives protocol.Connect
		want  string
	}{
		{protocol.Connect{User: "ann", Password: "secret"}, "ann"},
		{protocol.Connect{User: "ann", Password: "wrong"}, errPassword.Error()},
		{protocol.Connect{User: "ann"}, errPassword.Error()},
		{protocol.Connect{User: "bob", Password: "secret"}, errPassword.Error()},
		{protocol.Connect{User: "bot", Password: ""}, errPassword.Error()},
		{protocol.Connect{Token: "t0ken"}, "bot"},
		{protocol.Connect{Token: "token"}, errToken.Error()},
		{protocol.Connect{NKey: public, Signature: base64.RawURLEncoding.EncodeToString(signed)}, "keyed"},
		{protocol.Connect{NKey: public, Signature: base64.StdEncoding.EncodeToString(signed)}, "keyed"},
		{protocol.Connect{NKey: public, Signature: base64.RawURLEncoding.EncodeToString(other)}, errKey.Error()},
		{protocol.Connect{NKey: public}, errKey.Error()},
		{protocol.Connect{JWT: "eyJ0", Signature: "x"}, errJWT.Error()},
		{protocol.Connect{}, errNothing.Error()},
		{protocol.Connect{User: "late", Password: "secret"}, session.ErrExpired.Error()},
	} {
		if got := who(t, l, c.gives); got != c.want {
			t.Errorf("credentials %d: %q, want %q", i, got, c.want)
		}
	}
}

// TestARightPasswordIsComparedOnce is invariant V2.
func TestARightPasswordIsComparedOnce(t *testing.T) {
	first, second := hashOf(t, "old"), hashOf(t, "new")
	l := loginOf(t, identity.User{Name: "ann", Passwords: []string{first}})
	known := func() int {
		if has := l.known["ann"]; has != nil {
			return len(has.right)
		}
		return 0
	}
	for range 3 {
		if got := who(t, l, protocol.Connect{User: "ann", Password: "old"}); got != "ann" {
			t.Fatal(got)
		}
	}
	if n := known(); n != 1 {
		t.Errorf("%d passwords are known", n)
	}
	// Both hold during a rotation.
	l.Set(tableOf(t, identity.User{Name: "ann", Passwords: []string{first, second}}))
	if n := known(); n != 0 {
		t.Errorf("%d passwords are known after a change", n)
	}
	for _, password := range []string{"old", "new"} {
		if got := who(t, l, protocol.Connect{User: "ann", Password: password}); got != "ann" {
			t.Errorf("%s: %s", password, got)
		}
	}
	if n := known(); n != 2 {
		t.Errorf("%d passwords are known", n)
	}
	l.Set(tableOf(t, identity.User{Name: "ann", Passwords: []string{first, second}, Limits: identity.Limits{Connections: 2}}))
	if n := known(); n != 2 {
		t.Errorf("%d passwords are known after a change of something else", n)
	}
	l.Set(tableOf(t, identity.User{Name: "ann", Passwords: []string{second}}))
	if got := who(t, l, protocol.Connect{User: "ann", Password: "old"}); got != errPassword.Error() {
		t.Errorf("the old password after the rotation: %s", got)
	}
	// A table that came during a comparison wins.
	l.learn(&identity.Entry{Identity: &identity.Identity{Name: "ann"}, Passwords: [][]byte{[]byte(first)}}, right{sum: [32]byte{1}})
	if n := known(); n != 0 {
		t.Errorf("what was right before the change is known")
	}
}

// TestARememberedPasswordHasTheHashThatVerifiedIt, so that its client loses its access with that.
func TestARememberedPasswordHasTheHashThatVerifiedIt(t *testing.T) {
	first, second := hashOf(t, "old"), hashOf(t, "new")
	l := loginOf(t, identity.User{Name: "ann", Passwords: []string{second, first}})
	type client struct {
		is *identity.Identity
		by *identity.Credential
	}
	clients := map[string]client{}
	for _, name := range []string{"old", "new", "old again", "new again"} {
		password, _, _ := strings.Cut(name, " ")
		is, by, err := l.Authenticate(t.Context(), &session.Credentials{Connect: &protocol.Connect{User: "ann", Password: password}, Address: "10.0.0.1"})
		testutil.Must(t, err)
		clients[name] = client{is, by}
	}
	l.Set(tableOf(t, identity.User{Name: "ann", Passwords: []string{second}}))
	for name, c := range clients {
		if stays := l.Again(c.is, c.by) != nil; stays != strings.HasPrefix(name, "new") {
			t.Errorf("the client with the %s password stays: %v", name, stays)
		}
	}
}

// TestAddressesTakeTurns: a hundred attempts from one address delay another one by one of them.
func TestAddressesTakeTurns(t *testing.T) {
	s := turns{free: 1}
	if !s.take(t.Context(), "strangers") {
		t.Fatal("no turn, and there was one")
	}
	order := make(chan string, 200)
	waits := func(from string) {
		s.mu.Lock()
		before := waiting(&s)
		s.mu.Unlock()
		go func() {
			if s.take(context.WithoutCancel(t.Context()), from) {
				order <- from
				s.leave()
			}
		}()
		testutil.EventuallyTrue(t, "it waits", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return waiting(&s) == before+1
		})
	}
	for range 100 {
		waits("strangers")
	}
	waits("ann")
	s.leave()
	for i := range 101 {
		if from := <-order; from == "ann" && i > 1 {
			t.Errorf("ann came after %d strangers", i)
		}
	}
}

func waiting(s *turns) (n int) {
	for _, a := range s.waiting {
		n += len(a.callers)
	}
	return n
}

func TestWhoLeavesTheQueueKeepsNoTurn(t *testing.T) {
	s := turns{free: 1}
	s.take(t.Context(), "a")
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan bool)
	go func() { left <- s.take(ctx, "b") }()
	testutil.EventuallyTrue(t, "it waits", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return waiting(&s) == 1
	})
	cancel()
	if <-left {
		t.Error("it got a turn")
	}
	s.leave()
	if s.free != 1 || len(s.waiting) != 0 {
		t.Errorf("%d turns are free, %d addresses wait", s.free, len(s.waiting))
	}
}

// busy returns a Login whose turns are all taken, and what gives one back.
func busy(t *testing.T, users ...identity.User) (l *Login, leave func()) {
	t.Helper()
	l = loginOf(t, users...)
	l.turns.free = 0
	return l, l.turns.leave
}

// TestTheUsersAfterTheWaitDecide: a password that is removed while a client waits for its turn is
// wrong, and one that is added is right.
func TestTheUsersAfterTheWaitDecide(t *testing.T) {
	old, other := identity.User{Name: "ann", Passwords: []string{hashOf(t, "old")}}, identity.User{Name: "ann", Passwords: []string{hashOf(t, "new")}}
	for password, want := range map[string]string{"old": errPassword.Error(), "new": "ann"} {
		synctest.Test(t, func(t *testing.T) {
			l, leave := busy(t, old)
			got := make(chan string)
			go func() { got <- who(t, l, protocol.Connect{User: "ann", Password: password}) }()
			synctest.Wait()
			l.Set(tableOf(t, other))
			leave()
			if is := <-got; is != want {
				t.Errorf("the %s password: %s", password, is)
			}
		})
	}
}

// TestWhoWaitsTooLongMayTryAgain, and keeps no turn. The same holds when the broker ends.
func TestWhoWaitsTooLongMayTryAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, leave := busy(t, identity.User{Name: "ann", Passwords: []string{hashOf(t, "secret")}})
		began := time.Now()
		if got := who(t, l, protocol.Connect{User: "ann", Password: "secret"}); got != session.ErrBusy.Error() || time.Since(began) != maxWait {
			t.Errorf("%s after %v", got, time.Since(began))
		}
		leave()
		if got := who(t, l, protocol.Connect{User: "ann", Password: "secret"}); got != "ann" {
			t.Error(got)
		}
	})
}

// TestNamesWithoutAPasswordCostAsMuchAsAUser is invariant V3: as many hashes of the same cost are
// compared.
func TestNamesWithoutAPasswordCostAsMuchAsAUser(t *testing.T) {
	rotating := identity.User{Name: "ann", Passwords: []string{hashOf(t, "old"), hashOf(t, "new")}}
	l := loginOf(t, identity.User{Name: "keyed"}, rotating)
	for _, name := range []string{"keyed", "nobody"} {
		if got := l.decoys(l.table.Load(), name); len(got) != 2 || string(got[0]) != rotating.Passwords[0] {
			t.Errorf("%s is compared with %q", name, got)
		}
	}
	l.Set(tableOf(t))
	if got := l.decoys(l.table.Load(), "nobody"); len(got) != 1 {
		t.Errorf("without any user, a password is compared with %q", got)
	}
}

// TestANetworkOfIPv6HasOneTurn, since a host there may have as many addresses as it likes.
func TestANetworkOfIPv6HasOneTurn(t *testing.T) {
	for address, want := range map[string]string{
		"10.0.0.1": "10.0.0.1", "::ffff:10.0.0.1": "10.0.0.1", "2001:db8:1:2::3": "2001:db8:1:2::/64", "2001:db8:1:2:ffff::": "2001:db8:1:2::/64",
		"2001:db8:1:3::3": "2001:db8:1:3::/64", "fe80::1%eth0": "fe80::/64", "pipe": "pipe",
	} {
		if got := session.Network(address); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

// TestAWrongFileChangesNothing is invariant V4.
func TestAWrongFileChangesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users.json")
	write := func(text string) {
		t.Helper()
		testutil.Must(t, os.WriteFile(path+".new", []byte(text), 0o600))
		testutil.Must(t, os.Rename(path+".new", path))
	}
	of := func(names ...string) string {
		var doc identity.Document
		for _, name := range names {
			doc.Users = append(doc.Users, identity.User{Name: name})
		}
		text, err := json.Marshal(doc)
		testutil.Must(t, err)
		return string(text)
	}
	f := &File{Path: path}
	if _, err := f.Read(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	write(of("ann"))
	_, err := f.Read()
	testutil.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	applied, done := make(chan *identity.Table), make(chan struct{})
	go func() {
		defer close(done)
		f.Follow(ctx, slog.New(slog.DiscardHandler), func(table *identity.Table) { applied <- table })
	}()
	write("nonsense")
	write(of("ann", "bob"))
	if table := <-applied; table.User("bob") == nil {
		t.Error("bob is not there")
	}
	write(of("bob"))
	if table := <-applied; table.User("ann") != nil {
		t.Error("ann is still there")
	}
	cancel()
	<-done
}

// TestAFileThatChangesWithinItsTime: a hash in place of another one changes no size, and the file
// system may count the time of writes in steps. Such a write is seen, and what is as before is not
// applied again.
func TestAFileThatChangesWithinItsTime(t *testing.T) {
	path, written := filepath.Join(t.TempDir(), "users.json"), time.Now().Add(time.Hour)
	write := func(name string) {
		t.Helper()
		text, err := json.Marshal(identity.Document{Users: []identity.User{{Name: name}}})
		testutil.Must(t, err)
		testutil.Must(t, os.WriteFile(path, text, 0o600))
		testutil.Must(t, os.Chtimes(path, written, written))
	}
	write("ann")
	f := &File{Path: path}
	_, err := f.Read()
	testutil.Must(t, err)
	write("bob")
	ctx, cancel := context.WithCancel(t.Context())
	applied, done := make(chan *identity.Table), make(chan struct{})
	go func() {
		defer close(done)
		f.Follow(ctx, slog.New(slog.DiscardHandler), func(table *identity.Table) { applied <- table })
	}()
	for _, name := range []string{"bob", "cat", "ann"} {
		if name != "bob" {
			write(name)
		}
		select {
		case table := <-applied:
			if table.User(name) == nil {
				t.Errorf("%s is not there", name)
			}
		case <-time.After(testutil.Patience):
			t.Fatalf("%s is not seen", name)
		}
	}
	cancel()
	<-done
}
