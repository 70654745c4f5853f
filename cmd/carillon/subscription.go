package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/broker/coordination"
)

func newSubscriptionCommand() *cobra.Command {
	cmd := group("subscription", "List, create, show, reset, delete and read Subscriptions", newSubscriptionListCommand(), newSubscriptionCreateCommand(),
		newSubscriptionShowCommand(), newSubscriptionDeleteCommand(), newSubscriptionTailCommand(), newSubscriptionResetCommand(), newSubscriptionReplayCommand())
	cmd.Long = `List, create, show, reset, delete and read Subscriptions: durable readers of a Topic, whose place is
kept.

To print what is published from now on, without a Topic, there is carillon sub.`
	cmd.Aliases = []string{"subs", "subscriptions"}
	return cmd
}

func newSubscriptionListCommand() *cobra.Command {
	var (
		m             manageFlags
		orphaned, all bool
	)
	cmd := &cobra.Command{
		Use:     "list [TOPIC]",
		Aliases: []string{"ls"},
		Short:   "List Subscriptions, of one Topic or of all",
		Long: `List Subscriptions, of one Topic or of all: how far behind they are, and who declared them.

LAG is messages yet to deliver; PENDING are delivered, and not yet acknowledged. MEMBERS are the
clients that wait for messages or took some in the last minute, or the endpoint that it pushes to.`,
		Example: `  carillon subscription list orders
  carillon subs ls --output json | jq '.subscriptions[] | select(.numbers.lag > 1000)'`,
		Args:              takes(0, 1, "at most the name of a topic"),
		ValidArgsFunction: m.completeNames(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := m.connect(cmd)
			if err != nil {
				return err
			}
			defer b.close()
			views, err := b.subscriptionsOf(cmd.Context(), args, all)
			if err != nil {
				return err
			}
			if orphaned {
				views = slices.DeleteFunc(views, func(v subscriptionView) bool { return v.Owner == nil || v.Owner.Orphaned == nil })
			}
			if m.output == "json" {
				return printJSON(cmd.OutOrStdout(), struct {
					Subscriptions []subscriptionView `json:"subscriptions"`
				}{views})
			}
			if len(views) == 0 {
				b.note("there are no subscriptions (see: carillon subscription create --help)")
				return nil
			}
			return printSubscriptions(cmd.OutOrStdout(), views)
		},
	}
	m.flags(cmd, "table", "json")
	cmd.Flags().BoolVar(&orphaned, "orphaned", false, "only those whose manifest is gone")
	cmd.Flags().BoolVar(&all, "all", false, "also those that live only while a client reads by them")
	return cmd
}

// subscriptionsOf returns the Subscriptions of the Topic that args name, or of all Topics.
func (b *brokers) subscriptionsOf(ctx context.Context, args []string, all bool) ([]subscriptionView, error) {
	if len(args) == 1 {
		topic, err := b.showTopic(ctx, args[0])
		if err != nil {
			return nil, err
		}
		return b.listSubscriptions(ctx, topic, all)
	}
	topics, err := b.listTopics(ctx)
	if err != nil {
		return nil, b.explain("list topics", err)
	}
	views := []subscriptionView{}
	for _, topic := range topics {
		if topic.Subscriptions == 0 && !all {
			continue
		}
		more, err := b.listSubscriptions(ctx, &topic, all)
		if err != nil {
			return nil, err
		}
		views = append(views, more...)
	}
	return views, nil
}

// listSubscriptions returns the Subscriptions of a Topic, sorted by name. With all it includes
// those that exist only while a client reads.
func (b *brokers) listSubscriptions(ctx context.Context, topic *topicView, all bool) ([]subscriptionView, error) {
	views := []subscriptionView{}
	var (
		declared  []admin.Subscription
		consumers map[string]*jetstream.ConsumerInfo
		err       error
	)
	if topic.Owner != nil { // a Carillon broker answered
		if declared, err = b.declaredSubscriptions(ctx, topic.Name); err != nil {
			return nil, b.explain("subscriptions of topic "+topic.Name, err)
		}
	}
	if topic.Served == nil || *topic.Served {
		consumers, err = b.consumers(ctx, topic.Name)
	}
	switch {
	case err != nil && topic.Owner == nil:
		return nil, b.found(topic.Name, err)
	case err != nil:
		b.note("numbers are not known: %v", b.found(topic.Name, err))
	}
	known := &states{unknown: true}
	if len(declared) > 0 {
		known = b.statesOf(ctx, topic.Name, "")
	}
	add := func(v subscriptionView) {
		if v.Owner != nil {
			known.describe(&v)
		}
		if all || !v.Temporary {
			views = append(views, v)
		}
	}
	for i := range declared {
		add(viewSubscription(&declared[i], consumers[declared[i].Name]))
		delete(consumers, declared[i].Name)
	}
	for _, name := range slices.Sorted(maps.Keys(consumers)) {
		add(viewSubscription(nil, consumers[name]))
	}
	slices.SortFunc(views, func(a, b subscriptionView) int { return strings.Compare(a.Name, b.Name) })
	return views, nil
}

