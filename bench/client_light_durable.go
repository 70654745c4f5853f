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
	"time"
)

// lightAckClient is all the publishers of a durable run in one goroutine: it reads what acks
// came, lets each publisher that was answered send its next message, and writes these at once.
// So it costs one read, one write and no wake-up of a goroutine for each batch of acks.
type lightAckClient struct {
	run      *durableRun
	socket   *net.TCPConn
	held     []byte // the beginning of a frame
	out      []byte
	heads    []string // of each publisher's frames: PUB, subject, inbox
	tail     string   // the payload's size
	inbox    []byte
	payload  []byte
	free     []int // publishers that may send, once for each message
	at       int64 // when the bytes in hand were read
	answered bool  // since the last look
	refused  string
	deadline time.Time // of reads, on the connection
	giveUp   time.Time // of writes, on the connection
}

// checkEvery is how often the client wakes to look at the clock and at interrupts.
const checkEvery = 250 * time.Millisecond

func (c *lightAckClient) connect(ctx context.Context) error {
	a := c.run.target.address(0)
	if a.TLS {
		return fmt.Errorf("connect to %s: the light client has no TLS; use --client nats", a.HostPort)
	}
	c.inbox = fmt.Appendf(nil, "_INBOX.%016x.", c.run.id)
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", a.HostPort)
	if err != nil {
		return err
	}
	c.socket = conn.(*net.TCPConn)
	if c.held, err = greet(ctx, c.socket, a, "", []string{string(c.inbox) + "*"}); err != nil {
		return fmt.Errorf("greet %s: %w", a.HostPort, err)
	}
	size := c.run.workload.Parameters.PayloadBytes
	c.payload = make([]byte, size)
	c.tail = fmt.Sprintf(" %d\r\n", size)
	for p := range c.run.plan.publishers {
		c.heads = append(c.heads, fmt.Sprintf("PUB %s %s", c.run.subject(p), c.inbox))
	}
	return nil
}

func (c *lightAckClient) close() {
	if c.socket != nil {
		_ = c.socket.Close()
	}
}

func (c *lightAckClient) drive(ctx context.Context) error {
	for range c.run.plan.window {
		for p := range c.run.plan.publishers {
			c.free = append(c.free, p)
		}
	}
	buffer := make([]byte, 64<<10)
	sending, last := true, now()
	for {
		at := now()
		sending = sending && !c.run.over(ctx, at)
		if sending {
			if err := c.send(at); err != nil {
				return fmt.Errorf("publish to %s: %w", c.run.target.Name, err)
			}
		}
		if c.run.account.open == 0 {
			return nil
		}
		if c.answered {
			c.answered, last = false, at
		}
		if time.Duration(at-last) > c.run.patience(ctx) {
			return fmt.Errorf("%s left %d messages unanswered for %v", c.run.target.Name, c.run.account.open, time.Duration(at-last).Round(time.Millisecond))
		}
		if err := c.read(buffer); err != nil {
			return fmt.Errorf("wait for acks of %s: %w", c.run.target.Name, err)
		}
	}
}

// send gives every publisher that may its next message, all in one write.
func (c *lightAckClient) send(at int64) error {
	c.out = c.out[:0]
	for _, p := range c.free {
		number, ok := c.run.account.send(p, at)
		if !ok {
			break
		}
		c.run.stampFor(c.payload, p, number, at)
		c.out = append(c.out, c.heads[p]...)
		c.out = strconv.AppendInt(c.out, int64(number*len(c.heads)+p), 10)
		c.out = append(append(append(c.out, c.tail...), c.payload...), crlf...)
	}
	c.free = c.free[:0]
	return c.write(c.out)
}

func (c *lightAckClient) write(data []byte) error {
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
func (c *lightAckClient) read(buffer []byte) error {
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
	used, err := parseFrames(data, c)
	if err != nil {
		return err
	}
	c.held = append(c.held[:0], data[used:]...)
	return nil
}

func (c *lightAckClient) onMessage(subject, _, payload []byte) {
	c.answered = true
	publisher, number := -1, 0
	if token, found := bytes.CutPrefix(subject, c.inbox); found {
		if id, ok := parseNumber(token); ok {
			publisher, number = id%len(c.heads), id/len(c.heads)
		}
	}
	if c.run.account.answer(publisher, number, payload, c.at) {
		c.free = append(c.free, publisher)
	}
}
func (c *lightAckClient) onInfo([]byte)       {}
func (c *lightAckClient) onPing()             { _ = c.write(pong) } // a broken connection shows at the next read
func (c *lightAckClient) onPong()             {}
func (c *lightAckClient) onError(text []byte) { c.refused = string(text) }

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
