package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// A wire is a connection that one goroutine reads and any goroutine may write, with TLS where the
// address or the server asks for it.
type wire struct {
	socket net.Conn
	rest   []byte // what came behind the handshake
	out    connSocket
}

func dialWire(ctx context.Context, a Address, subjects ...string) (*wire, error) {
	return dialWireWithin(ctx, connectTimeout, a, subjects...)
}

// dialWireWithin connects, introduces itself, subscribes, and returns when the server has confirmed
// that.
func dialWireWithin(ctx context.Context, within time.Duration, a Address, subjects ...string) (*wire, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", a.HostPort)
	if err != nil {
		return nil, err
	}
	c := &wire{}
	// The handshake ends with its context, also when that is cancelled.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if c.socket, c.rest, err = greet(ctx, conn.(*net.TCPConn), a, "", subjects); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("greet %s: %w", a.HostPort, err)
	}
	c.out.conn = c.socket
	return c, nil
}

var errDone = errors.New("done")

// read hands f what comes, until stop says that it was enough or nothing comes for as long as
// patience. size is that of the buffer, a few messages long.
func (c *wire) read(f frames, size int, patience time.Duration, stop func() error) error {
	return c.readBy(func(data []byte) (int, error) { return parseFrames(data, f) }, size, patience, stop)
}

// readBy is read with a parser of its own, which returns how many bytes it took. Without patience
// it waits until the connection ends.
func (c *wire) readBy(parse func([]byte) (int, error), size int, patience time.Duration, stop func() error) error {
	buffer := make([]byte, max(size, len(c.rest)))
	begin, end := 0, copy(buffer, c.rest)
	for {
		used, err := parse(buffer[begin:end])
		if err != nil {
			return err
		}
		if begin += used; begin == end {
			begin, end = 0, 0
		}
		if err := stop(); err != nil {
			return err
		}
		if end == len(buffer) {
			if begin == 0 {
				return fmt.Errorf("a message of more than %d bytes came", len(buffer))
			}
			begin, end = 0, copy(buffer, buffer[begin:end])
		}
		if patience > 0 {
			if err := c.socket.SetReadDeadline(time.Now().Add(patience)); err != nil {
				return err
			}
		}
		n, err := c.socket.Read(buffer[end:])
		if err != nil {
			return err
		}
		end += n
	}
}
