package broker

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/login"
	"github.com/carillon-mq/carillon/broker/membership"
	"github.com/carillon-mq/carillon/broker/memory"
	"github.com/carillon-mq/carillon/broker/metrics"
	"github.com/carillon-mq/carillon/broker/monitoring"
	"github.com/carillon-mq/carillon/broker/route"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/broker/stall"
	"github.com/carillon-mq/carillon/broker/system"
	"github.com/carillon-mq/carillon/broker/websocket"
)

// ProtocolVersion is the version of nats-server that clients see. They choose features by it.
// Features beyond the core protocol that are not supported are refused by name.
const ProtocolVersion = jsapi.ServerVersion

// Config configures a broker.
type Config struct {
	Name    string // of the pod, for messages
	Cluster string // namespace/name of the Broker
	Zone    string // may be empty
	Version string // of the binary
	Data    string // directory of this broker's volume

	Client Address // NATS clients
	Route  Address // other brokers; Listen empty: a single broker
	HTTP   Address // probes, metrics; Listen empty: none
	// WebSocket is where NATS clients connect by WebSocket; Listen empty: nowhere.
	WebSocket WebSocket

	Endpoints []string // of etcd
	TLS       *env.TLS // for routes; nil: plaintext, within one machine
	EtcdTLS   *env.TLS // for etcd; nil: TLS is for etcd, too
	ClientTLS ClientTLS
	Profile   limits.Profile
	Auth      login.Single // the only user; the zero value: none
	// Users is the path of a file with an identity.Document, read again when it changes; empty: none.
	Users string
	// UsersFromEtcd takes the users from etcd. With neither it, Auth nor Users, every client may do
	// everything. One of them is given at most.
	UsersFromEtcd bool
	LameDuck      time.Duration  // over which clients are asked to leave at shutdown
	PushAllow     []netip.Prefix // addresses that records may be pushed to although others of their kind may not
	// PushByClients permits clients to declare Subscriptions that push, and not only manifests.
	PushByClients bool
	// PushSecrets is the folder with the values that push Subscriptions refer to; empty: none.
	PushSecrets string
	Clock       env.Clock
	Logger      *slog.Logger

	// StallLimit is how long the disk may stall before this broker gives up leadership and ends
	// with a *stall.Error; 0: stalls are only reported. Set it only if brokers do not share the
	// disk.
	StallLimit time.Duration
	// Sever shuts down all connections and listeners of the process after a *stall.Error, without
	// waiting for anything. nil: they end with the process.
	Sever func()

	// Ready is called once clients can connect, with their address, and that for WebSocket, if any.
	Ready func(address, web string)
}

// WebSocket is a port for WebSocket. It has the TLS of clients unless it is Plaintext.
type WebSocket struct {
	Address
	Plaintext bool
	Origins   websocket.Origins // of pages whose programs may connect
}

// ClientTLS is how clients use TLS. Without Files there is plaintext only.
type ClientTLS struct {
	Files     *env.TLS // see env.LoadServerTLS
	Optional  bool     // plaintext clients are served, too
	First     session.First
	FirstWait time.Duration // of session.FirstAuto; 0: limits.TLSFirstWait
	Verify    bool          // Files verify client certificates
}

// webSocket returns the Hub's configuration of the port for WebSocket.
func (b *Broker) webSocket() session.WebSocket {
	is := session.WebSocket{Origins: b.config.WebSocket.Origins, Advertise: b.reachedBy(b.config.WebSocket.Address, b.web)}
	if secure := b.config.ClientTLS; secure.Files != nil && !b.config.WebSocket.Plaintext {
		is.TLS, is.Verify = secure.Files.Server(), secure.Verify
	}
	return is
}

// session returns the configuration of the Hub, nil without TLS.
func (c ClientTLS) session() *session.TLS {
	if c.Files == nil {
		return nil
	}
	return &session.TLS{Config: c.Files.Server(), Optional: c.Optional, First: c.First, FirstWait: c.FirstWait, Verify: c.Verify}
}

// Address is where to listen, and the host:port by which others reach it.
type Address struct{ Listen, Advertise string }

// Broker is a running broker.
type Broker struct {
	config    Config
	log       *slog.Logger
	volume    *env.DirLock
	identity  coordination.Identity
	hub       *session.Hub
	users     users
	mesh      *route.Mesh
	started   time.Time
	listening string

	client, web, route, http net.Listener

	clock  *clock.Clock
	topics topics
	// attributes are those of subjects.
	attributes *coordination.Attributes
	pages      *monitoring.Config // what tools are told
	member     *membership.Member
	stall      *stall.Watch
	ready      atomic.Bool

	abandoned chan error // the error if this broker ended without waiting for its goroutines
}

