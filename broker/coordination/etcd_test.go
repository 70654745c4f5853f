package coordination

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/internal/testutil"
	etcdtest "github.com/carillon-mq/carillon/internal/testutil/etcd"
)

// beside is how many parallel tests run at once, most with an etcd of their own. They use less than
// a twentieth of a core each, and wait for leases to end and for etcd to be noticed.
const beside = 8

func TestMain(m *testing.M) {
	testutil.RunBeside(beside)
	requestTimeout, readTimeout, dialKeepAlive = 30*time.Second, 10*time.Second, time.Hour
	testutil.RunWithoutLeaks(m)
}

// testTTL is the TTL of leases in tests: longer than a busy machine keeps a broker from renewing
// one. shortTTL is that of tests that wait for the end of a lease.
const testTTL, shortTTL = 15 * time.Second, 6 * time.Second

// etcdServer is a real etcd with clients and cables of the test.
type etcdServer struct {
	*etcdtest.Server
	t      *testing.T
	cables int
}

func startEtcd(t *testing.T) *etcdServer {
	t.Helper()
	return &etcdServer{Server: etcdtest.Start(t), t: t}
}

func (e *etcdServer) open(endpoint ...string) *Client {
	e.t.Helper()
	return e.openLogged(testLogger(e.t), endpoint...)
}

func (e *etcdServer) openLogged(log *slog.Logger, endpoint ...string) *Client {
	e.t.Helper()
	if endpoint == nil {
		endpoint = []string{e.Endpoint()}
	}
	c, err := Open(Config{Endpoints: endpoint, Cluster: "default/main", LeaseTTL: testTTL, Logger: log})
	if err != nil {
		e.t.Fatal(err)
	}
	c.silent = testutil.Patience
	e.t.Cleanup(func() { _ = c.Close() })
	return c
}

// withShortTTL returns the client with leases that end in time for a test that waits for that.
func (c *Client) withShortTTL() *Client {
	c.ttl = shortTTL
	return c
}

// restless returns the client with watches that are replaced after a second without an answer. A
// busy machine may have it replace a watch that is well.
func (c *Client) restless() *Client {
	c.probe, c.silent = 200*time.Millisecond, time.Second
	return c
}

func testLogger(t *testing.T) *slog.Logger {
	if !testing.Verbose() {
		return nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("test", t.Name())
}

// cable is a proxy between a client and etcd that can be cut and frozen.
type cable struct {
	listener net.Listener
	target   string

	mu     sync.Mutex
	state  cableState
	change chan struct{} // closed when state changes
	conns  map[net.Conn]bool
	wg     sync.WaitGroup
}

type cableState int

const (
	whole  cableState = iota
	cut               // connections are closed and refused
	frozen            // connections stay open and carry nothing
)

func (e *etcdServer) cable() *cable {
	e.t.Helper()
	e.cables++
	listener, err := net.Listen("unix", filepath.Join(filepath.Dir(e.Socket()), fmt.Sprintf("cable%d", e.cables)))
	if err != nil {
		e.t.Fatal(err)
	}
	c := &cable{listener: listener, target: e.Socket(), change: make(chan struct{}), conns: map[net.Conn]bool{}}
	c.wg.Go(c.accept)
	e.t.Cleanup(func() {
		listener.Close()
		c.set(cut)
		c.wg.Wait()
	})
	return c
}

func (c *cable) endpoint() string { return "unix://" + c.listener.Addr().String() }

func (c *cable) set(state cableState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state = state
	close(c.change)
	c.change = make(chan struct{})
	if state == cut {
		for conn := range c.conns {
			conn.Close()
		}
	}
}

func (c *cable) accept() {
	for {
		near, err := c.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("unix", c.target)
		c.mu.Lock()
		if err != nil || c.state == cut {
			near.Close()
			if far != nil {
				far.Close()
			}
			c.mu.Unlock()
			continue
		}
		c.conns[near], c.conns[far] = true, true
		c.mu.Unlock()
		c.wg.Go(func() { c.carry(near, far) })
		c.wg.Go(func() { c.carry(far, near) })
	}
}

func (c *cable) carry(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		c.mu.Lock()
		for c.state == frozen {
			change := c.change
			c.mu.Unlock()
			<-change
			c.mu.Lock()
		}
		c.mu.Unlock()
		if _, err := to.Write(buffer[:n]); err != nil && err != io.ErrShortWrite {
			return
		}
	}
}

