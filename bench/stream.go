package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrNoStreams marks a server that does not speak JetStream.
var ErrNoStreams = errors.New("does not speak JetStream")

const (
	// settling is how long a cluster whose servers just started may take until it answers for
	// streams.
	settling = 30 * time.Second
	// askTimeout bounds one question; a server that is not ready leaves some unanswered.
	askTimeout = 2 * time.Second
	askAgain   = 100 * time.Millisecond
)

// readBatch is how many messages are asked for at a time when a stream is read back.
const readBatch = 4096

// A request for messages that nobody got, as may happen right after a consumer was made in a
// cluster, is noticed by the lack of heartbeats, and made again.
const (
	readExpiry    = 5 * time.Second
	readHeartbeat = time.Second
)

// A benchStream is the stream of one run, and a connection of its own to manage it by.
type benchStream struct {
	target   Target
	limits   Limits
	id       uint64
	name     string
	replicas int
	leader   string // when it was made; empty where the server does not say
	nc       *nats.Conn
	js       jetstream.JetStream
	stream   jetstream.Stream
}

// streamName returns a name that is also a valid Kubernetes name.
func streamName(id uint64) string    { return fmt.Sprintf("bench-%016x", id) }
func streamSubject(id uint64) string { return fmt.Sprintf("bench.%016x", id) }

// hasStreams asks a target for JetStream; its error says what the answer was.
func (t Target) hasStreams(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settling)
	defer cancel()
	nc, err := t.address(0).connect(ctx, "carillon-bench", nil)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", t.Name, err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	err = untilReady(ctx, func(ctx context.Context) error {
		_, err := js.AccountInfo(ctx)
		return err
	})
	switch {
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return fmt.Errorf("%s %w", t.Name, ErrNoStreams)
	case err != nil:
		return fmt.Errorf("ask %s for JetStream: %w", t.Name, err)
	}
	return nil
}

// untilReady asks again for as long as a cluster leaves questions unanswered, or says that it is
// not ready: it has no leader yet, or does not know all its servers.
func untilReady(ctx context.Context, ask func(context.Context) error) error {
	for {
		once, cancel := context.WithTimeout(ctx, askTimeout)
		err := ask(once)
		cancel()
		if err == nil || ctx.Err() != nil || !notReady(err) || sleep(ctx, askAgain) != nil {
			return err
		}
	}
}

// notReady tells errors that pass from those that stay.
func notReady(err error) bool {
	const noSuitablePeers = 10005
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) {
		return true
	}
	var answer jetstream.JetStreamError
	if !errors.As(err, &answer) || answer.APIError() == nil {
		return false
	}
	if errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) {
		return false
	}
	return answer.APIError().Code == 503 || answer.APIError().ErrorCode == noSuitablePeers
}

// openStream makes a stream that is kept in files, without limits, and waits until it has its
// leader and all its replicas.
func openStream(ctx context.Context, t Target, id uint64, replicas int, limits Limits) (*benchStream, error) {
	return openStreamAs(ctx, t, id, replicas, limits, jetstream.StreamConfig{
		Name: streamName(id), Subjects: []string{streamSubject(id) + ".*"}, Storage: jetstream.FileStorage, Replicas: replicas,
		Description: "made by carillon bench; delete it if no benchmark is running",
	})
}

// openStreamAs is openStream for a stream of another kind.
func openStreamAs(ctx context.Context, t Target, id uint64, replicas int, limits Limits, config jetstream.StreamConfig) (*benchStream, error) {
	return openStreamBy(ctx, t, id, replicas, limits, config.Name, func(ctx context.Context, js jetstream.JetStream) (jetstream.Stream, error) {
		return js.CreateStream(ctx, config)
	})
}

// openStreamBy is openStream for a stream that the function creates.
func openStreamBy(ctx context.Context, t Target, id uint64, replicas int, limits Limits, name string, create func(context.Context, jetstream.JetStream) (jetstream.Stream, error)) (*benchStream, error) {
	s := &benchStream{target: t, limits: limits, id: id, name: name, replicas: replicas}
	ctx, cancel := context.WithTimeout(ctx, limits.Connect)
	defer cancel()
	if err := s.dial(ctx); err != nil {
		return nil, err
	}
	err := untilReady(ctx, func(ctx context.Context) (err error) {
		// What was made and not told is there already: making it again is no error.
		s.stream, err = create(ctx, s.js)
		return err
	})
	if err != nil {
		err = fmt.Errorf("make the stream %s on %s: %w", s.name, t.Name, err)
		// The answer may have been lost, and the stream be there.
		if !errors.As(err, new(jetstream.JetStreamError)) {
			err = errors.Join(err, s.remove(context.WithoutCancel(ctx)))
		}
		s.nc.Close()
		return nil, err
	}
	if err := s.awaitWhole(ctx); err != nil {
		return nil, errors.Join(err, s.remove(context.WithoutCancel(ctx)))
	}
	return s, nil
}

