package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/broker/coordination"
)

func newSubscriptionResetCommand() *cobra.Command {
	var (
		m  manageFlags
		to string
	)
	cmd := &cobra.Command{
		Use:   "reset TOPIC SUBSCRIPTION --to FROM",
		Short: "Move the place of a Subscription",
		Long: `Move the place of a Subscription, in all shards of its Topic. All deliveries and acks are
forgotten: messages from there on are delivered, also those that were acknowledged. Clients stay
connected.

A Subscription of a manifest is reset by spec.reset.`,
		Example: `  carillon subscription reset orders billing --to 2h
  carillon subs reset orders billing --to 2026-01-31T00:00:00Z`,
		Args:              takes(2, 2, "the names of a topic and a subscription"),
		ValidArgsFunction: m.completeNames(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if to == "" {
				return usageError{errors.New("--to is required: latest, earliest, a sequence, a time (RFC 3339), or how long ago (2h)")}
			}
			from, err := parseFrom(to)
			if err != nil {
				return usageError{fmt.Errorf("--to %q: %w", to, err)}
			}
			b, err := m.connect(cmd)
			if err != nil {
				return err
			}
			defer b.close()
			start := from.start()
			is, err := b.resetSubscription(cmd.Context(), args[0], args[1], start)
			if err != nil {
				return err
			}
			if m.output == "json" {
				return printJSON(cmd.OutOrStdout(), viewSubscription(is, nil))
			}
			fmt.Fprintf(cmd.OutOrStdout(), "subscription %s of topic %s begins again with %s\n", args[1], args[0], startText(start))
			return nil
		},
	}
	m.flags(cmd, "text", "json")
	cmd.Flags().StringVar(&to, "to", "", "`FROM` where: latest (what comes from now on), earliest, a sequence, a time (RFC 3339), or how long ago (2h)")
	complete(cmd, "to", "latest", "earliest")
	return cmd
}

func (b *brokers) resetSubscription(ctx context.Context, topic, name string, to coordination.Start) (*admin.Subscription, error) {
	var info admin.SubscriptionInfo
	err := b.ask(ctx, admin.SubscriptionResetSubject+topic+"."+name, admin.ResetRequest{To: to}, &info)
	if err == nil {
		err = asError(info.Error)
	}
	if err != nil {
		return nil, b.explain("reset subscription "+name, err)
	}
	return info.Subscription, nil
}

// start returns a start position as our API has it.
func (f from) start() coordination.Start {
	switch f.policy {
	case jetstream.DeliverAllPolicy:
		return coordination.Start{From: coordination.FromEarliest}
	case jetstream.DeliverByStartSequencePolicy:
		return coordination.Start{From: coordination.FromOffset, Offset: f.sequence}
	case jetstream.DeliverByStartTimePolicy:
		return coordination.Start{From: coordination.FromTime, Time: f.time.UTC()}
	}
	return coordination.Start{From: coordination.FromLatest}
}