// news wakes waiters when something changed. The zero value is ready for use.
type news struct {
	mu   sync.Mutex
	next chan struct{} // closed at the next change; nil: no waiter
}

func (n *news) tell() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next != nil {
		close(n.next)
		n.next = nil
	}
}

// await waits until ok, called after each change, returns true.
func (n *news) await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	late := time.After(testutil.Patience)
	for {
		n.mu.Lock()
		if n.next == nil {
			n.next = make(chan struct{})
		}
		next := n.next
		n.mu.Unlock()
		if ok() {
			return
		}
		select {
		case <-next:
		case <-late:
			t.Fatalf("waited in vain for: %s", what)
		}
	}
}

// heard counts log messages, for tests that wait until something went wrong.
type heard struct {
	t     *testing.T
	news  news
	mu    sync.Mutex
	times map[string]int
}

// interrupted is the log message when a watch was given up or a read failed.
const interrupted = "following etcd was interrupted; what is known stands"

// logger returns the test's logger, counted by h.
func (h *heard) logger() *slog.Logger {
	return slog.New(&hearing{loggerOf(testLogger(h.t)).Handler(), h})
}

// wait waits until a message was logged the given number of times.
func (h *heard) wait(message string, times int) {
	h.t.Helper()
	h.news.await(h.t, "the log's "+message, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.times[message] >= times
	})
}

type hearing struct {
	slog.Handler
	to *heard
}

func (h *hearing) Enabled(context.Context, slog.Level) bool { return true }

func (h *hearing) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &hearing{h.Handler.WithAttrs(attrs), h.to}
}

func (h *hearing) Handle(ctx context.Context, record slog.Record) error {
	h.to.mu.Lock()
	if h.to.times == nil {
		h.to.times = map[string]int{}
	}
	h.to.times[record.Message]++
	h.to.mu.Unlock()
	h.to.news.tell()
	return h.Handler.Handle(ctx, record)
}

// membershipSeen is the membership in the last State of a WatchState.
type membershipSeen struct {
	t     *testing.T
	news  news
	mu    sync.Mutex
	last  []Broker
	calls int
}

func (c *Client) follow(t *testing.T) *membershipSeen {
	t.Helper()
	v := &membershipSeen{t: t}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- c.WatchState(ctx, func(state *State, _ Changes) {
			v.mu.Lock()
			v.last, v.calls = state.Brokers, v.calls+1
			v.mu.Unlock()
			v.news.tell()
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("WatchState ended with %v", err)
		}
	})
	return v
}

func (v *membershipSeen) get() (members []Broker, calls int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.last, v.calls
}

func (v *membershipSeen) names() string {
	members, calls := v.get()
	if calls == 0 {
		return "?"
	}
	names := ""
	for _, b := range members {
		names += b.Name + " "
	}
	return names
}

// wait waits until the members' names, in the order of their ids, are want.
func (v *membershipSeen) wait(want string) []Broker {
	v.t.Helper()
	v.news.await(v.t, "members "+want, func() bool { return v.names() == want })
	members, _ := v.get()
	return members
}

// joined is a broker that a test has registered.
type joined struct {
	t            *testing.T
	stop         context.CancelFunc
	done         chan error
	incarnations chan int64
}

func broker(id string) Broker {
	return Broker{ID: id, Name: "pod-" + id, Client: id + ":4222", Route: id + ":6222", HTTP: id + ":8222", Zone: "z1", Version: "1"}
}

func (c *Client) join(t *testing.T, b Broker) *joined {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	j := &joined{t, cancel, make(chan error, 1), make(chan int64, 16)}
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		j.done <- c.Join(ctx, b, func(incarnation int64) { j.incarnations <- incarnation })
	}()
	t.Cleanup(func() { cancel(); <-finished })
	return j
}

func (j *joined) incarnation() int64 {
	j.t.Helper()
	select {
	case i := <-j.incarnations:
		return i
	case err := <-j.done:
		j.t.Fatalf("Join ended with %v", err)
	case <-time.After(testutil.Patience):
		j.t.Fatal("the broker did not register")
	}
	return 0
}

func (j *joined) leave() {
	j.t.Helper()
	j.stop()
	select {
	case err := <-j.done:
		if err != nil {
			j.t.Fatalf("Join ended with %v", err)
		}
	case <-time.After(testutil.Patience):
		j.t.Fatal("Join did not end")
	}
}
