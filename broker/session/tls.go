package session

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/carillon-mq/carillon/broker/limits"
)

// transport is what the tls.Conn of a client reads from and writes to. During the handshake it is
// the socket, with the handshake's deadline. Then it is memory: Write appends ciphertext for the
// loop to send, and Read returns errWouldBlock when the input is used up. So a tls.Conn never waits
// for a client, and an idle connection holds no buffers but those of the tls.Conn.
//
// Rejected: a tls.Conn on the socket with a writer goroutine per connection. It costs each message
// the wake-up that the sender loops save, and an idle connection its read buffer.
type transport struct {
	conn *Conn
	tls  *tls.Conn

	// Owned by the reader.
	first     []byte    // input that was read before the handshake
	deadline  time.Time // of the handshake
	handshook int       // bytes of input of the handshake
	in        *slab     // ciphertext; bytes from start to end are not decrypted yet
	start     int
	end       int
	header    [recordHeader]byte // of the current record, as far as it was read
	headerN   int
	body      int // bytes of the current record that are still to be read

	// notified: the end was announced. Owned by whoever encrypts: the loop, or the writer goroutine
	// of a parked connection.
	notified bool

	mu      sync.Mutex
	ready   bool   // the handshake is done
	sealing bool   // the owner of encryption encrypts, and sends what is appended
	cipher  outbox // ciphertext to be sent
}

const (
	recordHeader    = 5
	recordHandshake = 0x16     // first byte of a ClientHello
	recordPlaintext = 16 << 10 // the most plaintext in one record
	// maxCipher is how much ciphertext may wait for the socket. seal stops far below it. Only the
	// answers to a client that changes its keys again and again, and reads nothing, go beyond.
	maxCipher = 4 * fullChunk
)

// wouldBlock is the error of a Read without input. It is temporary, so a tls.Conn goes on with its
// next Read where this one ended.
type wouldBlock struct{}

func (wouldBlock) Error() string   { return "no ciphertext" }
func (wouldBlock) Timeout() bool   { return true }
func (wouldBlock) Temporary() bool { return true }

var (
	errWouldBlock    net.Error = wouldBlock{}
	errHandshakeSize           = errors.New("the client's part of the handshake is too long")
)

// Read returns input of at most one record, so that the tls.Conn's buffer does not outgrow that.
func (t *transport) Read(p []byte) (n int, err error) {
	want := recordHeader - t.headerN
	if t.body > 0 {
		want = t.body
	}
	p = p[:min(len(p), want)]
	switch {
	case len(t.first) > 0:
		n = copy(p, t.first)
		t.first = t.first[n:]
	case t.conn.secure == nil:
		n, err = t.readHandshake(p)
	case t.in == nil:
		return 0, errWouldBlock
	default:
		n = copy(p, t.in.buf[t.start:t.end])
		if t.start += n; t.start == t.end {
			t.release()
		}
	}
	if t.body > 0 {
		t.body -= n
		return n, err
	}
	t.headerN += copy(t.header[t.headerN:], p[:n])
	if t.headerN == recordHeader {
		t.headerN, t.body = 0, int(t.header[3])<<8|int(t.header[4])
	}
	return n, err
}

// readHandshake reads from the socket. Meanwhile another handshake may compute.
func (t *transport) readHandshake(p []byte) (int, error) {
	t.leaveTurn()
	defer t.awaitTurn()
	t.conn.readUntil(t.deadline)
	n, err := t.conn.readInTime(p)
	if t.handshook += n; t.handshook > limits.HandshakeBytes {
		return 0, errHandshakeSize
	}
	return n, err
}

// awaitTurn waits until this handshake may compute. Turns are taken in the order of arrival, and
// nobody waits for a client while it has one. The wait does not count against the deadline.
func (t *transport) awaitTurn() {
	began := time.Now()
	t.conn.hub.computing <- struct{}{}
	t.deadline = t.deadline.Add(time.Since(began))
}

func (t *transport) leaveTurn() { <-t.conn.hub.computing }

// Write sends a part of the handshake, or appends ciphertext to what is to be sent. The reader's
// tls.Conn writes, too: it answers a change of keys, and reports what is wrong with its input.
func (t *transport) Write(p []byte) (int, error) {
	t.mu.Lock()
	if !t.ready {
		t.mu.Unlock()
		return t.writeHandshake(p)
	}
	// Who left ciphertext there sends it, and what is behind it.
	nobody := t.cipher.empty() && !t.sealing
	t.cipher.write(p)
	tooMuch := t.cipher.size > maxCipher
	t.mu.Unlock()
	switch {
	case tooMuch:
		t.conn.hub.slow(t.conn, SlowPending)
		return 0, net.ErrClosed
	case nobody:
		t.conn.send(nil, false)
	}
	return len(p), nil
}

// writeHandshake writes to the socket. Meanwhile another handshake may compute.
func (t *transport) writeHandshake(p []byte) (int, error) {
	t.leaveTurn()
	defer t.awaitTurn()
	_ = t.conn.nc.SetWriteDeadline(t.deadline)
	return t.conn.nc.Write(p)
}

// Close implements net.Conn. The tls.Conn is never closed; its Conn is.
func (t *transport) Close() error { return nil }

