package push

import (
	"bufio"
	"context"
	"fmt"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/subscription"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// quiet is the log of servers whose clients refuse them.
var quiet = stdlog.New(io.Discard, "", 0)

func TestMain(m *testing.M) { testutil.RunWithoutLeaks(m) }

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

func newService(t *testing.T, allowed ...netip.Prefix) *Service {
	s := New(Config{Cluster: "shop/main", Allowed: allowed})
	t.Cleanup(s.Close)
	return s
}

// source is a Subscription whose records a test hands over.
type source struct {
	t        *testing.T
	endpoint *endpoint

	mu       sync.Mutex
	next     uint64
	attempts map[uint64]uint64
	gone     map[uint64]bool
	acked    []uint64
	givenUp  map[uint64]string
	woken    int
	spared   int
	why      string
}

func subscribe(t *testing.T, s *Service, spec coordination.SubscriptionSpec) *source {
	o := &source{t: t, next: 1, attempts: map[uint64]uint64{}, gone: map[uint64]bool{}, givenUp: map[uint64]string{}}
	o.endpoint = s.endpoint(o, origin{cluster: "shop/main", topic: "orders", key: "T1"}, "billing")
	o.endpoint.Respecify(&spec)
	t.Cleanup(o.endpoint.Close)
	return o
}

func to(url string) coordination.SubscriptionSpec {
	return coordination.SubscriptionSpec{
		Push: &coordination.Push{URL: url, Timeout: testutil.Patience},
		Ack:  coordination.Ack{Backoff: []time.Duration{time.Millisecond}},
	}
}

func (o *source) Attempt(offset uint64) (uint64, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.gone[offset] {
		return 0, false
	}
	o.attempts[offset]++
	return o.attempts[offset], true
}

func (o *source) Wanted(offset uint64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.gone[offset]
}

func (o *source) Spare(offset uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.attempts[offset]--
	o.spared++
}

func (o *source) Ack(offset, _, _ uint64, kind subscription.AckKind, _ time.Duration, _ func(error)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if kind == subscription.Done {
		o.acked = append(o.acked, offset)
	} else {
		o.givenUp[offset] = o.why
	}
}

func (o *source) ExplainAck(_ uint64, text []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.why = string(text)
}

func (o *source) Wake() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.woken++
}

// give hands records over, when the endpoint is open.
func (o *source) give(subjects ...string) {
	o.t.Helper()
	for _, subject := range subjects {
		testutil.EventuallyTrue(o.t, "the endpoint is open", o.endpoint.Open)
		o.mu.Lock()
		offset := o.next
		o.next++
		o.mu.Unlock()
		o.endpoint.Take(&subscription.Delivery{Offset: offset, Delivered: 1}, &log.Record{Subject: []byte(subject), Data: []byte(fmt.Sprint(offset))})
	}
}

func (o *source) await(what string, is func() bool) {
	o.t.Helper()
	testutil.EventuallyTrue(o.t, what, func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return is()
	})
}

func (o *source) awaitAcks(n int) {
	o.t.Helper()
	o.await(fmt.Sprintf("%d records are acknowledged", n), func() bool { return len(o.acked) == n })
}

func serve(t *testing.T, handle http.HandlerFunc) *httptest.Server {
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	return server
}

func TestAnAnswerOf2xxAcknowledges(t *testing.T) {
	var got sync.Map
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got.Store(string(body), r.Header.Get("Ce-Subject")+" "+r.Header.Get("X-Tenant")+" "+r.Method)
		w.WriteHeader(http.StatusNoContent)
	})
	spec := to(server.URL)
	spec.Push.Headers = []coordination.PushHeader{{Name: "X-Tenant", Value: "9"}}
	o := subscribe(t, newService(t, loopback...), spec)
	o.give("a", "b", "c")
	o.awaitAcks(3)
	if text, _ := got.Load("2"); text != "b 9 POST" {
		t.Errorf("the endpoint got %v", text)
	}
}

