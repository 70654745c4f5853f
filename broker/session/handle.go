package session

import (
	"bytes"
	"errors"
	"io"
	"net"
	"time"

	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/subject"
	"github.com/carillon-mq/carillon/broker/websocket"
)

// lingerTime and lingerBytes bound what is read and discarded from a client after its last -ERR;
// see closeWrite.
const (
	lingerTime  = time.Second
	lingerBytes = 1 << 20
)

// serve reads the connection until it ends. It runs on the connection's own goroutine.
func (c *Conn) serve() {
	defer c.hub.remove(c)
	if c.opening.Load() && !c.begin() {
		return
	}
	err := c.readAll()
	c.letGo()
	if mistake := (*protocol.Error)(nil); errors.As(err, &mistake) {
		c.hub.log.Debug("Closing a connection that broke the protocol", "client", c.id, "address", c.nc.RemoteAddr().String(), "error", err)
		c.linger()
		c.close(reasonFor(mistake))
		return
	}
	if end := (*websocket.End)(nil); errors.As(err, &end) {
		c.web.part(end)
		return
	}
	if why := c.closeReason.Load(); why != nil {
		if errors.Is(err, errUnread) {
			c.linger()
		}
		c.close(*why)
	}
	if why := c.draining.Load(); why != nil && !c.closed() {
		timer := time.NewTimer(partingTime)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-c.hub.quit:
		}
		c.depart()
		c.close(*why)
	}
	c.close(endReason(err))
}

func reasonFor(e *protocol.Error) Reason {
	switch e {
	case protocol.ErrAuthorization:
		return NotAuthorized
	case protocol.ErrAuthTimeout:
		return AuthTimedOut
	case protocol.ErrUserExpired:
		return Expired
	case protocol.ErrUserRevoked:
		return Revoked
	case protocol.ErrMaxConnections, protocol.ErrMaxUserConnections:
		return Full
	}
	return ProtocolError
}

// departTime bounds how long a drained connection waits for its client to close, too. Clients do so
// as soon as they see the end.
const departTime = 400 * time.Millisecond

// depart ends the sending direction after everything that is queued, and discards what the client
// still sends. A client that publishes meanwhile sees an end, and not a reset.
func (c *Conn) depart() {
	if _, half := c.nc.(interface{ CloseWrite() error }); !half {
		return
	}
	_ = c.nc.SetReadDeadline(time.Now().Add(c.hub.depart))
	c.send(nil, true)
	_, _ = io.Copy(io.Discard, c.nc)
}

func (c *Conn) linger() {
	_ = c.nc.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.CopyN(io.Discard, c.nc, lingerBytes)
}

func (c *Conn) readAll() error {
	var op protocol.Op
	limit := protocol.Limits{ControlLine: limits.ControlLine, Payload: c.hub.profile.Payload}
	for {
		var err error
		switch {
		case c.over > 0:
			err = c.waitForRate()
		case c.waitsDeclared():
			err = c.awaitDeclared()
		case !c.more:
			err = c.fill()
		case c.closed():
			err = net.ErrClosed
		}
		if err != nil {
			return c.endOfInput(err)
		}
		c.more = false
		now := time.Now().UnixNano()
		c.active.Store(now)
		need, err := c.parse(limit, &op)
		if err != nil {
			return err
		}
		if c.over == 0 && !c.more && !c.waitsDeclared() { // or else complete messages wait in the slab
			if c.claimed || need > freeInput {
				if err := c.claimRoom(need); err != nil {
					return err
				}
			}
			c.makeRoom(need)
		}
		if !c.claimed { // or else this read published nothing
			c.waitForRoom()
		}
	}
}

// waitForRoom blocks this publisher while what it has published to is behind (S4), and for the
// pause that it owes for refused requests. Nobody who ends the connection waits for that pause.
func (c *Conn) waitForRoom() {
	for pause := c.behind.Pause(); pause > 0 && !c.ending(); pause -= rateStep {
		step := time.NewTimer(min(pause, rateStep))
		select {
		case <-step.C:
		case <-c.hub.quit:
		}
		step.Stop()
	}
	c.behind.Wait()
	if slow := c.slowReceiver; slow != nil {
		c.slowReceiver = nil
		for range limits.StallSteps {
			if !slow.nearBound.Load() || slow.closed() {
				return
			}
			time.Sleep(limits.StallStep)
		}
	}
}

