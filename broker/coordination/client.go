package coordination

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/grpclog"

	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/work"
)

// DefaultLeaseTTL is how long a silent broker remains a member. etcd's minimum is one and a half
// election timeouts, which our coordinators set to 1.5 s.
const DefaultLeaseTTL = 3 * time.Second

// Tests lengthen these before they begin: on a busy machine the answers take long, and they hold
// mechanisms to replacing a silent connection before its keepalive does.
var (
	// requestTimeout bounds one request. It is longer than an election of etcd, so that a request
	// during one succeeds.
	requestTimeout = 5 * time.Second
	// readTimeout bounds one request of a read; the next one goes to another endpoint.
	readTimeout = 2 * time.Second
	// dialKeepAlive plus dialKeepAliveTimeout is how long an idle connection to a vanished
	// coordinator lives; grpc allows no shorter keepalive. A connection with data that the other
	// end's kernel does not confirm is closed after dialKeepAliveTimeout, and the next request uses
	// another coordinator.
	dialKeepAlive = 10 * time.Second
)

const (
	// farewellTimeout bounds requests after the caller was told to stop.
	farewellTimeout      = 2 * time.Second
	dialKeepAliveTimeout = time.Second

	// streamWindow and connWindow, in bytes, bound what etcd may send ahead. Windows that grpc
	// adapts by itself cost a ping and its answer with almost every answer.
	streamWindow = 1 << 20
	connWindow   = 2 << 20
	// The pause between failed attempts doubles from minBackoff to maxBackoff.
	minBackoff = 100 * time.Millisecond
	maxBackoff = 2 * time.Second
)

// Config configures a Client.
type Config struct {
	Endpoints []string      // https://host:port with TLS; http://host:port or unix:///path without
	TLS       *env.TLS      // nil: no TLS, for a coordinator in the same process
	Cluster   string        // namespace/name of the Broker resource
	LeaseTTL  time.Duration // 0: DefaultLeaseTTL; whole seconds
	Logger    *slog.Logger  // nil: no log
	// Probe is the interval of progress requests on a watch; 0: probeWatch.
	Probe time.Duration
	// Seen keeps what was seen of etcd, by which a broker notices that etcd was restored from a
	// backup, and then raises the generation. nil: the client is no broker's, and raises none.
	Seen SeenStore
	// Limits returns the present limits of a user, who makes Topics and Subscriptions. nil: there are
	// none. Readers returns how many consumers of a user this broker has that are not in etcd. nil:
	// none. Both may be called at any time, and must not block.
	Limits  func(user string) identity.Limits
	Readers func(user string) int
	// Remote, if not nil, replaces the Endpoints. It is for simulations.
	Remote *Remote
}

// Client reads and writes the keys of one Broker resource, and asks its coordinators. It is safe
// for concurrent use.
type Client struct {
	*Coordinators
	prefix string // ends with a slash
	ttl    time.Duration
	log    *slog.Logger
	claims *claims
	specs  *sharedSpecs
	puts   *txnQueue[topicPut]
	swaps  *txnQueue[swap]
	leased leasedValues
	room   *clientRoom
	// viewWrites has room for the one write of a View that is under way.
	viewWrites chan struct{}

	heard atomic.Pointer[time.Time] // when a watch last heard from etcd
	// history is of the keys that WatchState follows.
	history *history

	probe, silent time.Duration // of a watch; tests shorten them
	tombstones    int           // that are kept: maxTombstones, or fewer in tests
}

