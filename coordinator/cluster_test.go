package coordinator

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/env/testca"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// testCluster is several coordinators over loopback with TLS.
type testCluster struct {
	t       *testing.T
	ca      *testca.CA
	members []*testMember
	tls     *env.TLS // of a client
}

type testMember struct {
	t      *testing.T
	config Config
	http   string

	stop    context.CancelFunc
	done    chan error
	process *os.Process // nil: it runs in this one
}

func newCluster(t *testing.T, size int) *testCluster {
	t.Helper()
	c := &testCluster{t: t, ca: testca.New(t)}
	dir := t.TempDir()
	c.ca.Issue(t, dir)
	var err error
	if c.tls, err = env.LoadTLS(dir); err != nil {
		t.Fatal(err)
	}
	ports := testutil.FreePorts(t, 3*size)
	var initial []string
	for i := range size {
		m := &testMember{t: t, http: fmt.Sprintf("127.0.0.1:%d", ports[3*i+2])}
		m.config = Config{
			Name: fmt.Sprintf("c-%d", i), DataDir: filepath.Join(t.TempDir(), "data"), TLSDir: t.TempDir(),
			ClientListen: fmt.Sprintf("127.0.0.1:%d", ports[3*i]), PeerListen: fmt.Sprintf("127.0.0.1:%d", ports[3*i+1]), HTTPListen: m.http,
			AdvertiseHost: "localhost", ClusterToken: "test", BootstrappedFile: filepath.Join(t.TempDir(), "bootstrapped"),
			Logger: testLogger(),
		}
		c.ca.Issue(t, m.config.TLSDir)
		initial = append(initial, fmt.Sprintf("c-%d=https://localhost:%d", i, ports[3*i+1]))
		c.members = append(c.members, m)
	}
	for _, m := range c.members {
		m.config.InitialCluster = strings.Join(initial, ",")
	}
	t.Cleanup(func() {
		var stopped sync.WaitGroup
		for _, m := range c.members {
			stopped.Go(m.end)
		}
		stopped.Wait()
	})
	return c
}

func testLogger() *slog.Logger {
	if !testing.Verbose() {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, nil))
}

func (m *testMember) start() {
	ctx, cancel := context.WithCancel(context.Background())
	m.stop, m.done = cancel, make(chan error, 1)
	done := m.done
	go func() { done <- Run(ctx, m.config) }()
}

func (m *testMember) end() {
	if m.stop == nil {
		return
	}
	m.stop()
	m.stop = nil
	select {
	case err := <-m.done:
		if err != nil {
			m.t.Errorf("%s ended with %v", m.config.Name, err)
		}
	case <-time.After(stopTimeout + testutil.Patience):
		m.t.Errorf("%s did not end", m.config.Name)
	}
}

func (m *testMember) wipe() {
	m.t.Helper()
	if err := os.RemoveAll(m.config.DataDir); err != nil {
		m.t.Fatal(err)
	}
}

// health asks one of the health addresses.
func (m *testMember) health(what string) (code int, text string) {
	ctx, cancel := context.WithTimeout(context.Background(), testutil.Patience)
	defer cancel()
	request, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.http+what, nil)
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(body)
}

func (m *testMember) waitReady() {
	m.t.Helper()
	eventually.For(m.t, m.config.Name+" is ready", func(context.Context) error {
		select {
		case err := <-m.done:
			m.t.Fatalf("%s ended with %v", m.config.Name, err)
		default:
		}
		if code, text := m.health("/healthz/ready"); code != http.StatusOK {
			return errors.New(text)
		}
		return nil
	})
}

func (c *testCluster) start() {
	c.t.Helper()
	for _, m := range c.members {
		m.start()
	}
	for _, m := range c.members {
		m.waitReady()
	}
}

// client connects to the given members only.
func (c *testCluster) client(members ...int) *coordination.Client {
	c.t.Helper()
	var endpoints []string
	for _, i := range members {
		_, port, _ := net.SplitHostPort(c.members[i].config.ClientListen)
		endpoints = append(endpoints, "https://localhost:"+port)
	}
	client, err := coordination.Open(coordination.Config{Endpoints: endpoints, TLS: c.tls, Cluster: "default/main"})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = client.Close() })
	return client
}

func (c *testCluster) voters() map[string]uint64 {
	c.t.Helper()
	all := make([]int, len(c.members))
	for i := range all {
		all[i] = i
	}
	client := c.client(all...)
	var members []coordination.Member
	testutil.Eventually(c.t, "the members are listed", func() (err error) {
		members, err = client.Members(context.Background())
		return err
	})
	voters := map[string]uint64{}
	for _, m := range members {
		if !m.Learner {
			voters[m.Name] = m.ID
		}
	}
	return voters
}

func (c *testCluster) claim(member int, owner string) {
	c.t.Helper()
	client := c.client(member)
	// On a busy machine etcd may elect another leader at any time, and fails requests meanwhile.
	testutil.Eventually(c.t, "the owner claims the cluster", func() error { return client.ClaimOwner(context.Background(), owner) })
}

