package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/quota"
	"github.com/carillon-mq/carillon/broker/subject"
	"github.com/carillon-mq/carillon/broker/websocket"
	"github.com/carillon-mq/carillon/broker/work"
)

// Config configures a Hub.
type Config struct {
	ServerID   string // of this process
	ServerName string
	Version    string // shown to clients, see broker.ProtocolVersion
	Cluster    string
	Advertise  string // host:port for INFO; empty: each listener's own
	Profile    limits.Profile
	Auth       Authenticator // nil: every client may do everything
	TLS        *TLS          // of clients; nil: plaintext only
	WebSocket  WebSocket     // of the port for WebSocket
	JetStream  bool          // shown in INFO: the JetStream API is served
	APILevel   int           // of JetStream, shown in INFO
	Loops      int           // number of sender loops; 0: one per core that Go uses
	Ping       time.Duration // between PINGs to a silent client; 0: limits.PingInterval
	AuthWait   time.Duration // for CONNECT; 0: limits.AuthTimeout
	Logger     *slog.Logger  // nil: discard
}

// Hub connects all clients of one broker with each other, with Takers, and with the links to other
// brokers. Its methods are safe for concurrent use.
type Hub struct {
	config  Config
	profile limits.Profile
	auth    Authenticator
	log     *slog.Logger
	depart  time.Duration   // departTime, except in tests
	notable notable         // log of what clients do wrong
	alive   context.Context // until Close
	ending  context.CancelFunc
	loops   []*loop
	batches sync.Pool
	caches  sync.Pool
	senders sync.Pool
	ids     atomic.Uint64

	// The index lock; see the package's invariants. It guards all down to the next blank line.
	lock    sync.RWMutex
	index   *subject.Index[*Sub, *Peer]
	peers   []*Peer
	watches map[watched][]*Watch
	// brokers holds the linked peers by broker id.
	brokers map[string]*Peer
	// interestCost is the sum of costOf for all subscriptions.
	interestCost int64

	// Connections, listeners, and what INFO shows. Guarded by mu.
	mu         sync.Mutex
	conns      map[uint64]*Conn
	users      map[string]*user // by name
	quota      quota.Ledger     // how their limits a second are divided
	divided    time.Time        // when divide was called last
	listeners  []net.Listener
	urls       []string // of the other brokers
	webURLs    []string // of the other brokers, for WebSocket
	leaving    bool
	stopping   bool
	past       Totals // of connections that have ended
	ended      map[Reason]uint64
	handshakes map[Outcome]uint64
	upgrades   map[Outcome]uint64

	pending   atomic.Int64 // bytes waiting for slow clients
	held      atomic.Int64 // memory that they hold
	rejecting atomic.Int64 // rejected connections that still have to read their -ERR
	parked    atomic.Int64 // connections with a writer goroutine
	stalls    atomic.Uint64
	refusals  atomic.Uint64
	// rateWaited is for how long connections have waited for room below their users' limits, in ns.
	rateWaited atomic.Int64
	// violations are the requests that clients had no right to.
	violations atomic.Uint64
	informed   atomic.Uint64 // how often all clients were sent INFO

	declarer  func(client uint64) Declarer // nil: messages declare nothing
	computing chan struct{}                // turns of handshakes
	input     input

	running sync.WaitGroup // readers, sweeper
	writing sync.WaitGroup // writer goroutines of parked connections
	sending sync.WaitGroup // loops
	quit    chan struct{}
}

