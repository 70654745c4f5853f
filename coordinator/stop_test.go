package coordinator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// etcd is a client of etcd, with one member or several.
func (c *testCluster) etcd(config clientv3.Config, members ...int) *clientv3.Client {
	c.t.Helper()
	for _, i := range members {
		_, port, _ := net.SplitHostPort(c.members[i].config.ClientListen)
		config.Endpoints = append(config.Endpoints, "https://localhost:"+port)
	}
	config.TLS, config.Logger = c.tls.Client("localhost"), zap.NewNop()
	etcd, err := clientv3.New(config)
	testutil.Must(c.t, err)
	c.t.Cleanup(func() { _ = etcd.Close() })
	return etcd
}

// users has etcd ask for users: root by certificate or with this password.
func (c *testCluster) users(etcd *clientv3.Client, password string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), testutil.Patience)
	defer cancel()
	for what, step := range map[string]func() error{
		"the role root": func() error { _, err := etcd.RoleAdd(ctx, "root"); return err },
		"the user root": func() error { _, err := etcd.UserAdd(ctx, "root", password); return err },
		"the user of certificates": func() error { // see testca
			_, err := etcd.UserAddWithOptions(ctx, "node", "", &clientv3.UserAddOptions{NoPassword: true})
			return err
		},
	} {
		testutil.Eventually(c.t, what+" is made", func() error {
			err := step()
			if errors.Is(err, rpctypes.ErrRoleAlreadyExist) || errors.Is(err, rpctypes.ErrUserAlreadyExist) {
				err = nil // the answer to an attempt before was lost
			}
			return err
		})
	}
	for _, user := range []string{"root", "node"} {
		testutil.Eventually(c.t, user+" is root", func() error { _, err := etcd.UserGrantRole(ctx, user, "root"); return err })
	}
	testutil.Eventually(c.t, "etcd asks for users", func() error { _, err := etcd.AuthEnable(ctx); return err })
}

// TestTheLastMemberStopsUnderItsClients: two of three members are gone, and the third is told to
// stop while clients write, read, watch, renew leases and authenticate. Their requests have no end
// without a quorum, and they send more. What they were told is written is there afterwards.
func TestTheLastMemberStopsUnderItsClients(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	c.spawn()
	const password = "of a test"
	all, last := c.etcd(clientv3.Config{}, 0, 1, 2), c.etcd(clientv3.Config{}, 2)
	c.users(all, password)

	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	var mu sync.Mutex
	written := map[string]bool{}
	for n := range 4 {
		running.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				key := fmt.Sprintf("/written/%d-%d", n, i)
				ctx, cancel := context.WithTimeout(ctx, testutil.Patience)
				if _, err := last.Put(ctx, key, ""); err == nil {
					mu.Lock()
					written[key] = true
					mu.Unlock()
				}
				cancel()
			}
		})
	}
	testutil.EventuallyTrue(t, "clients write", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(written) > 100
	})

	c.members[0].end()
	c.members[1].end()
	eventually.ForTrue(t, "the last member has no quorum", func() bool {
		_, text := c.members[2].health("/healthz/ready")
		return strings.Contains(text, "quorum")
	})
	// Many are under way, and others follow in each moment of the stop.
	var sent atomic.Int64
	repeat := func(what func(context.Context)) {
		for range 50 {
			running.Go(func() {
				for ctx.Err() == nil {
					ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
					what(ctx)
					sent.Add(1)
					cancel()
				}
			})
		}
	}
	repeat(func(ctx context.Context) { _, _ = last.Get(ctx, "/written/0-0") })
	repeat(func(ctx context.Context) {
		for range last.Watch(clientv3.WithRequireLeader(ctx), "/written/", clientv3.WithPrefix()) {
		}
	})
	repeat(func(ctx context.Context) {
		for range last.Watch(ctx, fmt.Sprintf("/other/%d", time.Now().UnixNano())) {
		}
	})
	repeat(func(ctx context.Context) {
		if lease, err := last.Grant(ctx, 60); err == nil {
			_, _ = last.KeepAliveOnce(ctx, lease.ID)
		}
	})
	repeat(func(ctx context.Context) { _, _ = last.Authenticate(ctx, "root", password) })
	eventually.ForTrue(t, "requests are sent", func() bool { return sent.Load() > 1000 })
	c.members[2].end()
	cancel()
	running.Wait()
	c.spawn()
	eventually.For(t, "all that was written is there", func(ctx context.Context) error {
		got, err := all.Get(ctx, "/written/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			return err
		}
		for _, kv := range got.Kvs {
			delete(written, string(kv.Key))
		}
		if len(written) > 0 {
			t.Errorf("%d of what was acknowledged is not there: %v", len(written), written)
		}
		return nil
	})
}

// deafConn is a connection whose client stops reading.
type deafConn struct {
	net.Conn
	deaf, closed chan struct{}
	once         sync.Once
}

func (c *deafConn) Read(p []byte) (int, error) {
	select {
	case <-c.deaf:
		<-c.closed
		return 0, net.ErrClosed
	default:
		return c.Conn.Read(p)
	}
}

func (c *deafConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// TestAClientThatDoesNotReadHoldsUpNoStop: what etcd has for it is dropped with its connection.
func TestAClientThatDoesNotReadHoldsUpNoStop(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	c.spawn()
	deaf := make(chan struct{})
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", c.members[0].config.ClientListen)
		if err != nil {
			return nil, err
		}
		return &deafConn{Conn: conn, deaf: deaf, closed: make(chan struct{})}, nil
	}
	slow := c.etcd(clientv3.Config{DialOptions: []grpc.DialOption{grpc.WithContextDialer(dial)}}, 0)
	watching, stopWatching := context.WithCancel(context.Background())
	defer stopWatching()
	if first := <-slow.Watch(watching, "large", clientv3.WithCreatedNotify()); !first.Created {
		t.Fatalf("the watch began with %+v", first)
	}
	close(deaf)
	writer, large := c.etcd(clientv3.Config{}, 0), strings.Repeat("x", 1<<20)
	for range 16 {
		testutil.Eventually(t, "a large value is written", func() error {
			ctx, cancel := context.WithTimeout(t.Context(), testutil.Patience)
			defer cancel()
			_, err := writer.Put(ctx, "large", large)
			return err
		})
	}
	c.members[0].end()
}
