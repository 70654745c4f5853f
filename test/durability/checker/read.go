package checker

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Drain delivers to the consumers of a stream all messages that they have not acknowledged.
func (h *History) Drain(ctx context.Context, js jetstream.JetStream, consumers ...string) error {
	return h.topic().Drain(ctx, js, consumers...)
}

// Drain delivers to the consumers all messages that they have not acknowledged, and returns when
// the server reports that none is left for any of them. From then on every message must have been
// delivered.
func (t *Topic) Drain(ctx context.Context, js jetstream.JetStream, consumers ...string) error {
	for _, name := range consumers {
		for _, h := range t.Shards {
			h.expect(name)
		}
		var last error
		var left string
		for {
			if ctx.Err() != nil {
				return fmt.Errorf("consumer %s of stream %s has still not come to its end (%s): %w", name, t.Name, left, last)
			}
			n, err := t.consume(ctx, js, name, func(int) bool { return true })
			if last = err; err != nil {
				pause(ctx, fetchTime/10)
				continue
			}
			if n > 0 {
				continue
			}
			asked, cancel := context.WithTimeout(ctx, answerTime)
			consumer, err := js.Consumer(asked, t.Name, name)
			cancel()
			if last = err; err != nil {
				continue
			}
			info := consumer.CachedInfo()
			if info.NumPending == 0 && info.NumAckPending == 0 {
				break
			}
			left = fmt.Sprintf("%d pending, %d wait for their acknowledgement", info.NumPending, info.NumAckPending)
		}
	}
	return nil
}

// Read reads the stream from its first message to the sequence that the stream reports as its last.
func (h *History) Read(ctx context.Context, js jetstream.JetStream) ([]Entry, error) {
	stream, err := js.Stream(ctx, h.Stream)
	if err != nil {
		return nil, fmt.Errorf("find stream %s: %w", h.Stream, err)
	}
	state := stream.CachedInfo().State
	if state.Msgs == 0 {
		return nil, nil
	}
	ordered, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy})
	if err != nil {
		return nil, fmt.Errorf("read stream %s: %w", h.Stream, err)
	}
	messages, err := ordered.Messages()
	if err != nil {
		return nil, fmt.Errorf("read stream %s: %w", h.Stream, err)
	}
	defer messages.Stop()
	entries := make([]Entry, 0, state.Msgs)
	var last uint64
	for last < state.LastSeq {
		m, err := messages.Next(jetstream.NextMaxWait(15 * time.Second))
		if err != nil {
			return entries, fmt.Errorf("read stream %s behind %d, which ends at %d: %w", h.Stream, last, state.LastSeq, err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return entries, fmt.Errorf("read stream %s behind %d: %w", h.Stream, last, err)
		}
		last = meta.Sequence.Stream
		entries = append(entries, Entry{last, m.Data()})
	}
	return entries, nil
}
