package session

import (
	"errors"
	"os"
	"time"

	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/websocket"
)

// The outcomes of an upgrade to WebSocket.
const (
	UpgradeDone    Outcome = "done"
	UpgradeRefused Outcome = "refused"
	UpgradeTimeout Outcome = "timeout" // no complete request came in time
)

// begin is Conn.begin on the port for WebSocket: TLS if the port has it, the upgrade, INFO.
func (w *webSocket) begin() bool {
	c := w.conn
	if c.hub.config.WebSocket.TLS != nil && !w.beginTLS() {
		return false
	}
	_ = c.nc.SetWriteDeadline(time.Time{})
	now := time.Now()
	c.opened.Store(now.UnixNano()) // the time for CONNECT includes that for the upgrade
	c.readUntil(now.Add(c.hub.config.AuthWait))
	answer, err := w.upgrade()
	if err != nil {
		w.refuse(err)
		return false
	}
	c.in.Release()
	c.in, c.readSize, c.small = nil, firstRead, 0
	c.readUntil(time.Time{})
	c.active.Store(time.Now().UnixNano())
	c.hub.countUpgrade(UpgradeDone)
	w.send(answer, sendUpgrade)
	c.send(c.hub.infoLine(c, false), false)
	c.opening.Store(false)
	return true
}

// beginTLS makes the connection secure.
func (w *webSocket) beginTLS() bool {
	c := w.conn
	first, err := c.firstByte(limits.HandshakeTimeout)
	switch {
	case c.draining.Load() != nil:
		c.close(*c.draining.Load())
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.hub.countHandshake(HandshakeTimeout)
		c.part()
	case err != nil:
		c.close(endReason(err))
	case first[0] != recordHandshake:
		c.hub.countHandshake(HandshakePlaintext)
		_ = c.writeNow(websocket.ErrPlaintext.Answer())
		c.part()
	default:
		if err = c.handshake(first, c.hub.config.WebSocket.TLS); err == nil {
			return true
		}
		c.fail(err)
	}
	return false
}

// upgrade reads the request and returns the answer that upgrades the connection. An error is a
// *websocket.Refusal, or of a read.
func (w *webSocket) upgrade() (answer []byte, err error) {
	c := w.conn
	for seen := 0; ; {
		if err := c.read(); err != nil {
			return nil, err
		}
		head := c.in.buf[c.start:c.end]
		if !websocket.BeginsRequest(head[0]) {
			return nil, websocket.ErrNotHTTP
		}
		size := websocket.HeadSize(head, seen)
		switch {
		case size > websocket.MaxHead, size == 0 && len(head) >= websocket.MaxHead:
			return nil, websocket.ErrTooLong
		case size == 0:
			seen = len(head)
			c.makeRoom(0)
		case size < len(head):
			return nil, websocket.ErrImpatient
		default:
			return websocket.Upgrade(head, &c.hub.config.WebSocket.Origins, c.secure != nil)
		}
	}
}

// refuse answers a request that is not upgraded, and closes the connection.
func (w *webSocket) refuse(err error) {
	c, outcome := w.conn, UpgradeRefused
	if why := c.draining.Load(); why != nil {
		c.close(*why)
		return
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err, outcome = websocket.ErrTooLate, UpgradeTimeout
	}
	refused := (*websocket.Refusal)(nil)
	if !errors.As(err, &refused) {
		c.close(endReason(err))
		return
	}
	c.hub.countUpgrade(outcome)
	c.hub.log.Debug("Did not upgrade a connection to WebSocket", "client", c.id, "address", c.nc.RemoteAddr().String(), "error", refused)
	c.send(refused.Answer(), true)
	c.linger()
	c.close(NotUpgraded)
}

func (h *Hub) countUpgrade(o Outcome) {
	h.mu.Lock()
	h.upgrades[o]++
	h.mu.Unlock()
}
