package selftest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	messages    = 100
	stepTimeout = 10 * time.Second
	redial      = 500 * time.Millisecond
)

var errDuplicated = errors.New("duplicated")

// Messages does through the brokers at url what clients do: a subscription with a wildcard that
// gets every message once and in order, headers, a request with its reply, and the answer that
// nobody is there to reply.
func Messages(ctx context.Context, url string, say func(format string, args ...any)) error {
	conn, err := dial(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close()
	say("connected to %s (%s %s)", url, conn.ConnectedServerName(), conn.ConnectedServerVersion())

	if err := inOrder(ctx, conn, say); err != nil {
		return fmt.Errorf("publish and subscribe through %s: %w", url, err)
	}
	if err := request(ctx, conn, say); err != nil {
		return fmt.Errorf("request and reply through %s: %w", url, err)
	}
	return nil
}

// dial tries until ctx ends: the name of a Service made a moment ago may not resolve everywhere
// yet.
func dial(ctx context.Context, url string) (*nats.Conn, error) {
	tick := time.NewTicker(redial)
	defer tick.Stop()
	for {
		conn, err := nats.Connect(url, nats.Name("carillon selftest"), nats.Timeout(5*time.Second), nats.NoReconnect())
		if err == nil {
			return conn, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("connect to %s: %w; a NetworkPolicy, or DNS that does not know the Service, keeps clients out: %w", url, err, context.Cause(ctx))
		}
	}
}

func inOrder(ctx context.Context, conn *nats.Conn, say func(string, ...any)) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	began := time.Now()
	sub, err := conn.SubscribeSync("selftest.*.numbers")
	if err != nil {
		return err
	}
	for i := range messages {
		m := nats.NewMsg("selftest.of.numbers")
		m.Header.Set("Number", strconv.Itoa(i))
		m.Data = []byte("message " + strconv.Itoa(i))
		if err := conn.PublishMsg(m); err != nil {
			return fmt.Errorf("publish %d: %w", i, err)
		}
	}
	for i := range messages {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return fmt.Errorf("%d of %d messages arrived: %w", i, messages, err)
		}
		if got, want := m.Header.Get("Number")+" "+string(m.Data), strconv.Itoa(i)+" message "+strconv.Itoa(i); got != want {
			return fmt.Errorf("received %q, want %q: lost, duplicated or out of order", got, want)
		}
	}
	// Whatever was sent twice is here when the PONG is.
	if err := conn.FlushWithContext(ctx); err != nil {
		return err
	}
	if more, _, err := sub.Pending(); err != nil || more > 0 {
		return fmt.Errorf("%d messages more than the %d that were published: %w", more, messages, cmp.Or(err, errDuplicated))
	}
	if err := sub.Unsubscribe(); err != nil {
		return err
	}
	say("published %d messages with headers and received each once, in order, in %s", messages, time.Since(began).Round(time.Microsecond))
	return nil
}

func request(ctx context.Context, conn *nats.Conn, say func(string, ...any)) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if _, err := conn.RequestWithContext(ctx, "selftest.echo", nil); !errors.Is(err, nats.ErrNoResponders) {
		return fmt.Errorf("a request that nobody serves ended with %v, want %w", err, nats.ErrNoResponders)
	}
	sub, err := conn.QueueSubscribe("selftest.echo", "echoers", func(m *nats.Msg) {
		_ = m.Respond(m.Data) // the requester's time-out reports what goes wrong here
	})
	if err != nil {
		return err
	}
	began := time.Now()
	reply, err := conn.RequestWithContext(ctx, "selftest.echo", []byte("ding"))
	if err != nil {
		return err
	}
	if string(reply.Data) != "ding" {
		return fmt.Errorf("the reply is %q, want %q", reply.Data, "ding")
	}
	say("a request was answered in %s", time.Since(began).Round(time.Microsecond))
	return sub.Unsubscribe()
}
