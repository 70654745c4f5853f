package bench

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// lightDriver drives a run with a client made for ten thousand subscribers in one small
// process: a socket and about a hundred bytes each, a few loops that read them all. A
// message's time is taken when the read that brought it returns.
type lightDriver struct {
	collector *collector
	readers   readers
	closing   atomic.Bool
}

// readers own sockets: they read them and feed what comes to the connection.
type readers interface {
	// take makes c the connection's own; worker chooses the loop. Behind TLS socket is no TCP
	// connection, and has a goroutine.
	take(socket net.Conn, worker int, c *lightConn) error
	// close ends every connection and waits until nothing is fed any more.
	close()
}

// A lightSocket is the writing side of a connection. Any goroutine may write.
type lightSocket interface {
	write(data []byte) error
}

func newLightDriver(c *collector, make func(loops int) readers) *lightDriver {
	return &lightDriver{collector: c, readers: make(len(c.shards))}
}

// A lightConn parses what its socket brings. Only the loop that owns it calls feed.
type lightConn struct {
	driver     *lightDriver
	subscriber int // or noSubscriber
	socket     lightSocket
	stash      []byte // the beginning of a frame
	at         int64  // when the bytes in hand were read
	pong       chan struct{}
	refused    string // the last -ERR
	answer     error  // a PONG that could not be sent
}

const noSubscriber = -1

// keptStash is how much of an emptied stash a connection keeps.
const keptStash = 256

var pong = []byte("PONG\r\n")

// feed parses bytes that were read at the time given; it keeps what is not whole.
func (c *lightConn) feed(data []byte, at int64) error {
	c.at = at
	if len(c.stash) > 0 {
		c.stash = append(c.stash, data...)
		data = c.stash
	}
	used, err := parseFrames(data, c)
	if err != nil {
		return err
	}
	if cap(c.stash) > keptStash && used == len(data) {
		c.stash = nil
	}
	c.stash = append(c.stash[:0], data[used:]...)
	return c.answer
}

func (c *lightConn) onMessage(_, _, payload []byte) {
	if c.subscriber != noSubscriber {
		c.driver.collector.deliver(c.subscriber, payload, c.at)
	}
}
func (c *lightConn) onInfo([]byte)       {}
func (c *lightConn) onPing()             { c.answer = c.socket.write(pong) }
func (c *lightConn) onError(text []byte) { c.refused = string(text) }
func (c *lightConn) onPong() {
	select {
	case c.pong <- struct{}{}:
	default: // publishers wait for one at a time; subscribers for none
	}
}

// ended is called once, by the owner, when the connection is over.
func (c *lightConn) ended(err error) {
	if c.subscriber == noSubscriber || c.driver.closing.Load() {
		return
	}
	if c.refused != "" {
		err = errors.New(c.refused)
	}
	c.driver.collector.dropped.add(err.Error())
}

func (d *lightDriver) subscribe(ctx context.Context, t Target, prefix string, listeners []listener) error {
	return inParallel(ctx, len(listeners), func(ctx context.Context, i int) error {
		c := &lightConn{driver: d, subscriber: i}
		return d.open(ctx, t.address(i), c, d.collector.shardOf(i), prefix, listeners[i].subjects)
	})
}

func (d *lightDriver) connect(ctx context.Context, t Target, subjects []string) ([]publisher, error) {
	made := make([]publisher, len(subjects))
	err := inParallel(ctx, len(subjects), func(ctx context.Context, i int) error {
		c := &lightConn{driver: d, subscriber: noSubscriber, pong: make(chan struct{}, 1)}
		made[i] = &lightPublisher{conn: c, subject: subjects[i]}
		return d.open(ctx, t.address(i), c, i%len(d.collector.shards), "", nil)
	})
	return made, err
}

func (d *lightDriver) close() {
	d.closing.Store(true)
	d.readers.close()
}

// open connects, introduces itself, subscribes, waits for the confirmation and hands the
// socket to the readers.
func (d *lightDriver) open(ctx context.Context, a Address, c *lightConn, worker int, prefix string, subjects []string) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", a.HostPort)
	if err != nil {
		return err
	}
	socket, rest, err := greet(ctx, conn.(*net.TCPConn), a, prefix, subjects)
	if err != nil {
		_ = conn.Close()
		return fmt.Errorf("greet %s: %w", a.HostPort, err)
	}
	c.stash = rest
	if err := d.readers.take(socket, worker, c); err != nil {
		_ = socket.Close()
		return fmt.Errorf("hand over the connection to %s: %w", a.HostPort, err)
	}
	return nil
}

// A greeting is the frames of the handshake.
type greeting struct {
	info struct {
		TLSRequired bool   `json:"tls_required"`
		Nonce       string `json:"nonce"`
	}
	informed, ponged bool
	err              error
}

func (g *greeting) onInfo(text []byte) {
	if !g.informed {
		g.informed = true
		if err := json.Unmarshal(text, &g.info); err != nil {
			g.err = fmt.Errorf("read INFO: %w", err)
		}
	}
}
func (g *greeting) onPong() { g.ponged = true }
func (g *greeting) onPing() {}

// onMessage ignores messages: none is published before all subscribers have connected.
func (g *greeting) onMessage(_, _, _ []byte) {}
func (g *greeting) onError(text []byte)      { g.err = fmt.Errorf("server says %q", text) }
func (g *greeting) done(wantPong bool) bool {
	return g.err != nil || g.informed && (g.ponged || !wantPong)
}

