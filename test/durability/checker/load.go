package checker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Workload is the load on one Topic during faults.
type Workload struct {
	URL       string
	Sync      int      // publishers to each shard that wait for each ack
	Again     int      // publishers to each shard that repeat each message, with its id, until it is acknowledged
	Async     int      // publishers to each shard with a window of messages in flight
	Consumers []string // durable consumers of the whole Topic, each read by one client
	// Rest is the pause of a publisher after each message, or after some messages if it has a
	// window. 0: no pause.
	Rest time.Duration
	// Header returns the headers of a message that is published now. nil: messages have none.
	Header func(Value) nats.Header
	// Options are the options of the connections.
	Options []nats.Option
	// Final reports whether an error means that the message was refused for good. nil: no error
	// does.
	Final func(error) bool
}

const (
	// answerTime is how long a client waits for one answer; then the outcome is unknown.
	answerTime = time.Second
	// window is the number of messages in flight of an asynchronous publisher. It pauses between
	// bursts, so that a round of minutes fits into memory and can be read within seconds.
	window = 256
	burst  = 64
	rest   = 10 * time.Millisecond
	// batch is the number of messages that a consumer requests at once.
	batch     = 64
	fetchTime = 300 * time.Millisecond
	// AckWait is the time after which unacknowledged messages of a consumer are delivered again.
	AckWait = 2 * time.Second
)

// Connect returns a client that waits for its server without a limit.
func Connect(url, name string, options ...nats.Option) (*nats.Conn, error) {
	return nats.Connect(url, append([]nats.Option{
		nats.Name(name), nats.MaxReconnects(-1), nats.ReconnectWait(20 * time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.RetryOnFailedConnect(true), nats.Timeout(5 * time.Second), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
	}, options...)...)
}

// message returns a message with a value of a publisher.
func (w *Workload) message(h *History, p int, v Value) *nats.Msg {
	m := &nats.Msg{Subject: h.subject(p), Data: Encode(h.Stream, v)}
	if w.Header != nil {
		m.Header = w.Header(v)
	}
	return m
}

// CreateStream creates the stream of a history, and the consumers.
func (h *History) CreateStream(ctx context.Context, js jetstream.JetStream, consumers ...string) error {
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: h.Stream, Subjects: []string{h.Stream + ".>"}}); err != nil {
		return fmt.Errorf("create stream %s: %w", h.Stream, err)
	}
	for _, name := range consumers {
		config := jetstream.ConsumerConfig{Durable: name, AckPolicy: jetstream.AckExplicitPolicy, AckWait: AckWait, MaxAckPending: 4 * batch}
		if _, err := js.CreateConsumer(ctx, h.Stream, config); err != nil {
			return fmt.Errorf("create consumer %s of stream %s: %w", name, h.Stream, err)
		}
	}
	return nil
}

// Load is a running workload. Faults of the server do not stop it.
type Load struct {
	cancel context.CancelFunc
	work   sync.WaitGroup
	conns  []*nats.Conn
}

// Start starts a workload on a stream.
func (h *History) Start(ctx context.Context, w Workload) (*Load, error) {
	return h.topic().Start(ctx, w)
}

// Start starts a workload. Publishers of a kind share a connection, so that one read of it brings
// messages for several shards.
func (t *Topic) Start(ctx context.Context, w Workload) (*Load, error) {
	ctx, cancel := context.WithCancel(ctx)
	l := &Load{cancel: cancel}
	connect := func(name string, options ...nats.Option) (jetstream.JetStream, *nats.Conn, error) {
		nc, err := Connect(w.URL, name, append(slices.Clone(w.Options), options...)...)
		if err != nil {
			return nil, nil, err
		}
		l.conns = append(l.conns, nc)
		// The client repeats no message by itself, so none may be stored twice.
		js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(window), jetstream.WithPublishAsyncTimeout(2*answerTime), jetstream.WithDefaultTimeout(answerTime))
		return js, nc, err
	}
	var errs []error
	if w.Sync+w.Again > 0 {
		// Without a server no message is buffered: it is sent at once or never.
		js, nc, err := connect("checker, synchronous", nats.ReconnectBufSize(-1))
		errs = append(errs, err)
		for _, h := range t.Shards {
			for i := range w.Sync + w.Again {
				p := h.NewPublisher()
				l.work.Go(func() { h.publishSync(ctx, nc, js, p, i >= w.Sync, &w) })
			}
		}
	}
	for range w.Async {
		js, nc, err := connect("checker, asynchronous", nats.ReconnectBufSize(-1))
		errs = append(errs, err)
		for _, h := range t.Shards {
			p := h.NewPublisher()
			l.work.Go(func() { h.publishAsync(ctx, nc, js, p, &w) })
		}
	}
	for _, name := range w.Consumers {
		js, _, err := connect("checker, consumer " + name)
		errs = append(errs, err)
		l.work.Go(func() {
			for ctx.Err() == nil {
				if _, err := t.consume(ctx, js, name, func(i int) bool { return i%2 == 0 }); err != nil {
					pause(ctx, fetchTime/10)
				}
			}
		})
	}
	if err := errors.Join(errs...); err != nil {
		l.Stop()
		return nil, err
	}
	return l, nil
}

