package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/subscription"
)

// declaration returns a consumer as a request of our API, for settings that JetStream's lacks.
func declaration(config jetstream.ConsumerConfig) admin.CreateSubscriptionRequest {
	request := admin.CreateSubscriptionRequest{
		Subjects: config.FilterSubjects, Description: config.Description,
		Ack:   coordination.Ack{Wait: config.AckWait, MaxDeliver: config.MaxDeliver, MaxPending: config.MaxAckPending, Backoff: config.BackOff},
		Start: from{config.DeliverPolicy, config.OptStartSeq, config.OptStartTime}.start(),
	}
	if config.FilterSubject != "" {
		request.Subjects = []string{config.FilterSubject}
	}
	return request
}

// declareSubscription creates a Subscription by our API.
func (b *brokers) declareSubscription(ctx context.Context, topic, name string, request admin.CreateSubscriptionRequest) (*subscriptionView, error) {
	var info admin.SubscriptionInfo
	err := b.ask(ctx, admin.SubscriptionCreateSubject+topic+"."+name, request, &info)
	if err == nil {
		err = asError(info.Error)
	}
	if err != nil {
		return nil, b.explain("create subscription "+name, err)
	}
	if request.Where != "" && info.Subscription != nil && info.Subscription.Spec.Where != request.Where {
		return nil, fmt.Errorf("create subscription %s: the broker that answered is of a version without conditions, and made it without one (delete it, and finish the update of the brokers)", name)
	}
	v := viewSubscription(info.Subscription, nil)
	return &v, nil
}

const (
	// replayAtOnce is how many dead letters are fetched and not acknowledged.
	replayAtOnce = 100
	// replayWait is how long a fetch waits for a dead letter that is known to be there.
	replayWait = 2 * time.Second
)

// replayed is the result of a replay.
type replayed struct {
	Replayed int    `json:"replayed"` // published to their subjects
	Skipped  int    `json:"skipped"`  // of other Subscriptions
	Left     uint64 `json:"left"`     // dead letters that were not looked at
}

