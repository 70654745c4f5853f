package session

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/work"
)

// Reason is why a connection ended. /connz shows it and the metrics count it.
type Reason string

// The reasons. The list is closed, and the texts are those of nats-server where it has them.
const (
	ClientClosed  Reason = "Client Closed"
	ReadError     Reason = "Read Error"
	WriteError    Reason = "Write Error"
	ProtocolError Reason = "Protocol Violation"
	NotAuthorized Reason = "Authentication Failure"
	AuthTimedOut  Reason = "Authentication Timeout"
	Stale         Reason = "Stale Connection"
	SlowPending   Reason = "Slow Consumer (Pending Bytes)"
	SlowNode      Reason = "Slow Consumer (Node Pending Bytes)"
	SlowDeadline  Reason = "Slow Consumer (Write Deadline)"
	SlowProducer  Reason = "Slow Producer"
	Full          Reason = "Maximum Connections Exceeded"
	TLSHandshake  Reason = "TLS Handshake Failure"
	Revoked       Reason = "Authentication Revoked"
	Expired       Reason = "Authentication Expired"
	NotUpgraded   Reason = "WebSocket Upgrade Failure"
	LameDuck      Reason = "Lame Duck"
	Stopped       Reason = "Server Shutdown"
)

// Conn is one client connection.
type Conn struct {
	hub  *Hub
	loop *loop
	id   uint64
	nc   net.Conn
	raw  syscall.RawConn // nil if nc is not a plain socket; then a writer goroutine does all writing
	born time.Time

	reason atomic.Pointer[Reason] // why it was closed; nil: it is open

	// opening: TLS or the upgrade is to be begun, and the reader alone writes. secure is set before
	// it ends, by the reader; nil: plaintext.
	opening  atomic.Bool
	opened   atomic.Int64 // UnixNano: the time for CONNECT begins
	secure   *transport
	tlsState atomic.Pointer[TLSState]
	web      *webSocket // nil: not on the port for WebSocket

	// From CONNECT. Written by the reader; headers is also read by the loop.
	connected      atomic.Bool
	echo           bool
	verbose        bool
	pedantic       bool
	noResponders   bool
	headers        atomic.Bool
	connectOptions atomic.Pointer[protocol.Connect]

	// user is what the connections of its user share. Written by the reader, under mu of the hub.
	user *user

	nonce string // of INFO; written before the reader begins
	// identity is who the client is; nil: nobody yet, or there are no users. replies are its open
	// responses; nil: it may not respond by that. Both are written under mu of the hub.
	identity atomic.Pointer[identity.Identity]
	by       *identity.Credential      // what identity was proved by; guarded by mu of the hub
	account  atomic.Pointer[accountAs] // as Account returned it last
	replies  atomic.Pointer[replies]

	// Guarded by the index lock.
	subs     map[string]*Sub  // by sid
	interest int64            // sum of the cost of subscriptions and of members of feeds
	feeds    map[*Sub][]*Feed // by their receivers

	// Owned by the reader.
	behind       work.Behind // loops, links and Takers that the last messages went to
	more         bool        // parse stopped before the end of the input, until there is room
	slowReceiver *Conn       // a receiver of the last messages that is close to its bound
	in           *slab       // input; bytes from start to end are not parsed yet
	start        int
	end          int
	readSize     int
	small        int // consecutive reads that needed far less than readSize
	readN        int
	need         int           // size of the operation that is being read, in bytes; 0: unknown
	proven       int           // size of the largest operation that arrived in whole
	claim        *claim        // of room for large operations; nil: there was none yet
	claimed      bool          // claim is held, for the operation that is being read
	over         time.Duration // how long there is no room for the next message of its user; 0: there is
	declarer     Declarer      // nil: no message has declared anything yet
	declared     *declaration  // of the message that is read next; nil: nothing, or it is as declared
	readErr      error
	readFn       func(fd uintptr) bool

	// Owned by the loop.
	out       outbox
	dirty     bool
	closing   bool
	sent      uint64
	sentBytes uint64
	wroteErr  error
	// judged are the bytes that conditions of its Feeds have passed over since judgedSince.
	judged      int
	judgedSince time.Time
	writeFn     func(fd uintptr) bool

	// Output that a full socket did not accept. Guarded by parking.
	parking sync.Mutex
	parked  bool // a writer goroutine runs
	finish  bool // the writer goroutine closes the connection when it is done
	waiting outbox

	// Readable by any goroutine.
	pending atomic.Int64 // bytes in waiting or in the writer goroutine
	held    atomic.Int64 // bytes of the slabs that pending bytes lie in, which is bounded
	// nearBound reports that held is close to its bound once what its loop has queued is served.
	// Publishers with few receivers slow down.
	nearBound   atomic.Bool
	inMsgs      atomic.Uint64
	inBytes     atomic.Uint64
	outMsgs     atomic.Uint64
	outBytes    atomic.Uint64
	subCount    atomic.Int64
	active      atomic.Int64           // UnixNano of the last read
	queued      atomic.Bool            // the reader waits for room, and does not read
	pings       atomic.Int32           // PINGs without a PONG
	pongSent    atomic.Bool            // the first PONG was sent, so INFO may follow at any time
	closeReason atomic.Pointer[Reason] // closeWithError was called with this reason
	draining    atomic.Pointer[Reason] // drain was called with this reason
}

