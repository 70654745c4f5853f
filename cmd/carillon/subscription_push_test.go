package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestPushesFromTheCommandLine: with --push-allow, a developer declares a Subscription that pushes
// to this machine, and the endpoint gets what is published. Without it brokers refuse the
// Subscription.
func TestPushesFromTheCommandLine(t *testing.T) {
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