// greet begins a connection, with TLS if the address or the server asks for it. It returns the one
// to use, and bytes that came behind the handshake.
func greet(ctx context.Context, tcp *net.TCPConn, a Address, prefix string, subjects []string) (net.Conn, []byte, error) {
	h := handshake{socket: tcp}
	if err := h.begin(ctx, tcp); err != nil {
		return nil, nil, err
	}
	if a.TLS && a.HandshakeFirst {
		if err := h.secure(ctx, a); err != nil {
			return nil, nil, err
		}
	}
	if err := h.await(false); err != nil {
		return nil, nil, err
	}
	if (a.TLS || h.info.TLSRequired) && !a.HandshakeFirst {
		if err := h.secure(ctx, a); err != nil {
			return nil, nil, err
		}
	}
	if err := h.introduce(a, prefix, subjects); err != nil {
		return nil, nil, err
	}
	return h.socket, h.held, h.socket.SetDeadline(time.Time{})
}

// A handshake is how a connection begins.
type handshake struct {
	greeting
	socket net.Conn
	held   []byte // read and not parsed yet
}

// begin bounds the handshake by the context's deadline.
func (h *handshake) begin(ctx context.Context, tcp *net.TCPConn) error {
	if deadline, ok := ctx.Deadline(); ok {
		if err := tcp.SetDeadline(deadline); err != nil {
			return err
		}
	}
	// Ten thousand connections per run would otherwise hold their ports for a minute each.
	return tcp.SetLinger(0)
}

func (h *handshake) secure(ctx context.Context, a Address) error {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if a.Secure != nil {
		config = a.Secure.Clone()
	}
	if host, _, err := net.SplitHostPort(a.HostPort); err == nil && config.ServerName == "" {
		config.ServerName = host
	}
	secured := tls.Client(h.socket, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("TLS handshake: %w", err)
	}
	h.socket = secured
	return nil
}

// await reads until INFO, or PONG, has come.
func (h *handshake) await(wantPong bool) error {
	buffer := make([]byte, 2048)
	for !h.done(wantPong) {
		n, err := h.socket.Read(buffer)
		if err != nil {
			return err
		}
		h.held = append(h.held, buffer[:n]...)
		used, err := parseFrames(h.held, &h.greeting)
		if err != nil {
			return err
		}
		h.held = append(h.held[:0], h.held[used:]...)
	}
	return h.err
}

// introduce sends CONNECT and the subscriptions, and waits for the confirmation.
func (h *handshake) introduce(a Address, prefix string, subjects []string) error {
	hello, err := json.Marshal(map[string]any{
		"verbose": false, "pedantic": false, "headers": true, "no_responders": true, "protocol": 1, "echo": true,
		"name": "carillon-bench", "lang": "go", "version": "1",
		"user": a.User, "pass": a.Password, "auth_token": a.Token,
	})
	if err != nil {
		return err
	}
	out := fmt.Appendf(nil, "CONNECT %s\r\n", hello)
	for i, subject := range subjects {
		out = fmt.Appendf(out, "SUB %s%s %d\r\n", prefix, subject, i+1)
	}
	if _, err := h.socket.Write(append(out, "PING\r\n"...)); err != nil {
		return err
	}
	return h.await(true)
}

// lightPublisher writes each message by itself, in the goroutine that paces them.
type lightPublisher struct {
	conn    *lightConn
	subject string
	frame   []byte
}

func (p *lightPublisher) publish(payload []byte) error {
	p.frame = append(append(append(p.frame[:0], "PUB "...), p.subject...), ' ')
	p.frame = append(strconv.AppendInt(p.frame, int64(len(payload)), 10), crlf...)
	p.frame = append(append(p.frame, payload...), crlf...)
	return p.conn.socket.write(p.frame)
}

func (p *lightPublisher) flush(ctx context.Context) error {
	if err := p.conn.socket.write([]byte("PING\r\n")); err != nil {
		return err
	}
	select {
	case <-p.conn.pong:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for PONG: %w", context.Cause(ctx))
	}
}

// goroutineReaders give each connection a goroutine: right on every system, if not the
// cheapest.
type goroutineReaders struct {
	wg   sync.WaitGroup
	mu   sync.Mutex
	open []net.Conn
}

func newGoroutineReaders(int) readers { return &goroutineReaders{} }

func (r *goroutineReaders) take(socket net.Conn, _ int, c *lightConn) error {
	c.socket = &connSocket{conn: socket}
	r.mu.Lock()
	r.open = append(r.open, socket)
	r.mu.Unlock()
	r.wg.Go(func() {
		buffer := make([]byte, 4096)
		err := c.feed(nil, now())
		for err == nil {
			var n int
			// No deadline: the run's end closes the socket.
			if n, err = socket.Read(buffer); err == nil {
				err = c.feed(buffer[:n], now())
			}
		}
		_ = socket.Close()
		c.ended(err)
	})
	return nil
}

func (r *goroutineReaders) close() {
	r.mu.Lock()
	for _, socket := range r.open {
		_ = socket.Close()
	}
	r.open = nil
	r.mu.Unlock()
	r.wg.Wait()
}

type connSocket struct {
	mu   sync.Mutex
	conn net.Conn
}

func (s *connSocket) write(data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	_, err := s.conn.Write(data)
	return err
}
