package session

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/protocol"
)

// TLS is how clients use TLS.
type TLS struct {
	Config    *tls.Config // of the server
	Optional  bool        // plaintext clients are served, too
	First     First
	FirstWait time.Duration // of FirstAuto; 0: limits.TLSFirstWait
	Verify    bool          // Config requires a client certificate; shown in INFO
}

// First is whether the handshake comes before INFO. Clients of NATS wait for INFO in plaintext
// unless they are told otherwise.
type First string

// The values of First.
const (
	FirstNo   First = "no"   // INFO first
	FirstYes  First = "yes"  // INFO after the handshake only
	FirstAuto First = "auto" // INFO first to a client that has sent nothing after FirstWait
)

// Outcome is how a handshake or an upgrade ended, for metrics.
type Outcome string

// The outcomes of a handshake.
const (
	HandshakeDone      Outcome = "done"
	HandshakeFailed    Outcome = "failed"
	HandshakeTimeout   Outcome = "timeout"
	HandshakePlaintext Outcome = "plaintext" // a plaintext client, refused
)

// TLSState describes the TLS of a connection, with nats-server's words.
type TLSState struct{ Version, CipherSuite string }

// begin greets a client of a broker with TLS and makes the connection secure, or upgrades one of
// the port for WebSocket. It reports whether the client may go on; otherwise the connection is
// closed. Until then the reader alone writes, and nothing is sent through the loop.
func (c *Conn) begin() bool {
	if c.web != nil {
		return c.web.begin()
	}
	first, greeted, err := c.greet()
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.close(endReason(err))
		return false
	}
	secure := len(first) > 0 && first[0] == recordHandshake
	switch {
	case c.draining.Load() != nil:
		c.close(*c.draining.Load())
		return false
	case secure:
		if err := c.handshake(first, c.hub.config.TLS.Config); err != nil {
			c.fail(err)
			return false
		}
	case !c.hub.config.TLS.Optional:
		outcome := HandshakePlaintext
		if err != nil {
			outcome = HandshakeTimeout
		}
		c.hub.countHandshake(outcome)
		_ = c.writeNow(protocol.AppendErr(nil, protocol.ErrTLSRequired.Text()))
		c.part()
		return false
	case len(first) > 0:
		c.in, c.start = newSlab(c.readSize), 0
		c.end = copy(c.in.buf, first)
	}
	_ = c.nc.SetWriteDeadline(time.Time{})
	c.readUntil(time.Time{})
	now := time.Now().UnixNano()
	c.active.Store(now)
	c.opened.Store(now)
	c.opening.Store(false)
	if !greeted {
		c.send(c.hub.infoLine(c, false), false)
	}
	return true
}

// greet sends INFO unless the handshake comes first, and returns the client's first byte, if it
// came in time.
func (c *Conn) greet() (first []byte, greeted bool, err error) {
	rule := c.hub.config.TLS.First
	switch rule {
	case FirstYes:
		first, err = c.firstByte(limits.HandshakeTimeout)
		return first, false, err
	case FirstAuto:
		first, err = c.firstByte(cmp.Or(c.hub.config.TLS.FirstWait, limits.TLSFirstWait))
		if len(first) > 0 && first[0] == recordHandshake || err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return first, false, err
		}
	}
	if err := c.writeNow(c.hub.infoLine(c, false)); err != nil {
		return nil, true, err
	}
	if len(first) == 0 {
		first, err = c.firstByte(limits.HandshakeTimeout)
	}
	return first, true, err
}

func (c *Conn) firstByte(within time.Duration) ([]byte, error) {
	c.readUntil(time.Now().Add(within))
	first := make([]byte, 1)
	n, err := c.readInTime(first)
	return first[:n], err
}

// lateRead is how long a read waits after its deadline, which may have passed while input was there
// and this broker had no time to look.
const lateRead = 10 * time.Millisecond

// readInTime reads with the deadline that was set. What arrived before it is read, however late.
func (c *Conn) readInTime(p []byte) (int, error) {
	n, err := c.nc.Read(p)
	if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		c.readUntil(time.Now().Add(lateRead))
		n, err = c.nc.Read(p)
	}
	return n, err
}

// readUntil sets the deadline of reads, except for a connection that is drained.
func (c *Conn) readUntil(deadline time.Time) {
	_ = c.nc.SetReadDeadline(deadline)
	if c.draining.Load() != nil {
		_ = c.nc.SetReadDeadline(time.Now())
	}
}

// writeNow writes before anything is sent through the loop. It fits into the socket's buffer.
func (c *Conn) writeNow(text []byte) error {
	_ = c.nc.SetWriteDeadline(time.Now().Add(limits.HandshakeTimeout))
	_, err := c.nc.Write(text)
	return err
}

// handshake makes the connection secure.
func (c *Conn) handshake(first []byte, config *tls.Config) error {
	t := &transport{conn: c, first: first, deadline: time.Now().Add(limits.HandshakeTimeout)}
	t.tls = tls.Server(t, config)
	t.awaitTurn()
	err := t.tls.Handshake()
	t.leaveTurn()
	if err != nil {
		return err
	}
	is := t.tls.ConnectionState()
	c.tlsState.Store(&TLSState{versionOf(is.Version), tls.CipherSuiteName(is.CipherSuite)})
	t.ready = true
	c.secure, c.readFn, c.writeFn = t, t.readSocket, t.writeSocket
	c.hub.countHandshake(HandshakeDone)
	return nil
}

func versionOf(version uint16) string {
	switch version {
	case tls.VersionTLS12:
		return "1.2"
	case tls.VersionTLS13:
		return "1.3"
	}
	return fmt.Sprintf("Unknown [0x%x]", version)
}

// fail closes a connection whose handshake failed. tls.Conn has sent the alert.
func (c *Conn) fail(err error) {
	if why := c.draining.Load(); why != nil {
		c.close(*why)
		return
	}
	outcome := HandshakeFailed
	if errors.Is(err, os.ErrDeadlineExceeded) {
		outcome = HandshakeTimeout
	}
	c.hub.countHandshake(outcome)
	c.hub.log.Debug("A TLS handshake with a client failed", "client", c.id, "address", c.nc.RemoteAddr().String(), "error", err)
	c.part()
}

// part ends the sending direction, so that the client gets the last words, and closes.
func (c *Conn) part() {
	if half, ok := c.nc.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
		c.linger()
	}
	c.close(TLSHandshake)
}

// endReason is the reason of a connection whose read ended with err.
func endReason(err error) Reason {
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		return ClientClosed
	}
	return ReadError
}

func (h *Hub) countHandshake(o Outcome) {
	h.mu.Lock()
	h.handshakes[o]++
	h.mu.Unlock()
}
