package main

import (
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// A client that waits for messages gets those from the new place on.
func TestASubscriptionIsResetFromTheCommandLine(t *testing.T) {
	dev := startDev(t, "--data", t.TempDir())
	defer dev.stop()
	s := shell{t, dev.url}
	s.does("topic create work")
	s.does("subs create work jobs --start earliest")
	s.does("pub work.1 --ack", "1")
	s.does("pub work.2 --ack", "2")
	s.fails(exitUsage, "--to is required", "subscription reset work jobs")
	s.fails(exitFailure, "subscription other", "subscription reset work other --to earliest")

	nc, err := nats.Connect(dev.url)
	testutil.Must(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	testutil.Must(t, err)
	jobs, err := js.Consumer(t.Context(), "work", "jobs")
	testutil.Must(t, err)
	got := make(chan string, 10)
	consuming, err := jobs.Consume(func(m jetstream.Msg) {
		_ = m.DoubleAck(t.Context())
		got <- string(m.Data())
	})
	testutil.Must(t, err)
	defer consuming.Stop()
	receives := func(want ...string) {
		t.Helper()
		var all []string
		for range want {
			select {
			case data := <-got:
				all = append(all, data)
			case <-time.After(testutil.Patience):
				t.Fatalf("received %q, want %q", all, want)
			}
		}
		if !slices.Equal(all, want) {
			t.Fatalf("received %q, want %q", all, want)
		}
	}
	receives("1", "2")
	s.prints("subscription jobs of topic work begins again with the oldest message\n", "subscription reset work jobs --to earliest")
	receives("1", "2")
	s.does("subs reset work jobs --to 2")
	receives("2")
	s.does("pub work.3 --ack", "3")
	receives("3")
}