// Stop ends the load and waits for its end. The outcome of unanswered messages is unknown.
func (l *Load) Stop() {
	l.cancel()
	l.work.Wait()
	for _, nc := range l.conns {
		nc.Close()
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// told records the outcome of a publish.
func (h *History) told(v Value, ack *jetstream.PubAck, err error, final func(error) bool) {
	switch {
	case err == nil && ack.Stream == h.Stream:
		h.Acked(v, ack.Sequence)
	case err == nil:
		h.mu.Lock()
		h.findings.add(Moved, "%s was acknowledged by stream %q", v, ack.Stream)
		h.mu.Unlock()
	case final != nil && final(err):
		h.Refused(v, err.Error())
	}
}

// publishSync publishes messages one after the other. A publisher that repeats no message becomes
// another publisher after its connection is lost: messages in flight on the former connection may
// arrive after those of the next one, and order is promised only within a connection.
func (h *History) publishSync(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, p int, again bool, w *Workload) {
	var v Value
	err := error(nil)
	life := nc.Stats().Reconnects
	for ctx.Err() == nil {
		if now := nc.Stats().Reconnects; now != life && !again {
			life, p = now, h.NewPublisher()
		}
		if !nc.IsConnected() {
			pause(ctx, 2*time.Millisecond)
			continue
		}
		options := []jetstream.PublishOpt{jetstream.WithRetryAttempts(0)}
		if !again || err == nil {
			v = h.Intend(p)
		}
		if again {
			options = append(options, jetstream.WithMsgID(v.String()))
		}
		// A message in flight when the load is stopped is still waited for.
		asked, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTime)
		var ack *jetstream.PubAck
		ack, err = js.PublishMsg(asked, w.message(h, p, v), options...)
		cancel()
		if !again && nc.Stats().Reconnects != life {
			h.Unordered(v)
		}
		if !again || err == nil {
			h.told(v, ack, err, w.Final)
		}
		if err != nil {
			pause(ctx, 10*time.Millisecond)
		} else if w.Rest > 0 {
			pause(ctx, w.Rest)
		}
	}
}

func (h *History) publishAsync(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, p int, w *Workload) {
	type sent struct {
		value  Value
		future jetstream.PubAckFuture
	}
	flying := make(chan sent, 2*window)
	var collector sync.WaitGroup
	collector.Go(func() {
		for s := range flying {
			select {
			case ack := <-s.future.Ok():
				h.told(s.value, ack, nil, w.Final)
			case err := <-s.future.Err():
				h.told(s.value, nil, err, w.Final)
			}
		}
	})
	life := nc.Stats().Reconnects
	for i := 1; ctx.Err() == nil; i++ {
		if now := nc.Stats().Reconnects; now != life {
			life, p = now, h.NewPublisher()
		}
		v := h.Intend(p)
		future, err := js.PublishMsgAsync(w.message(h, p, v), jetstream.WithRetryAttempts(0), jetstream.WithStallWait(answerTime))
		if nc.Stats().Reconnects != life {
			h.Unordered(v)
		}
		if err != nil {
			pause(ctx, rest)
			continue
		}
		flying <- sent{v, future}
		if i%burst == 0 {
			pause(ctx, max(rest, burst/4*w.Rest))
		}
	}
	close(flying)
	collector.Wait() // each future ends within the client's time limit for asynchronous publishing
}

// consume fetches one batch and acknowledges it, with acknowledgements that the server answers
// where twice says so. It returns the number of messages.
//
// All deliveries of a batch are recorded before the first acknowledgement is sent, and the next
// batch is requested after all answers. So a delivery that is recorded after an answer was sent
// after it.
func (t *Topic) consume(ctx context.Context, js jetstream.JetStream, name string, twice func(i int) bool) (int, error) {
	asked, cancel := context.WithTimeout(ctx, 2*answerTime)
	defer cancel()
	consumer, err := js.Consumer(asked, t.Name, name)
	if err != nil {
		return 0, fmt.Errorf("find consumer %s of stream %s: %w", name, t.Name, err)
	}
	fetched, err := consumer.Fetch(batch, jetstream.FetchMaxWait(fetchTime))
	if err != nil {
		return 0, fmt.Errorf("consumer %s of stream %s: fetch: %w", name, t.Name, err)
	}
	type delivery struct {
		jetstream.Msg
		of  *History
		seq uint64
	}
	var got []delivery
	for m := range fetched.Messages() {
		meta, err := m.Metadata()
		if err != nil {
			return 0, fmt.Errorf("consumer %s of stream %s: %w", name, t.Name, err)
		}
		h := t.shard(meta.Stream)
		if h == nil {
			t.Shards[0].astray(name, meta.Stream)
			continue
		}
		if !h.Delivered(name, meta.Sequence.Stream, m.Data()) {
			continue // the server could keep its acknowledgement, although its delivery is not recorded
		}
		got = append(got, delivery{m, h, meta.Sequence.Stream})
	}
	err = fetched.Error()
	var answers sync.WaitGroup
	for i, m := range got {
		if !twice(i) {
			if ackErr := m.Ack(); ackErr != nil {
				err = errors.Join(err, ackErr)
			}
			continue
		}
		answers.Go(func() {
			asked, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTime)
			defer cancel()
			if m.DoubleAck(asked) == nil {
				m.of.Answered(name, m.seq)
			}
		})
	}
	answers.Wait()
	return len(got), err
}
