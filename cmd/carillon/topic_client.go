package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/carillon-mq/carillon/broker/admin"
)

// brokers is a connection to manage Topics and Subscriptions, by JetStream's API where it suffices,
// and otherwise by ours.
type brokers struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	timeout time.Duration
	notes   io.Writer
}

// errNoAdmin means that the server does not serve our API.
var errNoAdmin = errors.New("this server is no Carillon broker, or one that is not ready")

// connect connects. The caller closes the result.
func (m *manageFlags) connect(cmd *cobra.Command, more ...nats.Option) (*brokers, error) {
	if err := m.valid(); err != nil {
		return nil, err
	}
	nc, err := m.client.connect(cmd.Context(), cmd.CommandPath(),
		append(more, nats.Timeout(min(m.timeout, connectTimeout)))...)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(m.timeout))
	if err != nil {
		nc.Close()
		return nil, err
	}
	return &brokers{nc, js, m.timeout, cmd.ErrOrStderr()}, nil
}

// connectAsking connects like connect. ctx ends at the first request that the user may not make.
// The caller calls end.
func (m *manageFlags) connectAsking(cmd *cobra.Command) (ctx context.Context, b *brokers, end func(), err error) {
	ctx, stop := context.WithCancelCause(cmd.Context())
	if b, err = m.connect(cmd, endsWhenDenied(stop, cmd.ErrOrStderr())); err != nil {
		stop(nil)
		return nil, nil, nil, err
	}
	return ctx, b, func() { b.close(); stop(nil) }, nil
}

func (b *brokers) close() { b.nc.Close() }

// note prints a note, which is not part of the output.
func (b *brokers) note(format string, args ...any) { fmt.Fprintf(b.notes, format+"\n", args...) }