// firstRead is the first read size of a connection, in bytes. It grows with demand up to fullChunk.
const firstRead = 4 << 10

func newConn(h *Hub, id uint64, nc net.Conn, web bool) *Conn {
	c := &Conn{
		hub: h, loop: h.loops[int(id)%len(h.loops)], id: id, nc: nc, born: time.Now(),
		echo: true, verbose: true, pedantic: true, readSize: firstRead,
	}
	c.active.Store(c.born.UnixNano())
	c.opened.Store(c.born.UnixNano())
	c.opening.Store(h.config.TLS != nil || web)
	if h.auth != nil && h.auth.Nonce() {
		c.nonce = newNonce()
	}
	if web {
		c.web = &webSocket{conn: c}
	}
	if socket, ok := nc.(interface {
		syscall.Conn
		CloseWrite() error
	}); ok && nonblockingIO {
		if raw, err := socket.SyscallConn(); err == nil {
			c.raw, c.readFn, c.writeFn = raw, c.readSocket, c.writeSocket
		}
	}
	return c
}

// close closes the connection at once. The reader then cleans up. Only the first reason counts,
// that of closeWithError included.
func (c *Conn) close(why Reason) {
	if first := c.closeReason.Load(); first != nil {
		why = *first
	}
	if c.reason.CompareAndSwap(nil, &why) {
		c.nc.Close()
		c.hub.input.abandon(c)
	}
}

// closed reports whether the connection was closed. A closed connection has a reason.
func (c *Conn) closed() bool { return c.reason.Load() != nil }

// closeWithError sends the client an -ERR and then closes the connection.
func (c *Conn) closeWithError(text string, why Reason) { c.endWithError(text, why, lingerTime) }

// endWithError sends the client an -ERR. The reader closes the connection, after the given time at
// the latest.
func (c *Conn) endWithError(text string, why Reason, within time.Duration) {
	if !c.closeReason.CompareAndSwap(nil, &why) {
		return
	}
	c.web.endWith(statusOf(why), text)
	c.send(protocol.AppendErr(nil, text), true)
	_ = c.nc.SetReadDeadline(time.Now().Add(within))
	c.hub.input.abandon(c)
}

// drain stops reading. serve closes the connection once what was read has been answered.
func (c *Conn) drain(why Reason) {
	if c.draining.CompareAndSwap(nil, &why) {
		_ = c.nc.SetReadDeadline(time.Now())
		c.hub.input.abandon(c)
	}
}

// send queues raw bytes for the client, outside of a batch.
func (c *Conn) send(data []byte, thenClose bool) {
	kind := sendRaw
	if thenClose {
		kind = sendRawAndClose
	}
	c.loop.pushOne(entry{kind: kind, conn: c, msg: visible{Data: data}})
	c.loop.signal()
}

// flush writes what the loop has encoded for c in one drain.
func (c *Conn) flush() {
	c.dirty = false
	c.outMsgs.Store(c.sent)
	c.outBytes.Store(c.sentBytes)
	c.write()
}

