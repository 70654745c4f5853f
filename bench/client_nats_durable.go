package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// natsAckClient publishes as an application does with nats.go: a goroutine for each publisher
// that waits, or PublishAsync for the one that does not, all on one connection for each broker.
type natsAckClient struct {
	run   *durableRun
	mu    sync.Mutex // guards the run's account and clock
	conns []*nats.Conn
	ended []chan struct{} // closed when a connection is over
	js    jetstream.JetStream
}

func (c *natsAckClient) connect(ctx context.Context) (err error) {
	for _, a := range c.run.brokers {
		ended := make(chan struct{})
		nc, err := a.connect(ctx, "carillon-bench", func(error) { close(ended) })
		if err != nil {
			return err
		}
		c.conns, c.ended = append(c.conns, nc), append(c.ended, ended)
	}
	// The window is kept here, so that nats.go never makes a publisher wait for its own limit.
	c.js, err = jetstream.New(c.conns[0], jetstream.WithPublishAsyncMaxPending(2*c.run.plan.window), jetstream.WithPublishAsyncTimeout(c.run.limits.Drain))
	return err
}

func (c *natsAckClient) close() {
	for i, nc := range c.conns {
		nc.Close()
		<-c.ended[i]
	}
}

func (c *natsAckClient) drive(ctx context.Context) error {
	if c.run.plan.window > 1 {
		return c.stream(ctx)
	}
	var wg sync.WaitGroup
	failed := make([]error, c.run.plan.publishers)
	for p := range failed {
		wg.Go(func() { failed[p] = c.publisher(ctx, p) })
	}
	wg.Wait()
	return errors.Join(failed[:min(len(failed), 3)]...)
}

// next enters a message, or says that the run is over.
func (c *natsAckClient) next(ctx context.Context, publisher int) (number int, at int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at = now()
	if c.run.over(ctx, at) {
		return 0, 0, false
	}
	number, ok = c.run.account.send(publisher, at)
	return number, at, ok
}

// publisher waits for each ack before it sends the next message.
func (c *natsAckClient) publisher(ctx context.Context, p int) error {
	nc := c.conns[p%len(c.conns)]
	subject, payload := c.run.subject(p), make([]byte, c.run.workload.Parameters.PayloadBytes)
	for {
		number, at, ok := c.next(ctx, p)
		if !ok {
			return nil
		}
		c.run.stampFor(payload, p, number, at)
		answer, err := nc.Request(subject, payload, c.run.patience(ctx))
		if err != nil {
			return fmt.Errorf("publisher %d waits for an ack of %s: %w", p+1, c.run.target.Name, err)
		}
		c.mu.Lock()
		c.run.account.answer(p, number, answer.Data, now())
		c.mu.Unlock()
	}
}

// A promise is a message whose answer is to come.
type promise struct {
	number int
	future jetstream.PubAckFuture
}

// stream keeps a window of messages in flight.
func (c *natsAckClient) stream(ctx context.Context) error {
	window := c.run.plan.window
	places, promised, collected := make(chan struct{}, window), make(chan promise, window), make(chan error, 1)
	go func() { collected <- c.collect(promised, places) }()
	publish := func() error {
		defer close(promised)
		for {
			places <- struct{}{} // it waits no longer than an answer may take
			number, at, ok := c.next(ctx, 0)
			if !ok {
				return nil
			}
			// nats.go may hold on to the payload, to send it again.
			payload := make([]byte, c.run.workload.Parameters.PayloadBytes)
			c.run.stampFor(payload, 0, number, at)
			future, err := c.js.PublishAsync(c.run.subject(0), payload, jetstream.WithRetryAttempts(0))
			if err != nil {
				return fmt.Errorf("publish to %s: %w", c.run.target.Name, err)
			}
			promised <- promise{number, future}
		}
	}
	err := publish()
	return errors.Join(err, <-collected)
}

// collect waits for the answers in the order in which they were asked for.
func (c *natsAckClient) collect(promised <-chan promise, places <-chan struct{}) (first error) {
	for p := range promised {
		var ack pubAck
		var err error
		select {
		case ok := <-p.future.Ok():
			ack = pubAck{stream: []byte(ok.Stream), sequence: ok.Sequence, duplicate: ok.Duplicate}
		case err = <-p.future.Err():
		case <-c.ended[0]:
			err = nats.ErrConnectionClosed
		}
		if errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, jetstream.ErrAsyncPublishTimeout) {
			if first == nil {
				first = fmt.Errorf("wait for an ack of %s: %w", c.run.target.Name, err)
			}
		} else {
			c.mu.Lock()
			c.run.account.settle(0, p.number, ack, err, now())
			c.mu.Unlock()
		}
		<-places
	}
	return first
}
