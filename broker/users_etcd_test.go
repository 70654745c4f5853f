package broker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/coordinator"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// bearer is a user whose token is its name.
func bearer(name string, mayNot ...string) identity.User {
	sum := sha256.Sum256([]byte(name))
	return identity.User{
		Name: name, Tokens: []string{"sha256:" + hex.EncodeToString(sum[:])},
		Permissions: &identity.Permissions{Subscribe: &identity.Subjects{Deny: mayNot}},
	}
}

// following is a broker that takes its users from etcd.
type following struct {
	address, http string
	stop          func()
}

func follow(t *testing.T, endpoints []string, data string) *following {
	t.Helper()
	profile, err := limits.ForProfile("small")
	testutil.Must(t, err)
	ready, stopped := make(chan string, 1), make(chan error, 1)
	f := &following{http: testutil.FreeAddress(t)}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		stopped <- Run(ctx, Config{
			Name: "b", Cluster: "local/test", Data: data, Profile: profile, Endpoints: endpoints, UsersFromEtcd: true,
			Client: Address{Listen: "127.0.0.1:0"}, HTTP: Address{Listen: f.http}, Ready: func(address, _ string) { ready <- address },
		})
	}()
	f.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Errorf("the broker ended with %v", err)
		}
	})
	t.Cleanup(f.stop)
	select {
	case f.address = <-ready:
	case err := <-stopped:
		stopped <- nil
		t.Fatalf("the broker ended with %v", err)
	case <-time.After(testutil.Patience):
		t.Fatal("the broker is not ready")
	}
	return f
}

func (f *following) connect(token string, options ...nats.Option) (*nats.Conn, error) {
	return nats.Connect("nats://"+f.address, append(options, nats.Token(token), nats.NoReconnect(), nats.Timeout(testutil.Patience))...)
}

func (f *following) page(t *testing.T, path string) string {
	t.Helper()
	got, err := http.Get("http://" + f.http + path)
	testutil.Must(t, err)
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	testutil.Must(t, err)
	return string(body)
}

