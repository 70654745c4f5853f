package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// natsTaker is consumers with nats.go: Messages of a pull consumer, or Consume of a push consumer.
type natsTaker struct {
	run       *consumeRun
	mu        sync.Mutex
	consumers []*natsConsumer
	wg        sync.WaitGroup
}

// natsConsumer is one consumer; either pull or push is set.
type natsConsumer struct {
	number int
	nc     *nats.Conn
	pull   jetstream.Consumer
	push   jetstream.PushConsumer
	stop   func()
}

func (t *natsTaker) connect(ctx context.Context) error {
	r := t.run
	return inParallel(ctx, r.plan.consumers, func(ctx context.Context, i int) error {
		nc, err := r.target.address(i).connect(ctx, "carillon-bench", nil)
		if err != nil {
			return err
		}
		c := &natsConsumer{number: i, nc: nc, stop: func() {}}
		t.mu.Lock()
		t.consumers = append(t.consumers, c)
		t.mu.Unlock()
		js, err := jetstream.New(nc)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, connectTimeout)
		defer cancel()
		if r.plan.push {
			c.push, err = js.PushConsumer(ctx, r.stream(), durableName)
		} else {
			c.pull, err = js.Consumer(ctx, r.stream(), durableName)
		}
		if err != nil {
			return fmt.Errorf("find the consumer: %w", err)
		}
		return nil
	})
}

func (t *natsTaker) begin(failed func(error)) error {
	for _, c := range t.consumers {
		if t.run.plan.push {
			consuming, err := c.push.Consume(func(m jetstream.Msg) { t.take(c.number, m, failed) })
			if err != nil {
				return fmt.Errorf("subscribe: %w", err)
			}
			c.stop = consuming.Stop
			continue
		}
		messages, err := c.pull.Messages(jetstream.PullMaxMessages(t.run.plan.batch))
		if err != nil {
			return fmt.Errorf("ask for messages: %w", err)
		}
		c.stop = messages.Stop
		t.wg.Go(func() { t.pull(c, messages, failed) })
	}
	return nil
}

func (t *natsTaker) pull(c *natsConsumer, messages jetstream.MessagesContext, failed func(error)) {
	for {
		m, err := messages.Next()
		if err != nil {
			if !errors.Is(err, jetstream.ErrMsgIteratorClosed) {
				failed(fmt.Errorf("consumer %d: %w", c.number+1, err))
			}
			return
		}
		t.take(c.number, m, failed)
	}
}

func (t *natsTaker) take(number int, m jetstream.Msg, failed func(error)) {
	at := now()
	meta, err := m.Metadata()
	if err == nil {
		t.run.account.take(number, meta.NumDelivered, m.Data(), at)
		err = m.Ack()
	}
	if err != nil {
		failed(fmt.Errorf("consumer %d: acknowledge a message: %w", number+1, err))
	}
}

func (t *natsTaker) close() {
	for _, c := range t.consumers {
		c.stop()
		c.nc.Close()
	}
	t.wg.Wait()
}
