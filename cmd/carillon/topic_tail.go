package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
)

// readerIdle is how long a broker keeps the reader of an ended process.
const readerIdle = 30 * time.Second

// tailFlags are when to end, and how to print.
type tailFlags struct {
	manageFlags
	count int
	stop  bool
	raw   bool

	printing sync.Mutex // several shards may be read at once
	printed  int
	enough   func() // called when count are printed; may be nil
}

func (t *tailFlags) flags(cmd *cobra.Command) {
	t.manageFlags.flags(cmd, "text", "json", "raw")
	f := cmd.Flags()
	f.IntVar(&t.count, "count", 0, "end after so many messages (default never)")
	f.BoolVar(&t.stop, "no-follow", false, "end when there are no more messages, instead of waiting for new ones")
	f.BoolVar(&t.raw, "raw", false, "the payload alone, a line end after it; the same as --output raw")
}

func (t *tailFlags) check(cmd *cobra.Command) error {
	switch {
	case t.count < 0:
		return usageError{fmt.Errorf("--count %d: it can't be negative", t.count)}
	case t.raw && cmd.Flags().Changed("output"):
		return usageError{errors.New("--raw and --output: choose one")}
	case t.raw:
		t.output = "raw"
	}
	return nil
}

func newTopicTailCommand() *cobra.Command {
	var (
		t         tailFlags
		last      int
		fromWhere string
		filters   []string
	)
	cmd := &cobra.Command{
		Use:   "tail TOPIC",
		Short: "Print the newest messages of a Topic, and those that follow",
		Long: `Print the newest messages of a Topic, and those that follow, until Ctrl-C. Nothing is taken away from
anybody. With --filter, what is printed at first is what matches of the newest.

Of a Topic with several shards all are read at once: the messages of a subject come in order, those of different subjects
may not, and --last is of each shard. Sequences are the shards': to begin with one, read TOPIC--NUMBER, a shard's stream.`,
		Example: `  carillon topic tail orders
  carillon topic tail orders --from 1h --filter 'orders.eu.>'
  carillon topic tail orders --from earliest --no-follow --raw > backup`,
		Args:              takes(1, 1, "the name of a topic"),
		ValidArgsFunction: t.completeNames(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if last < 0 {
				return usageError{fmt.Errorf("--last %d: it can't be negative", last)}
			}
			if fromWhere != "" && cmd.Flags().Changed("last") {
				return usageError{errors.New("--last and --from: choose one")}
			}
			var where *from
			if fromWhere != "" {
				parsed, err := parseFrom(fromWhere)
				if err != nil {
					return usageError{fmt.Errorf("--from %q: %w", fromWhere, err)}
				}
				where = &parsed
			}
			if err := t.check(cmd); err != nil {
				return err
			}
			b, err := t.connect(cmd)
			if err != nil {
				return err
			}
			defer b.close()
			stream, err := b.stream(cmd.Context(), args[0])
			if err != nil {
				return b.found(args[0], err)
			}
			streams, err := b.shardStreams(cmd.Context(), stream)
			switch {
			case err != nil:
				return b.found(args[0], err)
			case len(streams) > 1 && where != nil && where.policy == jetstream.DeliverByStartSequencePolicy:
				return usageError{fmt.Errorf("--from %q: topic %s has %d shards with sequences of their own; read one of them: carillon topic tail %s", fromWhere, args[0], len(streams), shardStream(args[0], 0))}
			case len(streams) == 1:
				return b.read(cmd, streams[0], beginning(streams[0], where, last), filters, &t)
			}
			return b.readShards(cmd, streams, func(s jetstream.Stream) from { return beginning(s, where, last) }, filters, &t)
		},
	}
	t.flags(cmd)
	f := cmd.Flags()
	f.IntVarP(&last, "last", "n", 10, "begin with so many of the newest messages")
	f.StringVar(&fromWhere, "from", "", "`WHERE` to begin instead: earliest, latest, a sequence, a time (RFC 3339), or how long ago (2h)")
	f.StringSliceVar(&filters, "filter", nil, "only these subjects, with wildcards; several with commas, or repeat it")
	complete(cmd, "from", "earliest", "latest")
	return cmd
}

