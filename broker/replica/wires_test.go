package replica

import (
	"context"
	"errors"
	"net"
	"sync"
)

// wires is a network in memory, for tests on a virtual clock. Each direction between two brokers
// can be frozen, as if packets were dropped, or closed after a number of bytes.
type wires struct {
	mu       sync.Mutex
	serve    map[string]func(net.Conn, string) // by listening broker
	frozen   map[[2]string]chan struct{}       // from, to; closed when it thaws
	breakIn  map[[2]string]int                 // bytes until the connection breaks
	conns    map[net.Conn][2]string
	dials    int
	carriers sync.WaitGroup
}

func newWires() *wires {
	return &wires{serve: map[string]func(net.Conn, string){}, frozen: map[[2]string]chan struct{}{}, breakIn: map[[2]string]int{}, conns: map[net.Conn][2]string{}}
}

// freeze holds everything from one broker to another until thaw.
func (w *wires) freeze(from, to string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.frozen[[2]string{from, to}] == nil {
		w.frozen[[2]string{from, to}] = make(chan struct{})
	}
}

func (w *wires) thaw(from, to string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.frozen[[2]string{from, to}]; c != nil {
		close(c)
		delete(w.frozen, [2]string{from, to})
	}
}

// breakAfter closes the connection after n more bytes from one broker to another.
func (w *wires) breakAfter(from, to string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.breakIn[[2]string{from, to}] = n
}

// reset closes all connections of a broker, as the kernel does when its process dies.
func (w *wires) reset(broker string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c, ends := range w.conns {
		if ends[0] == broker || ends[1] == broker {
			c.Close()
		}
	}
}

func (w *wires) dial(ctx context.Context, from, to string) (net.Conn, error) {
	w.mu.Lock()
	serve := w.serve[to]
	w.dials++
	frozen := w.frozen[[2]string{from, to}] != nil || w.frozen[[2]string{to, from}] != nil
	w.mu.Unlock()
	if frozen {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if serve == nil {
		return nil, errors.New("connection refused")
	}
	near, a := net.Pipe()
	b, far := net.Pipe()
	w.mu.Lock()
	w.conns[near], w.conns[far] = [2]string{from, to}, [2]string{from, to}
	w.mu.Unlock()
	w.carriers.Go(func() { w.carry(from, to, a, b) })
	w.carriers.Go(func() { w.carry(to, from, b, a) })
	w.carriers.Go(func() { serve(far, from) })
	return near, nil
}

// carry copies one direction. The end of the stream is delayed like data.
func (w *wires) carry(fromID, toID string, from, to net.Conn) {
	defer to.Close()
	defer from.Close()
	way := [2]string{fromID, toID}
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		w.mu.Lock()
		gate := w.frozen[way]
		left, breaks := w.breakIn[way]
		if breaks {
			if w.breakIn[way] = left - n; left <= n {
				n = left
				delete(w.breakIn, way)
				err = errors.New("broken")
			}
		}
		w.mu.Unlock()
		if gate != nil {
			<-gate
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
