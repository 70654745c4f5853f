package membership

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/route"
)

// linkWait bounds how long a starting broker waits for its links before it accepts clients. A
// member that died or is cut off from most others leaves the cluster within some ten seconds, and
// is not waited for any longer. What remains are two live brokers without a way to each other, and
// neither of them may be out of service for good. linkWarn is when a waiting broker says so.
const (
	linkWait = 30 * time.Second
	linkWarn = 5 * time.Second
)

// maxRoutes bounds the remembered addresses of brokers: far more than a cluster has, also of those
// that were replaced.
const maxRoutes = 10_000

// Store is the part of coordination.Client that membership uses.
type Store interface {
	Join(ctx context.Context, self coordination.Broker, onJoined func(incarnation int64)) error
	Evict(ctx context.Context, broker coordination.Replica) error
	ReportSilent(ctx context.Context, by, silent coordination.Replica) (evicted bool, err error)
	WithdrawSilent(ctx context.Context, by, heard coordination.Replica) error
}

// Links is the part of route.Mesh that membership uses.
type Links interface {
	SetMembers([]route.Member)
	Linked() (up, members int)
	Leaving(broker string) bool
	Silent() []route.Member
	Hushed() <-chan struct{}
}

// Clients is the part of session.Hub that membership uses.
type Clients interface{ SetURLs(urls, web []string) }

// Member is this broker as a member of its cluster. All methods may be called concurrently.
type Member struct {
	id      string
	clients Clients
	log     *slog.Logger
	links   Links // nil: none

	incarnation atomic.Int64
	others      atomic.Int64 // members but this one
	since       atomic.Int64
	registered  chan struct{}             // closed at the first registration
	latest      chan int64                // the newest incarnation
	dead        chan coordination.Replica // to evict
	// changed holds a token after a change of the links or the registration.
	changed chan struct{}

	mu      sync.Mutex
	members []coordination.Broker
	urls    []string          // what clients were told last
	webURLs []string          // the same of WebSocket
	known   chan struct{}     // closed when members are known
	first   sync.Once         // closes known
	routes  map[string]string // route addresses of all brokers that were members, by id
	newer   chan struct{}     // closed when routes has changed
}

// New returns the Member of the broker with that id, not yet registered.
func New(id string, clients Clients, logger *slog.Logger) *Member {
	return &Member{
		id: id, clients: clients, log: logger,
		registered: make(chan struct{}), latest: make(chan int64, 1), known: make(chan struct{}),
		dead: make(chan coordination.Replica, pendingEvictions), changed: make(chan struct{}, 1),
		routes: map[string]string{}, newer: make(chan struct{}),
	}
}

// SetLinks names the links to other brokers. It is called before the methods that use them:
// SetMembers, ServeClients, AwaitLinks and ReportSilent.
func (m *Member) SetLinks(links Links) { m.links = links }

// SetSince sets the earliest incarnation since which the volume holds every write. By default that
// is the first incarnation of this process.
func (m *Member) SetSince(incarnation int64) { m.since.Store(incarnation) }

// Since returns the earliest incarnation since which the volume holds every write; 0: none.
func (m *Member) Since() int64 { return m.since.Load() }

// Register keeps self registered until ctx ends. An error means that retrying can't help.
func (m *Member) Register(ctx context.Context, store Store, self coordination.Broker) error {
	self.Since = m.Since()
	return store.Join(ctx, self, m.joined)
}

func (m *Member) joined(incarnation int64) {
	first := m.incarnation.Swap(incarnation) == 0
	m.since.CompareAndSwap(0, incarnation)
	if first {
		close(m.registered)
	}
	select {
	case <-m.latest: // a later registration replaces one that was not read
	default:
	}
	m.latest <- incarnation
	m.log.Info("Joined", "broker", m.id, "incarnation", incarnation)
	m.Changed()
}

// Registered is closed once this process has registered.
func (m *Member) Registered() <-chan struct{} { return m.registered }

// Incarnations yields the newest incarnation after each registration, to one reader.
func (m *Member) Incarnations() <-chan int64 { return m.latest }

// Joined reports whether this process has registered.
func (m *Member) Joined() bool { return m.Incarnation() != 0 }

