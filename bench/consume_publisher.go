package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// fillWindow is how many messages are under way while a stream is filled.
const fillWindow = 4096

// A consumePublisher publishes the messages of a consume run on one connection, and counts their
// acks. One goroutine at a time publishes.
type consumePublisher struct {
	run   *consumeRun
	nc    *nats.Conn
	inbox string
	next  int           // number of the next message
	free  chan struct{} // room for messages under way, while filling
	sent  []byte

	mu      sync.Mutex
	acked   int
	refusal error
}

func (r *consumeRun) openPublisher(ctx context.Context) (*consumePublisher, error) {
	nc, err := r.target.address(0).connect(ctx, "carillon-bench", nil)
	if err != nil {
		return nil, fmt.Errorf("connect the publisher to %s: %w", r.target.Name, err)
	}
	p := &consumePublisher{run: r, nc: nc, inbox: nats.NewInbox(), free: make(chan struct{}, fillWindow), sent: make([]byte, r.size)}
	s, err := nc.Subscribe(p.inbox, p.onAck)
	if err == nil {
		err = s.SetPendingLimits(-1, -1)
	}
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("subscribe to acks on %s: %w", r.target.Name, err)
	}
	return p, nil
}

func (p *consumePublisher) close() { p.nc.Close() }

func (p *consumePublisher) onAck(m *nats.Msg) {
	ack, err := readPubAck(m.Data)
	switch {
	case err != nil:
	case string(ack.stream) != p.run.stream():
		err = fmt.Errorf("a message was stored in the stream %q", ack.stream)
	case ack.duplicate:
		err = errors.New("a message was taken for a duplicate")
	}
	p.mu.Lock()
	p.acked++
	if p.refusal == nil {
		p.refusal = err
	}
	p.mu.Unlock()
	select {
	case <-p.free:
	default: // the second phase has no window
	}
}

func (p *consumePublisher) state() (acked int, refusal error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.acked, p.refusal
}

func (p *consumePublisher) publish(due int64) error {
	stamp{run: p.run.id, sequence: uint32(p.next), due: due}.put(p.sent)
	p.next++
	return p.nc.PublishRequest(p.run.subject(), p.inbox, p.sent)
}

// fill publishes so many messages, and returns when all are stored.
func (p *consumePublisher) fill(ctx context.Context, messages int) error {
	p.run.status(fmt.Sprintf("filling the stream with %d messages", messages))
	for range messages {
		select {
		case p.free <- struct{}{}:
		default:
			select {
			case p.free <- struct{}{}:
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(p.run.limits.Drain):
				return p.unanswered()
			}
			if _, refusal := p.state(); refusal != nil {
				return refusal
			}
		}
		if err := p.publish(now()); err != nil {
			return err
		}
	}
	return p.awaitAcks(ctx)
}

// awaitAcks returns when every message is acknowledged as stored.
func (p *consumePublisher) awaitAcks(ctx context.Context) error {
	before, since := 0, now()
	for {
		acked, refusal := p.state()
		switch {
		case refusal != nil:
			return refusal
		case acked == p.next:
			return nil
		case acked > p.next:
			return fmt.Errorf("%d acks came for %d messages", acked, p.next)
		case acked != before:
			before, since = acked, now()
		case now()-since > int64(p.run.limits.Drain):
			return p.unanswered()
		}
		if err := sleep(ctx, pollEvery); err != nil {
			return err
		}
	}
}

func (p *consumePublisher) unanswered() error {
	acked, _ := p.state()
	return fmt.Errorf("%d of %d messages were not acknowledged within %v", p.next-acked, p.next, p.run.limits.Drain)
}

// pace publishes messages at a rate, each when it is due, or as soon after as possible. It returns
// how many were sent; the lateness of the first ones, the warm-up, is not recorded.
func (p *consumePublisher) pace(ctx context.Context, zero int64, rate float64, warm, messages int) (sent int, err error) {
	done := make(chan error, 1)
	// A goroutine of its own, since it changes its thread.
	go func() {
		defer steady()()
		done <- p.paceAll(ctx, zero, rate, warm, messages, &sent)
	}()
	if err := <-done; err != nil {
		return sent, err
	}
	return sent, p.awaitAcks(ctx)
}

func (p *consumePublisher) paceAll(ctx context.Context, zero int64, rate float64, warm, messages int, sent *int) error {
	r := p.run
	spin := min(longestSpin, time.Duration(float64(time.Second)/rate/spinShare))
	lastStatus := int64(0)
	for i := range messages {
		due := zero + int64(float64(i)/rate*1e9)
		for left := due - now(); left > 0; left = due - now() {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if rest := time.Duration(left) - spin; rest > 0 {
				nap(min(rest, longestNap))
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		at := now()
		if at-due > int64(overrun) {
			return fmt.Errorf("the publisher fell %v behind the schedule; lower --rate", overrun)
		}
		if err := p.publish(due); err != nil {
			return err
		}
		if *sent++; i >= warm {
			r.late.record(at - due)
		}
		if at-lastStatus > int64(200*time.Millisecond) {
			lastStatus = at
			r.status(fmt.Sprintf("%.0f messages a second, %.0f of %.0f s", rate, float64(at-zero)/1e9, float64(messages)/rate))
		}
	}
	return nil
}
