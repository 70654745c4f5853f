package route

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// Member is one broker of the cluster, according to membership.
type Member struct {
	ID          string
	Name        string
	Route       string // host:port to dial
	Incarnation int64
}

// Config is what a Mesh needs.
type Config struct {
	ID      string // this broker's id
	Name    string
	Cluster string // namespace/name of the Broker
	Hub     Hub

	// Listener accepts the peers' connections. The Mesh closes it.
	Listener net.Listener
	// Dial opens a connection to a route address; nil means TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)

	// ServerTLS and ClientTLS return the TLS configuration of one connection: of an accepted one,
	// and of one dialled to serverName. Both nil means plaintext, for one machine only.
	ServerTLS func() *tls.Config
	ClientTLS func(serverName string) *tls.Config

	// RouteOf returns the route address at which a broker is registered, or was since this process
	// started. It waits for a broker that is not known until ctx ends. nil: whoever has a
	// certificate is believed.
	RouteOf func(ctx context.Context, broker string) (address string, ok bool)

	// Topics sends and receives its own frames over the links. nil means none.
	Topics Topics

	MaxPayload int // of a client's message, headers included
	// Features are announced to the peers.
	Features coordination.FeatureSet
	// Notices takes a notice of another broker (Notify), on the goroutine that reads from that
	// broker. The notice is valid during the call. An error ends the link. nil: none may come.
	Notices func(broker string, notice []byte) error
	// Demands takes what the users of another broker demand (Report), in the same way. nil: no
	// report may come.
	Demands func(broker string, report []byte) error
	Logger  *slog.Logger
	// Changed is called when a link comes up or goes down, and when a peer announces that it
	// leaves. It must not block.
	Changed func()
	// Dead is called when a member is known to be dead: its link had been up, the member's side
	// closed it, and then its kernel refuses a connection. It is called once per death, on the
	// goroutine that dials the member.
	Dead func(member Member)
	// Replication serves the connections on which other brokers fetch shards from this one. It owns
	// conn and returns when conn has ended. Mesh.Close ends conn, too. nil refuses such
	// connections.
	Replication func(conn net.Conn, broker string)
}

// Mesh holds this broker's links to all other brokers of its cluster. Its methods are safe for
// concurrent use.
type Mesh struct {
	config   Config
	own      hello
	log      *slog.Logger
	epoch    time.Time
	ctx      context.Context
	cancel   context.CancelFunc
	workers  sync.WaitGroup
	leaving  atomic.Bool
	parting  time.Duration // partingTimeout, except in tests
	greeting greeting
	hushed   chan struct{} // a token: what Silent returns may have changed

	mu         sync.Mutex
	closed     bool
	neighbours map[string]*neighbour // members and linked peers, by id
	refusals   map[Cause]uint64
	loggedAt   map[Cause]time.Time
	accepted   uint64
}

// neighbour is another broker: a member, or linked, or both. Mesh.mu guards its fields, except for
// the atomic ones.
type neighbour struct {
	id, name, address string
	incarnation       int64
	member            bool
	dialling          bool
	dialNow           bool // the membership changed: dial now, without the pause
	leaving           bool
	link              *link
	generation        uint64 // number of connections so far
	attempts          uint64 // dials begun
	lost              uint64 // messages dropped with links that ended
	overflows         uint64
	changed           time.Time // when the link last went up or down
	lastErr           error     // why there is no link; nil while it is up
	lastErrAt         time.Time
	loggedCause       Cause // the cause that was logged last
	linkedIncarnation int64 // the incarnation in which it was linked last
	linkLost          bool  // that link ended, not through this broker
	silent            bool  // it was silent when that link ended

	wake    chan struct{}
	traffic traffic
}

type traffic struct {
	inMessages, inBytes, outMessages, outBytes atomic.Uint64
}

