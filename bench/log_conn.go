package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// A logConn is a connection for few and large messages. One goroutine reads it; any may write.
type logConn struct {
	socket *net.TCPConn
	rest   []byte
	out    connSocket
}

func dialLog(ctx context.Context, a Address, subjects ...string) (*logConn, error) {
	if a.TLS {
		return nil, fmt.Errorf("connect to %s: this client has no TLS; use --client nats where there is one", a.HostPort)
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", a.HostPort)
	if err != nil {
		return nil, err
	}
	c := &logConn{socket: conn.(*net.TCPConn)}
	c.out.conn = c.socket
	if c.rest, err = greet(ctx, c.socket, a, "", subjects); err != nil {
		_ = c.socket.Close()
		return nil, fmt.Errorf("greet %s: %w", a.HostPort, err)
	}
	return c, nil
}

var errDone = errors.New("done")

// read hands f what comes, until stop says that it was enough or nothing comes for as long as
// patience. size is that of the buffer, a few messages long.
func (c *logConn) read(f frames, size int, patience time.Duration, stop func() error) error {
	buffer := make([]byte, size)
	begin, end := 0, copy(buffer, c.rest)
	for {
		used, err := parseFrames(buffer[begin:end], f)
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
		if err := c.socket.SetReadDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		n, err := c.socket.Read(buffer[end:])
		if err != nil {
			return err
		}
		end += n
	}
}