// TestUsersFollowEtcd: nobody may connect before there are users. Then a right that is taken away
// in etcd ends subscriptions, and an account that is taken away ends connections, within a second.
func TestUsersFollowEtcd(t *testing.T) {
	etcd, err := coordinator.StartLocal(t.Context(), t.TempDir(), slog.New(slog.DiscardHandler))
	testutil.Must(t, err)
	closeEtcd := sync.OnceValue(etcd.Close)
	defer closeEtcd()
	store, err := coordination.Open(coordination.Config{Endpoints: etcd.Endpoints(), Cluster: "local/test"})
	testutil.Must(t, err)
	defer store.Close()
	data := t.TempDir()
	f := follow(t, etcd.Endpoints(), data)
	for _, token := range []string{"ann", ""} {
		if conn, err := f.connect(token); !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("without users, a client with the token %q connected: %v", token, err)
			conn.Close()
		}
	}
	put := func(users ...identity.User) {
		t.Helper()
		_, err := store.PutUsers(t.Context(), &identity.Document{Users: users})
		testutil.Must(t, err)
	}

	const tries = 6 // since a busy machine may delay some
	var others []identity.User
	for i := range tries {
		others = append(others, bearer(fmt.Sprint("bob", i)))
	}
	put(append(others, bearer("ann"))...)
	var ann *nats.Conn
	lost := make(chan error, 100)
	testutil.Eventually(t, "ann connects", func() (err error) {
		ann, err = f.connect("ann", nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { lost <- err }))
		return err
	})
	defer ann.Close()
	gone := make(chan string, len(others))
	for _, other := range others {
		nc, err := f.connect(other.Name, nats.ClosedHandler(func(*nats.Conn) { gone <- other.Name }))
		testutil.Must(t, err)
		defer nc.Close()
	}
	within := func(what string, once func() time.Duration) {
		t.Helper()
		fastest := time.Hour
		for n := 0; n < tries && fastest > time.Second; n++ {
			fastest = min(fastest, once())
		}
		if t.Logf("%s after %v", what, fastest); fastest > time.Second {
			t.Errorf("%s after %v", what, fastest)
		}
	}
	within("a subscription ended", func() time.Duration {
		_, err := ann.SubscribeSync("secret.>")
		testutil.Must(t, err)
		testutil.Must(t, ann.Flush())
		began := time.Now()
		put(append(others, bearer("ann", "secret.>"))...)
		select {
		case err := <-lost:
			if !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("the error is %v", err)
			}
		case <-time.After(testutil.Patience):
			t.Fatal("the subscription did not end")
		}
		took := time.Since(began)
		put(append(others, bearer("ann"))...)
		testutil.Eventually(t, "ann has the right again", func() error {
			if text := f.page(t, "/metrics"); !strings.Contains(text, fmt.Sprintf(`carillon_users{state="valid"} %d`, tries+1)) {
				return errors.New(text)
			}
			conn, err := f.connect("ann")
			if err != nil {
				return err
			}
			defer conn.Close()
			if _, err = conn.SubscribeSync("secret.>"); err == nil {
				if err = conn.Flush(); err == nil {
					err = conn.LastError()
				}
			}
			return err
		})
		return took
	})
	within("a connection ended", func() time.Duration {
		began := time.Now()
		last := len(others) - 1
		name := others[last].Name
		others = others[:last]
		put(append(others[:last:last], bearer("ann"))...)
		select {
		case is := <-gone:
			if is != name {
				t.Errorf("the connection of %s ended, and not that of %s", is, name)
			}
		case <-time.After(testutil.Patience):
			t.Fatalf("%s is still connected", name)
		}
		return time.Since(began)
	})
	put(bearer("ann"))
	testutil.Eventually(t, "ann is left, and the broker says that its users are the present ones", func() error {
		if health, text := f.page(t, "/healthz"), f.page(t, "/metrics"); strings.Contains(health, "users") || !strings.Contains(text, "carillon_users_stale_seconds 0\n") || !strings.Contains(text, `carillon_users{state="valid"} 1`) {
			return fmt.Errorf("it says %s and %s", health, text)
		}
		return nil
	})

	// It restarts, and serves ann at once.
	f.stop()
	f = follow(t, etcd.Endpoints(), data)
	again, err := f.connect("ann")
	testutil.Must(t, err)
	defer again.Close()
	if _, err := f.connect("bob0"); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("bob0 connected after a restart: %v", err)
	}

	// etcd is away. The last users hold, and the broker says that they may be stale.
	testutil.Must(t, closeEtcd())
	testutil.Eventually(t, "the broker says that its users may be stale", func() error {
		if health := f.page(t, "/healthz"); !strings.Contains(health, "may be stale: etcd is silent for") {
			return errors.New(health)
		}
		return nil
	})
	if text := f.page(t, "/metrics"); strings.Contains(text, "carillon_users_stale_seconds 0\n") {
		t.Error("the metric says that the users are the present ones")
	}
	late, err := f.connect("ann")
	testutil.Must(t, err)
	late.Close()
}