// parse handles the complete operations of the input, all of them or as many as there is room for.
// need is the size of the operation that follows, if known. An error has been sent to the client
// already.
func (c *Conn) parse(limit protocol.Limits, op *protocol.Op) (need int, err error) {
	b := c.hub.batches.Get().(*batch)
	b.origin, b.from, b.own = c, c.in, c.loop.sink
	var msgs, bytes uint64
	b.begin()
	for {
		n, input := 0, c.in.buf[c.start:c.end]
		if err = c.admit(input); err == nil {
			n, need, err = protocol.Next(input, limit, op)
		}
		if err == nil && n == 0 {
			break
		}
		if err == nil && op.Verb == protocol.VerbPub && (op.HasHeader && c.declares(op) || !c.spend(len(op.Data))) {
			break
		}
		c.start += n
		c.proven = max(c.proven, n)
		if err == nil {
			if op.Verb == protocol.VerbPub {
				msgs++
				bytes += uint64(len(op.Data))
			}
			err = c.handle(b, op)
		}
		if err == nil {
			if b.full() {
				c.more = true
				break
			}
			continue
		}
		mistake := (*protocol.Error)(nil)
		if !errors.As(err, &mistake) {
			break
		}
		if mistake.Closes() {
			c.web.endWith(statusFor(mistake), mistake.Text())
		}
		b.send(c, protocol.AppendErr(nil, mistake.Text()), mistake.Closes())
		if mistake.Closes() {
			break
		}
		err = nil
	}
	b.end()
	if b.slowReceiver != nil { // or else that of the part before is still to be waited for
		c.slowReceiver = b.slowReceiver
	}
	c.behind.Join(b.behind)
	c.behind.Join(b.behindTakers)
	b.reset()
	c.hub.batches.Put(b)
	if msgs > 0 {
		c.inMsgs.Add(msgs)
		c.inBytes.Add(bytes)
	}
	return need, err
}

// admit refuses all but a CONNECT until the client has authenticated, where it must. It looks at
// the first byte of an operation: a client that is not known yet must not have the broker keep more
// than one control line.
func (c *Conn) admit(input []byte) error {
	if len(input) > 0 && input[0]|0x20 != 'c' && !c.known() {
		return protocol.ErrAuthorization
	}
	return nil
}

// known reports whether the client has authenticated, where it must.
func (c *Conn) known() bool { return c.connected.Load() || c.hub.auth == nil }

func (c *Conn) handle(b *batch, op *protocol.Op) error {
	switch op.Verb {
	case protocol.VerbPub:
		return c.publish(b, op)
	case protocol.VerbSub:
		return c.subscribe(b, op)
	case protocol.VerbUnsub:
		c.unsubscribe(b, op)
	case protocol.VerbPing:
		if len(b.forTakers) > 0 { // which get them first (S6): any batch may have the loop send the PONG
			b.pause()
			b.resume()
		}
		if c.pongSent.Load() {
			b.send(c, linePong, false)
		} else {
			c.firstPong(b)
		}
		return nil
	case protocol.VerbPong:
		c.pings.Store(0)
		return nil
	case protocol.VerbConnect:
		if err := c.connect(b, op.JSON); err != nil {
			return err
		}
	case protocol.VerbErr:
		return io.EOF // A client closes after it reported an error.
	default:
		return nil
	}
	c.confirm(b)
	return nil
}

// firstPong sends the first PONG, with INFO behind it in one write: a client that reads both at
// once has the INFO before its application learns that it is connected.
func (c *Conn) firstPong(b *batch) {
	told, about := c.hub.informed.Load(), c.connectOptions.Load()
	later := about != nil && about.Protocol >= 1
	answer := linePong
	if later {
		answer = append(bytes.Clone(linePong), c.hub.infoLine(c, true)...)
	}
	b.send(c, answer, false)
	// Clients expect nothing before the first PONG. So it is queued before the hub may send INFO.
	b.pause()
	c.pongSent.Store(true)
	b.resume()
	if later && c.hub.informed.Load() != told { // the hub may have passed c over
		b.send(c, c.hub.infoLine(c, false), false)
	}
}

