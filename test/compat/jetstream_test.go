package compat

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/internal/testutil"
	"github.com/carillon-mq/carillon/test/peer"
)

// site is a server for stories of JetStream. Its clients connect to its brokers in turn, so with
// several brokers most requests are about a stream that another broker leads.
type site struct {
	urls []string
	next atomic.Int64
	peer bool // nats-server, the reference
}

// story runs at every site. The streams that it creates have names and subjects of their own.
type story struct {
	name string
	tell func(t *testing.T, s *site)
}

// unlike has the stories that nats-server can't tell, by name, with what it does instead. They run
// at Carillon's brokers only.
var unlike = map[string]string{
	"a batch that goes on at another server is incomplete":              "stages batches where the stream is led",
	"a fast batch that goes on at another server is unknown":            "keeps fast batches where the stream is led",
	"another stream stores a batch and a copy that are published again": "keeps headers for which its other streams refuse the messages",
	"streams that publish to each other come to an end":                 "goes on for ever",
}

// TestJetStream tests the broker with nats.go's jetstream package. With
// CARILLON_NATS_SERVER=/path/to/nats-server the same stories run at nats-server, too, which
// verifies them.
func TestJetStream(t *testing.T) {
	stories := slices.Concat(apiStories, advisoryStories, streamStories, messageStories, removalStories, expiryStories, batchStories, fastStories, counterStories, republishStories, scheduleStories, retentionStories, sourceStories, mirrorStories, keyValueStories, consumerStories, controlStories, pullStories, priorityStories, pushStories, traceStories, directStories)
	sites := []struct {
		name  string
		start func(*testing.T) *site
	}{
		{"one broker", func(t *testing.T) *site { return &site{urls: []string{startStandalone(t).url()}} }},
		{"three brokers", func(t *testing.T) *site { return brokerSite(t, 3) }},
	}
	if path := os.Getenv("CARILLON_NATS_SERVER"); path != "" {
		sites = append(sites, struct {
			name  string
			start func(*testing.T) *site
		}{"nats-server", func(t *testing.T) *site { return natsSite(t, path) }})
	}
	for _, at := range sites {
		t.Run(at.name, func(t *testing.T) {
			s := at.start(t)
			for _, story := range stories {
				if s.peer && unlike[story.name] != "" {
					continue
				}
				t.Run(story.name, func(t *testing.T) { story.tell(t, s) })
			}
		})
	}
}

func brokerSite(t *testing.T, brokers int) *site {
	s := &site{}
	for _, m := range startBrokers(t, brokers) {
		s.urls = append(s.urls, m.url())
	}
	return s
}

// natsSite runs the nats-server at path until the test ends.
func natsSite(t *testing.T, path string) *site {
	t.Helper()
	return &site{urls: []string{peer.Start(t, path, "-js", "-sd", t.TempDir()).URL()}, peer: true}
}

// client returns the connection of a new application.
func (s *site) client(t *testing.T) jetstream.JetStream {
	t.Helper()
	url := s.urls[int(s.next.Add(1))%len(s.urls)]
	nc, err := nats.Connect(url, nats.Timeout(patience), nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
		t.Errorf("client error (subscription %v): %v", sub, err)
	}))
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	testutil.Must(t, err)
	return js
}

// name returns a name that is unique at the site.
func (s *site) name(of string) string { return fmt.Sprintf("%s-%d", of, s.next.Add(1)) }

// within returns a context that ends later than any passing story.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// stream creates a stream with subjects NAME.> through one client; the story goes on with others.
func (s *site) stream(t *testing.T, change func(*jetstream.StreamConfig)) string {
	t.Helper()
	config := jetstream.StreamConfig{Name: s.name("s")}
	config.Subjects = []string{config.Name + ".>"}
	if change != nil {
		change(&config)
	}
	js := s.client(t)
	testutil.Eventually(t, "stream "+config.Name+" is made", func() error {
		_, err := js.CreateStream(within(t), config)
		if err != nil && number(err) != 10194 { // brokers that are late with its leader say to try again
			t.Fatalf("create stream %s: %v", config.Name, err)
		}
		return err
	})
	return config.Name
}

// fill publishes messages "1" to "n", in this order.
func fill(t *testing.T, js jetstream.JetStream, subject string, n int) {
	t.Helper()
	for i := range n {
		if _, err := js.Publish(within(t), subject, fmt.Appendf(nil, "%d", i+1)); err != nil {
			t.Fatalf("publish %d on %s: %v", i+1, subject, err)
		}
	}
}

// equal fails if two values differ.
func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// texts returns the payloads.
func texts(messages []jetstream.Msg) (all []string) {
	for _, m := range messages {
		all = append(all, string(m.Data()))
	}
	return all
}

// count returns "from" to "to".
func count(from, to int) (all []string) {
	for i := from; i <= to; i++ {
		all = append(all, fmt.Sprint(i))
	}
	return all
}

func equalTexts(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s: %q, want %q", what, got, want)
	}
}

// take receives all messages of one pull.
func take(t *testing.T, batch jetstream.MessageBatch, err error) []jetstream.Msg {
	t.Helper()
	if err != nil {
		t.Fatalf("fetch: %v", err)
	}
	var all []jetstream.Msg
	for m := range batch.Messages() {
		all = append(all, m)
	}
	if err := batch.Error(); err != nil {
		t.Fatalf("fetch: %v", err)
	}
	return all
}

// soon bounds a pull that is not expected to get all requested messages. The expected ones arrive
// within it, even on a busy machine.
const soon = time.Second