// clockFile is the file in the data directory that keeps a broker's clock over a restart.
const clockFile = "clock.json"

// Run serves until ctx ends, then hands over leadership, disconnects its clients and stops. It
// returns nil after an orderly end. After a *stall.Error some goroutines may hang on the disk, and
// the process must exit.
func Run(ctx context.Context, config Config) error {
	b, err := open(ctx, config)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- b.run(ctx) }()
	select {
	case err = <-ended:
	case err = <-b.abandoned:
	}
	return err
}

// open claims the volume and the ports, whose errors show at once.
func open(ctx context.Context, config Config) (_ *Broker, err error) {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	b := &Broker{config: config, log: config.Logger, started: time.Now(), abandoned: make(chan error, 1)}
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
	}{{&b.client, config.Client, "clients"}, {&b.web, config.WebSocket.Address, "clients with WebSocket"}, {&b.route, config.Route, "other brokers"}, {&b.http, config.HTTP, "HTTP"}} {
		if l.address.Listen == "" {
			continue
		}
		if *l.to, err = net.Listen("tcp", l.address.Listen); err != nil {
			return nil, fmt.Errorf("listen for %s: %w (is another broker running here?)", l.what, err)
		}
	}
	if b.route != nil && config.TLS == nil && !onLoopback(b.route) {
		return nil, fmt.Errorf("listen for other brokers on %s: links beyond this machine need TLS, since whoever reaches them may do everything (give --tls-dir, or --route-listen 127.0.0.1:6222, or an empty one for a single broker)", b.route.Addr())
	}
	b.clock = clock.New(clock.Config{Wall: config.Clock.Now, Store: clock.File(filepath.Join(config.Data, clockFile)), Logger: b.log})
	b.listening = b.client.Addr().String()
	if config.Client.Advertise != "" {
		b.listening = config.Client.Advertise
	}
	auth, err := b.users.authenticator(&config)
	if err != nil {
		return nil, err
	}
	b.hub = session.NewHub(session.Config{
		ServerID: rand.Text(), ServerName: config.Name, Version: ProtocolVersion + "-carillon", Cluster: b.clusterName(),
		Advertise: b.listening, Profile: config.Profile, TLS: config.ClientTLS.session(), WebSocket: b.webSocket(), Auth: auth, JetStream: true, APILevel: jsapi.APILevel, Logger: b.log,
	})
	b.member = membership.New(b.identity.ID, b.hub, b.log)
	if err = b.openDisk(); err != nil {
		b.hub.Close()
		return nil, err
	}
	return b, nil
}

// onLoopback reports whether only processes of this machine reach a listener.
func onLoopback(ln net.Listener) bool {
	address, ok := ln.Addr().(*net.TCPAddr)
	return ok && address.IP.IsLoopback()
}