// nudge wakes the neighbour's dialler.
func (n *neighbour) nudge() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// Start starts a Mesh that accepts peers. SetMembers tells it whom to dial. Close it after use.
func Start(config Config) (*Mesh, error) {
	if config.ID == "" || config.Cluster == "" || config.Hub == nil || config.Listener == nil {
		return nil, errors.New("start routes: id, cluster, hub and listener are needed")
	}
	if (config.ServerTLS == nil) != (config.ClientTLS == nil) {
		return nil, errors.New("start routes: TLS is needed in both directions or in none")
	}
	if config.MaxPayload < 0 || config.MaxPayload > maxPayloadCeiling {
		return nil, fmt.Errorf("start routes: a maximal payload of %d bytes is outside of 0 to %d", config.MaxPayload, maxPayloadCeiling)
	}
	if config.Dial == nil {
		config.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", address)
		}
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.Changed == nil {
		config.Changed = func() {}
	}
	if config.Topics == nil {
		config.Topics = noTopics{}
	}
	if config.Dead == nil {
		config.Dead = func(Member) {}
	}
	m := &Mesh{
		config: config,
		own: hello{
			Magic: helloMagic, Newest: protocolNewest, Oldest: protocolOldest, Kind: kindCore,
			Cluster: config.Cluster, ID: config.ID, Name: config.Name, Session: rand.Text(), MaxPayload: config.MaxPayload,
			Features: config.Features,
		},
		log:        config.Logger.With("component", "route"),
		hushed:     make(chan struct{}, 1),
		epoch:      time.Now(),
		parting:    partingTimeout,
		neighbours: make(map[string]*neighbour),
		refusals:   make(map[Cause]uint64),
		loggedAt:   make(map[Cause]time.Time),
	}
	if _, err := jsonFrame(frameHello, m.own); err != nil {
		return nil, fmt.Errorf("start routes: %w", err)
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.workers.Go(m.accept)
	return m, nil
}

// now returns the time since the mesh was started. It is monotonic.
func (m *Mesh) now() time.Duration { return time.Since(m.epoch) }

// SetMembers sets the members of the cluster, with or without this broker. A broker that is no
// member any more is no longer dialled; its link lives until its connection ends.
func (m *Mesh) SetMembers(members []Member) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	present := make(map[string]bool, len(members))
	for _, member := range members {
		if member.ID == m.config.ID || member.ID == "" {
			continue
		}
		present[member.ID] = true
		n := m.neighbourLocked(member.ID)
		if !n.member || n.address != member.Route || n.incarnation != member.Incarnation {
			n.dialNow = true
			if n.incarnation != member.Incarnation {
				// A new incarnation: the broker has restarted.
				n.leaving, n.linkLost, n.silent = false, false, false
			}
		}
		n.member, n.name, n.address, n.incarnation = true, member.Name, member.Route, member.Incarnation
		if n.link != nil && n.link.alive() && n.link.up.Load() {
			n.linkedIncarnation = member.Incarnation
		}
		if !n.dialling {
			n.dialling = true
			m.workers.Go(func() { m.dial(n) })
		}
		n.nudge()
	}
	for id, n := range m.neighbours {
		if n.member && !present[id] {
			n.member = false
			n.nudge()
			m.forgetLocked(n)
		}
	}
}

func (m *Mesh) neighbourLocked(id string) *neighbour {
	n := m.neighbours[id]
	if n == nil {
		n = &neighbour{id: id, wake: make(chan struct{}, 1), changed: time.Now()}
		m.neighbours[id] = n
	}
	return n
}

// forgetLocked removes a neighbour that is neither a member nor linked nor being dialled. Its
// dialler calls it when it ends.
func (m *Mesh) forgetLocked(n *neighbour) {
	if !n.member && n.link == nil && !n.dialling {
		delete(m.neighbours, n.id)
	}
}

// claim makes l the link of its peer and starts it, or returns why not.
func (m *Mesh) claim(l *link) *Refusal {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return refuse(CauseClosing, "broker %q is shutting down", m.config.Name)
	}
	n := m.neighbourLocked(l.peer.ID)
	l.succeeds = n.linkLost
	if n.link != nil {
		l.succeeds = l.succeeds || n.link.succeeds || n.link.up.Load()
		if n.link.alive() && !m.replaces(l, n.link) {
			return refuse(CauseLinked, "broker %q has a live link to broker %q already", m.config.Name, l.peer.Name)
		}
		n.link.fail(errReplaced)
		l.previous = n.link
	}
	if n.name == "" || !n.member {
		n.name = l.peer.Name
	}
	n.link, n.leaving = l, false
	n.generation++
	l.neighbour, l.claimed = n, time.Now()
	l.waiting.Store(int64(m.now()))
	// A waiting dialler must see this link, or it counts its pause from the end of an older one.
	n.nudge()
	m.workers.Go(func() {
		l.run()
		m.linkEnded(l)
	})
	return nil
}

