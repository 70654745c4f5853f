package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ackWindow is how many messages may wait for their ack: enough for a broker to sync many at once.
const ackWindow = 256

// kept is the acknowledged messages of a publish.
type kept struct {
	topic       string
	count       int
	duplicates  int // of them, duplicates
	first, last uint64
}

func (k *kept) add(ack *jetstream.PubAck) {
	if k.count == 0 {
		k.topic, k.first, k.last = ack.Stream, ack.Sequence, ack.Sequence
	}
	k.count++
	k.first, k.last = min(k.first, ack.Sequence), max(k.last, ack.Sequence)
	if ack.Duplicate {
		k.duplicates++
	}
}

func (k *kept) text(size int) string {
	switch {
	case k.count == 1 && k.duplicates == 1:
		return fmt.Sprintf("topic %s had it already, as #%d", k.topic, k.last)
	case k.count == 1:
		return fmt.Sprintf("topic %s keeps it as #%d", k.topic, k.last)
	case k.duplicates > 0:
		return fmt.Sprintf("topic %s keeps %d × %d bytes within #%d to #%d; %d more it had already", k.topic, k.count-k.duplicates, size, k.first, k.last, k.duplicates)
	}
	return fmt.Sprintf("topic %s keeps %d × %d bytes within #%d to #%d", k.topic, k.count, size, k.first, k.last)
}

// publishKept publishes a message count times, several at once, and waits for all acks. It returns
// what was acknowledged, also with an error.
func publishKept(ctx context.Context, nc *nats.Conn, m *nats.Msg, count int, timeout time.Duration) (kept, error) {
	var (
		mu      sync.Mutex
		done    kept
		refused error
	)
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(ackWindow), jetstream.WithPublishAsyncTimeout(timeout),
		jetstream.WithPublishAsyncAckHandler(func(_ jetstream.JetStream, _ *nats.Msg, ack *jetstream.PubAck) {
			mu.Lock()
			defer mu.Unlock()
			done.add(ack)
		}),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, _ *nats.Msg, err error) {
			mu.Lock()
			defer mu.Unlock()
			if refused == nil {
				refused = err
			}
		}))
	if err != nil {
		return kept{}, err
	}
	failed := func() error {
		mu.Lock()
		defer mu.Unlock()
		return refused
	}
	err = nil
	for range count {
		if err = failed(); err != nil || ctx.Err() != nil {
			break
		}
		if _, err = js.PublishMsgAsync(m, jetstream.WithStallWait(timeout)); err != nil {
			break
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
		err = ctx.Err()
	}
	mu.Lock()
	defer mu.Unlock()
	if refused != nil {
		err = refused
	}
	return done, keepError(nc, m, err, count-done.count, count, timeout)
}

func keepError(nc *nats.Conn, m *nats.Msg, err error, missing, count int, timeout time.Duration) error {
	var api *jetstream.APIError
	some := ""
	if count > 1 {
		some = fmt.Sprintf(" (%d of %d are not acknowledged)", missing, count)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("publish to %s: interrupted%s", m.Subject, some)
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return fmt.Errorf("publish to %s: no Topic has this subject%s; see carillon topic list, or leave out --ack", m.Subject, some)
	case errors.Is(err, jetstream.ErrAsyncPublishTimeout), errors.Is(err, jetstream.ErrTooManyStalledMsgs):
		return fmt.Errorf("publish to %s: no answer within %s%s; they may or may not be kept", m.Subject, timeout, some)
	case errors.Is(err, jetstream.ErrInvalidJSAck):
		return fmt.Errorf("publish to %s: who answered is no Topic%s; somebody else answers requests on this subject", m.Subject, some)
	case errors.As(err, &api):
		return fmt.Errorf("publish to %s: %s%s", m.Subject, words(err), some)
	}
	return fmt.Errorf("%w%s", publishError(nc, m, err, timeout), some)
}