func (b *Broker) closeListeners() {
	for _, ln := range []net.Listener{b.client, b.web, b.route, b.http} {
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
		Endpoints: b.config.Endpoints, TLS: cmp.Or(b.config.EtcdTLS, b.config.TLS), Cluster: b.config.Cluster, Logger: b.log,
		Seen: coordination.SeenFile(b.config.Data), Limits: b.users.behalf().Limits,
		Readers: func(user string) int { return b.topics.subscriptions.Readers(user) },
	})
	if err != nil {
		return err
	}
	defer store.Close()
	if err := b.openAttributes(); err != nil {
		return err
	}
	defer b.attributes.Close()
	if b.users.etcd != nil {
		b.users.etcd.heard = store.Heard
	}
	if err := b.startTopics(store); err != nil {
		return err
	}

	// failed records the first error that ends the broker. All goroutines started here are waited
	// for.
	ctx, failed := context.WithCancelCause(ctx)
	defer failed(nil)
	var running sync.WaitGroup
	defer running.Wait()
	if b.route != nil {
		if b.mesh, err = route.Start(b.routes()); err != nil {
			return err
		}
		defer b.mesh.Close()
		b.member.SetLinks(b.mesh)
		b.topics.live.Link(b.mesh, coordination.FeatureAttributeNotices)
	}
	b.describe()
	if b.http != nil {
		server := b.serveHTTP(store, failed)
		defer server.Close()
	}
	// Membership ends after ctx: this broker hands over leadership before it leaves.
	outlasting, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	running.Go(func() {
		select {
		case <-b.member.Registered(): // membership invariant M1
		case <-outlasting.Done():
			return
		}
		if err := store.WatchState(outlasting, b.follow); err != nil {
			failed(err)
		}
	})
	running.Go(func() { b.config.Clock.Follow(outlasting) })
	running.Go(func() { b.clock.Run(outlasting) })
	// A change of users holds also while this broker hands over, and for the process after it.
	running.Go(func() { b.users.follow(outlasting, b.log, b.hub) })
	if b.mesh != nil {
		served, ended := context.WithCancel(context.WithoutCancel(ctx)) // until no client is left
		defer ended()
		running.Go(func() { b.hub.DivideLimits(served, b.mesh.Report) })
	}
	running.Go(func() { b.followAttributes(outlasting) })
	running.Go(func() { b.clock.Keep(outlasting) })
	running.Go(func() { memory.GiveBack(outlasting) })
	running.Go(func() { b.member.EvictDead(outlasting, store) })
	if b.mesh != nil {
		running.Go(func() { b.member.ReportSilent(outlasting, store) })
	}
	running.Go(func() {
		if err := b.control(outlasting, b.member.Incarnations()); err != nil {
			failed(err)
		}
	})
	registered := make(chan struct{})
	running.Go(func() {
		defer close(registered)
		b.awaitAttributes(outlasting)
		if err := b.member.Register(outlasting, store, b.self()); err != nil {
			failed(err)
		}
	})
	running.Go(func() {
		b.stall.Run(outlasting, func(stalled *stall.Error) { b.abandon(stalled, leave, registered) })
	})
	if b.member.AwaitLinks(ctx) {
		if b.users.etcd != nil {
			b.users.etcd.await(ctx)
		}
		running.Go(func() {
			if err := b.hub.Serve(b.client); err != nil {
				failed(fmt.Errorf("accept clients: %w", err))
			}
		})
		if b.web != nil {
			running.Go(func() {
				if err := b.hub.ServeWebSocket(b.web); err != nil {
					failed(fmt.Errorf("accept clients with WebSocket: %w", err))
				}
			})
		}
		b.ready.Store(true)
		web := b.self().WebSocket
		b.log.Info("Ready", "broker", b.identity.ID, "clients", b.listening, "websocket", web, "incarnation", b.member.Incarnation())
		if b.config.Ready != nil {
			b.config.Ready(b.listening, web)
		}
		b.member.ServeClients(ctx)
	}
	b.ready.Store(false)
	if errors.Is(context.Cause(ctx), context.Canceled) {
		b.drainPush()
		b.handOver(store)
	}
	if b.mesh != nil {
		b.announceEnd()
	}
	leave()
	<-registered // deregistered: other brokers send no more clients here
	b.endPulls()
	b.disconnectClients()
	b.stopTopics() // while links are up, so that pending requests of other brokers are answered
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// announceEnd announces to the other brokers that this one leaves, so that they send no clients
// here even if etcd is away.
func (b *Broker) announceEnd() {
	limit, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := b.mesh.Leave(limit); err != nil {
		b.log.Warn("Not all brokers could be told that this one leaves", "error", err)
	}
}

// endPulls ends the requests of clients that wait, so that these hear of it before they lose their
// connections. It waits for at most endPullsTime, since a disk may hang.
func (b *Broker) endPulls() {
	if b.topics.subscriptions == nil {
		return
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.topics.api.EndPulls()
		b.topics.subscriptions.EndPulls()
	}()
	late := time.NewTimer(endPullsTime)
	defer late.Stop()
	select {
	case <-ended:
	case <-late.C:
	}
}

// disconnectClients asks all clients to connect elsewhere, spread over LameDuck, and closes the
// rest.
func (b *Broker) disconnectClients() {
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
		Replication: b.topics.exchange.Serve, Dead: b.member.Evict, Topics: ways{b.topics.topics, b.topics.api},
		Changed: b.member.Changed, RouteOf: b.member.RouteOf, Notices: b.topics.live.Notice, Demands: b.hub.HearDemands,
	}
	if t := b.config.TLS; t != nil {
		c.ServerTLS = func() *tls.Config { return t.Server() }
		c.ClientTLS = t.Client
	}
	return c
}