// Open returns a client. It does not wait for etcd.
func Open(cfg Config) (*Client, error) {
	prefix, err := keyPrefix(cfg.Cluster)
	if err != nil {
		return nil, err
	}
	var coordinators *Coordinators
	if cfg.Remote != nil {
		coordinators = openRemote(cfg.Remote)
	} else if coordinators, err = OpenCoordinators(cfg.Endpoints, cfg.TLS); err != nil {
		return nil, err
	}
	ttl := cfg.LeaseTTL
	if ttl == 0 {
		ttl = DefaultLeaseTTL
	}
	if ttl < time.Second || ttl%time.Second != 0 {
		_ = coordinators.Close()
		return nil, fmt.Errorf("open coordination of %s: lease of %v (use whole seconds, at least one)", cfg.Cluster, ttl)
	}
	c := &Client{
		Coordinators: coordinators, prefix: prefix, ttl: ttl, log: loggerOf(cfg.Logger).With("cluster", cfg.Cluster),
		claims: newClaims(), specs: newSharedSpecs(), puts: newGather[topicPut](), swaps: newGather[swap](), room: newClientRoom(), viewWrites: make(chan struct{}, 1), probe: cmp.Or(cfg.Probe, probeWatch), silent: silentWatch, tombstones: maxTombstones,
	}
	if cfg.Limits != nil {
		c.room.limits = cfg.Limits
	}
	if cfg.Readers != nil {
		c.room.readers = cfg.Readers
	}
	c.history = newHistory(c, cfg.Seen)
	return c, nil
}

// Heard returns when WatchState last heard from etcd: until then its State was the present one. The
// zero time: never. While etcd answers, that is a second ago at most.
func (c *Client) Heard() time.Time {
	if at := c.heard.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

func (c *Client) hear() {
	now := time.Now()
	c.heard.Store(&now)
}

func loggerOf(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return log
}

// keyPrefix returns the prefix of a Broker resource's keys.
func keyPrefix(cluster string) (string, error) {
	namespace, name, ok := strings.Cut(cluster, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", fmt.Errorf("cluster %q: want namespace/name of the Broker", cluster)
	}
	return "/carillon/" + cluster + "/", nil
}

// grpc logs errors to standard error that callers get anyway. Its logger must be replaced before
// anything of it runs.
func init() {
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
}

func dial(endpoints []string, tls *env.TLS) (*clientv3.Client, error) {
	if err := checkEndpoints(endpoints, tls != nil); err != nil {
		return nil, err
	}
	options := append(refusals(tls), grpc.WithStaticStreamWindowSize(streamWindow), grpc.WithStaticConnWindowSize(connWindow))
	if tls != nil {
		options = append(options, grpc.WithTransportCredentials(credentials{tls}))
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            endpoints,
		DialKeepAliveTime:    dialKeepAlive,
		DialKeepAliveTimeout: dialKeepAliveTimeout,
		DialTimeout:          requestTimeout,
		DialOptions:          options,
		Logger:               zap.NewNop(),
	})
	if err != nil {
		return nil, fmt.Errorf("open an etcd client for %s: %w", strings.Join(endpoints, ","), err)
	}
	return client, nil
}

func checkEndpoints(endpoints []string, secure bool) error {
	if len(endpoints) == 0 {
		return errors.New("no etcd endpoint given (for example https://main-coordinator-0.main-coordinators.default.svc:2379)")
	}
	for _, endpoint := range endpoints {
		u, err := url.Parse(endpoint)
		switch {
		case err != nil:
			return fmt.Errorf("etcd endpoint %q: %w", endpoint, err)
		case u.Scheme == "unix" && u.Host == "" && u.Path != "":
			if secure {
				return fmt.Errorf("etcd endpoint %q: a unix socket takes no TLS (use https, or leave the TLS directory out)", endpoint)
			}
		case (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && u.Port() != "" && strings.Trim(u.Path, "/") == "":
			if want := map[bool]string{true: "https", false: "http"}[secure]; u.Scheme != want {
				return fmt.Errorf("etcd endpoint %q: want %s, since a TLS directory is %s", endpoint, want,
					map[bool]string{true: "given", false: "not given"}[secure])
			}
		default:
			return fmt.Errorf("etcd endpoint %q: want https://host:port, http://host:port or unix:///path", endpoint)
		}
	}
	return nil
}

// backoff is a pause that doubles with each failure.
type backoff struct{ next time.Duration }

// wait pauses. It returns false if ctx ended.
func (b *backoff) wait(ctx context.Context) bool {
	b.next = min(max(2*b.next, minBackoff), maxBackoff)
	// Between half of it and all, so that brokers that lost etcd together do not return together.
	return work.Sleep(ctx, b.next/2+rand.N(b.next/2))
}

func (b *backoff) reset() { b.next = 0 }