// NewHub starts a Hub with its sender loops and its sweeper. Close ends them.
func NewHub(config Config) *Hub {
	if config.Loops <= 0 {
		config.Loops = runtime.GOMAXPROCS(0)
	}
	if config.Ping <= 0 {
		config.Ping = limits.PingInterval
	}
	if config.AuthWait <= 0 {
		config.AuthWait = limits.AuthTimeout
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	h := &Hub{
		config: config, profile: config.Profile, auth: config.Auth, log: config.Logger, depart: departTime,
		index:   subject.NewIndex[*Sub, *Peer](config.Loops),
		brokers: make(map[string]*Peer),
		conns:   make(map[uint64]*Conn), users: make(map[string]*user), ended: make(map[Reason]uint64), quit: make(chan struct{}),
		handshakes: make(map[Outcome]uint64), upgrades: make(map[Outcome]uint64), computing: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
	}
	h.alive, h.ending = context.WithCancel(context.Background())
	h.notable.log = h.log
	h.input.open(&h.profile)
	h.batches.New = func() any { return h.newBatch() }
	h.caches.New = func() any { return new(cache) }
	h.senders.New = h.newSender
	for i := range config.Loops {
		l := newLoop(h, i)
		h.loops = append(h.loops, l)
		h.sending.Go(l.run)
	}
	h.running.Go(h.sweep)
	return h
}

// Serve accepts clients until the listener or the hub is closed.
func (h *Hub) Serve(ln net.Listener) error { return h.serve(ln, false) }

// ServeWebSocket is Serve for a port for WebSocket.
func (h *Hub) ServeWebSocket(ln net.Listener) error { return h.serve(ln, true) }

func (h *Hub) serve(ln net.Listener, web bool) error {
	h.mu.Lock()
	if h.stopping || h.leaving {
		h.mu.Unlock()
		return ln.Close()
	}
	h.listeners = append(h.listeners, ln)
	h.mu.Unlock()
	for {
		nc, err := ln.Accept()
		switch {
		case err == nil:
			h.accept(nc, web)
		case errors.Is(err, net.ErrClosed):
			return nil
		default: // often too many open files, which passes
			h.log.Warn("Could not accept a client connection; trying again", "error", err)
			select {
			case <-h.quit:
				return nil
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
}

func (h *Hub) accept(nc net.Conn, web bool) {
	c := newConn(h, h.ids.Add(1), nc, web)
	h.mu.Lock()
	full := len(h.conns) >= h.profile.Connections
	switch { // Close waits for what is counted here until stopping is set
	case h.stopping:
		h.ended[Stopped]++
		h.mu.Unlock()
		nc.Close()
		return
	case full:
		h.ended[Full]++
		h.writing.Add(1)
	default:
		h.conns[c.id] = c
		h.running.Add(1)
	}
	h.mu.Unlock()
	if full {
		words := h.fullWords(c)
		go func() {
			defer h.writing.Done()
			h.rejectConn(nc, words)
		}()
		return
	}
	if !c.opening.Load() {
		c.send(h.infoLine(c, false), false)
	}
	go func() {
		defer h.running.Done()
		c.serve()
	}()
}

// fullWords returns what a client that is one too many is sent.
func (h *Hub) fullWords(c *Conn) []byte {
	switch {
	case c.web != nil && h.config.WebSocket.TLS == nil:
		return websocket.ErrTooMany.Answer()
	case c.web != nil, h.config.TLS != nil && h.config.TLS.First == FirstYes:
		return nil
	}
	return protocol.AppendErr(h.infoLine(c, false), protocol.ErrMaxConnections.Text())
}

// maxRejecting bounds the rejected connections that are kept open for a moment so that their -ERR
// arrives.
const maxRejecting = 64

// rejectConn sends a rejected client the reason and discards its input for a moment: the kernel
// resets a socket that is closed with unread input, and the client would lose the reason.
func (h *Hub) rejectConn(nc net.Conn, words []byte) {
	defer nc.Close()
	defer h.rejecting.Add(-1)
	if h.rejecting.Add(1) > maxRejecting {
		return
	}
	_ = nc.SetDeadline(time.Now().Add(lingerTime))
	_, _ = nc.Write(words)
	if half, ok := nc.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_, _ = io.CopyN(io.Discard, nc, lingerBytes)
}

// remove cleans up after a connection whose reader has ended.
func (h *Hub) remove(c *Conn) {
	h.drop(c)
	c.letGo()
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.conns, c.id)
	h.leave(c)
	h.past.add(c)
	h.ended[*c.reason.Load()]++
}

// slow closes a client that does not read what it is sent.
func (h *Hub) slow(c *Conn, why Reason) {
	if !c.closed() {
		h.log.Warn("Closing a slow consumer", "client", c.id, "name", c.name(), "address", c.nc.RemoteAddr().String(), "reason", string(why), "pending", c.pending.Load())
	}
	c.close(why)
}

// insert adds a subscription, unless the client already has one with its sid, or has no right to
// it.
func (h *Hub) insert(s *Sub, op *protocol.Op) error {
	c := s.conn
	is := c.identity.Load()
	for {
		if !is.MaySubscribe(op.Subject, op.Queue) {
			return c.violate(protocol.SubscribeViolation(op.Subject, op.Queue))
		}
		s.filtered = is.Filters(s.pattern, s.queue)
		// Without echo, each match is checked for the client's own messages.
		s.counted = !c.echo || s.filtered
		h.lock.Lock()
		now := c.identity.Load()
		if now == is {
			break
		}
		h.lock.Unlock() // its rights have changed meanwhile
		is = now
	}
	defer h.lock.Unlock()
	if old := c.subs[s.sid]; old != nil {
		if !old.exhausted() {
			return nil
		}
		h.end(old) // old has had its last message, and retire has not ended it yet
	}
	most := limits.SubscriptionsPerConnection
	if is != nil && is.Limits.Subscriptions > 0 {
		most = min(most, is.Limits.Subscriptions)
	}
	nodes, groups := h.index.Missing(s.pattern, s.queue)
	s.cost = costOf(s) + int64(nodes)*nodeCost
	if len(c.subs) >= most || groups >= limits.GroupsPerPattern || !h.hasRoom(s, is) {
		return protocol.ErrMaxSubscriptions
	}
	if c.subs == nil {
		c.subs = make(map[string]*Sub, 1)
	}
	c.subs[s.sid] = s
	c.subCount.Store(int64(len(c.subs)))
	h.put(s)
	return nil
}

// hasRoom reports whether a client whose user that is may have one more subscription, by its cost.
// The index lock is held.
func (h *Hub) hasRoom(s *Sub, is *identity.Identity) bool {
	room := h.profile.Interest / 2
	if is != nil && is.Limits.SubscriptionBytes > 0 {
		room = min(room, int64(is.Limits.SubscriptionBytes))
	}
	return s.conn.interest+s.cost <= room && h.interestBytes()+s.cost <= h.profile.Interest
}

// put adds a subscription to the index. The index lock is held.
func (h *Hub) put(s *Sub) {
	s.conn.interest += s.cost
	h.interestCost += costOf(s)
	leaf, group := h.index.Insert(s.pattern, s.queue, s.conn.loop.sink, s.counted, s)
	s.leaf, s.base = leaf, leaf.Matched.Load()
	switch {
	case group != nil:
		h.announce(Interest{s.pattern, s.queue, group.Size()})
	case leaf.Size() == 1:
		h.announce(Interest{s.pattern, "", 1})
	}
	h.interestChanged(s.pattern, s.queue)
}

// limit ends a subscription after the given number of messages, counted from its start. 0 ends it
// at once.
func (h *Hub) limit(c *Conn, sid []byte, after int64) {
	h.lock.Lock()
	defer h.lock.Unlock()
	s := c.subs[string(sid)]
	if s == nil {
		return
	}
	plain := s.queue == "" && !s.counted
	had := s.taken.Load()
	if plain {
		had = int64(s.leaf.Matched.Load() - s.base)
	}
	if after <= had {
		h.end(s)
		return
	}
	s.max.Store(after)
	c.endFeeds(s) // their messages are not counted, and the client expects none after its maximum
	if plain {
		h.count(s)
	}
}

// count makes a plain subscription a counted one. The index lock is held.
func (h *Hub) count(s *Sub) {
	s.taken.Store(int64(s.leaf.Matched.Load() - s.base))
	s.counted = true
	h.index.Count(s.leaf, s.conn.loop.sink, s)
	s.conn.loop.pushOne(entry{kind: moveSub, sub: s})
}

// filter checks the messages of a subscription from now on. The index lock is held.
func (h *Hub) filter(s *Sub) {
	if s.removed {
		return
	}
	s.filtered = true
	if s.queue == "" && !s.counted {
		h.count(s)
	}
}

// end removes a subscription. The caller holds the index lock, so everything it matched is queued
// before its end.
func (h *Hub) end(s *Sub) {
	if s.removed {
		return
	}
	c := s.conn
	delete(c.subs, s.sid)
	c.subCount.Store(int64(len(c.subs)))
	h.take(s)
	if c.feeds != nil {
		c.endFeeds(s)
	}
}

// take takes a subscription out of the index. What it matched is queued already, and delivered. The
// index lock is held.
func (h *Hub) take(s *Sub) {
	c := s.conn
	s.removed = true
	c.interest -= s.cost
	h.interestCost -= costOf(s)
	leaf, group := h.index.Remove(s.pattern, s.queue, c.loop.sink, s)
	c.loop.pushOne(entry{kind: endSub, sub: s})
	switch {
	case group != nil:
		h.announce(Interest{s.pattern, s.queue, group.Size()})
	case leaf.Size() == 0:
		h.announce(Interest{s.pattern, "", 0})
	}
	h.interestChanged(s.pattern, s.queue)
}

// retire ends subscriptions that have reached their maximum.
func (h *Hub) retire(subs []*Sub) {
	h.lock.Lock()
	defer h.lock.Unlock()
	for _, s := range subs {
		h.end(s)
	}
}

// dropChunk is how many subscriptions of a disconnected client are removed under one hold of the
// index lock, so that publishers need not wait for all of them.
const dropChunk = 1000

func (h *Hub) drop(c *Conn) {
	for more := true; more; {
		h.lock.Lock()
		n := 0
		for _, s := range c.subs {
			h.end(s)
			if n++; n == dropChunk {
				break
			}
		}
		more = len(c.subs) > 0
		h.lock.Unlock()
	}
	c.loop.signal()
}

func (h *Hub) announce(i Interest) {
	for _, p := range h.peers {
		p.link.Announce(i)
	}
}

func (h *Hub) interest() []Interest {
	var all []Interest
	h.index.Each(func(leaf *subject.Leaf[*Sub, *Peer], groups []*subject.Group[*Sub, *Peer]) {
		if leaf.Size() > 0 {
			all = append(all, Interest{leaf.Pattern, "", 1})
		}
		for _, g := range groups {
			if g.Size() > 0 {
				all = append(all, Interest{leaf.Pattern, g.Queue, g.Size()})
			}
		}
	})
	return all
}

// SetURLs sets the other brokers' addresses for clients, and for clients with WebSocket, each
// host:port. Clients are told at once.
func (h *Hub) SetURLs(urls, web []string) {
	h.mu.Lock()
	h.urls, h.webURLs = urls, web
	h.mu.Unlock()
	h.inform()
}

// inform sends INFO to all clients that accept it at any time.
func (h *Hub) inform() {
	h.informed.Add(1)
	for _, c := range h.list() {
		if about := c.connectOptions.Load(); c.pongSent.Load() && about != nil && about.Protocol >= 1 {
			c.send(h.infoLine(c, false), false)
		}
	}
}

func (h *Hub) infoLine(c *Conn, connectInfo bool) []byte {
	host, port := "", 0
	h.mu.Lock()
	urls, web, leaving := h.urls, h.webURLs, h.leaving
	h.mu.Unlock()
	own, secure := h.config.Advertise, h.config.TLS
	if c.web != nil {
		// As with nats-server: INFO is about the port for WebSocket only.
		urls, own, secure = web, h.config.WebSocket.Advertise, h.config.WebSocket.shown()
	}
	advertise := cmp.Or(own, c.nc.LocalAddr().String())
	if name, number, err := net.SplitHostPort(advertise); err == nil {
		host = name
		port, _ = strconv.Atoi(number)
	}
	client, _, _ := net.SplitHostPort(c.nc.RemoteAddr().String())
	if own != "" && !leaving && len(urls) > 0 {
		urls = append([]string{own}, urls...)
	}
	payload := h.profile.Payload
	if is := c.identity.Load(); is != nil && is.Limits.Payload > 0 {
		payload = min(payload, is.Limits.Payload)
	}
	return protocol.AppendInfo(nil, &protocol.Info{
		TLSRequired: secure != nil && !secure.Optional, TLSAvailable: secure != nil && secure.Optional, TLSVerify: secure != nil && secure.Verify,
		ServerID: h.config.ServerID, ServerName: h.config.ServerName, Version: h.config.Version, Proto: 1, Go: runtime.Version(),
		Host: host, Port: port, Headers: true, AuthRequired: h.auth != nil, Nonce: c.nonce, MaxPayload: payload, JetStream: h.config.JetStream,
		ClientID: c.id, ClientIP: client, Cluster: h.config.Cluster, ConnectURLs: urls, LameDuck: leaving, ConnectInfo: connectInfo, APILevel: h.config.APILevel,
	})
}

func (h *Hub) list() []*Conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*Conn, 0, len(h.conns))
	for _, c := range h.conns {
		all = append(all, c)
	}
	return all
}

// sweep closes clients that don't authenticate or don't answer PING in time, sends PINGs, and has
// idle loops rest.
func (h *Hub) sweep() {
	tick := work.NewTicker(min(time.Second, h.config.Ping/4, h.config.AuthWait/4))
	defer tick.Stop()
	for {
		select {
		case <-h.quit:
			return
		case <-tick.C:
			tick.Next()
		}
		now := time.Now()
		h.evictSlow(now)
		h.forget(now)
		for _, l := range h.loops {
			l.rest()
		}
		for _, c := range h.list() {
			silent := now.Sub(time.Unix(0, c.active.Load()))
			pings := c.pings.Load()
			switch {
			case c.opening.Load(): // the handshake has its own deadline
			case h.auth != nil && !c.connected.Load() && now.Sub(time.Unix(0, c.opened.Load())) >= h.config.AuthWait:
				h.refusals.Add(1)
				c.closeWithError(protocol.ErrAuthTimeout.Text(), AuthTimedOut)
			case expired(c.identity.Load(), now):
				if e := c.recheck(); e != nil {
					c.closeWithError(e.Text(), reasonFor(e))
				}
			case c.queued.Load(): // it is this broker that does not read
			case silent < h.config.Ping*time.Duration(pings+1):
			case pings >= limits.PingsOutstanding:
				c.closeWithError(protocol.ErrStaleConnection.Text(), Stale)
			default:
				c.pings.Add(1)
				c.send(linePing, false)
			}
		}
	}
}

// lameDuckGrace is how long clients have to leave by themselves after the lame duck INFO.
const lameDuckGrace = time.Second

// partingTime is how long a drained connection stays open for answers. Topic leaders answer in
// milliseconds, and an election takes a few hundred.
const partingTime = 500 * time.Millisecond

// Leave is lame duck mode. It stops accepting clients, tells the connected ones to go elsewhere,
// and drains them spread over the given time, so that the other brokers are not stormed. It returns
// when all are closed, or an error when ctx ends.
func (h *Hub) Leave(ctx context.Context, over time.Duration) error {
	h.mu.Lock()
	h.leaving = true
	for _, ln := range h.listeners {
		ln.Close()
	}
	h.mu.Unlock()
	h.inform()
	all := h.list()
	if len(all) == 0 {
		return nil
	}
	h.log.Info("Lame duck: clients are asked to go elsewhere", "clients", len(all), "over", over)
	grace := min(lameDuckGrace, over/4)
	step := (over - grace) / time.Duration(len(all)+1)
	next := time.NewTimer(grace)
	defer next.Stop()
	due := time.Now().Add(grace)
	for _, c := range all {
		select {
		case <-ctx.Done():
			return fmt.Errorf("lame duck cut short with %d clients left: %w", h.Connections(), ctx.Err())
		case <-next.C:
		}
		c.drain(LameDuck)
		due = due.Add(step)
		next.Reset(time.Until(due))
	}
	next.Reset(partingTime + h.depart)
	look := time.NewTicker(partingTime / 50)
	defer look.Stop()
	for waiting := true; waiting && h.Connections() > 0; {
		select {
		case <-ctx.Done():
			return fmt.Errorf("lame duck cut short with %d clients left: %w", h.Connections(), ctx.Err())
		case <-look.C:
		case <-next.C:
			waiting = false
		}
	}
	for _, c := range all {
		c.close(LameDuck)
	}
	return nil
}

// Connections returns the number of clients.
func (h *Hub) Connections() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.conns)
}

// Connected reports whether the connection with that number is there.
func (h *Hub) Connected(client uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.conns[client] != nil
}

// Close closes all connections and waits for all goroutines of the hub. The owner of the links
// detaches them first.
func (h *Hub) Close() {
	h.mu.Lock()
	if h.stopping {
		h.mu.Unlock()
		return
	}
	h.stopping = true
	for _, ln := range h.listeners {
		ln.Close()
	}
	h.mu.Unlock()
	close(h.quit)
	h.ending()
	for _, c := range h.list() {
		c.close(Stopped)
	}
	h.running.Wait()
	for _, l := range h.loops {
		l.stop()
	}
	h.sending.Wait()
	h.writing.Wait()
}