// ask sends one request. The caller checks the error in the answer.
func (b *brokers) ask(ctx context.Context, subject string, request, answer any) error {
	var payload []byte
	if request != nil {
		var err error
		if payload, err = json.Marshal(request); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	m, err := b.nc.RequestWithContext(ctx, subject, payload)
	denied, refused := errors.AsType[*deniedError](context.Cause(ctx))
	switch {
	case err != nil && refused:
		return fmt.Errorf("the user lacks a right that this takes: %w", denied)
	case errors.Is(err, nats.ErrNoResponders) && strings.HasPrefix(subject, admin.Prefix):
		return errNoAdmin
	case err != nil:
		return err
	}
	if err := json.Unmarshal(m.Data, answer); err != nil {
		return fmt.Errorf("the answer to %s is not one: %w", subject, err)
	}
	return nil
}

// asError returns a nil error for a nil pointer.
func asError(err *admin.Error) error {
	if err == nil {
		return nil
	}
	return err
}

// declaredTopics returns all Topics, by our API, sorted by name.
func (b *brokers) declaredTopics(ctx context.Context) (topics []admin.Topic, err error) {
	for after := ""; ; {
		var list admin.TopicList
		if err := b.ask(ctx, admin.TopicListSubject, admin.ListRequest{After: after}, &list); err != nil {
			return nil, err
		}
		if list.Error != nil {
			return nil, list.Error
		}
		for _, key := range list.Unreadable {
			if after == "" {
				b.note("the broker can't read %s, which a later version may have written", key)
			}
		}
		topics = append(topics, list.Topics...)
		if after = list.Next; after == "" {
			return topics, nil
		}
	}
}

func (b *brokers) declaredTopic(ctx context.Context, name string) (*admin.Topic, error) {
	var info admin.TopicInfo
	if err := b.ask(ctx, admin.TopicInfoSubject+name, nil, &info); err != nil {
		return nil, err
	}
	return info.Topic, asError(info.Error)
}

func (b *brokers) declaredSubscriptions(ctx context.Context, topic string) (subscriptions []admin.Subscription, err error) {
	for after := ""; ; {
		var list admin.SubscriptionList
		if err := b.ask(ctx, admin.SubscriptionListSubject+topic, admin.ListRequest{After: after}, &list); err != nil {
			return nil, err
		}
		if list.Error != nil {
			return nil, list.Error
		}
		subscriptions = append(subscriptions, list.Subscriptions...)
		if after = list.Next; after == "" {
			return subscriptions, nil
		}
	}
}

func (b *brokers) declaredSubscription(ctx context.Context, topic, name string) (*admin.Subscription, error) {
	var info admin.SubscriptionInfo
	if err := b.ask(ctx, admin.SubscriptionInfoSubject+topic+"."+name, nil, &info); err != nil {
		return nil, err
	}
	return info.Subscription, asError(info.Error)
}

// page is one page of a JetStream list.
type page struct {
	Error     *jetstream.APIError       `json:"error"`
	Total     int                       `json:"total"`
	Missing   []string                  `json:"missing"` // streams whose leader did not answer
	Streams   []*jetstream.StreamInfo   `json:"streams"`
	Consumers []*jetstream.ConsumerInfo `json:"consumers"`
}

// list requests all pages. The lists of nats.go expect none to be missing, and would request the
// same page again and again.
func (b *brokers) list(ctx context.Context, subject string, each func(*page)) error {
	for offset := 0; ; {
		var p page
		if err := b.ask(ctx, subject, map[string]int{"offset": offset}, &p); err != nil {
			return err
		}
		if p.Error != nil {
			return p.Error
		}
		each(&p)
		got := len(p.Streams) + len(p.Consumers) + len(p.Missing)
		if offset += got; got == 0 || offset >= p.Total {
			return nil
		}
	}
}

// streams returns all Topics as JetStream streams, by name.
func (b *brokers) streams(ctx context.Context) (map[string]*jetstream.StreamInfo, error) {
	streams := map[string]*jetstream.StreamInfo{}
	err := b.list(ctx, "$JS.API.STREAM.LIST", func(p *page) {
		for _, info := range p.Streams {
			streams[info.Config.Name] = info
		}
	})
	return streams, err
}

func (b *brokers) stream(ctx context.Context, topic string) (jetstream.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	return b.js.Stream(ctx, topic)
}

// consumers returns all Subscriptions of a Topic as JetStream consumers, by name, including those
// in memory only.
func (b *brokers) consumers(ctx context.Context, topic string) (map[string]*jetstream.ConsumerInfo, error) {
	consumers := map[string]*jetstream.ConsumerInfo{}
	err := b.list(ctx, "$JS.API.CONSUMER.LIST."+topic, func(p *page) {
		for _, info := range p.Consumers {
			consumers[info.Name] = info
		}
	})
	return consumers, err
}

func (b *brokers) topicNames(ctx context.Context) (names []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	list := b.js.StreamNames(ctx)
	for name := range list.Name() {
		names = append(names, name)
	}
	return names, list.Err()
}

func (b *brokers) subscriptionNames(ctx context.Context, topic string) (names []string, err error) {
	stream, err := b.stream(ctx, topic)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	list := stream.ConsumerNames(ctx)
	for name := range list.Name() {
		names = append(names, name)
	}
	return names, list.Err()
}

// explain returns an error with a readable reason. It keeps the broker's text if there is one.
func (b *brokers) explain(what string, err error) error {
	var api *jetstream.APIError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: interrupted", what)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return fmt.Errorf("%s: no answer within %s (is the broker well? --timeout waits longer)", what, b.timeout)
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return fmt.Errorf("%s: this server keeps no messages, or is not ready to (is --server a Carillon broker?)", what)
	case errors.As(err, &api):
		return fmt.Errorf("%s: %s", what, words(err))
	}
	return fmt.Errorf("%s: %w", what, err)
}

// words returns the broker's text of an error.
func words(err error) string {
	var api *jetstream.APIError
	if errors.As(err, &api) && api.Description != "" {
		return api.Description
	}
	return err.Error()
}

// found is explain for a Topic that may not exist.
func (b *brokers) found(topic string, err error) error {
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("there is no topic %q (see: carillon topic list)", topic)
	}
	return b.explain("topic "+topic, err)
}

// foundIn is the same for a Subscription.
func (b *brokers) foundIn(topic, name string, err error) error {
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return fmt.Errorf("topic %s has no subscription %q (see: carillon subscription list %s)", topic, name, topic)
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return b.found(topic, err)
	}
	return b.explain("subscription "+name+" of topic "+topic, err)
}
