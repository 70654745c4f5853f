package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"
)

// lightAckClient is all the publishers of a durable run, with a goroutine for each connection.
type lightAckClient struct {
	run   *durableRun
	mu    sync.Mutex // guards the run's account and clock
	conns []*lightAckConn
}

// lightAckConn is the publishers of one connection: every step-th from the first on. It reads what
// acks came, lets each publisher that was answered send its next message, and writes these at once.
// So it costs one read, one write and no wake-up of a goroutine for each batch of acks.
type lightAckConn struct {
	run      *durableRun
	mu       *sync.Mutex
	address  Address
	first    int
	step     int
	socket   net.Conn
	held     []byte // the beginning of a frame
	out      []byte
	heads    []string // of the frames of all the run's publishers: PUB, subject, inbox
	tail     string   // the payload's size
	inbox    []byte
	payload  []byte
	free     []int // publishers that may send, once for each message
	open     int   // messages without an answer
	at       int64 // when the bytes in hand were read
	answered bool  // since the last look
	refused  string
	deadline time.Time // of reads, on the connection
	giveUp   time.Time // of writes, on the connection
}

// checkEvery is how often the client wakes to look at the clock and at interrupts.
const checkEvery = 250 * time.Millisecond

func (c *lightAckClient) connect(ctx context.Context) error {
	for i, a := range c.run.brokers {
		conn := &lightAckConn{run: c.run, mu: &c.mu, address: a, first: i, step: len(c.run.brokers)}
		c.conns = append(c.conns, conn)
		if err := conn.connect(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (c *lightAckClient) close() {
	for _, conn := range c.conns {
		if conn.socket != nil {
			_ = conn.socket.Close()
		}
	}
}

func (c *lightAckClient) drive(ctx context.Context) error {
	var wg sync.WaitGroup
	failed := make([]error, len(c.conns))
	for i, conn := range c.conns[1:] {
		wg.Go(func() { failed[i+1] = conn.drive(ctx) })
	}
	failed[0] = c.conns[0].drive(ctx)
	wg.Wait()
	return errors.Join(failed...)
}

func (c *lightAckConn) connect(ctx context.Context) error {
	a := c.address
	// Answers go to whoever listens: each connection has an inbox of its own.
	c.inbox = fmt.Appendf(nil, "_INBOX.%016x.%d.", c.run.id, c.first)
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", a.HostPort)
	if err != nil {
		return err
	}
	c.socket = conn
	secured, held, err := greet(ctx, conn.(*net.TCPConn), a, "", []string{string(c.inbox) + "*"})
	if err != nil {
		return fmt.Errorf("greet %s: %w", a.HostPort, err)
	}
	c.socket, c.held = secured, held
	size := c.run.workload.Parameters.PayloadBytes
	c.payload = make([]byte, size)
	c.tail = fmt.Sprintf(" %d\r\n", size)
	for p := range c.run.plan.publishers {
		c.heads = append(c.heads, fmt.Sprintf("PUB %s %s", c.run.subject(p), c.inbox))
	}
	return nil
}

func (c *lightAckConn) drive(ctx context.Context) error {
	for range c.run.plan.window {
		for p := c.first; p < c.run.plan.publishers; p += c.step {
			c.free = append(c.free, p)
		}
	}
	buffer := make([]byte, 64<<10)
	sending, last := true, now()
	for {
		at := now()
		if sending {
			if sending = c.fill(ctx, at); sending {
				if err := c.write(c.out); err != nil {
					return fmt.Errorf("publish to %s: %w", c.run.target.Name, err)
				}
			}
		}
		if c.open == 0 {
			return nil
		}
		if c.answered {
			c.answered, last = false, at
		}
		if time.Duration(at-last) > c.run.patience(ctx) {
			return fmt.Errorf("%s left %d messages unanswered for %v", c.run.target.Name, c.open, time.Duration(at-last).Round(time.Millisecond))
		}
		if err := c.read(buffer); err != nil {
			return fmt.Errorf("wait for acks of %s: %w", c.run.target.Name, err)
		}
	}
}

// fill gives every publisher that may its next message, unless the run is over.
func (c *lightAckConn) fill(ctx context.Context, at int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.run.over(ctx, at) {
		return false
	}
	c.out = c.out[:0]
	for _, p := range c.free {
		number, ok := c.run.account.send(p, at)
		if !ok {
			break
		}
		c.open++
		c.run.stampFor(c.payload, p, number, at)
		c.out = append(c.out, c.heads[p]...)
		c.out = strconv.AppendInt(c.out, int64(number*len(c.heads)+p), 10)
		c.out = append(append(append(c.out, c.tail...), c.payload...), crlf...)
	}
	c.free = c.free[:0]
	return true
}

func (c *lightAckConn) write(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	// Moving a deadline costs about as much as a message: it moves when half of it is gone.
	if soon := time.Now(); c.giveUp.Sub(soon) < writeTimeout {
		c.giveUp = soon.Add(2 * writeTimeout)
		if err := c.socket.SetWriteDeadline(c.giveUp); err != nil {
			return err
		}
	}
	_, err := c.socket.Write(data)
	return err
}

// read takes once what the connection has, or returns after a while without.
func (c *lightAckConn) read(buffer []byte) error {
	if soon := time.Now(); c.deadline.Sub(soon) < checkEvery {
		c.deadline = soon.Add(2 * checkEvery)
		if err := c.socket.SetReadDeadline(c.deadline); err != nil {
			return err
		}
	}
	n, err := c.socket.Read(buffer)
	c.at = now()
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil
	case err == io.EOF && c.refused != "":
		return errors.New(c.refused)
	case err != nil:
		return err
	}
	data := buffer[:n]
	if len(c.held) > 0 {
		c.held = append(c.held, data...)
		data = c.held
	}
	c.mu.Lock()
	used, err := parseFrames(data, c)
	c.mu.Unlock()
	if err != nil {
		return err
	}
	c.held = append(c.held[:0], data[used:]...)
	return nil
}

func (c *lightAckConn) onMessage(subject, _, payload []byte) {
	c.answered = true
	publisher, number := -1, 0
	if token, found := bytes.CutPrefix(subject, c.inbox); found {
		if id, ok := parseNumber(token); ok {
			publisher, number = id%len(c.heads), id/len(c.heads)
		}
	}
	if c.run.account.answer(publisher, number, payload, c.at) {
		c.open--
		c.free = append(c.free, publisher)
	}
}
func (c *lightAckConn) onInfo([]byte) {}

// onPing ignores a failed write: the next read returns the error.
func (c *lightAckConn) onPing()             { _ = c.write(pong) }
func (c *lightAckConn) onPong()             {}
func (c *lightAckConn) onError(text []byte) { c.refused = string(text) }

// parseNumber reads a message's number from the subject of its answer.
func parseNumber(digits []byte) (n int, ok bool) {
	for _, d := range digits {
		if d < '0' || d > '9' || n > 1<<40 {
			return 0, false
		}
		n = n*10 + int(d-'0')
	}
	return n, len(digits) > 0
}
