package main

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// A client that waits for messages gets those from the new place on.
func TestASubscriptionIsResetFromTheCommandLine(t *testing.T) {
	t.Parallel()
	dev := startDev(t, "--data", t.TempDir())
	defer dev.stop()
	s := shell{t, dev.url}
	s.does("topic create work --shards 2")
	s.does("subs create work jobs --start earliest")
	for i := range 6 {
		s.does(fmt.Sprintf("pub work.%d --ack", i), fmt.Sprint(i))
	}
	s.fails(exitUsage, "--to is required", "subscription reset work jobs")
	s.fails(exitFailure, "subscription other", "subscription reset work other --to earliest")

	nc, err := nats.Connect(dev.url, nats.Timeout(testutil.Patience))
	testutil.Must(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(testutil.Patience))
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
		if slices.Sort(all); !slices.Equal(all, want) { // there is no order between shards
			t.Fatalf("received %q, want %q", all, want)
		}
	}
	receives("0", "1", "2", "3", "4", "5")
	s.prints("subscription jobs of topic work begins again with the oldest message\n", "subscription reset work jobs --to earliest")
	receives("0", "1", "2", "3", "4", "5")
	s.does("subs reset work jobs --to 1h")
	receives("0", "1", "2", "3", "4", "5")
	s.does("pub work.7 --ack", "7")
	receives("7")
}