// beginning returns the start position in one stream.
func beginning(stream jetstream.Stream, where *from, last int) from {
	if where != nil {
		return *where
	}
	return newestFrom(stream.CachedInfo().State, last)
}

// shardStreams returns the streams of a Topic's shards, or the stream itself if the Topic has one
// shard or it isn't a Topic.
func (b *brokers) shardStreams(ctx context.Context, stream jetstream.Stream) ([]jetstream.Stream, error) {
	name := stream.CachedInfo().Config.Name
	declared, err := b.declaredTopic(ctx, name)
	if err != nil || len(declared.Shards) < 2 {
		return []jetstream.Stream{stream}, nil // of another server, or of a shard
	}
	streams := make([]jetstream.Stream, len(declared.Shards))
	for n := range streams {
		if streams[n], err = b.stream(ctx, shardStream(name, n)); err != nil {
			return nil, err
		}
	}
	return streams, nil
}

// readShards reads several streams concurrently, until one fails, all have ended, or the requested
// number of messages is printed.
func (b *brokers) readShards(cmd *cobra.Command, streams []jetstream.Stream, where func(jetstream.Stream) from, filters []string, t *tailFlags) error {
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	cmd.SetContext(ctx)
	t.enough = cancel
	failed := make([]error, len(streams))
	var reading sync.WaitGroup
	for n, stream := range streams {
		reading.Go(func() {
			if failed[n] = b.read(cmd, stream, where(stream), filters, t); failed[n] != nil {
				cancel()
			}
		})
	}
	reading.Wait()
	return errors.Join(failed...)
}

// newestFrom returns the position of the newest messages, or the end if none is wanted.
func newestFrom(state jetstream.StreamState, newest int) from {
	n := uint64(newest)
	if n < state.LastSeq && state.LastSeq-n+1 > state.FirstSeq {
		return from{policy: jetstream.DeliverByStartSequencePolicy, sequence: state.LastSeq - n + 1}
	}
	return from{policy: jetstream.DeliverAllPolicy}
}

// read prints messages by a reader of its own, without a change of the Topic or its Subscriptions.
// After a change of the leader it continues behind the last printed message.
func (b *brokers) read(cmd *cobra.Command, stream jetstream.Stream, where from, filters []string, t *tailFlags) error {
	about := stream.CachedInfo()
	if where.policy == jetstream.DeliverNewPolicy { // a new reader would begin later
		where = newestFrom(about.State, 0)
	}
	defer b.cutOff(cmd.Context())()
	for {
		err := b.readOn(cmd, stream, &where, filters, t)
		switch {
		case cmd.Context().Err() != nil:
			return nil // Ctrl-C is no error
		case err == nil:
			return nil
		case !passing(err):
			return b.found(about.Config.Name, err)
		}
		b.note("%v; asking again", err)
		if !pause(cmd.Context(), askAgain) {
			return nil
		}
	}
}

// readOn reads by one reader, to the end or an error, and advances where.
func (b *brokers) readOn(cmd *cobra.Command, stream jetstream.Stream, where *from, filters []string, t *tailFlags) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), b.timeout)
	reader, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		FilterSubjects: filters, DeliverPolicy: where.policy, OptStartSeq: where.sequence, OptStartTime: where.time,
		// Endless attempts would ignore Ctrl-C.
		InactiveThreshold: readerIdle, MaxResetAttempts: 1,
	})
	cancel()
	if err != nil {
		return err
	}
	defer b.forget(stream.CachedInfo().Config.Name, reader)
	messages, err := reader.Messages()
	if err != nil {
		return err
	}
	defer messages.Stop()
	left := reader.CachedInfo().NumPending
	for {
		if t.stop && left == 0 || t.full() {
			return nil
		}
		m, err := messages.Next(jetstream.NextContext(cmd.Context()))
		if err != nil {
			return err
		}
		about, err := t.print(cmd.OutOrStdout(), m)
		if err != nil {
			return err
		}
		left = about.NumPending
		*where = from{policy: jetstream.DeliverByStartSequencePolicy, sequence: about.Sequence.Stream + 1}
	}
}

// full reports whether the requested number of messages is printed.
func (t *tailFlags) full() bool {
	t.printing.Lock()
	defer t.printing.Unlock()
	return t.count > 0 && t.printed >= t.count
}

