package route

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// memoryNet is a network in memory, for tests on a virtual clock. While it is cut, nothing arrives
// and no end gets an error, as when packets are dropped. After it healed, bytes and the first
// packets of connections arrive at TCP's next retransmission.
type memoryNet struct {
	mu        sync.Mutex
	listeners map[string]*memoryListener
	healed    chan struct{} // closed: not cut
	loses     bool          // while it is cut; see cutForGood
	carriers  sync.WaitGroup
}

func newMemoryNet() *memoryNet {
	n := &memoryNet{listeners: make(map[string]*memoryListener), healed: make(chan struct{})}
	close(n.healed)
	return n
}

func (n *memoryNet) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.healed = make(chan struct{})
}

// cutForGood cuts it so that connections that carry anything meanwhile, and new ones, never carry
// anything again. No end gets an error.
func (n *memoryNet) cutForGood() {
	n.cut()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.loses = true
}

func (n *memoryNet) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.loses = false
	close(n.healed)
}

func (n *memoryNet) losing() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.loses
}

// pass returns when a packet first sent now has got through, or done is closed. The retransmission
// timeout begins with first and doubles.
func (n *memoryNet) pass(first time.Duration, done <-chan struct{}) bool {
	for pause := first; ; pause *= 2 {
		n.mu.Lock()
		healed := n.healed
		n.mu.Unlock()
		select {
		case <-healed:
			return true
		default:
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-done:
			timer.Stop()
			return false
		}
	}
}

func (n *memoryNet) dial(ctx context.Context, address string) (net.Conn, error) {
	if n.losing() {
		near, far := net.Pipe()
		n.carriers.Go(func() { _, _ = io.Copy(io.Discard, far) })
		return near, nil
	}
	if !n.pass(time.Second, ctx.Done()) {
		return nil, ctx.Err()
	}
	n.mu.Lock()
	listener := n.listeners[address]
	n.mu.Unlock()
	if listener == nil {
		return nil, syscall.ECONNREFUSED
	}
	near, a := net.Pipe()
	b, far := net.Pipe()
	var lost atomic.Bool
	n.carriers.Go(func() { n.carry(a, b, &lost) })
	n.carriers.Go(func() { n.carry(b, a, &lost) })
	select {
	case listener.backlog <- far:
		return near, nil
	case <-listener.closed:
		near.Close()
		return nil, syscall.ECONNREFUSED
	case <-ctx.Done():
		near.Close()
		return nil, ctx.Err()
	}
}

// carry copies one direction. The end of the stream travels like data. On a lost connection nothing
// travels any more, not even that.
func (n *memoryNet) carry(from, to net.Conn, lost *atomic.Bool) {
	defer from.Close()
	buf := make([]byte, 64<<10)
	for {
		k, err := from.Read(buf)
		if n.losing() {
			lost.Store(true)
		}
		if lost.Load() {
			_, _ = io.Copy(io.Discard, from) // until its end closes it
			return
		}
		n.pass(200*time.Millisecond, nil)
		if k > 0 {
			if _, err := to.Write(buf[:k]); err != nil {
				to.Close()
				return
			}
		}
		if err != nil {
			to.Close()
			return
		}
	}
}

type memoryListener struct {
	net     *memoryNet
	address string
	backlog chan net.Conn
	once    sync.Once
	closed  chan struct{}
}

func (n *memoryNet) listen(address string) net.Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &memoryListener{net: n, address: address, backlog: make(chan net.Conn), closed: make(chan struct{})}
	n.listeners[address] = l
	return l
}

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.backlog:
		return c, nil
	case <-l.closed:
		return nil, io.EOF
	}
}

func (l *memoryListener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.net.mu.Lock()
		delete(l.net.listeners, l.address)
		l.net.mu.Unlock()
	})
	return nil
}

func (l *memoryListener) Addr() net.Addr { return memoryAddr(l.address) }

type memoryAddr string

func (memoryAddr) Network() string  { return "memory" }
func (a memoryAddr) String() string { return string(a) }