func (c *testCluster) wantOwner(member int, want string) {
	c.t.Helper()
	client, owner := c.client(member), ""
	testutil.Eventually(c.t, "the owner is read", func() (err error) {
		owner, err = client.Owner(context.Background())
		return err
	})
	if owner != want {
		c.t.Fatalf("through member %d the owner is %q; want %q", member, owner, want)
	}
}

// eventually has the times of waiting for members of etcd: some conditions take several elections.
var eventually = testutil.Wait{Limit: 3 * testutil.Patience, Every: 20 * time.Millisecond}

// TestAMemberThatLostItsVolumeRejoins: a member that lost its volume returns with a new id, and
// votes.
func TestAMemberThatLostItsVolumeRejoins(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	c.start()
	c.claim(0, "me")
	before := c.voters()
	if len(before) != 3 {
		t.Fatalf("voters are %v", before)
	}

	c.members[2].end()
	c.members[2].wipe()
	c.members[2].start()
	c.members[2].waitReady()
	c.wantOwner(2, "me")
	after := c.voters()
	if len(after) != 3 || after["c-2"] == before["c-2"] || after["c-0"] != before["c-0"] {
		t.Fatalf("voters were %v and are %v; want three, and another c-2", before, after)
	}

	// It really votes: with one of the other two gone, it is needed for a quorum.
	c.members[0].end()
	eventually.ForTrue(t, "two members answer", func() bool {
		code, _ := c.members[2].health("/healthz/ready")
		return code == http.StatusOK
	})
	c.wantOwner(2, "me")

	// Everything is stopped and started again.
	c.members[1].end()
	c.members[2].end()
	c.start()
	c.wantOwner(1, "me")
	if again := c.voters(); len(again) != 3 || again["c-2"] != after["c-2"] {
		t.Fatalf("voters were %v and are %v after a restart of all", after, again)
	}
}

// TestAMemberRejoinsAnEtcdWithUsers: its certificate's name is that of a user with the role root,
// as membership requires once etcd has users.
func TestAMemberRejoinsAnEtcdWithUsers(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	c.start()
	c.users(c.etcd(clientv3.Config{}, 0), "of a test")

	lost := c.members[1]
	before := c.voters()[lost.config.Name]
	lost.end()
	lost.wipe()
	lost.start()
	lost.waitReady()
	if now := c.voters()[lost.config.Name]; now == 0 || now == before {
		t.Errorf("after it lost its volume, the member votes as %x, and before as %x", now, before)
	}
}