func (c *Conn) confirm(b *batch) {
	if c.verbose {
		b.send(c, lineOK, false)
	}
}

func (c *Conn) connect(b *batch, text []byte) error {
	about, err := protocol.ParseConnect(text)
	if err != nil {
		return err
	}
	if about.Protocol < 0 || about.Protocol > 1 {
		return protocol.ErrInvalidClientProtocol
	}
	if about.NoResponders && !about.Headers {
		return protocol.ErrNoRespondersRequireHeaders
	}
	// A second CONNECT may be another user's: drop the subscriptions of the first.
	if c.connected.Load() {
		b.pause()
		c.hub.drop(c)
		b.resume()
	}
	if c.hub.auth != nil {
		b.pause()
		err = c.authenticate(&about)
		b.resume()
		if err != nil {
			return err
		}
	}
	about.Password, about.Token, about.JWT, about.Signature = "", "", "", ""
	c.connected.Store(true)
	c.echo, c.verbose, c.pedantic, c.noResponders = about.Echo, about.Verbose, about.Pedantic, about.NoResponders
	c.headers.Store(about.Headers)
	c.connectOptions.Store(&about)
	return nil
}

func (c *Conn) publish(b *batch, op *protocol.Op) error {
	var refusal *Refusal
	if c.declared != nil {
		refusal, c.declared = c.declared.refusal, nil
	}
	if op.HasHeader && !c.headers.Load() {
		return protocol.ErrHeadersNotSupported
	}
	if c.pedantic && !subject.Valid(op.Subject) {
		return protocol.ErrInvalidPublishSubject
	}
	is := c.identity.Load()
	if is != nil && is.Limits.Payload > 0 && len(op.Data) > is.Limits.Payload {
		return protocol.ErrMaxPayload
	}
	if is != nil && !c.mayPublish(op.Subject) {
		return c.violate(protocol.PublishViolation(op.Subject))
	}
	if bytes.HasPrefix(op.Reply, ackPrefix) {
		return c.violate(protocol.ReplyViolation(op.Reply))
	}
	m := &b.msg
	*m = Message{Subject: op.Subject, Reply: op.Reply, Header: op.Header, Data: op.Data}
	if refusal != nil {
		return c.refuse(b, m, refusal)
	}
	// As nats-server does, confirm before the client can receive its own message.
	c.confirm(b)
	if to, only, wants := wantsTrace(m); wants {
		if !is.MayPublish(to) {
			return c.violate(protocol.PublishViolation(to))
		}
		c.trace(b, m, to, only)
		return nil
	}
	if is != nil && op.HasHeader {
		if e := maySchedule(is, m); e != nil {
			return c.violate(e)
		}
	}
	if !b.publish(m) && len(m.Reply) > 0 && c.noResponders {
		b.noResponders(m, protocol.AppendNoResponders(nil, m.Subject))
	}
	return nil
}

func (c *Conn) subscribe(b *batch, op *protocol.Op) error {
	if !subject.ValidPattern(op.Subject) {
		return protocol.ErrInvalidSubject
	}
	most := limits.PatternTokens
	if is := c.identity.Load(); is != nil && is.Limits.Tokens > 0 {
		most = min(most, is.Limits.Tokens)
	}
	if bytes.Count(op.Subject, dot) >= most {
		return protocol.TooManyTokens(op.Subject)
	}
	s := &Sub{conn: c, sid: string(op.SID), queue: string(op.Queue), pattern: string(op.Subject)}
	b.pause()
	err := c.hub.insert(s, op)
	b.resume()
	if err == nil {
		c.confirm(b)
	}
	return err
}

var dot = []byte{'.'}

// ackPrefix begins the reply subjects that streams choose. Clients may not choose one, as with
// nats-server: whoever answers would acknowledge a message that it never got.
var ackPrefix = []byte("$JS.ACK.")

func (c *Conn) unsubscribe(b *batch, op *protocol.Op) {
	b.pause()
	c.hub.limit(c, op.SID, int64(op.Max))
	b.resume()
	if c.loop.behind.Load() {
		b.behind.Add(c.loop) // which gets the end of the subscription
	}
}