// dialReplication opens a replication connection to a member.
func (b *Broker) dialReplication(ctx context.Context, broker string) (net.Conn, error) {
	if b.mesh == nil {
		return nil, errors.New("this broker links to no others (start it with --route-listen)")
	}
	return b.mesh.DialReplication(ctx, broker)
}

// reachedBy returns the host:port by which others reach a listener, or nothing without one.
func (b *Broker) reachedBy(a Address, ln net.Listener) string {
	if a.Advertise != "" || ln == nil {
		return a.Advertise
	}
	host, port, err := net.SplitHostPort(ln.Addr().String())
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		// It listens on all addresses. The clients' address has the host name that others use.
		if name, _, err := net.SplitHostPort(b.listening); err == nil {
			return net.JoinHostPort(name, port)
		}
	}
	return ln.Addr().String()
}

// self returns this broker's registration.
func (b *Broker) self() coordination.Broker {
	return coordination.Broker{
		ID: b.identity.ID, Name: b.config.Name, Zone: b.config.Zone, Version: b.config.Version, Started: b.started.UTC().Truncate(time.Millisecond),
		Client: b.listening, Route: b.reachedBy(b.config.Route, b.route), HTTP: b.reachedBy(b.config.HTTP, b.http),
		WebSocket: b.reachedBy(b.config.WebSocket.Address, b.web), Features: coordination.Features(),
	}
}

// serveHTTP serves probes, metrics, and what tools and the operator read.
func (b *Broker) serveHTTP(store *coordination.Client, failed context.CancelCauseFunc) *monitoring.Server {
	c, t := &b.config, &b.topics
	read := metrics.Sources{
		Version: c.Version, Cluster: c.Cluster, Broker: b.identity.ID, Zone: c.Zone,
		Node: node{b.member, b.stall, b}, Clients: b.hub, ClientPendingLimit: c.Profile.NodePending, TLS: c.TLS, EtcdTLS: c.EtcdTLS, ClientTLS: c.ClientTLS.Files,
		Controller: t.controller, Topics: t.topics, Replication: t.exchange, Subscriptions: t.subscriptions, Push: t.push, JetStream: t.api, Admin: t.admin, Sourcing: t.sourcing, Views: t.views, Disk: t.disk, Clock: b.clock,
		Definitions: store, Attributes: b.attributes, Queries: t.live,
	}
	if b.mesh != nil {
		read.Routes = b.mesh
	}
	if b.users.etcd != nil {
		read.Users = b.users.etcd
	}
	show := *b.pages
	show.Metrics = metrics.New(read)
	return monitoring.Start(b.http, show, failed)
}

// describe prepares what tools are told of this broker, and answers their requests. Roles decide
// who may make them.
func (b *Broker) describe() {
	c, t := &b.config, &b.topics
	b.pages = &monitoring.Config{
		ID: b.identity.ID, Name: c.Name, Cluster: c.Cluster, Zone: c.Zone, Version: c.Version, Protocol: ProtocolVersion,
		Advertise: b.listening, AuthRequired: c.authenticates(), Profile: c.Profile, Started: b.started, Endpoints: c.Endpoints,
		Node: node{b.member, b.stall, b}, Clients: b.hub, Topics: t.topics, Subscriptions: t.subscriptions, Views: t.views.Reports, Readers: t.readers, JetStream: t.api, Logger: b.log,
	}
	if b.mesh != nil {
		b.pages.Routes = b.mesh
	}
	if b.users.etcd != nil {
		b.pages.Users = b.users.etcd
	}
	host, _, _ := net.SplitHostPort(b.listening)
	t.system = system.New(system.Config{
		ID: b.identity.ID, Name: c.Name, Cluster: b.clusterName(), Host: host, Version: ProtocolVersion, Payload: c.Profile.Payload,
		Hub: b.hub, Pages: b.pages, Members: b.member.Members, Logger: b.log,
	})
	b.hub.Offer(t.system).Set(system.Subjects)
}

// clusterName is the name of the cluster that clients see; a standalone broker is in none.
func (b *Broker) clusterName() string {
	if b.route == nil {
		return ""
	}
	return b.config.Cluster
}

// node is the broker as metrics and monitoring read it.
type node struct {
	*membership.Member
	*stall.Watch
	b *Broker
}

func (n node) Ready() bool { return n.b.ready.Load() }

// Generation returns the generation of etcd as this broker knows it.
func (n node) Generation() int64 {
	if state := n.b.topics.topics.State(); state != nil {
		return state.Generation
	}
	return 0
}
