package world

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/membership"
	"github.com/carillon-mq/carillon/broker/placement"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/replica"
	"github.com/carillon-mq/carillon/broker/route"
	"github.com/carillon-mq/carillon/broker/sourcing"
	"github.com/carillon-mq/carillon/broker/stall"
	"github.com/carillon-mq/carillon/broker/subscription"
	"github.com/carillon-mq/carillon/broker/topic"
	"github.com/carillon-mq/carillon/broker/viewing"
)

const (
	clusterName = "world/main"
	dataDir     = "data"
	routePort   = "6222"
	maxPayload  = 64 << 10
	// restart is the time after which a process that ended by itself is started again.
	restart = time.Second
)

// diskOptions make a few hundred records fill segments.
var diskOptions = log.Options{SegmentSmallest: 16 << 10, SegmentLargest: 32 << 10, TailBytes: 64 << 10, SyncAllFrom: 4}

// machine is what a broker runs on: a disk, a clock, a plug.
type machine struct {
	w      *world
	id     string
	zone   string
	fs     *crashfs.FS
	offset atomic.Int64 // of its clock, in ns
	boots  int
	saved  atomic.Pointer[clock.Saved] // by the last broker on it
	seen   atomic.Pointer[coordination.Seen]

	on      bool // it has power, and its kernel runs
	wanted  bool // a process should run
	life    *life
	lives   int
	stopped bool // for good
	touched bool // files of it were changed or lost
	damaged bool // bits of its files were flipped, perhaps unnoticed

	stalled bool
	failing bool
	// failingWrites is how many of the next writes to segments fail; beside is a machine whose
	// process is killed when the next one does, or nil.
	failingWrites int
	beside        *machine
	slow          time.Duration
	lateWatch     time.Duration
	snapshot      *volume
}

func newMachine(w *world, id, zone string) *machine {
	m := &machine{w: w, id: id, zone: zone, on: true}
	m.plug(crashfs.New())
	return m
}

func (m *machine) plug(fs *crashfs.FS) {
	m.fs = fs
	fs.SetHook(m.hook)
}

func (m *machine) address() string { return net.JoinHostPort(m.id, routePort) }

// savedClock stores what a broker saves of its clock. It is not on the disk, so that it takes no
// steps of the world.
type savedClock struct{ m *machine }

func (s savedClock) Load() (*clock.Saved, error) { return s.m.saved.Load(), nil }

func (s savedClock) Save(saved clock.Saved) error {
	s.m.saved.Store(&saved)
	return nil
}

// savedSeen stores what a broker saw of etcd, as savedClock does.
type savedSeen struct{ m *machine }

func (s savedSeen) Load() (*coordination.Seen, error) { return s.m.seen.Load(), nil }

func (s savedSeen) Save(seen coordination.Seen) error {
	s.m.seen.Store(&seen)
	return nil
}

// life is one process: a broker as broker.Run assembles it, without clients' connections, HTTP and
// TLS.
type life struct {
	m      *machine
	number int
	boot   int // of the machine, in which it began
	dead   atomic.Bool
	gone   chan struct{} // closed when it is dead

	unplugged  bool // it died with its machine
	altered    bool // files of its machine were altered after its start
	operations atomic.Int64
	dieAt      atomic.Int64 // the changing operation on its disk in which it dies

	mu    sync.Mutex
	conns map[*conn]struct{}

	ctx      context.Context
	cancel   context.CancelFunc
	listener *listener
	disk     *log.Disk
	store    *coordination.Client
	clock    *clock.Clock
	exchange *replica.Exchange
	service  *topic.Service
	// subscriptions are served from the first State that the service receives.
	subscriptions *subscription.Service
	sourcing      *sourcing.Sourcing[*topic.ShardLeader] // nil: no Topic of the world has a source
	views         *viewing.Service[*topic.ShardLeader]   // nil: no Topic of the world has Views
	mesh          *route.Mesh
	hub           *hub
	log           *slog.Logger

	member *membership.Member
	stall  *stall.Watch
	// controller is the process's controller.
	controller atomic.Pointer[placement.Controller]
	running    sync.WaitGroup
	ready      atomic.Bool   // clients may connect
	stopping   chan struct{} // a token: end in order
	then       []func()      // called on the world's goroutine when it has ended
}

