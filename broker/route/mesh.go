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

// Member is one broker of the cluster, as the membership has it.
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

	// Listener takes the peers' connections; the Mesh closes it.
	Listener net.Listener
	// Dial opens a connection to a route address; nil means TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)

	// ServerTLS and ClientTLS give the configuration of one connection: on the side that
	// accepts, and on the side that dials a host. Both nil means plaintext, for one laptop only.
	ServerTLS func() *tls.Config
	ClientTLS func(serverName string) *tls.Config

	// Topics exchange frames of their own with other brokers' over the links. nil: there are none.
	Topics Topics

	MaxPayload int // of a client's message, headers included
	// Features are announced to the peers of replication connections.
	Features coordination.FeatureSet
	Logger   *slog.Logger
	// Changed is called after a link came up or went down, or a peer said that it is leaving.
	// It must not block.
	Changed func()
	// Dead is called when a member whose link had been up has closed it, and then its kernel refuses a
	// connection: the process is dead. It is called once for each such death, on a goroutine that dials that member.
	Dead func(member Member)
	// Replication takes the connections by which other brokers follow shards from here. Whoever is called owns conn, and
	// returns when it has ended; Close ends it, too. nil: such connections are refused.
	Replication func(conn net.Conn, broker string)
}

// Mesh is this broker's links to all other brokers of its cluster.
type Mesh struct {
	config     Config
	own        hello
	log        *slog.Logger
	epoch      time.Time
	ctx        context.Context
	cancel     context.CancelFunc
	workers    sync.WaitGroup
	leaving    atomic.Bool
	handshakes chan struct{} // one token per connection that has not said who it is

	mu         sync.Mutex
	closed     bool
	neighbours map[string]*neighbour // members and linked peers, by id
	refusals   map[Cause]uint64
	loggedAt   map[Cause]time.Time
	accepted   uint64
}

// neighbour is another broker: a member, or linked, or both. Its fields are guarded by Mesh.mu,
// except for the atomic ones.
type neighbour struct {
	id, name, address string
	incarnation       int64
	member            bool
	dialling          bool
	fresh             bool // the membership changed: dial now, whatever the pause
	leaving           bool
	link              *link
	generation        uint64 // how many connections there were
	attempts          uint64 // dials that were begun
	lost              uint64 // messages dropped with links that ended
	overflows         uint64
	changed           time.Time // when it last went up or down
	trouble           error     // why there is no link; nil while up
	troubled          time.Time
	told              Cause // the trouble that is in the log already
	seen              int64 // the incarnation in which it was linked last
	ended             bool  // and that link ended, through no doing of this broker
	silent            bool  // and it was silent then

	wake    chan struct{}
	traffic traffic
}

type traffic struct {
	inMessages, inBytes, outMessages, outBytes atomic.Uint64
}

// nudge makes the neighbour's dialler look again.
func (n *neighbour) nudge() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// Start makes a Mesh that accepts peers; SetMembers tells it whom to dial.
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
		epoch:      time.Now(),
		handshakes: make(chan struct{}, maxGreeting),
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

// now is the mesh's clock, which only goes forward.
func (m *Mesh) now() time.Duration { return time.Since(m.epoch) }

// SetMembers tells who belongs to the cluster now. This broker may be among them. A member that
// is gone is no longer dialled; its link lives on for as long as the connection does.
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
			n.fresh = true
			if n.incarnation != member.Incarnation {
				n.leaving, n.ended, n.silent = false, false, false // Whoever left has come back.
			}
		}
		n.member, n.name, n.address, n.incarnation = true, member.Name, member.Route, member.Incarnation
		if n.link != nil && n.link.alive() && n.link.up.Load() {
			n.seen = member.Incarnation
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

// forgetLocked drops a neighbour that is neither a member nor linked nor being dialled. One that
// is being dialled is dropped by its dialler.
func (m *Mesh) forgetLocked(n *neighbour) {
	if !n.member && n.link == nil && !n.dialling {
		delete(m.neighbours, n.id)
	}
}

// claim makes l the link of its peer, or says why it may not be. It starts l.
func (m *Mesh) claim(l *link) *Refusal {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return refuse(CauseClosing, "broker %q is shutting down", m.config.Name)
	}
	n := m.neighbourLocked(l.peer.ID)
	if n.link != nil {
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
	n.nudge() // A dialler that rests must see this link, else it counts its pause from an older one's end.
	m.workers.Go(func() {
		l.run()
		m.linkEnded(l)
	})
	return nil
}

// replaces decides between two connections to one peer, so that both brokers decide alike:
// a new process of the peer beats its old one, the connection that the smaller id dialled beats
// the other, and anything beats a link that has gone silent.
func (m *Mesh) replaces(next, current *link) bool {
	return next.peer.Session != current.peer.Session || next.dialed == m.dialsFirst(next.peer.ID) || current.suspect.Load()
}

// dialsFirst says which of the two brokers of a pair should dial.
func (m *Mesh) dialsFirst(peer string) bool { return m.config.ID < peer }

func (m *Mesh) linkUp(l *link) {
	m.mu.Lock()
	n := l.neighbour
	if n.link == l {
		n.changed, n.trouble, n.told = time.Now(), nil, ""
		n.seen, n.ended, n.silent = n.incarnation, false, false
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
		n.ended = l.up.Load() && !m.closed && l.foreign()
		n.silent = n.silent || n.ended && l.silent.Load()
		n.changed, n.trouble, n.troubled = time.Now(), l.err, time.Now()
		m.forgetLocked(n)
	}
	told := n.told
	if !l.up.Load() {
		n.told = causeOf(l.err)
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

// Leaving says whether that broker told that it is going away, so that clients should not be
// sent there.
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

// Leave tells the peers that this broker is going away on purpose, and waits until that is
// written or ctx ends. The links go on working until Close, since clients may still be here.
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

// Close writes what is queued, as far as a second allows, ends all links and waits for
// everything that the mesh has started.
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
	patience := time.NewTimer(partingTimeout)
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
