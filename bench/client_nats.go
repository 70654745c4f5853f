package bench

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// natsDriver drives a run with nats.go: a connection of its own for each publisher and each
// subscriber. A message's time is taken first thing in the subscription's callback.
type natsDriver struct {
	collector *collector
	closed    sync.WaitGroup // one for each connection whose end has not been told yet
	mu        sync.Mutex
	open      []*nats.Conn
	closing   bool
}

func newNATSDriver(c *collector) *natsDriver { return &natsDriver{collector: c} }

// connect opens a connection that never reconnects: one that is lost is a result, not
// something to paper over.
func (a Address) connect(ctx context.Context, name string, ended func(error)) (*nats.Conn, error) {
	timeout := connectTimeout
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, max(time.Until(deadline), time.Millisecond))
	}
	options := []nats.Option{
		nats.Name(name), nats.NoReconnect(), nats.Timeout(timeout), nats.FlusherTimeout(writeTimeout),
		nats.ClosedHandler(func(nc *nats.Conn) {
			if ended != nil {
				ended(nc.LastError())
			}
		}),
		// Without a handler nats.go prints to standard error; LastError has it all the same.
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
	}
	switch {
	case a.User != "":
		options = append(options, nats.UserInfo(a.User, a.Password))
	case a.Token != "":
		options = append(options, nats.Token(a.Token))
	}
	if a.from != nil {
		options = append(options, nats.Dialer(&net.Dialer{Timeout: timeout, LocalAddr: a.from}))
	}
	if a.Secure != nil {
		options = append(options, nats.Secure(a.Secure))
	}
	if a.HandshakeFirst {
		options = append(options, nats.TLSHandshakeFirst())
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return nats.Connect(a.scheme()+a.HostPort, options...)
}

func (d *natsDriver) connection(ctx context.Context, t Target, i int, ended func(error)) (*nats.Conn, error) {
	d.closed.Add(1)
	nc, err := t.address(i).connect(ctx, "carillon-bench", func(err error) {
		defer d.closed.Done()
		if ended != nil {
			ended(err)
		}
	})
	if err != nil {
		d.closed.Done() // nats.go calls the handler only for connections that it made
		return nil, err
	}
	d.mu.Lock()
	d.open = append(d.open, nc)
	d.mu.Unlock()
	return nc, nil
}

func (d *natsDriver) subscribe(ctx context.Context, t Target, prefix string, listeners []listener) error {
	return inParallel(ctx, len(listeners), func(ctx context.Context, i int) error {
		nc, err := d.connection(ctx, t, i, d.subscriberEnded)
		if err != nil {
			return err
		}
		for _, subject := range listeners[i].subjects {
			s, err := nc.Subscribe(prefix+subject, func(m *nats.Msg) { d.collector.deliver(i, m.Data, now()) })
			if err != nil {
				return fmt.Errorf("subscribe to %s: %w", prefix+subject, err)
			}
			// The client must not drop what the server delivered; the schedule bounds how much that
			// is.
			if err := s.SetPendingLimits(-1, -1); err != nil {
				return fmt.Errorf("lift the pending limits of %s: %w", prefix+subject, err)
			}
		}
		return confirm(ctx, nc)
	})
}

// confirm is a round trip, after which the server has processed all that was sent.
func confirm(ctx context.Context, nc *nats.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := nc.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("wait for PONG: %w", err)
	}
	// A refused subscription shows only here: the server answers it with -ERR before PONG.
	return nc.LastError()
}

func (d *natsDriver) subscriberEnded(err error) {
	d.mu.Lock()
	closing := d.closing
	d.mu.Unlock()
	if closing {
		return
	}
	reason := "connection closed by the server"
	if err != nil {
		reason = err.Error()
	}
	d.collector.dropped.add(reason)
}

func (d *natsDriver) connect(ctx context.Context, t Target, subjects []string) ([]publisher, error) {
	made := make([]publisher, len(subjects))
	err := inParallel(ctx, len(subjects), func(ctx context.Context, i int) error {
		nc, err := d.connection(ctx, t, i, nil)
		if err != nil {
			return err
		}
		made[i] = &natsPublisher{nc: nc, subject: subjects[i]}
		return nil
	})
	return made, err
}

func (d *natsDriver) close() {
	d.mu.Lock()
	d.closing = true
	open := d.open
	d.open = nil
	d.mu.Unlock()
	for _, nc := range open {
		nc.Close()
	}
	d.closed.Wait()
}

type natsPublisher struct {
	nc      *nats.Conn
	subject string
}

func (p *natsPublisher) publish(payload []byte) error { return p.nc.Publish(p.subject, payload) }

func (p *natsPublisher) flush(ctx context.Context) error { return p.nc.FlushWithContext(ctx) }
