package bench

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"
)

// lightTaker is consumers that each read a socket, acknowledge what one read brought with one
// write, and keep up to a batch of messages asked for.
type lightTaker struct {
	run       *consumeRun
	mu        sync.Mutex
	consumers []*lightConsumer
	closing   bool
	wg        sync.WaitGroup
}

const (
	// pullExpiry is how long a server keeps a pull; a run whose phases are longer asks again.
	pullExpiry = 5 * time.Minute
	// readPatience is how long nothing may come. The run notices a stall by its drain timeout.
	readPatience = 48 * time.Hour
)

func (t *lightTaker) connect(ctx context.Context) error {
	r := t.run
	return inParallel(ctx, r.plan.consumers, func(ctx context.Context, i int) (err error) {
		c := &lightConsumer{run: r, number: i, inbox: fmt.Sprintf("_INBOX.%016x.c%d", r.id, i)}
		if c.conn, err = dialWire(ctx, r.target.address(i)); err != nil {
			return err
		}
		t.mu.Lock()
		t.consumers = append(t.consumers, c)
		t.mu.Unlock()
		return nil
	})
}

func (t *lightTaker) begin(failed func(error)) error {
	for _, c := range t.consumers {
		// Subscribed only now, since greet ignores messages.
		if t.run.plan.push {
			c.out = fmt.Appendf(c.out, "SUB %s %s 1\r\n", t.run.deliverSubject(), durableName)
		} else {
			c.out = fmt.Appendf(c.out, "SUB %s 1\r\n", c.inbox)
		}
		c.ask()
		if err := c.flush(); err != nil {
			return err
		}
		t.wg.Go(func() { t.read(c, failed) })
	}
	return nil
}

func (t *lightTaker) read(c *lightConsumer, failed func(error)) {
	err := c.conn.read(c, max(256<<10, 2*(t.run.size+4<<10)), readPatience, c.over)
	t.mu.Lock()
	closing := t.closing
	t.mu.Unlock()
	if !closing {
		failed(fmt.Errorf("consumer %d: %w", c.number+1, err))
	}
}

func (t *lightTaker) close() {
	t.mu.Lock()
	t.closing = true
	consumers := t.consumers
	t.mu.Unlock()
	for _, c := range consumers {
		_ = c.conn.socket.Close()
	}
	t.wg.Wait()
}

// lightConsumer is one consumer; its reading goroutine owns all but the connection.
type lightConsumer struct {
	run     *consumeRun
	number  int
	conn    *wire
	inbox   string
	asked   int // messages asked for that did not come yet
	at      int64
	request []byte
	out     []byte
	failed  error
}

// ask notes a request for as many messages as are missing to a batch, once half of it came.
func (c *lightConsumer) ask() {
	batch := c.run.plan.batch
	if c.run.plan.push || c.asked > batch/2 {
		return
	}
	count := batch - c.asked
	c.request = strconv.AppendInt(append(c.request[:0], `{"batch":`...), int64(count), 10)
	c.request = strconv.AppendInt(append(c.request, `,"expires":`...), int64(pullExpiry), 10)
	c.request = append(c.request, '}')
	c.out = append(append(append(c.out, "PUB $JS.API.CONSUMER.MSG.NEXT."...), c.run.stream()...), "."+durableName+" "...)
	c.out = append(append(c.out, c.inbox...), ' ')
	c.out = strconv.AppendInt(c.out, int64(len(c.request)), 10)
	c.out = append(append(append(c.out, crlf...), c.request...), crlf...)
	c.asked += count
}

func (c *lightConsumer) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	err := c.conn.out.write(c.out)
	c.out = c.out[:0]
	return err
}

// over follows each read: it sends the acks, and asks for more.
func (c *lightConsumer) over() error {
	c.at = 0
	if c.failed != nil {
		return c.failed
	}
	c.ask()
	return c.flush()
}

var (
	ackPrefix = []byte("$JS.ACK.")
	ackFrame  = []byte(" 4\r\n+ACK\r\n")
)

func (c *lightConsumer) onReplied(reply, headers, payload []byte) {
	if c.failed != nil {
		return
	}
	if !bytes.HasPrefix(reply, ackPrefix) {
		c.onStatus(headers)
		return
	}
	attempt, ok := deliveryAttempt(reply)
	if !ok {
		c.failed = fmt.Errorf("a message has the reply subject %.100q", reply)
		return
	}
	if c.at == 0 {
		c.at = now()
	}
	c.run.account.take(c.number, attempt, payload, c.at)
	c.asked--
	c.out = append(append(append(c.out, "PUB "...), reply...), ackFrame...)
}

// onStatus takes the end of a pull that was not answered in full.
func (c *lightConsumer) onStatus(headers []byte) {
	line, rest, _ := bytes.Cut(headers, crlf)
	status := bytes.TrimPrefix(line, []byte("NATS/1.0 "))
	switch {
	case bytes.HasPrefix(status, []byte("100")): // a heartbeat
	case bytes.HasPrefix(status, []byte("404")), bytes.HasPrefix(status, []byte("408")), bytes.HasPrefix(status, []byte("409 Leadership")):
		left := 0
		if _, value, found := bytes.Cut(rest, []byte("Nats-Pending-Messages: ")); found {
			value, _, _ = bytes.Cut(value, crlf)
			left, _ = parseSize(value)
		}
		c.asked = max(0, c.asked-left)
	default:
		c.failed = fmt.Errorf("the server answered a pull with %.100q", status)
	}
}

// deliveryAttempt returns the number of deliveries that the reply subject of a message names:
// $JS.ACK.STREAM.CONSUMER.ATTEMPT.… or $JS.ACK.DOMAIN.ACCOUNT.STREAM.CONSUMER.ATTEMPT.…
func deliveryAttempt(reply []byte) (uint64, bool) {
	const plain, withDomain = 9, 11
	place := 4
	switch tokens := bytes.Count(reply, []byte(".")) + 1; {
	case tokens >= withDomain:
		place = 6
	case tokens != plain:
		return 0, false
	}
	for range place {
		_, reply, _ = bytes.Cut(reply, []byte("."))
	}
	digits, _, _ := bytes.Cut(reply, []byte("."))
	n, ok := parseSize(digits)
	return uint64(n), ok && n > 0
}

func (c *lightConsumer) onMessage(_, _, _ []byte) {} // onReplied takes all
func (c *lightConsumer) onInfo([]byte)            {}
func (c *lightConsumer) onPing()                  { _ = c.conn.out.write(pong) }
func (c *lightConsumer) onPong()                  {}
func (c *lightConsumer) onError(text []byte) {
	if c.failed == nil {
		c.failed = fmt.Errorf("server says %q", text)
	}
}
