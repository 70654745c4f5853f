package broker

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/metrics"
	"github.com/carillon-mq/carillon/broker/monitoring"
	"github.com/carillon-mq/carillon/broker/route"
	"github.com/carillon-mq/carillon/broker/session"
)

// ProtocolVersion is the version of nats-server whose behaviour clients may count on: they
// decide by it what to use. What it says beyond the core protocol is refused in its own words.
const ProtocolVersion = "2.12.0"

// Config describes one node.
type Config struct {
	Name    string // of the pod, for people
	Cluster string // namespace/name of the Broker
	Zone    string // may be empty
	Version string // of the binary
	Data    string // folder of this node's volume

	Client Address // NATS clients
	Route  Address // other brokers; Listen empty: this node is alone
	HTTP   Address // probes, metrics; Listen empty: none

	Endpoints []string // of etcd
	TLS       *env.TLS // for routes and etcd; nil: plaintext, within one machine
	Profile   limits.Profile
	Auth      session.Auth
	LameDuck  time.Duration // over which clients are asked to leave at the end
	Clock     env.Clock
	Logger    *slog.Logger

	// Ready is called once clients can connect, with the address they can use.
	Ready func(address string)
}

// Address is where to listen, and under which host:port others reach that.
type Address struct{ Listen, Advertise string }

// linkWait bounds how long a starting node waits for its links before it takes clients: a peer
// that can't be reached must not keep the others' clients out.
const linkWait = 5 * time.Second

// Broker is a running node.
type Broker struct {
	config    Config
	log       *slog.Logger
	volume    *env.DirLock
	identity  coordination.Identity
	hub       *session.Hub
	mesh      *route.Mesh
	started   time.Time
	listening string

	client, route, http net.Listener

	topics topics
	lives  chan int64    // the newest incarnation, for the controller
	born   chan struct{} // closed when this process has registered

	joined      atomic.Bool
	ready       atomic.Bool
	incarnation atomic.Int64
	since       atomic.Int64 // the earliest incarnation whose every write the volume still holds; 0: this process has none yet
	evictions   chan coordination.Replica

	mu       sync.Mutex
	members  []coordination.Broker
	urls     []string      // what clients were told
	known    sync.Once     // closes assigned
	assigned chan struct{} // closed when the membership is known
	linked   chan struct{} // a token after a link changed
}

// Run serves until ctx ends, and then takes its leave. It returns nil after an orderly end.
func Run(ctx context.Context, config Config) error {
	b, err := open(ctx, config)
	if err != nil {
		return err
	}
	return b.run(ctx)
}

// open claims everything that can fail at once: volume, ports.
func open(ctx context.Context, config Config) (_ *Broker, err error) {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	b := &Broker{
		config: config, log: config.Logger, started: time.Now(),
		assigned: make(chan struct{}), linked: make(chan struct{}, 1), lives: make(chan int64, 1), born: make(chan struct{}),
		evictions: make(chan coordination.Replica, 16),
	}
	wait, cancel := context.WithTimeout(ctx, env.LockWait)
	b.volume, err = env.LockDir(wait, config.Data)
	cancel()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			b.closeListeners()
			err = errors.Join(err, b.volume.Close())
		}
	}()
	if b.identity, err = coordination.LoadIdentity(config.Data, config.Cluster); err != nil {
		return nil, err
	}
	for _, l := range []struct {
		to      *net.Listener
		address Address
		what    string
	}{{&b.client, config.Client, "clients"}, {&b.route, config.Route, "other brokers"}, {&b.http, config.HTTP, "HTTP"}} {
		if l.address.Listen == "" {
			continue
		}
		if *l.to, err = net.Listen("tcp", l.address.Listen); err != nil {
			return nil, fmt.Errorf("listen for %s: %w (is another broker running here?)", l.what, err)
		}
	}
	b.listening = b.client.Addr().String()
	if config.Client.Advertise != "" {
		b.listening = config.Client.Advertise
	}
	if err = b.openDisk(); err != nil {
		return nil, err
	}
	b.hub = session.NewHub(session.Config{
		ServerID: rand.Text(), ServerName: config.Name, Version: ProtocolVersion + "-carillon", Cluster: config.Cluster,
		Advertise: b.listening, Profile: config.Profile, Auth: config.Auth, JetStream: true, Logger: b.log,
	})
	return b, nil
}

func (b *Broker) closeListeners() {
	for _, ln := range []net.Listener{b.client, b.route, b.http} {
		if ln != nil {
			ln.Close()
		}
	}
}

