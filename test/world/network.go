package world

import (
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	wireMin, wireMax = 50 * time.Microsecond, 600 * time.Microsecond
	// resend is how often a kernel retransmits unconfirmed data, and resendFirst how long it waits
	// for the answer to a first packet.
	resend, resendFirst = 200 * time.Millisecond, time.Second
	// socketBuffer bounds the bytes that wait in one direction of a connection, on either side.
	socketBuffer = 256 << 10
)

// way is one direction between two machines, or between a machine and etcd.
type way struct{ from, to string }

// network carries connections. A direction may be cut: data is dropped without an error until it
// heals. A direction may also be slow.
type network struct {
	w         *world
	cuts      map[way]int
	slow      map[way]time.Duration
	made      uint64 // connections' ends
	mu        sync.Mutex
	listeners map[string]*listener // by address
}

const etcdName = "etcd"

func newNetwork(w *world) *network {
	return &network{w: w, cuts: map[way]int{}, slow: map[way]time.Duration{}, listeners: map[string]*listener{}}
}

func (n *network) isCut(from, to string) bool { return n.cuts[way{from, to}] > 0 }

// latency returns the time that one packet takes from one end to the other.
func (n *network) latency(from, to string) time.Duration {
	return n.w.delay(wireMin, wireMax) + n.slow[way{from, to}]
}

// listener is a port of a process.
type listener struct {
	life    *life
	address string
	mu      sync.Mutex
	backlog []*conn
	wake    chan struct{}
	closed  bool
}

func (n *network) listen(l *life, address string) *listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	ln := &listener{life: l, address: address, wake: make(chan struct{}, 1)}
	n.listeners[address] = ln
	return ln
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		l.mu.Lock()
		if l.closed {
			l.mu.Unlock()
			return nil, net.ErrClosed
		}
		if len(l.backlog) > 0 {
			c := l.backlog[0]
			l.backlog = l.backlog[1:]
			l.mu.Unlock()
			return c, nil
		}
		l.mu.Unlock()
		<-l.wake
	}
}

func (l *listener) Close() error {
	n := l.life.m.w.network
	n.mu.Lock()
	if n.listeners[l.address] == l {
		delete(n.listeners, l.address)
	}
	n.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.signal()
	return nil
}

func (l *listener) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *listener) Addr() net.Addr { return address(l.address) }

type address string

func (address) Network() string  { return "world" }
func (a address) String() string { return string(a) }

// dial connects a process to an address.
func (n *network) dial(ctx context.Context, from *life, to string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(to)
	if err != nil {
		return nil, err
	}
	type result struct {
		c   *conn
		err error
	}
	done := make(chan result, 1)
	me := from.m.id
	var knock func()
	knock = func() {
		if ctx.Err() != nil || from.dead.Load() {
			return
		}
		m := n.w.machine(host)
		if n.isCut(me, host) || n.isCut(host, me) || m == nil || !m.on {
			n.w.after(resendFirst, fmt.Sprintf("%s dials %s again", me, host), knock)
			return
		}
		n.mu.Lock()
		ln := n.listeners[to]
		n.mu.Unlock()
		if ln == nil || ln.life.dead.Load() {
			n.w.after(n.latency(host, me), fmt.Sprintf("%s is refused by %s", me, host), func() {
				done <- result{err: &net.OpError{Op: "dial", Net: "world", Err: syscall.ECONNREFUSED}}
			})
			return
		}
		near, far := newConns(n, from, ln.life)
		n.w.after(n.latency(host, me), fmt.Sprintf("%s is connected to %s", me, host), func() { done <- result{c: near} })
		ln.mu.Lock()
		ln.backlog = append(ln.backlog, far)
		ln.signal()
		ln.mu.Unlock()
	}
	n.w.after(n.latency(me, host), fmt.Sprintf("%s dials %s", me, host), knock)
	select {
	case r := <-done:
		if r.err != nil {
			return nil, r.err
		}
		return r.c, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-from.gone:
		return nil, errDead
	}
}

