package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
)

func newSubscriptionTailCommand() *cobra.Command {
	var (
		t   tailFlags
		ack bool
	)
	cmd := &cobra.Command{
		Use:   "tail TOPIC SUBSCRIPTION",
		Short: "Print what a Subscription has yet to deal with, and what follows",
		Long: `Print what a Subscription has yet to deal with, and what follows, until Ctrl-C.

Without --ack this only looks: it reads the Topic by a reader of its own, from the first message that
the Subscription has not acknowledged and with its filter, and the Subscription's clients still get
everything. With --ack it is one of those clients: what it prints it acknowledges, and nobody else gets it.`,
		Example: `  carillon subscription tail orders billing --no-follow
  carillon subscription tail orders billing --ack --count 1`,
		Args:              takes(2, 2, "the names of a topic and a subscription"),
		ValidArgsFunction: t.completeNames(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := t.check(cmd); err != nil {
				return err
			}
			b, err := t.connect(cmd)
			if err != nil {
				return err
			}
			defer b.close()
			consumer, err := b.consumer(cmd.Context(), args[0], args[1])
			if err != nil {
				return b.foundIn(args[0], args[1], err)
			}
			if ack {
				return b.consume(cmd, consumer, &t)
			}
			stream, err := b.stream(cmd.Context(), args[0])
			if err != nil {
				return b.found(args[0], err)
			}
			info := consumer.CachedInfo()
			filters := info.Config.FilterSubjects
			if info.Config.FilterSubject != "" {
				filters = []string{info.Config.FilterSubject}
			}
			streams, err := b.shardStreams(cmd.Context(), stream)
			if err != nil {
				return b.found(args[0], err)
			}
			if len(streams) == 1 {
				return b.read(cmd, stream, behind(info), filters, &t)
			}
			floors := map[string]from{}
			for _, shard := range streams {
				name := shard.CachedInfo().Config.Name
				part, err := b.consumer(cmd.Context(), name, args[1])
				if err != nil {
					return b.foundIn(name, args[1], err)
				}
				floors[name] = behind(part.CachedInfo())
			}
			return b.readShards(cmd, streams, func(s jetstream.Stream) from { return floors[s.CachedInfo().Config.Name] }, filters, &t)
		},
	}
	t.flags(cmd)
	cmd.Flags().BoolVar(&ack, "ack", false, "take messages from the subscription, and acknowledge what is printed")
	return cmd
}

// behind returns the position of the first message that a Subscription has not acknowledged.
func behind(info *jetstream.ConsumerInfo) from {
	return from{policy: jetstream.DeliverByStartSequencePolicy, sequence: info.AckFloor.Stream + 1}
}

// consume prints messages as a client of the Subscription. It requests one message at a time, so
// that it holds none that it won't print.
func (b *brokers) consume(cmd *cobra.Command, consumer jetstream.Consumer, t *tailFlags) error {
	info := consumer.CachedInfo()
	what := fmt.Sprintf("read subscription %s of topic %s", info.Name, info.Stream)
	for n := 0; t.count == 0 || n < t.count; {
		m, err := b.next(cmd.Context(), consumer, t.stop)
		switch {
		case cmd.Context().Err() != nil && m == nil:
			return nil
		case errors.Is(err, errNoMore):
			return nil
		case !t.stop && passing(err):
			b.note("%v; asking again", err)
			if !pause(cmd.Context(), askAgain) {
				return nil
			}
			continue
		case err != nil:
			return b.explain(what, err)
		case m == nil:
			continue
		}
		if _, err := t.print(cmd.OutOrStdout(), m); err != nil {
			_ = m.Nak() // for another client
			_ = b.nc.FlushTimeout(b.timeout)
			return err
		}
		n++
		if info.Config.AckPolicy == jetstream.AckNonePolicy {
			continue
		}
		// Without the command's cancellation: a printed message is acknowledged even after Ctrl-C.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), b.timeout)
		err = m.DoubleAck(ctx)
		cancel()
		if err != nil {
			return b.explain(what+": the last message was printed, but may come again", err)
		}
	}
	return nil
}

var errNoMore = errors.New("there are no more messages")

// next returns the next message; nil: none has arrived for a while.
func (b *brokers) next(ctx context.Context, consumer jetstream.Consumer, stop bool) (jetstream.Msg, error) {
	var (
		batch jetstream.MessageBatch
		err   error
	)
	if stop {
		batch, err = consumer.FetchNoWait(1)
	} else {
		batch, err = consumer.Fetch(1, jetstream.FetchContext(ctx))
	}
	if err != nil {
		return nil, err
	}
	m := <-batch.Messages()
	switch err := batch.Error(); {
	case m != nil:
		return m, nil
	case err != nil && !errors.Is(err, nats.ErrTimeout):
		return nil, err
	case stop:
		return nil, errNoMore
	}
	return nil, nil
}
