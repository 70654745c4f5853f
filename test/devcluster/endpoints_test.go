//go:build linux

package devcluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// pushStream is the stream whose records are pushed.
const pushStream = "pushed"

// receiver is an HTTP endpoint. Each subject's records are the numbers from 0.
type receiver struct {
	*httptest.Server
	mu      sync.Mutex
	next    map[string]int // the number behind the highest accepted one, by subject
	order   []string       // records that came before an earlier one of their subject
	took    int            // accepted requests
	refused int            // requests that were answered with 500
}

// startReceiver starts an endpoint. answer may answer a request; if it does not, the record is
// accepted.
func startReceiver(t *testing.T, answer func(http.ResponseWriter, *http.Request) (answered bool)) *receiver {
	r := &receiver{next: map[string]int{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		if err != nil || answer != nil && answer(w, request) {
			return
		}
		r.take(w, request.Header.Get("Ce-Subject"), string(body))
	}))
	t.Cleanup(func() {
		r.CloseClientConnections()
		r.Close()
	})
	return r
}

// take accepts a record, but for every twentieth request, which fails.
func (r *receiver) take(w http.ResponseWriter, subject, body string) {
	n, err := strconv.Atoi(body)
	r.mu.Lock()
	defer r.mu.Unlock()
	if (r.took+r.refused)%20 == 19 {
		r.refused++
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	r.took++
	if next := r.next[subject]; err != nil || n > next {
		r.order = append(r.order, fmt.Sprintf("%q of %s where %d is next", body, subject, next))
	} else {
		r.next[subject] = max(next, n+1)
	}
}

func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.took
}

// upTo returns the number behind the highest accepted record of a subject.
func (r *receiver) upTo(subject string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next[subject]
}

// judge waits until the endpoint has all records, and fails if one came before an earlier one of
// its subject.
func (r *receiver) judge(t *testing.T, name string, published map[string]int) {
	t.Helper()
	for subject, n := range published {
		testutil.Eventually(t, "the "+name+" endpoint has all of "+subject, func() error {
			if has := r.upTo(subject); has != n {
				return fmt.Errorf("it has %d of %d", has, n)
			}
			return nil
		})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.order) > 0 {
		t.Errorf("the %s endpoint got %d records out of order, first %s", name, len(r.order), r.order[0])
	}
	t.Logf("the %s endpoint accepted %d requests and refused %d", name, r.took, r.refused)
}

// publishNumbers publishes the next number of a subject until ctx ends, and returns how many were
// acknowledged. A number is published until it is, with an id, so it is there once.
func publishNumbers(ctx context.Context, js jetstream.JetStream, subject string) (n int) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for ; ctx.Err() == nil; <-tick.C {
		publishNumber(js, subject, n)
		n++
	}
	return n
}

func publishNumber(js jetstream.JetStream, subject string, n int) {
	for acked := false; !acked; {
		ctx, cancel := context.WithTimeout(context.Background(), patient)
		_, err := js.Publish(ctx, subject, []byte(strconv.Itoa(n)), jetstream.WithMsgID(fmt.Sprint(subject, "-", n)))
		cancel()
		acked = err == nil
	}
}

// TestPushesArriveWhileTheirLeadersDie: records are pushed to an endpoint while the leaders of
// their stream are killed again and again. Each acknowledged record arrives, at least once. Records
// of a subject arrive in order: a repetition may go back, and nothing is skipped. Endpoints beside
// it that abort each request, never answer, or answer without end don't delay it. When the first
// works again, it gets everything, too.
func TestPushesArriveWhileTheirLeadersDie(t *testing.T) {
	t.Parallel()
	const (
		subjects = 6
		// prompt bounds the time to the healthy endpoint without a kill. The timeout of the silent
		// endpoint, whose requests the healthy one must not wait for, is longer.
		prompt, silence = 10 * time.Second, time.Minute
	)
	c := startCluster(t, "--push-allow", "127.0.0.0/8")
	js := c.connect()
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: pushStream, Subjects: []string{pushStream + ".*"}, Replicas: 3})
	testutil.Must(t, err)
	c.whole(js, pushStream)

	var works atomic.Bool
	var silent, floods atomic.Int64
	healthy := startReceiver(t, nil)
	dead := startReceiver(t, func(http.ResponseWriter, *http.Request) bool {
		if !works.Load() {
			panic(http.ErrAbortHandler)
		}
		return false
	})
	mute := startReceiver(t, func(_ http.ResponseWriter, r *http.Request) bool {
		silent.Add(1)
		<-r.Context().Done()
		return true
	})
	junk := bytes.Repeat([]byte("no end of it "), 1<<12)
	flooding := startReceiver(t, func(w http.ResponseWriter, r *http.Request) bool {
		floods.Add(1)
		w.WriteHeader(http.StatusInternalServerError)
		for r.Context().Err() == nil {
			if _, err := w.Write(junk); err != nil {
				break
			}
		}
		return true
	})
	store, err := coordination.Open(coordination.Config{Endpoints: []string{c.endpoint()}, Cluster: "local/dev"})
	testutil.Must(t, err)
	defer func() { testutil.Must(t, store.Close()) }()
	for name, to := range map[string]*receiver{"healthy": healthy, "dead": dead, "mute": mute, "flooding": flooding} {
		_, err := store.CreateSubscription(ctx, pushStream, name, coordination.SubscriptionSpec{
			Start: coordination.Start{From: coordination.FromEarliest},
			Ack:   coordination.Ack{Backoff: []time.Duration{10 * time.Millisecond}},
			Push:  &coordination.Push{URL: to.URL, Timeout: silence},
		}, coordination.Owner{Kind: coordination.ClientOwner})
		testutil.Must(t, err)
	}

	published := map[string]int{}
	var mu sync.Mutex
	var running sync.WaitGroup
	publishing, stop := context.WithCancel(ctx)
	for i := range subjects {
		js, subject := c.connectTo(i%len(c.urls)), fmt.Sprint(pushStream, ".", i)
		running.Go(func() {
			n := publishNumbers(publishing, js, subject)
			mu.Lock()
			defer mu.Unlock()
			published[subject] = n
		})
	}
	c.killLeaders(js, pushStream, "the healthy endpoint gets more", 50, healthy.count)
	stop()
	running.Wait()
	healthy.judge(t, "healthy", published)

	// Nothing dies any more, and the others trouble their brokers.
	testutil.EventuallyTrue(t, "the others are asked", func() bool { return silent.Load() > 0 && floods.Load() > 0 })
	slowest := time.Duration(0)
	for i := range 60 {
		subject := fmt.Sprint(pushStream, ".", i%subjects)
		began := time.Now()
		publishNumber(js, subject, published[subject])
		published[subject]++
		testutil.EventuallyTrue(t, "the record arrives", func() bool { return healthy.upTo(subject) == published[subject] })
		slowest = max(slowest, time.Since(began))
	}
	t.Logf("the healthy endpoint had each of 60 records within %v; %d requests had no answer, %d had one without end",
		slowest.Round(time.Millisecond), silent.Load(), floods.Load())
	if slowest > prompt {
		t.Errorf("a record took %v to the healthy endpoint, want at most %v", slowest, prompt)
	}
	if dead.count() > 0 || mute.count() > 0 {
		t.Errorf("the dead endpoint accepted %d requests and the mute one %d", dead.count(), mute.count())
	}
	works.Store(true)
	dead.judge(t, "dead", published)
}