func (b *Broker) run(ctx context.Context) error {
	defer b.volume.Close()
	defer b.hub.Close()
	defer b.closeListeners()
	defer b.stopTopics()

	store, err := coordination.Open(coordination.Config{
		Endpoints: b.config.Endpoints, TLS: b.config.TLS, Cluster: b.config.Cluster, Logger: b.log,
	})
	if err != nil {
		return err
	}
	defer store.Close()
	if err := b.startTopics(store); err != nil {
		return err
	}

	// Everything started here is waited for below; failed takes the first error that ends the node.
	ctx, failed := context.WithCancelCause(ctx)
	defer failed(nil)
	var running sync.WaitGroup
	defer running.Wait()
	if b.route != nil {
		if b.mesh, err = route.Start(b.routes()); err != nil {
			return err
		}
		defer b.mesh.Close()
	}
	if b.http != nil {
		server := b.serveHTTP(failed)
		defer server.Close()
	}
	// The membership outlasts the wish to end: what is led here is handed over first.
	membership, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	running.Go(func() {
		// Before this process has registered, what a State says of this broker is about the process before, whose leases may stand
		// still. Whoever took that for itself would lead on under an epoch of which followers have what this log lacks.
		select {
		case <-b.born:
		case <-membership.Done():
			return
		}
		if err := store.WatchState(membership, b.follow); err != nil {
			failed(err)
		}
	})
	running.Go(func() { b.config.Clock.Follow(membership) })
	running.Go(func() { b.evictAll(membership, store) })
	if b.mesh != nil {
		running.Go(func() { b.accuseAll(membership, store) })
	}
	running.Go(func() {
		if err := b.control(membership, b.lives); err != nil {
			failed(err)
		}
	})
	registered := make(chan struct{})
	running.Go(func() {
		defer close(registered)
		if err := store.Join(membership, b.self(), b.onJoined); err != nil {
			failed(err)
		}
	})
	if b.awaitCluster(ctx) {
		running.Go(func() {
			if err := b.hub.Serve(b.client); err != nil {
				failed(fmt.Errorf("accept clients: %w", err))
			}
		})
		b.ready.Store(true)
		b.log.Info("Ready", "broker", b.identity.ID, "clients", b.listening, "incarnation", b.incarnation.Load())
		if b.config.Ready != nil {
			b.config.Ready(b.listening)
		}
		for left := false; !left; {
			select {
			case <-b.linked:
				b.advertise()
			case <-ctx.Done():
				left = true
			}
		}
	}
	b.ready.Store(false)
	if errors.Is(context.Cause(ctx), context.Canceled) {
		b.handOver(store)
	}
	if b.mesh != nil {
		b.farewell()
	}
	leave()
	<-registered // gone from the membership: the others' clients are no longer sent here
	b.retreat()
	b.stopTopics() // while there are links: who waits on another broker is answered
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// farewell tells the other brokers first, so that they send nobody here any more even if etcd can't tell them.
func (b *Broker) farewell() {
	limit, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := b.mesh.Leave(limit); err != nil {
		b.log.Warn("Not all brokers could be told that this one leaves", "error", err)
	}
}

// retreat sends clients elsewhere.
func (b *Broker) retreat() {
	limit, cancel := context.WithTimeout(context.Background(), b.config.LameDuck+time.Second)
	defer cancel()
	if err := b.hub.Leave(limit, b.config.LameDuck); err != nil {
		b.log.Warn("Not all clients had left", "error", err)
	}
	b.log.Info("Stopped", "broker", b.identity.ID)
}

func (b *Broker) routes() route.Config {
	c := route.Config{
		ID: b.identity.ID, Name: b.config.Name, Cluster: b.config.Cluster, Hub: route.Clients(b.hub),
		Listener: b.route, MaxPayload: b.config.Profile.Payload, Features: coordination.Features(), Logger: b.log,
		Replication: b.topics.exchange.Serve, Refused: b.evict, Topics: ways{b.topics.topics},
		Changed: func() {
			select {
			case b.linked <- struct{}{}:
			default:
			}
		},
	}
	if t := b.config.TLS; t != nil {
		c.ServerTLS = func() *tls.Config { return t.Server() }
		c.ClientTLS = t.Client
	}
	return c
}

func (b *Broker) self() coordination.Broker {
	own := func(a Address, ln net.Listener) string {
		if a.Advertise != "" || ln == nil {
			return a.Advertise
		}
		host, port, err := net.SplitHostPort(ln.Addr().String())
		if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
			// It listens everywhere, and where others reach it is known from the clients' address.
			if name, _, err := net.SplitHostPort(b.listening); err == nil {
				return net.JoinHostPort(name, port)
			}
		}
		return ln.Addr().String()
	}
	return coordination.Broker{
		ID: b.identity.ID, Name: b.config.Name, Zone: b.config.Zone, Version: b.config.Version, Started: b.started.UTC().Truncate(time.Millisecond),
		Client: b.listening, Route: own(b.config.Route, b.route), HTTP: own(b.config.HTTP, b.http),
		Since: b.since.Load(), Features: coordination.Features(),
	}
}