func newSubscriptionReplayCommand() *cobra.Command {
	var (
		m    manageFlags
		most int
	)
	cmd := &cobra.Command{
		Use:   "replay TOPIC SUBSCRIPTION",
		Short: "Publish a Subscription's dead letters to their subjects again",
		Long: `Publish a Subscription's dead letters to the subjects that they had, once each. All
Subscriptions of the Topic receive them again. The dead letters stay in their Topic until its
retention deletes them. What a dead letter leaves out, since it was too large, is read from the
Topic of the message; if it is not there any more, the dead letter is skipped.

It ends with the dead letters that are there when it begins. It can be interrupted and repeated: the
Subscription replay-TOPIC-SUBSCRIPTION of the dead-letter Topic keeps the place. Delete that to
begin with the first dead letter again.`,
		Example: `  carillon subscription replay orders billing
  carillon subs replay orders billing --max 10`,
		Args:              takes(2, 2, "the names of a topic and a subscription"),
		ValidArgsFunction: m.completeNames(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if most < 0 {
				return usageError{errors.New("--max can't be negative; leave it out to replay all")}
			}
			b, err := m.connect(cmd)
			if err != nil {
				return err
			}
			defer b.close()
			v, err := b.showSubscription(cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			if v.Spec.DeadLetter == "" {
				return fmt.Errorf("replay subscription %s: it has no topic for dead letters", args[1])
			}
			done, err := b.replay(cmd.Context(), args[0], args[1], v.Spec.DeadLetter, most)
			if err != nil {
				return fmt.Errorf("replay subscription %s: %d were replayed: %w (repeat the command to go on)", args[1], done.Replayed, b.explain("topic "+v.Spec.DeadLetter, err))
			}
			if m.output == "json" {
				return printJSON(cmd.OutOrStdout(), done)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d dead letters of subscription %s were published again; %d are of other subscriptions or incomplete, and %d are left\n", done.Replayed, args[1], done.Skipped, done.Left)
			return nil
		},
	}
	m.flags(cmd, "text", "json")
	cmd.Flags().IntVar(&most, "max", 0, "replay at most so many (default all)")
	return cmd
}

// replay publishes dead letters again. Each is acknowledged after its Topic has stored it, and its
// message id is the same for each repetition.
func (b *brokers) replay(ctx context.Context, topic, name, dead string, most int) (done replayed, err error) {
	consumer, err := b.js.CreateOrUpdateConsumer(ctx, dead, jetstream.ConsumerConfig{
		Durable: "replay-" + topic + "-" + name, Description: "the place of carillon subscription replay " + topic + " " + name,
		AckPolicy: jetstream.AckExplicitPolicy, DeliverPolicy: jetstream.DeliverAllPolicy, MaxAckPending: replayAtOnce,
	})
	if err != nil {
		return done, err
	}
	info := consumer.CachedInfo()
	done.Left = info.NumPending + uint64(info.NumAckPending)
	for done.Left > 0 && (most == 0 || done.Replayed < most) {
		want := int(min(done.Left, replayAtOnce))
		if most > 0 {
			want = min(want, most-done.Replayed)
		}
		batch, err := consumer.Fetch(want, jetstream.FetchMaxWait(replayWait))
		if err != nil {
			return done, err
		}
		got := 0
		for letter := range batch.Messages() {
			got++
			again := original(letter, topic, name)
			if again != nil {
				if again, err = b.whole(ctx, letter, again); err != nil {
					return done, err
				}
			}
			if again == nil {
				done.Skipped++
			} else if _, err := b.js.PublishMsg(ctx, again); err != nil {
				return done, fmt.Errorf("publish on %s: %w", again.Subject, err)
			} else {
				done.Replayed++
			}
			if err := letter.DoubleAck(ctx); err != nil {
				return done, err
			}
			done.Left -= min(done.Left, 1)
		}
		if got == 0 {
			return done, batch.Error()
		}
	}
	return done, nil
}

// original returns the message that a dead letter was, or nil if it is of another Subscription.
func original(letter jetstream.Msg, topic, name string) *nats.Msg {
	headers := letter.Headers()
	from := headers.Get(subscription.DeadTopic)
	if headers.Get(subscription.DeadSubscription) != name || from != topic && !strings.HasPrefix(from, topic+"--") {
		return nil
	}
	at, err := letter.Metadata()
	if err != nil || headers.Get(subscription.DeadSubject) == "" {
		return nil
	}
	m := &nats.Msg{Subject: headers.Get(subscription.DeadSubject), Data: letter.Data(), Header: nats.Header{}}
	for key, values := range headers {
		if !strings.HasPrefix(key, subscription.DeadHeader) {
			m.Header[key] = values
		}
	}
	m.Header.Set(jetstream.MsgIDHeader, fmt.Sprintf("replay/%s/%d", at.Stream, at.Sequence.Stream))
	return m
}

// whole returns the message with what its dead letter left out, which is read from its Topic. It
// returns nil if that is not there any more.
func (b *brokers) whole(ctx context.Context, letter jetstream.Msg, m *nats.Msg) (*nats.Msg, error) {
	headers := letter.Headers()
	if headers.Get(subscription.DeadLeftOut) == "" {
		return m, nil
	}
	from, at := headers.Get(subscription.DeadTopic), headers.Get(subscription.DeadOffset)
	offset, err := strconv.ParseUint(at, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("a dead letter without a payload names no message of topic %s: %w", from, err)
	}
	stream, err := b.js.Stream(ctx, from)
	if err != nil {
		return nil, err
	}
	was, err := stream.GetMsg(ctx, offset)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read message %s of topic %s: %w", at, from, err)
	}
	again := &nats.Msg{Subject: m.Subject, Data: was.Data, Header: nats.Header{}}
	for key, values := range was.Header {
		if strings.HasPrefix(key, "Nats-") || strings.HasPrefix(key, "Carillon-") {
			key = subscription.OriginalHeader + key
		}
		again.Header[key] = values
	}
	again.Header.Set(jetstream.MsgIDHeader, m.Header.Get(jetstream.MsgIDHeader))
	return again, nil
}
