package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/filter"
)

func newSubscriptionCreateCommand() *cobra.Command {
	var (
		m                      manageFlags
		filters, backoff       []string
		start, description     string
		deadLetter, where      string
		push                   coordination.Push
		ackWait                ageFlag
		maxDeliver, maxPending int
	)
	cmd := &cobra.Command{
		Use:     "create TOPIC SUBSCRIPTION",
		Aliases: []string{"add"},
		Short:   "Create a Subscription",
		Long: `Create a Subscription of a Topic, by which clients read and acknowledge messages; the place is kept.
It may be repeated: where that Subscription is already, with the same settings, nothing is changed.`,
		Example: `  carillon subscription create orders billing
  carillon subs create orders large --where 'json.total > 100 && json.region == "eu"'
  carillon subs create orders jobs --max-deliver 5 --dead-letter orders-dead
  carillon subs create orders hook --push http://127.0.0.1:8080/events
  carillon subs create orders audit --filter 'orders.eu.>' --start earliest --max-deliver 5 --backoff 1s,5s,30s`,
		Args:              takes(2, 2, "the names of a topic and a subscription"),
		ValidArgsFunction: m.completeNames(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			config := jetstream.ConsumerConfig{
				Durable: args[1], Name: args[1], Description: description, AckPolicy: jetstream.AckExplicitPolicy,
				AckWait: time.Duration(ackWait), MaxDeliver: maxDeliver, MaxAckPending: maxPending,
			}
			if maxDeliver < 0 || maxPending < -1 {
				return usageError{errors.New("--max-deliver and --max-pending can't be negative; leave them out to have the default")}
			}
			if where != "" {
				if _, err := filter.CompileStored(where); err != nil {
					return usageError{fmt.Errorf("--where: %w", err)}
				}
			}
			if push.URL == "" && push.Format != "" {
				return usageError{errors.New("--push-format needs --push")}
			}
			for _, pause := range backoff {
				d, err := parseAge(pause)
				if err != nil {
					return usageError{fmt.Errorf("--backoff %q: %w", pause, err)}
				}
				config.BackOff = append(config.BackOff, d)
			}
			if len(filters) == 1 {
				config.FilterSubject = filters[0]
			} else {
				config.FilterSubjects = filters
			}
			from, err := parseFrom(start)
			if err != nil {
				return usageError{fmt.Errorf("--start %q: %w", start, err)}
			}
			config.DeliverPolicy, config.OptStartSeq, config.OptStartTime = from.policy, from.sequence, from.time
			b, err := m.connect(cmd)
			if err != nil {
				return err
			}
			defer b.close()
			if deadLetter != "" || push.URL != "" || where != "" {
				asked := declaration(config)
				asked.DeadLetter, asked.Where = deadLetter, where
				if push.URL != "" {
					asked.Push = &push
				}
				v, err := b.declareSubscription(cmd.Context(), args[0], args[1], asked)
				if err != nil {
					return err
				}
				if m.output == "json" {
					return printJSON(cmd.OutOrStdout(), v)
				}
				more := ""
				if where != "" {
					more = "; it gets messages where " + where
				}
				if deadLetter != "" {
					more += "; dead letters go into topic " + deadLetter
				}
				if push.URL != "" {
					more += "; it pushes to " + push.URL
				}
				fmt.Fprintf(cmd.OutOrStdout(), "subscription %s of topic %s begins with %s%s\n", v.Name, v.Topic, startText(v.Spec.Start), more)
				return nil
			}
			consumer, err := b.js.CreateConsumer(cmd.Context(), args[0], config)
			if errors.Is(err, jetstream.ErrStreamNotFound) {
				return b.found(args[0], err)
			}
			if errors.Is(err, jetstream.ErrConsumerExists) {
				return fmt.Errorf("create subscription %s: topic %s has one already, with other settings (see: carillon subscription show %s %s)", args[1], args[0], args[0], args[1])
			}
			if err != nil {
				return b.explain("create subscription "+args[1], err)
			}
			declared, _ := b.declaredSubscription(cmd.Context(), args[0], args[1])
			v := viewSubscription(declared, consumer.CachedInfo())
			if m.output == "json" {
				return printJSON(cmd.OutOrStdout(), v)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "subscription %s of topic %s begins with %s\n", v.Name, v.Topic, startText(v.Spec.Start))
			return nil
		},
	}
	f := cmd.Flags()
	m.flags(cmd, "text", "json")
	f.StringSliceVar(&filters, "filter", nil, "only these subjects, with wildcards; several with commas, or repeat it (default all)")
	f.StringVar(&where, "where", "", "`CONDITION` on the content of messages, for example 'json.total > 100' (default all messages)")
	f.StringVar(&start, "start", "latest", "`FROM` where: latest (what comes from now on), earliest, a sequence, a time (RFC 3339), or how long ago (2h)")
	f.Var(&ackWait, "ack-wait", "how long a client may take before a message is delivered again (default 30s)")
	f.IntVar(&maxDeliver, "max-deliver", 0, "how often a message is delivered (default no limit)")
	f.IntVar(&maxPending, "max-pending", 0, "how many messages may be delivered and not yet acknowledged; -1: any number (default 1000)")
	f.StringSliceVar(&backoff, "backoff", nil, "`PAUSES` between deliveries in the place of --ack-wait, for example 1s,5s,30s")
	f.StringVar(&deadLetter, "dead-letter", "", "`TOPIC` for messages that were delivered --max-deliver times, or that a client terminated (default they are dropped)")
	f.StringVar(&push.URL, "push", "", "`URL` that records are posted to, in place of clients that pull; brokers of a manifest take it from manifests only")
	f.StringVar((*string)(&push.Format), "push-format", "", "of the requests: CloudEventsBinary, CloudEventsStructured or Raw (default CloudEventsBinary)")
	f.StringVar(&description, "description", "", "a sentence for people")
	complete(cmd, "push-format", string(coordination.CloudEventsBinary), string(coordination.CloudEventsStructured), string(coordination.RawPush))
	complete(cmd, "start", "latest", "earliest")
	return cmd
}