// TestACredentialIsRemovedInEtcd: its connections end, and those of the user's other credential and
// of other users stay.
func TestACredentialIsRemovedInEtcd(t *testing.T) {
	etcd, err := coordinator.StartLocal(t.Context(), t.TempDir(), slog.New(slog.DiscardHandler))
	testutil.Must(t, err)
	defer etcd.Close()
	store, err := coordination.Open(coordination.Config{Endpoints: etcd.Endpoints(), Cluster: "local/test"})
	testutil.Must(t, err)
	defer store.Close()
	put := func(tokens ...string) {
		t.Helper()
		ann := identity.User{Name: "ann"}
		for _, token := range tokens {
			ann.Tokens = append(ann.Tokens, bearer(token).Tokens...)
		}
		_, err := store.PutUsers(t.Context(), &identity.Document{Users: []identity.User{ann, bearer("bob")}})
		testutil.Must(t, err)
	}
	put("old")
	f := follow(t, etcd.Endpoints(), t.TempDir())
	gone, told := make(chan struct{}), make(chan error, 100)
	old, err := f.connect("old", nats.ClosedHandler(func(*nats.Conn) { close(gone) }), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { told <- err }))
	testutil.Must(t, err)
	defer old.Close()
	bob, err := f.connect("bob")
	testutil.Must(t, err)
	defer bob.Close()

	// The rotation cuts off nobody: old holds while new is listed beside it.
	put("new", "old")
	var fresh *nats.Conn
	testutil.Eventually(t, "the new token holds", func() (err error) {
		fresh, err = f.connect("new")
		return err
	})
	defer fresh.Close()
	testutil.Must(t, old.Flush())

	put("new")
	select {
	case <-gone:
	case <-time.After(testutil.Patience):
		t.Fatal("the connection of the removed token is still there")
	}
	if err := <-told; !errors.Is(err, nats.ErrAuthRevoked) {
		t.Errorf("it is told %v", err)
	}
	testutil.Must(t, fresh.Flush())
	testutil.Must(t, bob.Flush())
	if conn, err := f.connect("old"); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("by the removed token, a client connected: %v", err)
		conn.Close()
	}
}

// TestTheLastUsersHoldWithoutEtcd: a broker that starts has the users that it saved last, until it
// hears of others, and says when it has not heard from etcd for some time. A broker that has saved
// none lets nobody in.
func TestTheLastUsersHoldWithoutEtcd(t *testing.T) {
	data := t.TempDir()
	log := &lines{}
	logger := slog.New(slog.NewTextHandler(log, nil))
	who := func(e *etcdUsers, token string) string {
		t.Helper()
		is, _, err := e.login.Authenticate(t.Context(), &session.Credentials{Connect: &protocol.Connect{Token: token}})
		if err != nil {
			return ""
		}
		return is.Name
	}
	e, err := newEtcdUsers(data, logger)
	testutil.Must(t, err)
	if who(e, "ann") != "" {
		t.Error("without users somebody may connect")
	}

	hub := session.NewHub(session.Config{Auth: e.login, Logger: slog.New(slog.DiscardHandler)})
	defer hub.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { e.follow(ctx, logger, hub) })
	wrong := bearer("eve")
	wrong.Roles = []identity.Role{"queen"}
	e.observe(coordination.NewState(1, nil, nil, nil, nil))
	e.await(ctx)
	log.wait(t, "etcd has no users yet: nobody may connect")
	e.observe(coordination.NewState(2, nil, nil, nil, nil).WithUsers(&coordination.UserSet{
		Document: identity.Document{Users: []identity.User{bearer("ann", "a"), wrong}}, Generation: 7,
	}))
	log.wait(t, "Applied the users in etcd", "users=1", "wrong=1", "generation=7")
	log.wait(t, `user \"eve\": roles`)
	if who(e, "ann") != "ann" || who(e, "eve") != "" {
		t.Errorf("the users are %q and %q", who(e, "ann"), who(e, "eve"))
	}
	testutil.Eventually(t, "the users are saved", func() error {
		_, err := os.Stat(filepath.Join(data, "users.json"))
		return err
	})

	// The next process does not reach etcd.
	began := time.Now()
	next, err := newEtcdUsers(data, logger)
	testutil.Must(t, err)
	log.wait(t, "Starting with the users that this broker saved last", "generation=7")
	if who(next, "ann") != "ann" || who(next, "eve") != "" || next.login.Again(&identity.Identity{Name: "ann"}, identity.ByToken(sha256.Sum256([]byte("ann")))).MaySubscribe([]byte("a"), nil) {
		t.Error("the users are others than were saved")
	}
	// A set that is being written changes nothing, until it is whole.
	next.observe(coordination.NewState(3, nil, nil, nil, nil).WithUsersBegun())
	select {
	case <-next.next:
		t.Errorf("the beginning of a set is applied as %v", next.present.Load())
	default:
	}
	if silent := next.Stale(); silent != 0 && time.Since(began) < usersStale {
		t.Errorf("it is stale from the start: %v", silent)
	}
	next.started = time.Now().Add(-time.Minute)
	if !next.judge(false, logger) || next.Stale() < time.Minute {
		t.Errorf("etcd is silent for a minute, and the users are stale for %v", next.Stale())
	}
	log.wait(t, "etcd is silent: changes of users don't arrive", "for=1m") // and a second if it took that
	next.heard = time.Now
	if next.judge(true, logger) || next.Stale() != 0 {
		t.Errorf("etcd answers, and the users are stale for %v", next.Stale())
	}
	log.wait(t, "the users are the present ones again")

	// What is not a whole file is no file.
	testutil.Must(t, os.WriteFile(filepath.Join(data, "users.json"), []byte(`{"v":1,`), 0o600))
	if next, err = newEtcdUsers(data, logger); err != nil || who(next, "ann") != "" {
		t.Errorf("with a broken file ann may connect, or it does not start: %v", err)
	}
	log.wait(t, "The users that this broker saved last are unreadable")
}