// dial connects to the first address that answers.
func (s *benchStream) dial(ctx context.Context) error {
	var errs []error
	for _, a := range s.target.Addresses {
		nc, err := a.connect(ctx, "carillon-bench", nil)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if s.js, err = jetstream.New(nc); err != nil {
			nc.Close()
			return err
		}
		s.nc = nc
		return nil
	}
	return fmt.Errorf("connect to %s: %w", s.target.Name, errors.Join(errs...))
}

// again connects anew, if need be to another broker, and finds the stream there.
func (s *benchStream) again(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, s.limits.Connect)
	defer cancel()
	s.nc.Close()
	if err := s.dial(ctx); err != nil {
		return err
	}
	err = untilReady(ctx, func(ctx context.Context) (err error) {
		s.stream, err = s.js.Stream(ctx, s.name)
		return err
	})
	if err != nil {
		return fmt.Errorf("find the stream %s on %s: %w", s.name, s.target.Name, err)
	}
	return nil
}

// awaitWhole waits until the stream has its leader and all its replicas are in step.
func (s *benchStream) awaitWhole(ctx context.Context) error {
	for {
		asked, cancel := context.WithTimeout(ctx, askTimeout)
		info, err := s.stream.Info(asked)
		cancel()
		if err == nil {
			if info.Cluster != nil {
				s.leader = info.Cluster.Leader
			}
			if err = whole(info, s.replicas); err == nil {
				return nil
			}
		}
		if sleep(ctx, askAgain) != nil {
			return fmt.Errorf("wait for the replicas of the stream %s on %s: %w", s.name, s.target.Name, err)
		}
	}
}

// settle returns when a message of its own has been stored, and how many such may be in the
// stream: in a cluster a stream that was just made may need a moment before it takes messages.
func (s *benchStream) settle(ctx context.Context) (probes uint64, err error) {
	payload := make([]byte, headerBytes)
	stamp{kind: kindProbe, run: s.id}.put(payload)
	for {
		probes++
		_, err := s.js.Publish(ctx, streamSubject(s.id)+".probe", payload, jetstream.WithRetryAttempts(0))
		if err == nil {
			return probes, nil
		}
		if !errors.Is(err, nats.ErrNoResponders) && !errors.Is(err, jetstream.ErrNoStreamResponse) {
			return probes, fmt.Errorf("publish a first message to the stream %s on %s: %w", s.name, s.target.Name, err)
		}
		if sleep(ctx, 10*pollEvery) != nil {
			return probes, fmt.Errorf("the stream %s on %s was made, and took no message within %v: %w", s.name, s.target.Name, s.limits.Connect, err)
		}
	}
}

// readBack reads the whole stream and compares it with what was acknowledged.
func (s *benchStream) readBack(ctx context.Context, acks *ackAccount) (Deliveries, error) {
	stored := newStoredAccount(s.id, acks)
	err := s.read(ctx, stored)
	found, fault := stored.close()
	if err != nil {
		// What was not read is not known to be lost.
		found.Lost = 0
		return found, fmt.Errorf("read the stream %s on %s back: %w", s.name, s.target.Name, err)
	}
	if fault != nil {
		fault = fmt.Errorf("in the stream on %s %w", s.target.Name, fault)
	}
	return found, fault
}

func (s *benchStream) read(ctx context.Context, stored *storedAccount) error {
	asked, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	info, err := s.stream.Info(asked)
	if err != nil {
		return fmt.Errorf("ask what it holds: %w", err)
	}
	consumer, err := s.stream.OrderedConsumer(asked, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy})
	if err != nil {
		return fmt.Errorf("make a consumer: %w", err)
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(readBatch), jetstream.PullExpiry(readExpiry), jetstream.PullHeartbeat(readHeartbeat))
	if err != nil {
		return fmt.Errorf("ask for its messages: %w", err)
	}
	defer messages.Stop()
	// nats.go asks again for as long as a server's answers make no sense to it.
	watchdog := time.AfterFunc(2*s.limits.Drain, messages.Stop)
	defer watchdog.Stop()
	defer context.AfterFunc(ctx, messages.Stop)()
	for stored.position < info.State.LastSeq {
		m, err := messages.Next(jetstream.NextMaxWait(s.limits.Drain))
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("behind %d of %d: %w", stored.position, info.State.LastSeq, err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return fmt.Errorf("behind %d: %w", stored.position, err)
		}
		watchdog.Reset(2 * s.limits.Drain)
		stored.observe(meta.Sequence.Stream, m.Data())
	}
	if uint64(stored.read) != info.State.Msgs {
		return fmt.Errorf("it says that it holds %d messages, and %d were read", info.State.Msgs, stored.read)
	}
	return nil
}

// remove deletes the stream, over another connection if the first was lost, and disconnects.
func (s *benchStream) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if !s.nc.IsConnected() {
		s.nc.Close()
		if err := s.dial(ctx); err != nil {
			return fmt.Errorf("delete the stream %s: %w", s.name, err)
		}
	}
	defer s.nc.Close()
	err := s.js.DeleteStream(ctx, s.name)
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("delete the stream %s on %s (it is still there): %w", s.name, s.target.Name, err)
	}
	return nil
}