func printSubscriptions(w io.Writer, views []subscriptionView) error {
	rows := [][]string{{"TOPIC", "SUBSCRIPTION", "FILTER", "LAG", "PENDING", "REDELIVERED", "MEMBERS", "OWNER", "AGE", "STATUS"}}
	for _, v := range views {
		lag, pending, redelivered, members := "-", "-", "-", "-"
		if v.Numbers != nil {
			lag, pending, redelivered = strconv.FormatUint(v.Numbers.Lag, 10), strconv.Itoa(v.Numbers.Pending), strconv.Itoa(v.Numbers.Redelivered)
			members = membersText(v.Numbers.Members)
		}
		rows = append(rows, []string{v.Topic, v.Name, few(v.Spec.Subjects, 2), lag, pending, redelivered, members, ownerText(v.Owner), agoText(v.Created), v.status()})
	}
	return printTable(w, rows)
}

func newSubscriptionShowCommand() *cobra.Command {
	var m manageFlags
	cmd := &cobra.Command{
		Use:     "show TOPIC SUBSCRIPTION",
		Aliases: []string{"info"},
		Short:   "Show one Subscription: settings, numbers and conditions",
		Long: `Show one Subscription: settings, numbers, the state of the endpoint that it pushes to, and the
conditions that stand out, as kubectl describe shows them of a manifest's.`,
		Example:           `  carillon subscription show orders billing`,
		Args:              takes(2, 2, "the names of a topic and a subscription"),
		ValidArgsFunction: m.completeNames(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := m.connect(cmd)
			if err != nil {
				return err
			}
			defer b.close()
			v, err := b.showSubscription(cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			if m.output == "json" {
				return printJSON(cmd.OutOrStdout(), v)
			}
			return printSubscription(cmd.OutOrStdout(), v)
		},
	}
	m.flags(cmd, "table", "json")
	return cmd
}

// consumer returns a Subscription as a JetStream consumer.
func (b *brokers) consumer(ctx context.Context, topic, name string) (jetstream.Consumer, error) {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	return b.js.Consumer(ctx, topic, name)
}

// showSubscription returns a Subscription, also one in memory only, which our API does not list.
func (b *brokers) showSubscription(ctx context.Context, topic, name string) (*subscriptionView, error) {
	declared, err := b.declaredSubscription(ctx, topic, name)
	var refusal *admin.Error
	if err != nil && !errors.As(err, &refusal) && !errors.Is(err, errNoAdmin) {
		return nil, b.explain("subscription "+name, err)
	}
	var info *jetstream.ConsumerInfo
	consumer, consumerErr := b.consumer(ctx, topic, name)
	if consumerErr == nil {
		info = consumer.CachedInfo()
	}
	switch {
	case consumerErr != nil && refusal != nil:
		return nil, refusal
	case consumerErr != nil && declared == nil:
		return nil, b.foundIn(topic, name, consumerErr)
	case consumerErr != nil && declared.Served:
		b.note("numbers are not known: %v", b.foundIn(topic, name, consumerErr))
	case declared == nil && refusal == nil:
		b.noteNoAdmin()
	}
	v := viewSubscription(declared, info)
	if declared != nil {
		b.statesOf(ctx, topic, name).describe(&v)
	}
	return &v, nil
}

func printSubscription(w io.Writer, v *subscriptionView) error {
	rows := [][]string{{"Subscription", v.Name}, {"Topic", v.Topic}}
	add := func(name, value string) { rows = append(rows, []string{name, value}) }
	if v.Owner != nil {
		add("Owner", v.Owner.Coordination().String())
	}
	if v.Owner != nil && v.Owner.Orphaned != nil {
		add("Orphaned", "since "+timeText(*v.Owner.Orphaned))
	}
	if v.Generation > 0 {
		add("Generation", strconv.FormatInt(v.Generation, 10))
	}
	add("Created", timeText(v.Created))
	if v.Spec.Consumer.Description != "" {
		add("Description", v.Spec.Consumer.Description)
	}
	filter := "none"
	if len(v.Spec.Subjects) > 0 {
		filter = strings.Join(v.Spec.Subjects, ", ")
	}
	add("Filter", filter)
	if v.Spec.Where != "" {
		add("Where", v.Spec.Where)
	}
	add("Began with", startText(v.Spec.Start))
	add("Acknowledgement", ackText(v.Spec.Ack))
	if len(v.Spec.Ack.Backoff) > 0 {
		var pauses []string
		for _, pause := range v.Spec.Ack.Backoff {
			pauses = append(pauses, durationText(pause))
		}
		add("Backoff", strings.Join(pauses, ", "))
	}
	if p := v.Spec.Push; p != nil {
		add("Pushes to", pushSettings(p))
	}
	if v.Spec.DeadLetter != "" {
		add("Dead letters", "topic "+v.Spec.DeadLetter)
	}
	if v.Owner != nil && v.Owner.Kind == coordination.ManifestOwner {
		add("When its manifest goes", string(v.Spec.DeletionPolicy))
	}
	add("Status", v.status())
	if v.Why != "" {
		add("Why", v.Why)
	}
	if n := v.Numbers; n != nil {
		add("Lag", strconv.FormatUint(n.Lag, 10))
		add("Pending", strconv.Itoa(n.Pending))
		add("Redelivered", strconv.Itoa(n.Redelivered))
		add("Waiting requests", strconv.Itoa(n.Waiting))
		add("Active members", membersText(n.Members))
		add("Delivered", placeText(n.Delivered, n.LastDelivered))
		add("Acknowledged up to", placeText(n.AckFloor, n.LastAck))
		if n.Unjudged > 0 {
			add("Not judged", fmt.Sprintf("%d messages, which don't match: %s", n.Unjudged, n.UnjudgedWhy))
		}
		if v.Spec.DeadLetter != "" {
			add("Dead letters stored", fmt.Sprintf("%d, and %d wait", n.DeadLettered, n.GivenUp))
		}
	}
	for _, p := range v.Push {
		name := "Endpoint"
		if len(v.Push) > 1 {
			name = fmt.Sprintf("Endpoint, shard %d", p.Shard)
		}
		add(name, p.text(time.Now()))
	}
	if err := printTable(w, rows); err != nil || len(v.Conditions) == 0 {
		return err
	}
	table := [][]string{{"CONDITION", "STATUS", "REASON", "MESSAGE"}}
	for _, c := range v.Conditions {
		table = append(table, []string{c.Type, c.Status, c.Reason, c.Message})
	}
	fmt.Fprintln(w)
	return printTable(w, table)
}

// membersText returns a number of members; nil: unknown.
func membersText(n *int64) string {
	if n == nil {
		return "-"
	}
	return strconv.FormatInt(*n, 10)
}

func startText(s coordination.Start) string {
	switch s.From {
	case coordination.FromEarliest:
		return "the oldest message"
	case coordination.FromTime:
		return "messages from " + timeText(s.Time)
	case coordination.FromOffset:
		return fmt.Sprintf("#%d", s.Offset)
	case coordination.FromLast:
		return "the newest message"
	case coordination.FromLastBySubject:
		return "the newest message of each subject"
	}
	return "messages after it was made"
}

func ackText(a coordination.Ack) string {
	switch a.Policy {
	case coordination.AckNone:
		return "none"
	case coordination.AckAll:
		return "of all up to a message, " + ackBounds(a)
	}
	return "of each message, " + ackBounds(a)
}

func ackBounds(a coordination.Ack) string {
	wait, pending, deliver := "30s", "1000 pending", "any number of attempts"
	if a.Wait > 0 {
		wait = durationText(a.Wait)
	}
	switch {
	case a.MaxPending > 0:
		pending = strconv.Itoa(a.MaxPending) + " pending"
	case a.MaxPending < 0:
		pending = "any number pending"
	}
	if a.MaxDeliver > 0 {
		deliver = strconv.Itoa(a.MaxDeliver) + " attempts"
	}
	return fmt.Sprintf("within %s, %s, at most %s", wait, deliver, pending)
}