// LocalAddr implements net.Conn.
func (t *transport) LocalAddr() net.Addr { return t.conn.nc.LocalAddr() }

// RemoteAddr implements net.Conn.
func (t *transport) RemoteAddr() net.Addr { return t.conn.nc.RemoteAddr() }

// SetDeadline implements net.Conn. The deadlines are the Conn's.
func (t *transport) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn.
func (t *transport) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn.
func (t *transport) SetWriteDeadline(time.Time) error { return nil }

// empty reports that no ciphertext is to be sent. A nil transport has none.
func (t *transport) empty() bool {
	if t == nil {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cipher.empty()
}

// seal encrypts from o while less than fullChunk of ciphertext waits, so that what a slow client
// does not read stays plaintext that receivers share. After the last it announces the end. It
// returns how many bytes of o were encrypted. Only the owner of encryption calls it.
func (t *transport) seal(o *outbox, last bool) (taken int, err error) {
	t.mu.Lock()
	t.sealing = true
	for !o.empty() && t.cipher.size < fullChunk && err == nil {
		t.mu.Unlock()
		part := o.segments[0].bytes
		part = part[:min(len(part), recordPlaintext)]
		_, err = t.tls.Write(part)
		o.consume(len(part))
		taken += len(part)
		t.mu.Lock()
	}
	if last && o.empty() && !t.notified && err == nil {
		t.notified = true
		t.mu.Unlock()
		err = t.tls.CloseWrite()
		t.mu.Lock()
	}
	t.sealing = false
	t.mu.Unlock()
	return taken, err
}

// writeSocket encrypts and writes until the socket is full. It takes the place of Conn.writeSocket.
func (t *transport) writeSocket(fd uintptr) bool {
	c := t.conn
	for {
		if _, c.wroteErr = t.seal(&c.out, c.closing); c.wroteErr != nil {
			return true
		}
		t.mu.Lock()
		if t.cipher.empty() {
			t.mu.Unlock()
			return true
		}
		n, err := writeSegments(int(fd), t.cipher.segments)
		if n > 0 {
			t.cipher.consume(n)
		}
		t.mu.Unlock()
		switch {
		case errors.Is(err, syscall.EAGAIN):
			return true
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			c.wroteErr = err
			return true
		}
	}
}

// writeAll encrypts and writes what a parked connection has waiting, which counts as pending. It
// belongs to the writer goroutine.
func (t *transport) writeAll(plain *outbox, last bool) {
	c := t.conn
	for {
		before := plain.held
		taken, err := t.seal(plain, last)
		if err != nil {
			c.close(WriteError)
		}
		var out outbox
		t.mu.Lock()
		t.cipher.moveTo(&out)
		t.mu.Unlock()
		c.addPending(out.size-taken, out.held+plain.held-before)
		c.writeAll(&out)
		if c.closed() {
			c.forget(plain)
		}
		if plain.empty() && t.over(last) {
			return
		}
	}
}

// fill is Conn.fill for a TLS client.
func (t *transport) fill() error {
	c := t.conn
	for {
		if c.in == nil {
			c.in, c.start, c.end = newSlab(c.readSize), 0, 0
		}
		room := c.room()
		n, err := 0, error(nil)
		for n < len(room) && err == nil {
			var more int
			more, err = t.tls.Read(room[n:])
			n += more
		}
		c.end, c.readN = c.end+n, n
		if n > 0 {
			return nil // an error shows again at the next read
		}
		if !errors.Is(err, errWouldBlock) {
			return err
		}
		if c.start == c.end {
			c.in.Release()
			c.in = nil
		}
		if err := t.await(); err != nil {
			return err
		}
	}
}

// await waits for ciphertext.
func (t *transport) await() error {
	c := t.conn
	if c.raw == nil {
		t.in, t.start, t.end = newSlab(c.readSize), 0, 0
		n, err := c.nc.Read(t.in.buf)
		if t.end = n; n > 0 {
			return nil
		}
		t.release()
		return err
	}
	c.readN, c.readErr = 0, nil
	if err := c.raw.Read(c.readFn); err != nil {
		return err
	}
	if c.readErr != nil {
		return c.readErr
	}
	if t.in == nil {
		return io.EOF
	}
	return nil
}

// readSocket takes a slab only once there is input, as Conn.readSocket does.
func (t *transport) readSocket(fd uintptr) bool {
	c := t.conn
	t.in, t.start, t.end = newSlab(c.readSize), 0, 0
	for {
		n, err := syscall.Read(int(fd), t.in.buf)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if t.end = n; n > 0 {
			return true
		}
		t.release()
		if errors.Is(err, syscall.EAGAIN) {
			return false
		}
		c.readErr = err
		return true
	}
}

// release releases the input.
func (t *transport) release() {
	if t != nil && t.in != nil {
		t.in.Release()
		t.in = nil
	}
}

// over reports that a writer goroutine with nothing in its outbox is done: the connection was
// closed, or no ciphertext waits and the end is announced if the connection is to finish. A nil
// transport is done.
func (t *transport) over(finish bool) bool {
	return t == nil || t.conn.closed() || t.empty() && (t.notified || !finish)
}
