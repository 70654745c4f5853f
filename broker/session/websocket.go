package session

import (
	"crypto/tls"
	"sync/atomic"

	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/websocket"
)

// WebSocket is how a port for WebSocket serves clients.
type WebSocket struct {
	TLS       *tls.Config       // of the server; nil: plaintext
	Verify    bool              // TLS requires a client certificate; shown in INFO
	Origins   websocket.Origins // of pages whose programs may connect
	Advertise string            // host:port for INFO; empty: each listener's own
}

// shown returns what INFO says about TLS of that port: it is required. nats-server says in addition
// that it is available.
func (w *WebSocket) shown() *TLS {
	if w.TLS == nil {
		return nil
	}
	return &TLS{Verify: w.Verify}
}

// webSocket is what a connection on the port for WebSocket has in addition. Input is decoded where
// it was read. Output gets one header per write of the loop, before it goes to the socket, to the
// writer goroutine or to TLS, so what is parked is frames.
type webSocket struct {
	conn      *Conn
	decoder   websocket.Decoder // owned by the reader
	ended     bool              // the close frame was sent, and nothing may follow; owned by the loop
	answering atomic.Bool       // a pong is queued
	// last is the close frame; nil: with GoingAway. Only the first one counts.
	last atomic.Pointer[[]byte]
}

// fill is Conn.fill. It decodes what one read brings.
func (w *webSocket) fill() error {
	c := w.conn
	if end := w.decoder.End(); end != nil {
		return end
	}
	if err := c.read(); err != nil {
		return err
	}
	at := c.end - c.readN
	n, err := w.decoder.Decode(c.in.buf[at:c.end])
	c.end = at + n
	// Nothing piles up for a client that nobody knows: one pong at a time.
	if pong := w.decoder.TakePong(); pong != nil && (c.known() || !w.answering.Load() && c.pending.Load() == 0) {
		w.answering.Store(true)
		w.send(pong, sendFrame)
	}
	if n > 0 {
		return nil // an error shows again
	}
	return err
}

// send queues bytes that are not to be framed.
func (w *webSocket) send(data []byte, kind entryKind) {
	w.conn.loop.pushOne(entry{kind: kind, conn: w.conn, msg: visible{Data: data}})
	w.conn.loop.signal()
}

// sendApart writes bytes that are not to be framed behind everything before them. Only the loop
// calls it.
func (w *webSocket) sendApart(data []byte, thenFrames bool) {
	c := w.conn
	if c.dirty {
		c.write()
	}
	if c.closed() || w.ended {
		return
	}
	c.out.write(data)
	c.out.framed = c.out.framed || thenFrames
	c.push()
	w.answering.Store(false) // what the socket did not take is pending now
}

// frame makes frames of the outbox, and ends them if the connection is to be closed. Only the loop
// calls it.
func (w *webSocket) frame() {
	c := w.conn
	if w.ended {
		c.out.reset()
		return
	}
	c.out.frame()
	if !c.closing {
		return
	}
	w.ended = true
	if last := w.last.Load(); last != nil {
		c.out.write(*last)
	} else {
		c.out.write(websocket.AppendClose(nil, websocket.GoingAway, ""))
	}
}

// endWith chooses the close frame. On a nil webSocket it does nothing.
func (w *webSocket) endWith(s websocket.Status, text string) {
	if w != nil && w.last.Load() == nil {
		last := websocket.AppendClose(nil, s, text)
		w.last.CompareAndSwap(nil, &last)
	}
}

// part answers the end of the client's stream and closes the connection.
func (w *webSocket) part(end *websocket.End) {
	c, why := w.conn, ClientClosed
	if !end.ByClient {
		why = ProtocolError
		c.hub.log.Debug("Closing a connection that broke the rules of WebSocket", "client", c.id, "address", c.nc.RemoteAddr().String(), "error", end)
	}
	w.endWith(end.Status, end.Text)
	c.send(nil, true)
	c.linger()
	c.close(why)
}

// statusFor is the status for a client's mistake, nats-server's.
func statusFor(e *protocol.Error) websocket.Status {
	switch e {
	case protocol.ErrMaxPayload:
		return websocket.TooBig
	case protocol.ErrMaxControlLine:
		return websocket.Policy
	}
	return statusOf(reasonFor(e))
}

// statusOf is the status for a reason, nats-server's.
func statusOf(why Reason) websocket.Status {
	switch why {
	case NotAuthorized, AuthTimedOut, Revoked, Expired, Full:
		return websocket.Policy
	case ProtocolError:
		return websocket.Protocol
	}
	return websocket.GoingAway
}