func TestAReasonedRefusalCountsAndIsKept(t *testing.T) {
	var paths sync.Map
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		paths.Store(r.URL.Path, true)
		switch r.URL.Path {
		case "/redirect":
			http.Redirect(w, r, "/elsewhere", http.StatusPermanentRedirect)
		default:
			http.Error(w, "no such tenant", http.StatusUnprocessableEntity)
		}
	})
	s := newService(t, loopback...)
	for path, want := range map[string]string{"/": "422 Unprocessable Entity: no such tenant", "/redirect": "308 Permanent Redirect, a redirect, which is never followed"} {
		spec := to(server.URL + path)
		spec.Ack.MaxDeliver = 3
		o := subscribe(t, s, spec)
		o.give("a")
		o.await("it is given up", func() bool { return o.givenUp[1] == want && o.attempts[1] == 3 })
	}
	if _, followed := paths.Load("/elsewhere"); followed {
		t.Error("a redirect was followed")
	}
}

func TestAnEndpointThatIsDownIsProbed(t *testing.T) {
	address := testutil.FreeAddress(t)
	spec := to("http://" + address)
	spec.Push.Concurrency, spec.Ack.MaxDeliver = 1, circuitFailures+1
	o := subscribe(t, newService(t, loopback...), spec)
	o.give("a", "a")
	testutil.EventuallyTrue(t, "the endpoint is not reached", func() bool { return o.endpoint.Info().Reason == reasonUnreachable })
	if why := o.endpoint.Info().Trouble; !strings.Contains(why, "connection refused") {
		t.Errorf("people read %q", why)
	}
	listener, err := net.Listen("tcp", address)
	testutil.Must(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	o.awaitAcks(2)
	if o.endpoint.Info().Reason != "" || o.attempts[1] != circuitFailures {
		t.Errorf("it is %+v after %d counted attempts", o.endpoint.Info(), o.attempts[1])
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	var requests atomic.Int64
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) == 1 {
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	spec := to(server.URL)
	spec.Ack.MaxDeliver = 1
	o := subscribe(t, newService(t, loopback...), spec)
	began := time.Now()
	o.give("a")
	testutil.EventuallyTrue(t, "it was asked to wait", func() bool { return o.endpoint.Info().Reason == reasonWaiting })
	o.awaitAcks(1)
	if o.spared != 1 {
		t.Errorf("the attempt that was no attempt was taken back %d times", o.spared)
	}
	if took := time.Since(began); took < 3*time.Second || o.attempts[1] != 0 { // the probe is uncounted
		t.Errorf("sent again after %s, as attempt %d", took, o.attempts[1])
	}
}

func TestOrderOfASubjectOverTheWire(t *testing.T) {
	var mu sync.Mutex
	seen := map[string][]string{}
	failed := map[string]bool{}
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		if n := string(body); !failed[n] && n[len(n)-1] == '3' { // once
			failed[n] = true
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		subject := r.Header.Get("Ce-Subject")
		seen[subject] = append(seen[subject], string(body))
	})
	o := subscribe(t, newService(t, loopback...), to(server.URL))
	for range 100 {
		o.give("a", "b", "c")
	}
	o.awaitAcks(300)
	for n, subject := range []string{"a", "b", "c"} {
		for i, got := range seen[subject] {
			if want := fmt.Sprint(3*i + n + 1); got != want {
				t.Fatalf("message %d of %s is %s, want %s", i, subject, got, want)
			}
		}
	}
}

// hang is an endpoint that takes connections and does what lie says with each request.
func hang(t *testing.T, lie func(net.Conn)) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testutil.Must(t, err)
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	all.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				stop := context.AfterFunc(ctx, func() { c.Close() })
				defer stop()
				_, _ = bufio.NewReader(c).ReadString('\n')
				lie(c)
			})
		}
	})
	t.Cleanup(func() { cancel(); listener.Close(); all.Wait() })
	return "http://" + listener.Addr().String()
}