// write writes what the loop has encoded for c since the last write. Only the loop calls it.
func (c *Conn) write() {
	if c.closed() {
		c.out.reset()
		return
	}
	if c.out.framed {
		c.web.frame()
	}
	c.push()
}

// push writes what the socket accepts now, and parks the rest. Nothing is left in the outbox. Only
// the loop calls it.
func (c *Conn) push() {
	c.parking.Lock()
	parked := c.parked
	if parked {
		c.park()
	}
	c.parking.Unlock()
	if parked {
		return
	}
	if c.raw != nil {
		if err := c.raw.Write(c.writeFn); err != nil || c.wroteErr != nil {
			c.out.reset()
			c.close(WriteError)
			return
		}
		if c.out.empty() && c.secure.empty() {
			if c.closing {
				c.closeWrite()
			}
			return
		}
	}
	c.parking.Lock()
	c.parked = true
	c.park()
	c.parking.Unlock()
	c.hub.parked.Add(1)
	c.hub.writing.Go(c.unpark)
}

// writeSocket writes until the socket is full. The runtime's poller calls it and holds the socket.
func (c *Conn) writeSocket(fd uintptr) bool {
	c.wroteErr = nil
	for !c.out.empty() {
		n, err := writeSegments(int(fd), c.out.segments)
		if n > 0 {
			c.out.consume(n)
		}
		switch {
		case errors.Is(err, syscall.EAGAIN):
			return true
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			c.wroteErr = err
			return true
		}
	}
	return true
}

// park moves the outbox to the writer goroutine and checks the bounds of what pending bytes hold.
// The caller holds parking.
func (c *Conn) park() {
	n, before := c.out.size, c.waiting.held
	c.out.joinTo(&c.waiting)
	c.finish = c.finish || c.closing
	mine, all := c.addPending(n, c.waiting.held-before)
	if near := c.hub.profile.Pending * 3 / 4; mine+c.loop.unserved() > near {
		c.nearBound.Store(true)
	}
	switch {
	case mine > c.hub.profile.Pending:
		c.hub.slow(c, SlowPending)
	case all > c.hub.profile.NodePending && mine*max(c.hub.parked.Load(), 1) >= all:
		c.hub.slow(c, SlowNode)
	}
}

// unpark writes until nothing is waiting. It is the writer goroutine of a parked connection.
func (c *Conn) unpark() {
	defer c.hub.parked.Add(-1)
	var out outbox
	for {
		c.parking.Lock()
		if c.closed() {
			c.forget(&c.waiting)
		}
		finish := c.finish
		if c.waiting.empty() && c.secure.over(finish) {
			if !c.closed() {
				_ = c.nc.SetWriteDeadline(time.Time{})
			}
			c.parked = false
			c.nearBound.Store(false)
			c.parking.Unlock()
			if finish {
				c.closeWrite()
			}
			return
		}
		c.waiting.moveTo(&out)
		c.parking.Unlock()
		if c.secure != nil {
			c.secure.writeAll(&out, finish)
		} else {
			c.writeAll(&out)
		}
	}
}

// writeAll writes what is pending to the socket, and waits for it. It belongs to the writer
// goroutine.
func (c *Conn) writeAll(out *outbox) {
	var parts, left net.Buffers
	for !out.empty() {
		parts = out.front(parts[:0], fullChunk)
		left = parts // WriteTo moves it on
		_ = c.nc.SetWriteDeadline(time.Now().Add(limits.WriteDeadline))
		written, err := left.WriteTo(c.nc)
		n := int(written)
		before := out.held
		out.consume(n)
		c.addPending(-n, out.held-before)
		if err == nil {
			continue
		}
		if errors.Is(err, os.ErrDeadlineExceeded) && n > 0 {
			continue // slow, but alive
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			c.hub.slow(c, SlowDeadline)
		} else {
			c.close(WriteError)
		}
		c.forget(out)
	}
}