// cutOff closes the connection a second after ctx has ended, so that nothing waits for a broker.
// The caller calls done when nothing waits any more.
func (b *brokers) cutOff(ctx context.Context) (done func()) {
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		if b.nc.Status() != nats.CONNECTED {
			b.nc.Close()
			return
		}
		select {
		case <-over:
		case <-time.After(time.Second):
			b.nc.Close()
		}
	})
	return func() { stop(); close(over) }
}

// forget deletes a reader. If that fails, the broker deletes it after readerIdle.
func (b *brokers) forget(topic string, reader jetstream.Consumer) {
	ctx, cancel := context.WithTimeout(context.Background(), min(b.timeout, time.Second))
	defer cancel()
	if info := reader.CachedInfo(); info != nil {
		_ = b.js.DeleteConsumer(ctx, topic, info.Name)
	}
}

// print prints one message, and returns its metadata.
func (t *tailFlags) print(w io.Writer, m jetstream.Msg) (*jetstream.MsgMetadata, error) {
	about, err := m.Metadata()
	if err != nil {
		return nil, fmt.Errorf("a message without a place came: %w", err)
	}
	t.printing.Lock()
	defer t.printing.Unlock()
	if t.count > 0 && t.printed >= t.count {
		return about, nil // another shard printed the last one
	}
	if err := tails[t.output](w, m, about); err != nil {
		return nil, fmt.Errorf("print a message: %w", err)
	}
	if t.printed++; t.enough != nil && t.printed == t.count {
		t.enough()
	}
	return about, nil
}

var tails = map[string]func(io.Writer, jetstream.Msg, *jetstream.MsgMetadata) error{
	"text": func(w io.Writer, m jetstream.Msg, about *jetstream.MsgMetadata) error {
		var text strings.Builder
		fmt.Fprintf(&text, "#%d  %s  %s", about.Sequence.Stream, about.Timestamp.UTC().Format("2006-01-02T15:04:05.000Z"), m.Subject())
		if about.NumDelivered > 1 {
			fmt.Fprintf(&text, "  (attempt %d)", about.NumDelivered)
		}
		for _, name := range sortedNames(m.Headers()) {
			for _, value := range m.Headers()[name] {
				fmt.Fprintf(&text, "\n  %s: %s", name, value)
			}
		}
		fmt.Fprintf(&text, "\n%s\n", m.Data())
		_, err := io.WriteString(w, text.String())
		return err
	},
	"json": func(w io.Writer, m jetstream.Msg, about *jetstream.MsgMetadata) error {
		// Data is base64, since a payload may be any bytes.
		return json.NewEncoder(w).Encode(struct {
			Topic    string      `json:"topic"`
			Sequence uint64      `json:"sequence"`
			Time     time.Time   `json:"time"`
			Attempt  uint64      `json:"attempt"`
			Subject  string      `json:"subject"`
			Header   nats.Header `json:"header,omitempty"`
			Data     []byte      `json:"data"`
		}{about.Stream, about.Sequence.Stream, about.Timestamp.UTC(), about.NumDelivered, m.Subject(), m.Headers(), m.Data()})
	},
	"raw": func(w io.Writer, m jetstream.Msg, _ *jetstream.MsgMetadata) error {
		_, err := w.Write(append(m.Data(), '\n'))
		return err
	},
}

// askAgain is the pause before a lost broker is asked again.
const askAgain = time.Second

// offline are the error codes for a stream or consumer without a leader.
var offline = []jetstream.ErrorCode{10118, 10119, 10194, 10195}

// passing reports whether an error is temporary, until the Topic has a leader again.
func passing(err error) bool {
	for _, one := range []error{
		jetstream.ErrNoHeartbeat, jetstream.ErrConsumerLeadershipChanged, jetstream.ErrServerShutdown, jetstream.ErrOrderedConsumerReset,
		nats.ErrNoResponders, nats.ErrTimeout, context.DeadlineExceeded, nats.ErrDisconnected,
	} {
		if errors.Is(err, one) {
			return true
		}
	}
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.Code == 503 || slices.Contains(offline, api.ErrorCode))
}

// pause waits, and reports whether ctx is still active.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