// bad are endpoints that do harm.
var bad = map[string]func(net.Conn){
	"silent": func(c net.Conn) { _, _ = io.Copy(io.Discard, c) },
	"flooding": func(c net.Conn) {
		_, err := io.WriteString(c, "HTTP/1.1 500 no\r\n\r\n")
		for err == nil {
			_, err = c.Write(make([]byte, 64<<10))
		}
	},
	"endless header": func(c net.Conn) {
		_, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n")
		for err == nil {
			_, err = io.WriteString(c, "A: "+strings.Repeat("b", 1000)+"\r\n")
		}
	},
	"wrong length": func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 500 no\r\nContent-Length: 1000000\r\n\r\nx") },
	"no HTTP":      func(c net.Conn) { _, _ = io.WriteString(c, "SSH-2.0\r\n") },
	"interim":      func(c net.Conn) { repeat(c, "HTTP/1.1 102 Processing\r\n\r\n") },
	"another": func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
		_, _ = io.Copy(io.Discard, c) // and says nothing any more
	},
	"short and gone": func(c net.Conn) { _, _ = io.WriteString(c, "HTT") },
}

func repeat(c net.Conn, text string) {
	for {
		if _, err := io.WriteString(c, text); err != nil {
			return
		}
	}
}

func TestABadEndpointHurtsOnlyItsOwnSubscription(t *testing.T) {
	s := newService(t, loopback...)
	var victims []*source
	for what, lie := range bad {
		spec := to(hang(t, lie))
		spec.Push.Timeout, spec.Push.Concurrency = 100*time.Millisecond, coordination.MaxPushConcurrency
		o := subscribe(t, s, spec)
		for range 20 {
			if o.endpoint.Open() {
				o.give(what, what+"2", what+"3")
			}
		}
		victims = append(victims, o)
	}
	server := serve(t, func(http.ResponseWriter, *http.Request) {})
	good := subscribe(t, s, to(server.URL))
	for range 100 {
		good.give("a", "b", "c")
	}
	good.awaitAcks(300)
	for _, o := range victims {
		testutil.EventuallyTrue(t, "each bad endpoint is reported", func() bool { return o.endpoint.Info().Reason != "" })
		o.mu.Lock()
		if len(o.acked) > 0 {
			t.Errorf("a record was acknowledged: %v", o.acked)
		}
		o.mu.Unlock()
	}
}

func TestASlowBodyOfAGoodAnswerStillAcknowledges(t *testing.T) {
	o := subscribe(t, newService(t, loopback...), to(hang(t, func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
		_, _ = io.Copy(io.Discard, c)
	})))
	o.give("a")
	o.awaitAcks(1)
}

func TestLoopbackIsRefusedUnlessAllowed(t *testing.T) {
	var requests atomic.Int64
	server := serve(t, func(http.ResponseWriter, *http.Request) { requests.Add(1) })
	s := newService(t)
	for _, url := range []string{server.URL, strings.Replace(server.URL, "127.0.0.1", "localhost", 1)} {
		o := subscribe(t, s, to(url))
		o.give("a")
		testutil.EventuallyTrue(t, "the endpoint is refused", func() bool { return strings.Contains(o.endpoint.Info().Trouble, "is a loopback address") })
	}
	if requests.Load() > 0 {
		t.Error("a request got there")
	}
}

func TestIdleEndpointsHaveNoGoroutine(t *testing.T) {
	server := serve(t, func(http.ResponseWriter, *http.Request) {})
	s := newService(t, loopback...)
	before := runtime.NumGoroutine()
	for range 10_000 {
		subscribe(t, s, to(server.URL))
	}
	// Those of the runtime may come and go.
	testutil.Eventually(t, "10,000 idle endpoints", func() error {
		if n := runtime.NumGoroutine() - before; n > 0 {
			return fmt.Errorf("they have %d goroutines", n)
		}
		return nil
	})
}

