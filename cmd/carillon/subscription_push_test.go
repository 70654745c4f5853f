package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/broker/subscription"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestPushesFromTheCommandLine: with --push-allow, a developer declares a Subscription that pushes
// to this machine, and the endpoint gets what is published. Without it brokers refuse the
// Subscription.
func TestPushesFromTheCommandLine(t *testing.T) {
	t.Parallel()
	got := make(chan string, 16)
	endpoint := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- r.Header.Get("Carillon-Subject") + r.Header.Get("Ce-Subject") + " " + string(body)
	}))
	defer endpoint.Close()

	guarded := startDev(t, "--data", t.TempDir())
	s := shell{t, guarded.url}
	s.does("topic create orders")
	s.fails(exitFailure, "take from manifests only", "subs create orders hook --push "+endpoint.URL)
	s.fails(exitUsage, "--push-format needs --push", "subs create orders hook --push-format Raw")
	guarded.stop()

	for _, brokers := range []string{"1", "2"} {
		dev := startDev(t, "--data", t.TempDir(), "--brokers", brokers, "--push-allow", "127.0.0.0/8")
		first, _, _ := strings.Cut(dev.url, ",")
		s := shell{t, first}
		s.does("topic create orders --replicas 1 --min-in-sync 1")
		s.fails(exitFailure, "ftp://a", "subs create orders hook --push ftp://a")
		for range 2 {
			s.prints("subscription hook of topic orders begins with messages after it was made; it pushes to "+endpoint.URL+"\n",
				"subs create orders hook --push-format Raw --push "+endpoint.URL)
		}
		s.does("pub orders.eu --ack", "bell")
		select {
		case is := <-got:
			if is != "orders.eu bell" {
				t.Errorf("with %s brokers the endpoint got %q", brokers, is)
			}
		case <-time.After(testutil.Patience):
			t.Fatalf("with %s brokers the endpoint got nothing: %s", brokers, dev.warned())
		}
		dev.end()
	}
	if _, errs, code := command(t, "", "dev", "--data", t.TempDir(), "--push-allow", "localhost"); code != exitUsage || !strings.Contains(errs, `--push-allow "localhost" is not a network`) {
		t.Errorf("a name in the place of a network: %d, %s", code, errs)
	}
}

// TestShowTellsWhatStandsOut: show prints the conditions that the status of a manifest would have,
// and the state of the endpoint: its circuit and its last answer.
func TestShowTellsWhatStandsOut(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if broken.Load() {
			http.Error(w, "out of tea", http.StatusServiceUnavailable)
		}
	}))
	defer endpoint.Close()
	dev := startDev(t, "--data", t.TempDir(), "--push-allow", "127.0.0.0/8")
	defer dev.end()
	s := shell{t, dev.url}
	s.does("topic create orders --shards 2")
	s.does("subs create orders hook --push " + endpoint.URL)
	shows := func(what string, words ...string) {
		t.Helper()
		testutil.Eventually(t, what, func() error {
			got := s.does("subscription show orders hook")
			for _, w := range words {
				if !regexp.MustCompile(w).MatchString(got) {
					return fmt.Errorf("%s is not in\n%s", w, got)
				}
			}
			return nil
		})
	}
	shows("a quiet endpoint is shown", `Endpoint, shard 0 +nothing was sent yet`, `Endpoint, shard 1 +nothing`, `(?m)^Ready +True +Served +it is served$`)
	s.does("pub orders.eu --ack", "bell")
	shows("an answer is shown", `Endpoint, shard \d +circuit closed; last answer \S+ ago: 200 OK`)
	if got := s.does("subscription show orders hook"); strings.Contains(got, "EndpointUnreached") {
		t.Errorf("a working endpoint is shown as\n%s", got)
	}
	broken.Store(true)
	s.does("pub orders.eu --ack", "bell")
	shows("a broken endpoint is shown",
		`Endpoint, shard \d +circuit open, next try (now|in \S+); last answer \S+ ago: 503 Service Unavailable: out of tea; \d requests under way, 1 records at hand`,
		`(?m)^EndpointUnreached +True +Unreachable +the endpoint does not take anything.*503 Service Unavailable: out of tea$`)
	shown := read[subscriptionView](s, "subscription show orders hook")
	if len(shown.Push) != 2 || len(shown.Conditions) != 2 || shown.Conditions[1].Type != "EndpointUnreached" {
		t.Errorf("as JSON it is %+v", shown)
	}
	broken.Store(false)
	shows("it works again", `last answer \S+ ago: 200 OK`)

	// Conditions of other Subscriptions.
	s.does("topic create dead --subjects other.>")
	s.does("subs create orders jobs --start earliest --max-deliver 1 --ack-wait 100ms --dead-letter dead")
	js, err := jetstream.New(connect(t, dev.url), jetstream.WithDefaultTimeout(testutil.Patience))
	testutil.Must(t, err)
	jobs, err := js.Consumer(t.Context(), "orders", "jobs")
	testutil.Must(t, err)
	_, err = jobs.Fetch(1) // nobody acknowledges it
	testutil.Must(t, err)
	testutil.Eventually(t, "dead letters that no topic takes are shown", func() error {
		got := s.does("subscription show orders jobs")
		if !regexp.MustCompile(`(?m)^DeadLettersRefused +True +NotStored +\d records that were given up wait`).MatchString(got) || !strings.Contains(got, "0, and ") {
			return errors.New(got)
		}
		return nil
	})
	if text := (&pushView{Reason: "SecretMissing", PushReport: subscription.PushReport{}}).text(time.Now()); text != "circuit closed, not reached" {
		t.Errorf("an endpoint whose Secret is missing is %q", text)
	}
	view := subscriptionView{statusView: statusView{Served: new(bool), Reason: admin.Placing, Why: "it is placed"}}
	view.Spec.Consumer.PauseUntil = time.Now().Add(time.Hour)
	if c := conditionsOf(&view, ""); len(c) != 2 || c[0].Status != "False" || c[0].Reason != "Placing" || c[1].Type != "Paused" {
		t.Errorf("a paused one of a topic without a leader has %+v", c)
	}
	if *view.Served = true; conditionsOf(&view, "the disk fails")[0].Message != "the disk fails" {
		t.Error("trouble with reading is not shown")
	}
}