// conn is one end of a connection.
type conn struct {
	n          *network
	number     uint64
	life       *life
	peer       *conn
	name       string
	mu         sync.Mutex
	in         []byte
	eof        bool
	broken     error
	closed     bool
	changed    chan struct{} // closed and replaced at each change
	readBy     time.Time
	writeBy    time.Time
	out        []byte // on its way to the peer
	fin        bool   // the connection ends after out
	delivering bool
}

func newConns(n *network, a, b *life) (near, far *conn) {
	near = &conn{n: n, life: a, changed: make(chan struct{}), name: a.m.id + ">" + b.m.id}
	far = &conn{n: n, life: b, changed: make(chan struct{}), name: b.m.id + ">" + a.m.id}
	near.peer, far.peer = far, near
	n.made += 2
	near.number, far.number = n.made-1, n.made
	a.own(near)
	b.own(far)
	return near, far
}

func (c *conn) broadcast() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// wait releases mu until something changes or the deadline passes, and locks it again.
func (c *conn) wait(by time.Time) error {
	changed := c.changed
	c.mu.Unlock()
	defer c.mu.Lock()
	if by.IsZero() {
		<-changed
		return nil
	}
	left := time.Until(by)
	if left <= 0 {
		return os.ErrDeadlineExceeded
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	}
	return nil
}

func (c *conn) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.closed || c.life.dead.Load():
			return 0, net.ErrClosed
		case c.broken != nil:
			return 0, c.broken
		case len(c.in) > 0:
			k := copy(p, c.in)
			c.in = c.in[k:]
			return k, nil
		case c.eof:
			return 0, io.EOF
		case !c.readBy.IsZero() && !time.Now().Before(c.readBy):
			return 0, os.ErrDeadlineExceeded
		}
		if err := c.wait(c.readBy); err != nil {
			return 0, err
		}
	}
}

func (c *conn) Write(p []byte) (written int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.closed || c.life.dead.Load():
			return written, net.ErrClosed
		case c.broken != nil:
			return written, c.broken
		case len(p) == 0:
			return written, nil
		}
		if room := socketBuffer - len(c.out); room > 0 {
			k := min(room, len(p))
			c.out = append(c.out, p[:k]...)
			p, written = p[k:], written+k
			c.send()
			continue
		}
		if !c.writeBy.IsZero() && !time.Now().Before(c.writeBy) {
			return written, os.ErrDeadlineExceeded
		}
		if err := c.wait(c.writeBy); err != nil {
			return written, err
		}
	}
}

// send schedules the delivery of waiting data. The caller holds mu.
func (c *conn) send() {
	if !c.delivering {
		c.delivering = true
		c.again(c.n.latency(c.life.m.id, c.peer.life.m.id))
	}
}

func (c *conn) again(d time.Duration) {
	c.n.w.after(d, "net "+c.name, c.deliver)
}

// deliver moves sent data to the other end. It runs on the world's goroutine.
func (c *conn) deliver() {
	from, to := c.life.m, c.peer.life.m
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.out) == 0 && !c.fin || c.broken != nil {
		c.delivering = false
		return
	}
	if c.n.isCut(from.id, to.id) || !to.on {
		c.again(resend)
		return
	}
	if !from.on || c.life.unplugged { // unsent data of a machine without power
		c.delivering = false
		return
	}
	p := c.peer
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.life.dead.Load() { // the receiver is gone
		c.delivering, c.out = false, nil
		if !c.closed && !c.n.isCut(to.id, from.id) {
			c.broken = syscall.ECONNRESET
			c.broadcast()
		}
		return
	}
	if len(p.in) >= socketBuffer {
		c.again(5 * time.Millisecond)
		return
	}
	c.n.w.notef("  %s %d bytes %08x fin %t", c.name, len(c.out), crc32.ChecksumIEEE(c.out), c.fin)
	p.in = append(p.in, c.out...)
	c.out, c.delivering = nil, false
	p.eof = c.fin
	p.broadcast()
	c.broadcast()
}

func (c *conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed, c.fin = true, true
	c.broadcast()
	c.send()
	c.life.disown(c)
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return address(c.life.m.id + ":0") }
func (c *conn) RemoteAddr() net.Addr { return address(c.peer.life.m.id + ":0") }

func (c *conn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readBy = t
	c.broadcast()
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writeBy = t
	c.broadcast()
	return nil
}