func TestRequestsOfABrokerAreBoundedAndShared(t *testing.T) {
	release := make(chan struct{})
	var underWay, most atomic.Int64
	server := serve(t, func(http.ResponseWriter, *http.Request) {
		for n := underWay.Add(1); ; {
			if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
				break
			}
		}
		<-release
		underWay.Add(-1)
	})
	s := newService(t, loopback...)
	greedy := make([]*source, 16)
	for n := range greedy {
		spec := to(server.URL)
		spec.Push.Concurrency = coordination.MaxPushConcurrency
		greedy[n] = subscribe(t, s, spec)
		for i := range coordination.MaxPushConcurrency {
			greedy[n].give(fmt.Sprint(i))
		}
	}
	late := subscribe(t, s, to(server.URL))
	late.give("a")
	testutil.EventuallyTrue(t, "the late one has a request", func() bool {
		late.mu.Lock()
		defer late.mu.Unlock()
		return late.attempts[1] == 1
	})
	close(release)
	for _, o := range greedy {
		o.awaitAcks(coordination.MaxPushConcurrency)
	}
	late.awaitAcks(1)
	if n := most.Load(); n > allRequests {
		t.Errorf("%d requests were under way", n)
	}
}

func TestRecordsThatAreNotWantedAnyMoreAreNotSent(t *testing.T) {
	var got sync.Map
	hold := make(chan struct{})
	server := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got.Store(string(body), true)
		<-hold
	})
	spec := to(server.URL)
	o := subscribe(t, newService(t, loopback...), spec)
	o.gone[2] = true
	o.give("a", "a", "a")
	close(hold)
	o.awaitAcks(2)
	if _, sent := got.Load("2"); sent {
		t.Error("a removed record was sent")
	}
}

func TestAForgottenRequestHasNoEffect(t *testing.T) {
	arrived, hold := make(chan struct{}, 1), make(chan struct{})
	server := serve(t, func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-hold
	})
	o := subscribe(t, newService(t, loopback...), to(server.URL))
	o.give("a")
	<-arrived
	o.endpoint.Forget()
	o.give("a")
	close(hold)
	<-arrived
	o.awaitAcks(1)
	if !slices.Equal(o.acked, []uint64{2}) {
		t.Errorf("acknowledged %v", o.acked)
	}
}

// TestWhatIsNotWantedIsNotSentAgain: an attempt that was counted, and then waits for the endpoint.
func TestWhatIsNotWantedIsNotSentAgain(t *testing.T) {
	var requests atomic.Int64
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) == 1 {
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	o := subscribe(t, newService(t, loopback...), to(server.URL))
	o.give("a")
	testutil.EventuallyTrue(t, "it was asked to wait", func() bool { return o.endpoint.Info().Reason == reasonWaiting })
	o.mu.Lock()
	o.gone[1] = true
	o.mu.Unlock()
	testutil.EventuallyTrue(t, "it is dropped", func() bool { return o.endpoint.Info().Held == 0 })
	if n := requests.Load(); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// TestCloseEndsRequests: the next leader sends them again, so this one does not wait.
func TestCloseEndsRequests(t *testing.T) {
	for what, end := range map[string]func(*endpoint){"close": (*endpoint).Close, "forget": (*endpoint).Forget} {
		arrived, ended := make(chan struct{}), make(chan struct{})
		server := serve(t, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			close(arrived)
			<-r.Context().Done()
			close(ended)
		})
		o := subscribe(t, newService(t, loopback...), to(server.URL))
		o.give("a")
		<-arrived
		end(o.endpoint)
		select {
		case <-ended:
		case <-time.After(testutil.Patience / 2):
			t.Fatalf("%s leaves the request", what)
		}
	}
}