// TestTheLastUsersSeenAreSaved: a broker that stops right after a change leaves it to the next
// process.
func TestTheLastUsersSeenAreSaved(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	for range 20 { // what is ready beside the end of ctx is chosen by chance
		data := t.TempDir()
		e, err := newEtcdUsers(data, quiet)
		testutil.Must(t, err)
		hub := session.NewHub(session.Config{Auth: e.login, Logger: quiet})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		e.observe(coordination.NewState(1, nil, nil, nil, nil).WithUsers(&coordination.UserSet{Generation: 7}))
		e.follow(ctx, quiet, hub)
		hub.Close()
		if last, err := coordination.UsersDir(data).Load(); err != nil || last == nil || last.Generation != 7 {
			t.Fatalf("the next process starts with %+v, %v", last, err)
		}
	}
}

// TestAStartWaitsForUsersThatItHasSeen, however long they take to be applied, and not long for
// users that are still being written.
func TestAStartWaitsForUsersThatItHasSeen(t *testing.T) {
	const never = time.Hour
	for _, c := range []struct {
		seen          bool
		applied, want time.Duration
	}{{false, never, usersWait}, {true, 10 * time.Second, 10 * time.Second}, {true, never, usersWait + usersApply}} {
		synctest.Test(t, func(t *testing.T) {
			e, err := newEtcdUsers(t.TempDir(), slog.New(slog.DiscardHandler))
			testutil.Must(t, err)
			state := coordination.NewState(1, nil, nil, nil, nil)
			e.observe(state.WithUsersBegun())
			if c.seen {
				e.observe(state.WithUsers(&coordination.UserSet{}))
			}
			applied := time.AfterFunc(c.applied, func() { close(e.seen) })
			defer applied.Stop()
			began := time.Now()
			e.await(t.Context())
			if took := time.Since(began); took != c.want {
				t.Errorf("with %+v it waits for %v", c, took)
			}
		})
	}
}

// lines keeps the lines of a log.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(line))
	return len(line), nil
}

// wait waits for a line with all parts.
func (l *lines) wait(t *testing.T, parts ...string) {
	t.Helper()
	testutil.Eventually(t, "the log has "+parts[0], func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, line := range l.all {
			missing := 0
			for _, part := range parts {
				if !strings.Contains(line, part) {
					missing++
				}
			}
			if missing == 0 {
				return nil
			}
		}
		return fmt.Errorf("it has %q", l.all)
	})
}