// TestAWipedMemberNeverFormsAClusterAnew: the operator says that the cluster has existed. A member
// that finds its volume empty and nobody to ask waits; it does not form another cluster.
func TestAWipedMemberNeverFormsAClusterAnew(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	c.start()
	c.claim(0, "me")
	for _, m := range c.members {
		if err := os.WriteFile(m.config.BootstrappedFile, []byte("true"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range c.members {
		m.end()
	}
	// Two of three come back empty, as if they were a majority with nothing to lose.
	c.members[0].wipe()
	c.members[1].wipe()
	c.members[0].start()
	c.members[1].start()
	for _, m := range c.members[:2] {
		eventually.ForTrue(t, "it says why it waits", func() bool {
			code, text := m.health("/healthz/startup")
			return code == http.StatusServiceUnavailable && strings.Contains(text, "has existed before")
		})
		if code, _ := m.health("/healthz/live"); code != http.StatusOK {
			t.Errorf("a waiting member answers %d to the liveness probe", code)
		}
		if code, _ := m.health("/healthz/ready"); code != http.StatusServiceUnavailable {
			t.Errorf("a waiting member answers %d to the readiness probe", code)
		}
		if has, err := (&volume{dir: m.config.DataDir}).hasMember(); has || err != nil {
			t.Errorf("a waiting member has begun all the same (%v)", err)
		}
	}
}

func TestTheOnlyMember(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	only := c.members[0]
	c.start()
	c.claim(0, "me")
	if code, text := only.health("/metrics"); code != http.StatusOK || !strings.Contains(text, "etcd_server_has_leader") {
		t.Errorf("metrics answer %d, without etcd's", code)
	}
	// A client that watches must not hold up the end, in which its lease would run out.
	client := c.client(0)
	watching, stopWatching := context.WithCancel(context.Background())
	defer stopWatching()
	seen, finished := make(chan struct{}, 8), make(chan error, 1)
	go func() {
		finished <- client.WatchState(watching, func(*coordination.State, coordination.Changes) { seen <- struct{}{} })
	}()
	<-seen
	began := time.Now()
	only.end()
	if took := time.Since(began); took > stopTimeout/2 {
		t.Errorf("stopping under a watch took %v", took)
	}
	only.start()
	only.waitReady()
	c.wantOwner(0, "me")
	stopWatching()
	if err := <-finished; err != nil {
		t.Error(err)
	}
	only.end()

	// Its volume is lost: there is nobody to copy from, and it does not pretend otherwise.
	only.wipe()
	if err := os.WriteFile(only.config.BootstrappedFile, []byte("true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	only.start()
	eventually.ForTrue(t, "it says what was lost", func() bool {
		_, text := only.health("/healthz/startup")
		return strings.Contains(text, "unless the volume is restored")
	})
}

// TestWithoutAQuorum: two of three are gone: the third is alive and was started, but is not ready,
// and says so in time for a probe.
func TestWithoutAQuorum(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	c.start()
	c.members[0].end()
	c.members[1].end()
	eventually.For(t, "the last one says in time that it is not ready", func(context.Context) error {
		began := time.Now()
		code, text := c.members[2].health("/healthz")
		if took := time.Since(began); code != http.StatusServiceUnavailable || !strings.Contains(text, "quorum") || took >= readyTimeout+time.Second {
			return fmt.Errorf("it answers %d %s after %v", code, text, took)
		}
		return nil
	})
	for _, path := range []string{"/healthz/live", "/healthz/startup", "/metrics"} {
		if code, text := c.members[2].health(path); code != http.StatusOK {
			t.Errorf("%s answers %d %s", path, code, text)
		}
	}
	// It can be stopped and started alone, too.
	c.members[2].end()
	c.members[2].start()
	eventually.ForTrue(t, "it is up, without a quorum", func() bool {
		code, _ := c.members[2].health("/healthz/startup")
		return code == http.StatusOK
	})
	began := time.Now()
	c.members[2].end()
	if took := time.Since(began); took > stopTimeout*3/4 {
		t.Errorf("stopping without a quorum took %v", took)
	}
}

// TestARemovedMemberRejoins: a running member is removed by hand. It sets its data aside and
// returns as a new member.
func TestARemovedMemberRejoins(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	c.start()
	c.claim(0, "me")
	before := c.voters()
	client := c.client(0, 1)
	// etcd lets nobody go before the others have been together for 5 s.
	eventually.For(t, "c-2 is removed", func(ctx context.Context) error { return client.RemoveMember(ctx, before["c-2"]) })
	eventually.ForTrue(t, "c-2 votes again, under another id", func() bool {
		members, err := client.Members(context.Background())
		return err == nil && slices.ContainsFunc(members, func(m coordination.Member) bool {
			return m.Name == "c-2" && !m.Learner && m.ID != before["c-2"]
		})
	})
	c.members[2].waitReady()
	c.wantOwner(2, "me")
	if _, err := os.Stat(filepath.Join(c.members[2].config.DataDir, asideDir, "member", "wal")); err != nil {
		t.Errorf("its data were not set aside: %v", err)
	}
}

func TestCertificatesAreRenewedWhileItRuns(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	c.start()
	served := func(listen string) string {
		conn, err := tls.Dial("tcp", listen, c.tls.Client("localhost"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	for _, m := range c.members {
		want := c.ca.Issue(t, m.config.TLSDir).SerialNumber.String()
		for _, listen := range []string{m.config.ClientListen, m.config.PeerListen} {
			if got := served(listen); got != want {
				t.Errorf("%s serves certificate %s at %s, want the renewed %s", m.config.Name, got, listen, want)
			}
		}
	}
	// The members go on to talk to each other when they connect anew.
	c.members[0].end()
	c.members[0].start()
	c.members[0].waitReady()
	c.claim(0, "me")
	c.wantOwner(1, "me")
}

func TestACoordinatorAdmitsOnlyItsOwnCertificates(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	c.start()
	m := c.members[0]
	dir, strange := t.TempDir(), t.TempDir()
	c.ca.Issue(t, dir, testca.Options{Names: []string{"*.main-brokers.default.svc"}})
	testca.New(t).Issue(t, strange, testca.Options{Trust: []*testca.CA{c.ca}})
	broker, err := env.LoadTLS(dir)
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := env.LoadTLS(strange)
	if err != nil {
		t.Fatal(err)
	}
	reach := func(listen string, config *tls.Config) error {
		ctx, cancel := context.WithTimeout(context.Background(), testutil.Patience)
		defer cancel()
		transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
		_, port, _ := net.SplitHostPort(listen)
		request, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://localhost:"+port+"/version", nil)
		answer, err := transport.RoundTrip(request)
		if err == nil {
			answer.Body.Close()
		}
		return err
	}
	if err := reach(m.config.ClientListen, broker.Client("localhost")); err != nil {
		t.Errorf("a broker can't reach the client port: %v", err)
	}
	if err := reach(m.config.PeerListen, broker.Client("localhost")); err == nil {
		t.Error("a broker may act as a member")
	}
	if err := reach(m.config.PeerListen, c.tls.Client("localhost")); err != nil {
		t.Errorf("a coordinator can't reach the peer port: %v", err)
	}
	none := c.tls.Client("localhost")
	none.Certificates = nil
	for _, listen := range []string{m.config.ClientListen, m.config.PeerListen} {
		if err := reach(listen, none); err == nil {
			t.Errorf("somebody without a certificate may use %s", listen)
		}
		if err := reach(listen, stranger.Client("localhost")); err == nil {
			t.Errorf("a stranger may use %s", listen)
		}
	}
}