// fill has endpoints that fail take all bytes of a broker.
func fill(t *testing.T, s *Service) (all []*source) {
	for {
		o := subscribe(t, s, to("http://127.0.0.1:1"))
		o.endpoint.Pause(true)
		o.endpoint.mu.Lock()
		o.endpoint.hand.paused = false // it takes, and sends nothing
		o.endpoint.hand.concurrency = 0
		o.endpoint.mu.Unlock()
		for o.endpoint.Open() {
			o.endpoint.Take(&subscription.Delivery{Offset: o.next}, &log.Record{Subject: []byte("a"), Data: make([]byte, 256<<10)})
			o.next++
		}
		all = append(all, o)
		if s.Stats().Bytes >= allBytes {
			return all
		}
	}
}

func TestDeadEndpointsLeaveRoom(t *testing.T) {
	server := serve(t, func(http.ResponseWriter, *http.Request) {})
	s := newService(t, loopback...)
	dead := fill(t, s)
	o := subscribe(t, s, to(server.URL))
	for range 20 {
		o.give("a") // one after another
	}
	o.awaitAcks(20)
	// When one of them ends, the endpoints that wait for its place are woken.
	greedy := subscribe(t, s, to("http://127.0.0.1:1"))
	greedy.endpoint.Pause(true)
	greedy.endpoint.mu.Lock()
	greedy.endpoint.hand.paused, greedy.endpoint.hand.concurrency = false, 0
	greedy.endpoint.mu.Unlock()
	greedy.give("a")
	if greedy.endpoint.Open() {
		t.Fatal("it takes more than one record")
	}
	for _, d := range dead[:3] {
		d.endpoint.Forget()
	}
	greedy.await("it is woken", func() bool { return greedy.woken > 0 })
}

func TestSlowEndpointsLeaveRequests(t *testing.T) {
	s := newService(t)
	for range allRequests {
		for sending := range defaultConcurrency {
			if _, ok := s.enter(sending); !ok {
				break
			}
		}
		if s.Stats().Requests >= allRequests-spareRequests {
			break
		}
	}
	for n := range spareRequests - 1 {
		if _, ok := s.enter(0); !ok {
			t.Fatalf("endpoint %d has no request", n)
		}
	}
	for s.Stats().Requests > 0 {
		s.leave()
	}
}

func TestADrainWaitsForAnswers(t *testing.T) {
	arrived, hold := make(chan struct{}, 1), make(chan struct{})
	server := serve(t, func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-hold
	})
	s := newService(t, loopback...)
	spec := to(server.URL)
	spec.Push.Concurrency = 1
	o := subscribe(t, s, spec)
	o.give("a", "a")
	<-arrived
	drained := make(chan struct{})
	go func() {
		s.Drain(t.Context())
		close(drained)
	}()
	testutil.EventuallyTrue(t, "it takes no more", func() bool { return !o.endpoint.Open() })
	select {
	case <-drained:
		t.Error("it did not wait")
	default:
	}
	close(hold)
	<-drained
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.Equal(o.acked, []uint64{1}) {
		t.Errorf("acknowledged %v", o.acked)
	}
}

func TestBodiesCountWhileTheyAreSent(t *testing.T) {
	arrived, hold := make(chan struct{}), make(chan struct{})
	server := serve(t, func(http.ResponseWriter, *http.Request) {
		close(arrived)
		<-hold
	})
	spec := to(server.URL)
	spec.Push.Format = coordination.CloudEventsStructured
	s := newService(t, loopback...)
	o := subscribe(t, s, spec)
	data := make([]byte, 3000) // 4,000 in base64
	o.endpoint.Take(&subscription.Delivery{Offset: 1, Delivered: 1}, &log.Record{Subject: []byte("a"), Data: data})
	<-arrived
	if n := s.Stats().Bytes; n < 7000 {
		t.Errorf("a record of %d bytes under way counts %d", len(data), n)
	}
	close(hold)
	o.awaitAcks(1)
	testutil.EventuallyTrue(t, "nothing counts any more", func() bool { return s.Stats().Bytes == 0 })
}