// Incarnation returns the newest incarnation; 0: not registered yet.
func (m *Member) Incarnation() int64 { return m.incarnation.Load() }

// Replica returns this broker in its newest incarnation.
func (m *Member) Replica() coordination.Replica {
	return coordination.Replica{Broker: m.id, Incarnation: m.Incarnation()}
}

// Members returns the members as of the last State. The caller must not change the slice.
func (m *Member) Members() []coordination.Broker {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.members // replaced as a whole, never changed
}

// HasOthers reports whether this broker has registered and knows of another broker. It takes no
// lock.
func (m *Member) HasOthers() bool { return m.Joined() && m.others.Load() > 0 }

// SetMembers stores a new list of members and passes it to links and clients.
func (m *Member) SetMembers(all []coordination.Broker) {
	others := int64(0)
	for _, b := range all {
		if b.ID != m.id {
			others++
		}
	}
	m.others.Store(others)
	if m.links != nil {
		members := make([]route.Member, 0, len(all))
		for _, b := range all {
			members = append(members, route.Member{ID: b.ID, Name: b.Name, Route: b.Route, Incarnation: b.Incarnation})
		}
		m.links.SetMembers(members)
	}
	m.mu.Lock()
	m.members = all
	m.noteRoutes()
	m.mu.Unlock()
	m.first.Do(func() { close(m.known) })
	m.advertise()
	m.Changed() // AwaitLinks may have waited for one that is gone
}

// noteRoutes notes the addresses of the members. mu is held.
func (m *Member) noteRoutes() {
	if len(m.routes)+len(m.members) > maxRoutes {
		clear(m.routes)
	}
	for _, b := range m.members {
		m.routes[b.ID] = b.Route
	}
	close(m.newer)
	m.newer = make(chan struct{})
}

// RouteOf returns the route address at which a broker is registered, or was since this process
// started. It waits for a broker that is not known until ctx ends.
func (m *Member) RouteOf(ctx context.Context, broker string) (address string, ok bool) {
	for {
		m.mu.Lock()
		address, ok = m.routes[broker]
		newer := m.newer
		m.mu.Unlock()
		if ok {
			return address, true
		}
		select {
		case <-newer:
		case <-ctx.Done():
			return "", false
		}
	}
}

// Changed reports that a link went up or down, or that a peer announced that it leaves.
func (m *Member) Changed() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// ServeClients keeps clients informed of the brokers that they can connect to, until ctx ends.
func (m *Member) ServeClients(ctx context.Context) {
	for {
		select {
		case <-m.changed:
			m.advertise()
		case <-ctx.Done():
			return
		}
	}
}

// advertise tells clients the addresses of all other members that have not announced their end.
func (m *Member) advertise() {
	m.mu.Lock()
	defer m.mu.Unlock()
	urls, web := make([]string, 0, len(m.members)), []string(nil)
	for _, b := range m.members {
		if b.ID != m.id && (m.links == nil || !m.links.Leaving(b.ID)) {
			urls = append(urls, b.Client)
			if b.WebSocket != "" {
				web = append(web, b.WebSocket)
			}
		}
	}
	if !slices.Equal(urls, m.urls) || !slices.Equal(web, m.webURLs) {
		m.urls, m.webURLs = urls, web
		m.clients.SetURLs(urls, web)
	}
}

// AwaitLinks returns true once this broker is registered and linked to all members, or linkWait
// after it registered. It returns false when ctx ends first. It is for a start only: a broker that
// has served clients goes on without links, since two that lost each other would both stop.
func (m *Member) AwaitLinks(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-m.known:
	}
	var late, warn <-chan time.Time
	for {
		linked, up, members := true, 0, 0
		if m.links != nil {
			up, members = m.links.Linked()
			linked = up == members
		}
		joined := m.Joined()
		if joined && linked {
			return true
		}
		if joined && late == nil {
			late, warn = time.After(linkWait), time.After(linkWarn)
		}
		select {
		case <-ctx.Done():
			return false
		case <-late:
			m.log.Warn("Taking clients before all links are up", "waited", linkWait, "links", up, "members", members)
			return true
		case <-warn:
			m.log.Warn("Waiting for links to other brokers before clients are taken", "links", up, "members", members, "atMost", linkWait)
		case <-m.changed:
		}
	}
}