func (l *life) String() string { return fmt.Sprintf("%s.%d", l.m.id, l.number) }

func (l *life) own(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[c] = struct{}{}
}

func (l *life) disown(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

// start starts a process, unless one runs.
func (m *machine) start() {
	if m.stopped || !m.on || m.life != nil && !m.life.dead.Load() {
		return
	}
	m.wanted = true
	m.lives++
	l := &life{m: m, number: m.lives, boot: m.boots, gone: make(chan struct{}), conns: map[*conn]struct{}{}, stopping: make(chan struct{}, 1)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.log = slog.New(m.w.logged.of(l))
	l.member = membership.New(m.id, nobodyElse{}, l.log)
	m.life = l
	m.w.notef("%s starts", l)
	m.w.running.Go(l.live)
}

// live runs the process: it opens everything, and ends on request, by a kill, or by an error.
func (l *life) live() {
	m := l.m
	err := l.run()
	inOrder := false
	if err == nil {
		select {
		case <-l.gone:
		case <-l.stopping:
			l.handOver()
			inOrder = true
		}
	} else {
		l.log.Error("the process can't start", "error", err)
	}
	l.ready.Store(false)
	if closing := l.close(inOrder); closing != nil {
		l.log.Warn("not closed in order", "error", closing)
	}
	if !l.dead.Swap(true) {
		close(l.gone)
	}
	m.w.after(0, fmt.Sprintf("%s has ended", l), func() {
		m.w.judge.exposed()
		for _, then := range l.then {
			then()
		}
		if err != nil && m.wanted {
			m.w.after(restart, m.id+" is started again", m.start)
		}
	})
}

// handOver transfers this broker's leaderships to other brokers, as broker.Run does before an
// orderly end.
func (l *life) handOver() {
	ctx, cancel := context.WithTimeout(l.ctx, 5*time.Second)
	defer cancel()
	if !l.member.Joined() || l.service.Leads() == 0 || l.store.Drain(ctx, l.member.Replica(), coordination.DrainLeadership, true) != nil {
		return
	}
	for {
		changed := l.service.Changed()
		if l.service.Leads() == 0 {
			return
		}
		select {
		case <-changed:
		case <-l.gone:
			return
		case <-ctx.Done():
			return
		}
	}
}

// run opens everything and serves until the process ends. It returns an error if it can't go on.
func (l *life) run() (err error) {
	m := l.m
	l.clock = clock.New(clock.Config{Wall: env.NewOffsetClock(&m.offset).Now, Mono: func() int64 { return int64(m.w.now()) },
		Boot: fmt.Sprint(m.boots), Store: savedClock{m}, Logger: l.log})
	var open sync.WaitGroup
	open.Add(1)
	opened := sync.OnceFunc(open.Done)
	defer opened()
	options := diskOptions
	options.Committed = func(idle bool) {
		open.Wait()
		if l.service != nil {
			l.service.Committed(idle)
		}
	}
	watched := env.Watch(&disk{life: l, fs: m.fs})
	if l.disk, err = log.OpenDisk(watched, dataDir, options); err != nil {
		return err
	}
	l.stall = stall.New(stall.Config{Dir: dataDir, FS: watched, Rounds: l.disk, Limit: limits.DiskStallLimit, CanHandOver: l.member.HasOthers, Logger: l.log})
	var mark orderly
	if data := l.disk.Mark(); data != nil && json.Unmarshal(data, &mark) == nil {
		l.member.SetSince(mark.Since)
	}
	a := access{m.w.etcd, l}
	l.store, err = coordination.Open(coordination.Config{Cluster: clusterName, Logger: l.log, Seen: savedSeen{m}, Remote: &coordination.Remote{
		KV: &kvAccess{access: a}, Lease: &leaseAccess{access: a}, Watch: &watchAccess{access: a}}})
	if err != nil {
		return err
	}
	l.hub = newHub(l)
	l.exchange = replica.NewExchange(replica.Config{Self: m.id, Clock: l.clock, Store: l.store, Logger: l.log,
		Dial: func(ctx context.Context, broker string) (net.Conn, error) { return l.mesh.DialReplication(ctx, broker) }})
	hub, outputs := publish.Hub(l.hub), l.newOutputs()
	if m.w.viewed {
		hub = jsonAnswers{outputs.Hub(hub)}
	}
	l.service, err = topic.Open(topic.Config{Self: m.id, Name: m.id, Disk: l.disk, Clock: l.clock, Hub: hub, Codec: codec{}, Payload: maxPayload, Logger: l.log,
		Exchange: l.exchange, Compact: compacting, Ahead: aheadBound,
		Deleted: l.store.TopicDeleted,
		Leading: func(s *topic.ShardLeader, open bool) {
			if l.views != nil {
				l.views.Leading(s, open) // before Subscriptions trim the state log
			}
			l.subscriptions.ShardChanged(s, open)
		},
		Report: func(ctx context.Context, generation int64, suspects []coordination.Suspect) error {
			return l.store.Report(ctx, l.member.Replica(), generation, suspects)
		}})
	if err != nil {
		return err
	}
	l.subscriptions = subscription.New(subscription.Config{Self: m.id, Topics: l.service, Clock: l.clock, Logger: l.log, Sink: l.outlet})
	if m.w.sourced {
		l.sourcing = l.newSourcing()
	}
	if m.w.viewed {
		l.views = l.newViews(outputs)
	}
	opened()
	l.listener = m.w.network.listen(l, m.address())
	l.mesh, err = route.Start(route.Config{ID: m.id, Name: m.id, Cluster: clusterName, Hub: noClients{}, Listener: l.listener, MaxPayload: maxPayload, Features: coordination.Features(), Logger: l.log,
		Dial:        func(ctx context.Context, to string) (net.Conn, error) { return m.w.network.dial(ctx, l, to) },
		Replication: l.exchange.Serve, Topics: ways{l.service},
		Dead: l.member.Evict, Changed: l.member.Changed})
	if err != nil {
		return err
	}
	l.member.SetLinks(l.mesh)
	l.serve()
	return nil
}

// serve starts the services that run until the process ends.
func (l *life) serve() {
	if l.sourcing != nil {
		l.sourcing.Start()
	}
	if l.views != nil {
		l.views.Start()
	}
	l.running.Go(func() { l.clock.Run(l.ctx) })
	l.running.Go(func() { l.clock.Keep(l.ctx) })
	l.running.Go(func() {
		select {
		case <-l.member.Registered():
		case <-l.ctx.Done():
			return
		}
		_ = l.store.WatchState(l.ctx, l.follow)
	})
	l.running.Go(func() {
		self := coordination.Broker{ID: l.m.id, Name: l.m.id, Zone: l.m.zone, Client: l.m.id + ":4222", Route: l.m.address(), Features: coordination.Features()}
		if err := l.member.Register(l.ctx, l.store, self); err != nil && l.ctx.Err() == nil {
			l.m.w.fail("%s: %v", l, err)
		}
	})
	l.running.Go(l.control)
	l.running.Go(func() { l.member.EvictDead(l.ctx, l.store) })
	l.running.Go(func() { l.member.ReportSilent(l.ctx, l.store) })
	l.running.Go(func() { l.stall.Run(l.ctx, l.abandon) })
}

// abandon makes a broker whose disk hangs disappear to others, as package broker does: it gives up
// its lease, then its connections. The process is then started again.
func (l *life) abandon(err *stall.Error) {
	l.ready.Store(false)
	l.log.Error("the disk hangs", "error", err)
	self := l.member.Replica()
	limit, cancel := context.WithTimeout(l.ctx, 2*time.Second)
	defer cancel()
	_ = l.store.Evict(limit, self) // without it, the lease expires
	l.die()
	m := l.m
	m.w.after(restart, m.id+" is started again", func() {
		if m.wanted {
			m.start()
		}
	})
}

func (l *life) follow(state *coordination.State, changes coordination.Changes) {
	if l.dead.Load() {
		return
	}
	if changes.Brokers || l.service.State() == nil {
		l.member.SetMembers(state.Brokers)
	}
	l.exchange.Observe(state)
	l.service.Follow(state, changes)
	l.subscriptions.Follow(state, changes)
	l.ready.Store(true)
}

func (l *life) control() {
	controller := placement.NewController(l.store, l.service, l.log)
	l.controller.Store(controller)
	for {
		select {
		case <-l.ctx.Done():
			return
		case incarnation := <-l.member.Incarnations():
			if err := controller.Run(l.ctx, coordination.Replica{Broker: l.m.id, Incarnation: incarnation}); err != nil && l.ctx.Err() == nil {
				l.m.w.fail("%s: stand for election: %v", l, err)
			}
		}
	}
}

// die makes all further actions of the process ineffective. Any goroutine may call it.
func (l *life) die() {
	if l.dead.Swap(true) {
		return
	}
	close(l.gone)
	l.m.w.after(0, fmt.Sprintf("%s is dead", l), l.bury)
}

// kill ends the process at once, as SIGKILL does: the kernel closes its connections, and its page
// cache stays.
func (l *life) kill() { l.die() }

// bury releases what a dead process still holds.
func (l *life) bury() {
	l.ready.Store(false)
	l.m.w.judge.exposed()
	l.mu.Lock()
	conns := make([]*conn, 0, len(l.conns))
	for c := range l.conns {
		conns = append(conns, c)
	}
	l.mu.Unlock()
	sortConns(conns)
	for _, c := range conns {
		if l.unplugged {
			c.mu.Lock()
			c.closed = true
			c.broadcast()
			c.mu.Unlock()
		} else {
			_ = c.Close()
		}
	}
}

type orderly struct {
	Since int64 `json:"since"`
}

// close closes what run opened. An orderly end leaves a mark on the disk.
func (l *life) close(inOrder bool) (err error) {
	l.cancel()
	l.running.Wait()
	if l.sourcing != nil {
		l.sourcing.Close()
	}
	if l.views != nil {
		l.views.Close()
	}
	if l.subscriptions != nil {
		err = l.subscriptions.Close()
	}
	if l.service != nil {
		err = errors.Join(err, l.service.Close())
		l.m.w.compacted(l.service.Compacted())
	}
	if l.mesh != nil {
		l.mesh.Close()
	}
	if l.exchange != nil {
		l.exchange.Close()
	}
	if l.store != nil {
		_ = l.store.Close()
	}
	if l.disk == nil {
		return err
	}
	if !inOrder || err != nil || l.member.Since() == 0 {
		return errors.Join(err, l.disk.Close())
	}
	data, _ := json.Marshal(orderly{Since: l.member.Since()}) // it has one number
	return l.disk.CloseMarked(data)
}

// stop ends the process in order: it hands over leadership first. When it has ended, then is called
// on the world's goroutine.
func (m *machine) stop(then func()) {
	l := m.life
	if l == nil || l.dead.Load() {
		m.w.after(0, m.id+" has nothing to stop", then)
		return
	}
	m.wanted = false
	m.w.notef("%s is stopped", l)
	l.then = append(l.then, then)
	select {
	case l.stopping <- struct{}{}:
	default:
	}
}

// unplug cuts the machine's power. Unsynced data survives in part, as the seed decides.
func (m *machine) unplug() {
	if !m.on {
		return
	}
	m.w.notef("%s loses power", m.id)
	m.on = false
	if m.life != nil && !m.life.dead.Load() {
		m.life.unplugged = true
		m.life.kill()
	}
	m.plug(m.fs.Crash(m.w.rng))
	m.boots++
	m.w.judge.exposed()
}

// ways are a process's links, as package topic sees them.
type ways struct{ *topic.Service }

func (w ways) Attach(broker string, way route.Carrier) route.TopicsSide {
	return w.Service.Attach(broker, way)
}

// nobodyElse ignores the addresses of other brokers that clients may use.
type nobodyElse struct{}

func (nobodyElse) SetURLs(_, _ []string) {}