// addPending counts bytes that are parked, taken or written, and the memory that they hold. It
// returns the memory of this client and of all.
func (c *Conn) addPending(n, held int) (mine, all int64) {
	c.pending.Add(int64(n))
	c.hub.pending.Add(int64(n))
	mine, all = c.held.Add(int64(held)), c.hub.held.Add(int64(held))
	if far := c.hub.profile.Pending / 2; c.nearBound.Load() && mine+c.loop.unserved() < far {
		c.nearBound.Store(false)
	}
	return mine, all
}

func (c *Conn) forget(o *outbox) {
	n, held := o.size, o.held
	o.reset()
	c.addPending(-n, -held)
	c.nearBound.Store(false)
}

// closeWrite closes the sending direction. The reader still reads for a moment: the kernel resets a
// socket that is closed with unread input, and the client would lose the last -ERR.
func (c *Conn) closeWrite() {
	if half, ok := c.nc.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
		return
	}
	c.close(ProtocolError)
}

// fill reads more input of NATS's protocol behind the unparsed bytes. A read of a WebSocket may
// bring none.
func (c *Conn) fill() error {
	if c.web != nil {
		return c.web.fill()
	}
	return c.read()
}

// read reads readN more bytes of input behind the unparsed bytes.
func (c *Conn) read() error {
	if c.secure != nil {
		return c.secure.fill()
	}
	if c.raw == nil {
		if c.in == nil {
			c.in, c.start, c.end = newSlab(c.readSize), 0, 0
		}
		n, err := c.nc.Read(c.room())
		c.end += n
		c.readN = n
		if n > 0 {
			return nil
		}
		return err
	}
	if err := c.raw.Read(c.readFn); err != nil {
		return err
	}
	if c.readErr != nil {
		return c.readErr
	}
	if c.readN == 0 {
		return io.EOF
	}
	c.end += c.readN
	return nil
}

// readSocket takes a slab only once there is input, so that an idle connection holds no memory.
func (c *Conn) readSocket(fd uintptr) bool {
	if c.in == nil {
		c.in, c.start, c.end = newSlab(c.readSize), 0, 0
	}
	for {
		c.readN, c.readErr = syscall.Read(int(fd), c.room())
		switch {
		case errors.Is(c.readErr, syscall.EINTR):
			continue
		case errors.Is(c.readErr, syscall.EAGAIN):
			if c.start == c.end {
				c.in.Release()
				c.in = nil
			}
			return false
		}
		c.readN = max(c.readN, 0)
		return true
	}
}

// room returns where to read the next input to. It ends with a large operation, so that the start
// of the next one, which needs a slab of its own, is not read to be copied there.
func (c *Conn) room() []byte {
	if c.need > fullChunk {
		return c.in.buf[c.end:min(c.start+c.need, len(c.in.buf))]
	}
	return c.in.buf[c.end:]
}

// makeRoom keeps the unparsed input and makes room for more. need is the size of the current
// operation in bytes, 0 if unknown. The slab grows with the bytes that arrived, not with an
// announced size, beyond what this client has sent as one operation before.
func (c *Conn) makeRoom(need int) {
	c.need = need
	rest := c.end - c.start
	full := c.end == len(c.in.buf)
	switch {
	case full && c.readSize < fullChunk:
		c.readSize *= 2
		c.small = 0
	case c.readN < c.readSize/8 && c.readSize > firstRead:
		if c.small++; c.small >= 8 {
			c.readSize, c.small = c.readSize/2, 0
		}
	default:
		c.small = 0
	}
	if rest == 0 {
		c.in.Release()
		c.in = nil
		return
	}
	want := max(need, rest+firstRead/4)
	if want > fullChunk {
		want = max(min(want, max(4*rest, c.proven)), fullChunk)
	}
	if c.start+want <= len(c.in.buf) && len(c.in.buf)-c.end >= firstRead/4 {
		return
	}
	if want <= len(c.in.buf) && c.in.refs.Load() == 1 {
		copy(c.in.buf, c.in.buf[c.start:c.end])
		c.start, c.end = 0, rest
		return
	}
	s := newSlab(max(want, c.readSize))
	copy(s.buf, c.in.buf[c.start:c.end])
	c.in.Release()
	c.in, c.start, c.end = s, 0, rest
}