func (b *Broker) onJoined(incarnation int64) {
	b.incarnation.Store(incarnation)
	b.since.CompareAndSwap(0, incarnation)
	if !b.joined.Swap(true) {
		close(b.born)
	}
	select {
	case <-b.lives: // an earlier life has nothing to stand for
	default:
	}
	b.lives <- incarnation
	b.log.Info("Joined", "broker", b.identity.ID, "incarnation", incarnation)
	select {
	case b.linked <- struct{}{}:
	default:
	}
}

func (b *Broker) setMembers(all []coordination.Broker) {
	members := make([]route.Member, 0, len(all))
	for _, m := range all {
		members = append(members, route.Member{ID: m.ID, Name: m.Name, Route: m.Route, Incarnation: m.Incarnation})
	}
	if b.mesh != nil {
		b.mesh.SetMembers(members)
	}
	b.mu.Lock()
	b.members = all
	b.mu.Unlock()
	b.known.Do(func() { close(b.assigned) })
	b.advertise()
}

// advertise tells clients where else they can go: to all members that are not about to leave.
func (b *Broker) advertise() {
	b.mu.Lock()
	defer b.mu.Unlock()
	urls := make([]string, 0, len(b.members))
	for _, m := range b.members {
		if m.ID != b.identity.ID && (b.mesh == nil || !b.mesh.Leaving(m.ID)) {
			urls = append(urls, m.Client)
		}
	}
	if !slices.Equal(urls, b.urls) {
		b.urls = urls
		b.hub.SetURLs(urls)
	}
}

// awaitCluster returns true once this node is a member and linked, or the links have had their time.
func (b *Broker) awaitCluster(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-b.assigned:
	}
	var late <-chan time.Time
	for {
		linked := true
		if b.mesh != nil {
			up, members := b.mesh.Linked()
			linked = up == members
		}
		joined := b.joined.Load()
		if joined && linked {
			return true
		}
		if joined && late == nil {
			late = time.After(linkWait)
		}
		select {
		case <-ctx.Done():
			return false
		case <-late:
			b.log.Warn("Taking clients before all links are up", "waited", linkWait)
			return true
		case <-b.linked:
		}
	}
}

// serveHTTP serves probes, metrics and what tools and the operator read.
func (b *Broker) serveHTTP(failed context.CancelCauseFunc) *monitoring.Server {
	c, t := &b.config, &b.topics
	read := metrics.Sources{
		Version: c.Version, Cluster: c.Cluster, Broker: b.identity.ID, Zone: c.Zone,
		Node: node{b}, Clients: b.hub, ClientPendingLimit: c.Profile.NodePending, TLS: c.TLS,
		Controller: t.controller, Topics: t.topics, Replication: t.exchange, Subscriptions: t.subscriptions, JetStream: t.api, Disk: t.disk,
	}
	show := monitoring.Config{
		ID: b.identity.ID, Name: c.Name, Cluster: c.Cluster, Zone: c.Zone, Version: c.Version, Protocol: ProtocolVersion,
		Advertise: b.listening, AuthRequired: c.Auth.Required(), Profile: c.Profile, Started: b.started, Endpoints: c.Endpoints,
		Node: node{b}, Clients: b.hub, Topics: t.topics, Subscriptions: t.subscriptions, Logger: b.log,
	}
	if b.mesh != nil {
		read.Routes, show.Routes = b.mesh, b.mesh
	}
	show.Metrics = metrics.New(read)
	return monitoring.Start(b.http, show, failed)
}

// node is the broker as metrics and monitoring read it.
type node struct{ b *Broker }

func (n node) Ready() bool        { return n.b.ready.Load() }
func (n node) Joined() bool       { return n.b.joined.Load() }
func (n node) Incarnation() int64 { return n.b.incarnation.Load() }
func (n node) MemberCount() int   { return len(n.Members()) }

func (n node) Members() []coordination.Broker {
	n.b.mu.Lock()
	defer n.b.mu.Unlock()
	return n.b.members // replaced as a whole, never changed
}