// replaces reports whether next replaces current. Both brokers decide alike by three rules:
//
//  1. A new process of the peer replaces its old one.
//  2. The connection that the smaller id dialled replaces the other one.
//  3. Any connection replaces a silent link.
func (m *Mesh) replaces(next, current *link) bool {
	return next.peer.Session != current.peer.Session || next.dialed == m.dialsFirst(next.peer.ID) || current.suspect.Load()
}

// dialsFirst reports whether this broker is the one of the pair that dials first.
func (m *Mesh) dialsFirst(peer string) bool { return m.config.ID < peer }

func (m *Mesh) linkUp(l *link) {
	m.mu.Lock()
	n := l.neighbour
	if n.link == l {
		n.changed, n.lastErr, n.loggedCause = time.Now(), nil, ""
		n.linkedIncarnation, n.linkLost, n.silent = n.incarnation, false, false
	}
	generation := n.generation
	m.mu.Unlock()
	m.log.Info("Link up", "peer", l.peer.Name, "id", l.peer.ID, "remote", l.raw.RemoteAddr().String(), "dialled", l.dialed,
		"generation", generation, "interest", l.plain.Load()+l.groups.Load())
	m.config.Changed()
}

func (m *Mesh) peerLeaves(l *link) {
	m.mu.Lock()
	if l.neighbour.link == l {
		l.neighbour.leaving = true
	}
	m.mu.Unlock()
	m.log.Info("Peer is leaving", "peer", l.peer.Name, "id", l.peer.ID)
	m.config.Changed()
}

func (m *Mesh) linkEnded(l *link) {
	lost := l.out.lostMessages()
	m.mu.Lock()
	n := l.neighbour
	n.lost += lost
	if errors.Is(l.err, errOverflow) {
		n.overflows++
	}
	if n.link == l {
		n.link = nil
		n.linkLost = (l.up.Load() || l.succeeds) && !m.closed && l.endedExternally()
		n.silent = n.silent || n.linkLost && l.silent.Load()
		n.changed, n.lastErr, n.lastErrAt = time.Now(), l.err, time.Now()
		m.forgetLocked(n)
	}
	told := n.loggedCause
	if !l.up.Load() {
		n.loggedCause = causeOf(l.err)
	}
	closing := m.closed
	n.nudge()
	m.mu.Unlock()

	level := slog.LevelWarn
	switch {
	case errors.Is(l.err, errReplaced), l.leaving.Load(), closing:
		level = slog.LevelInfo
	case !l.up.Load() && told == causeOf(l.err):
		level = slog.LevelDebug
	}
	m.log.Log(context.Background(), level, "Link down", "peer", l.peer.Name, "id", l.peer.ID, "error", l.err, "was_up", l.up.Load(), "lost_messages", lost)
	if l.up.Load() {
		m.config.Changed()
	}
}

// Leaving reports whether the named broker announced that it leaves. Clients should not be sent to
// it.
func (m *Mesh) Leaving(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.neighbours[id]
	return n != nil && n.leaving
}

// links returns the links that are alive.
func (m *Mesh) links() []*link {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []*link
	for _, n := range m.neighbours {
		if n.link != nil && n.link.alive() {
			all = append(all, n.link)
		}
	}
	return all
}

// Leave announces to all peers that this broker leaves, and returns when that is written or ctx
// ends. The links work until Close, since clients may still be connected.
func (m *Mesh) Leave(ctx context.Context) error {
	if m.leaving.Swap(true) {
		return nil
	}
	all := m.links()
	for _, l := range all {
		l.announceLeaving()
	}
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for _, l := range all {
		for l.alive() && l.Pending() > 0 {
			select {
			case <-ctx.Done():
				return fmt.Errorf("tell broker %q that this one leaves: %w", l.peer.Name, ctx.Err())
			case <-ticker.C:
			}
		}
	}
	return nil
}

// Close writes what is queued, for at most partingTimeout, ends all links and waits for all
// goroutines of the mesh.
func (m *Mesh) Close() {
	m.leaving.Store(true)
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.cancel()
	m.config.Listener.Close()
	all := m.links()
	for _, l := range all {
		l.announceLeaving()
		l.drain()
	}
	patience := time.NewTimer(m.parting)
	defer patience.Stop()
	for _, l := range all {
		select {
		case <-l.done:
		case <-patience.C:
			patience.Reset(0)
			l.fail(errClosing)
		}
	}
	m.workers.Wait()
}