// from is a start position.
type from struct {
	policy   jetstream.DeliverPolicy
	sequence uint64
	time     *time.Time
}

func parseFrom(text string) (from, error) {
	switch text {
	case "latest":
		return from{policy: jetstream.DeliverNewPolicy}, nil
	case "earliest":
		return from{policy: jetstream.DeliverAllPolicy}, nil
	}
	if sequence, err := strconv.ParseUint(strings.TrimPrefix(text, "#"), 10, 64); err == nil && sequence > 0 {
		return from{policy: jetstream.DeliverByStartSequencePolicy, sequence: sequence}, nil
	}
	if ago, err := parseAge(text); err == nil {
		t := time.Now().Add(-ago)
		return from{policy: jetstream.DeliverByStartTimePolicy, time: &t}, nil
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return from{policy: jetstream.DeliverByStartTimePolicy, time: &t}, nil
	}
	return from{}, errors.New("write latest, earliest, a sequence like 12, a time like 2026-01-31T12:00:00Z, or how long ago, like 2h")
}

// placeText returns a sequence, and when it was reached, as text.
func placeText(sequence uint64, last *time.Time) string {
	switch {
	case sequence == 0:
		return "nothing yet"
	case last == nil:
		return fmt.Sprintf("#%d", sequence)
	}
	return fmt.Sprintf("#%d, %s", sequence, timeText(*last))
}

func newSubscriptionDeleteCommand() *cobra.Command {
	var (
		m   manageFlags
		yes bool
	)
	cmd := &cobra.Command{
		Use:     "delete TOPIC SUBSCRIPTION",
		Aliases: []string{"rm"},
		Short:   "Delete a Subscription and its place in the Topic",
		Long: `Delete a Subscription and its place in the Topic, after asking. The messages stay. What a manifest
declares is deleted by kubectl; what a manifest left behind is deleted here.`,
		Example:           `  carillon subscription delete orders billing`,
		Args:              takes(2, 2, "the names of a topic and a subscription"),
		ValidArgsFunction: m.completeNames(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := m.connect(cmd)
			if err != nil {
				return err
			}
			defer b.close()
			if err := b.deleteSubscription(cmd, args[0], args[1], yes); err != nil {
				return err
			}
			return m.deleted(cmd, "subscription "+args[1]+" of topic "+args[0])
		},
	}
	m.flags(cmd, "text", "json")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "don't ask")
	return cmd
}

func (b *brokers) deleteSubscription(cmd *cobra.Command, topic, name string, yes bool) error {
	declared, err := b.declaredSubscription(cmd.Context(), topic, name)
	var refusal *admin.Error
	if err != nil && !errors.As(err, &refusal) && !errors.Is(err, errNoAdmin) {
		return b.explain("delete subscription "+name, err)
	}
	if declared != nil {
		if err := declaredElsewhere("subscription "+name, "subscriptions", declared.Owner); err != nil {
			return err
		}
	}
	question := fmt.Sprintf("Delete subscription %s of topic %s and its place?", name, topic)
	consumer, err := b.consumer(cmd.Context(), topic, name)
	switch {
	case err == nil:
		info := consumer.CachedInfo()
		question = fmt.Sprintf("Delete subscription %s of topic %s, with %d messages to deliver and %d to be acknowledged?", name, topic, info.NumPending, info.NumAckPending)
	case refusal != nil:
		return refusal
	case declared == nil:
		return b.foundIn(topic, name, err)
	}
	if err := confirm(cmd, yes, question, "nothing was deleted"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), b.timeout)
	defer cancel()
	if err := b.js.DeleteConsumer(ctx, topic, name); err != nil {
		return b.explain("delete subscription "+name, err)
	}
	return nil
}
