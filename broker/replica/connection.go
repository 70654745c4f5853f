package replica

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
)

var (
	errClosing  = errors.New("this broker is shutting down")
	errReplaced = errors.New("a newer connection of the same broker took its place")
	errIdle     = errors.New("nothing is followed from there any more")
	errGone     = errors.New("the peer closed the connection")
)

// garbageError reports a malformed frame of a peer.
type garbageError struct{ error }

func (e *garbageError) Unwrap() error { return e.error }

func garbage(format string, args ...any) error { return &garbageError{fmt.Errorf(format, args...)} }

// connection is the common part of both ends: a reader, on the goroutine that runs the connection,
// and a writer that sends what has gathered.
type connection struct {
	x      *Exchange
	conn   net.Conn
	broker string // id of the peer
	out    *bufio.Writer
	wake   chan struct{}
	stop   chan struct{}
	once   sync.Once
	err    error // why it ended; valid after stop is closed
	clock  clockEnd
}

// announces reports whether the peer supports a feature. A test's connection without Announces
// supports all.
func announces(conn net.Conn, f coordination.Feature) bool {
	peer, says := conn.(interface {
		Announces(f coordination.Feature) bool
	})
	return !says || peer.Announces(f)
}

func (c *connection) init(x *Exchange, conn net.Conn, broker string) {
	c.x, c.conn, c.broker = x, conn, broker
	c.wake, c.stop = make(chan struct{}, 1), make(chan struct{})
	c.out = bufio.NewWriterSize(deadlined{conn}, 64<<10)
	c.clock.on = x.config.Clock != nil && announces(conn, coordination.FeatureClock)
	c.clock.due.Store(true)
	c.signal()
}

// fail ends the connection. Only the first reason counts. It never blocks.
func (c *connection) fail(err error) {
	c.once.Do(func() {
		c.err = err
		close(c.stop)
		conn := c.conn
		if secure, ok := conn.(interface{ NetConn() net.Conn }); ok {
			conn = secure.NetConn() // closing TLS could block on its last alert
		}
		_ = conn.Close() // an error changes nothing
	})
}

// signal wakes the writer.
func (c *connection) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// read passes frames to handle until the connection ends. It calls idle whenever all received
// frames are handled.
func (c *connection) read(in *reader, handle func(frameType, []byte) error, idle func()) error {
	for {
		for {
			t, body, ok, err := in.next()
			if err != nil {
				return &garbageError{err}
			}
			if !ok {
				break
			}
			if err := handle(t, body); err != nil {
				return err
			}
		}
		idle()
		// The deadline begins with the read: while this side is held up by its own disk, it must
		// not count the peer as silent.
		if err := c.conn.SetReadDeadline(time.Now().Add(silence)); err != nil {
			return fmt.Errorf("set read deadline: %w", err)
		}
		if _, err := in.fill(); err != nil {
			if t, ok := errors.AsType[net.Error](err); ok && t.Timeout() {
				return fmt.Errorf("nothing was heard for %v", silence)
			}
			return fmt.Errorf("%w: %w", errGone, err)
		}
	}
}

// deadlined sets a deadline for each write.
type deadlined struct{ conn net.Conn }

func (d deadlined) Write(p []byte) (written int, err error) {
	for {
		if err := d.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
			return written, err
		}
		n, err := d.conn.Write(p[:min(len(p), writeSize)])
		written += n
		if err != nil || n == len(p) {
			return written, err
		}
		p = p[n:]
	}
}
