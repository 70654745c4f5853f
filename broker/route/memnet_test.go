package route

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// memoryNet is a network in memory, for tests on a virtual clock. While it is cut, nothing arrives
// and no end gets an error, as when packets are dropped. After it healed, bytes and the first
// packets of connections arrive at TCP's next retransmission.
type memoryNet struct {
	mu        sync.Mutex
	listeners map[string]*memoryListener
	healed    chan struct{} // closed: not cut
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

func (n *memoryNet) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.healed)
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
	if !n.pass(time.Second, ctx.Done()) {
		return nil, ctx.Err()
	}
	n.mu.Lock()
	listener := n.listeners[address]
	n.mu.Unlock()
	if listener == nil {
		return nil, errors.New("connection refused")
	}
	near, a := net.Pipe()
	b, far := net.Pipe()
	n.carriers.Go(func() { n.carry(a, b) })
	n.carriers.Go(func() { n.carry(b, a) })
	select {
	case listener.backlog <- far:
		return near, nil
	case <-listener.closed:
		near.Close()
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		near.Close()
		return nil, ctx.Err()
	}
}

// carry copies one direction. The end of the stream travels like data.
func (n *memoryNet) carry(from, to net.Conn) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 64<<10)
	for {
		k, err := from.Read(buf)
		n.pass(200*time.Millisecond, nil)
		if k > 0 {
			if _, err := to.Write(buf[:k]); err != nil {
				return
			}
		}
		if err != nil {
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
