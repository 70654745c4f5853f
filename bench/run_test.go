package bench

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/internal/testutil"
)

func TestMain(m *testing.M) { testutil.RunWithoutLeaks(m) }

var (
	// testLimits are for runs in which everything comes: they are waited for only when a test
	// fails.
	testLimits = Limits{Connect: testutil.Patience, Drain: 30 * time.Second}
	// lossLimits are for runs that wait in vain for something that the server keeps from them.
	// Whatever else is under way on a busy machine comes within them.
	lossLimits = Limits{Connect: testutil.Patience, Drain: 5 * time.Second}
)

func smallForward(t *testing.T, client string) Workload {
	t.Helper()
	w, err := Forward{
		Groups: []int{3}, PublishersPerGroup: 2, Rate: 100, PayloadBytes: 40, Client: client,
		Warmup: 30 * time.Millisecond, Duration: 150 * time.Millisecond, Seed: 7,
	}.Workloads()
	if err != nil {
		t.Fatal(err)
	}
	return w[0]
}

func smallFanout(t *testing.T, client string) Workload {
	t.Helper()
	w, err := Fanout{
		Subscribers: []int{11}, MessagesPerTopic: 4, Pace: 5 * time.Millisecond, PayloadBytes: 50, Client: client,
		Warmup: 60 * time.Millisecond, Duration: 240 * time.Millisecond,
	}.Workloads()
	if err != nil {
		t.Fatal(err)
	}
	return w[0]
}

func quietly(string) {}

func TestFaultlessServerIsMeasuredWhole(t *testing.T) {
	t.Parallel()
	for _, client := range []string{ClientNATS, ClientLight} {
		for _, w := range []Workload{smallForward(t, client), smallFanout(t, client)} {
			t.Run(w.Scenario+"/"+client, func(t *testing.T) {
				run := measure(t.Context(), startFakeServer(t, &fakeServer{}), w, testLimits, quietly)
				if run.faulty() || run.Partial {
					t.Fatalf("a server that does everything right is blamed: %+v", run)
				}
				if run.Published != w.schedule.len() || run.Planned != run.Published {
					t.Errorf("published %d of %d", run.Published, w.schedule.len())
				}
				var expected, warm int64
				for _, l := range w.subscribers {
					expected += int64(len(l.sources) * w.schedule.perPublisher())
					warm += int64(len(l.sources) * w.schedule.warmSequences())
				}
				if run.Deliveries.Received != expected || warm == 0 {
					t.Errorf("received %d, expected %d", run.Deliveries.Received, expected)
				}
				if run.Latency.Count != expected-warm {
					t.Errorf("%d latencies, want %d: warm-up is left out, and nothing else", run.Latency.Count, expected-warm)
				}
				if run.Late.Count != int64(w.schedule.len()-warmSlots(w.schedule)) {
					t.Errorf("%d latenesses", run.Late.Count)
				}
				if l := run.Latency; l.Min <= 0 || l.P50 < l.Min || l.P95 < l.P50 || l.P99 < l.P95 || l.Max < l.P999 {
					t.Errorf("percentiles out of order: %+v", l)
				}
				if run.HDR == "" || run.Delivered <= 0 || run.ClientCPU.Seconds < 0 {
					t.Errorf("something is missing: %+v", run)
				}
			})
		}
	}
}

func TestEachFaultIsCountedExactly(t *testing.T) {
	t.Parallel()
	// In smallForward each message has one receiver; publisher 3 belongs to the second group.
	on := func(sequence uint32, what fate) func(stamp) fate {
		return func(s stamp) fate {
			if s.publisher == 3 && s.sequence == sequence {
				return what
			}
			return deliverOnce
		}
	}
	limits := lossLimits
	limits.Grace = lossLimits.Drain // for what comes twice
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, c := range []struct {
		name string
		fate func(stamp) fate
		want Deliveries // Expected and Received are filled in
	}{
		{"lost", on(5, drop), Deliveries{Lost: 1}},
		{"lost during warm-up", on(0, drop), Deliveries{Lost: 1}},
		{"duplicated", on(5, deliverTwice), Deliveries{Duplicated: 1}},
		{"duplicated after everything came", on(17, deliverAgainLater), Deliveries{Duplicated: 1}},
		{"reordered", on(5, swapWithNext), Deliveries{OutOfOrder: 1}},
		{"damaged", on(5, damage), Deliveries{Lost: 1, Unexpected: 1}},
		{"misrouted", on(5, misroute), Deliveries{Unexpected: 2}},
		{"a loss and a duplicate don't cancel", func(s stamp) fate {
			return map[uint32]fate{4: drop, 8: deliverTwice}[s.sequence]
		}, Deliveries{Lost: 6, Duplicated: 6}},
		{"everything lost", func(stamp) fate { return drop }, Deliveries{Lost: 6 * 18}},
	} {
		for _, client := range []string{ClientNATS, ClientLight} {
			w, target := smallForward(t, client), startFakeServer(t, &fakeServer{fate: c.fate})
			want := c.want
			want.Expected = int64(w.schedule.len())
			want.Received = want.Expected - want.Lost
			wg.Go(func() { // they mostly wait: all at once
				run := measure(t.Context(), target, w, limits, quietly)
				if run.Deliveries != want {
					t.Errorf("%s with %s: got %+v\nwant %+v (error %q)", c.name, client, run.Deliveries, want, run.Error)
				}
				if !run.faulty() {
					t.Errorf("%s with %s: the run passes as faultless", c.name, client)
				}
			})
		}
	}
}

func TestSubscriberThatIsCutOffIsReported(t *testing.T) {
	t.Parallel()
	for _, client := range []string{ClientNATS, ClientLight} {
		w := smallForward(t, client)
		run := measure(t.Context(), startFakeServer(t, &fakeServer{fate: func(s stamp) fate {
			if s.publisher == 0 && s.sequence == 9 {
				return cutOff
			}
			return deliverOnce
		}}), w, lossLimits, quietly)
		if run.Dropped != 1 || !strings.Contains(run.Error, "cut off 1 of 3 subscribers") {
			t.Errorf("%s: dropped %d, error %q", client, run.Dropped, run.Error)
		}
		if run.Deliveries.Lost < 9 || run.Latency.Count == 0 {
			t.Errorf("%s: what it missed is not lost, or the rest is not measured: %+v", client, run)
		}
	}
}

// TestStallIsPaidByEveryMessageThatWasDue: a server that stalls makes the messages that fall due
// meanwhile wait too. A closed loop would send fewer of them and report one slow message; here
// every one has waited. The stall ends when all have been published: publishers that waited for the
// server would never get there.
func TestStallIsPaidByEveryMessageThatWasDue(t *testing.T) {
	t.Parallel()
	w, err := Fanout{
		Subscribers: []int{2}, MessagesPerTopic: 100, Pace: 5 * time.Millisecond, Rounds: 1, PayloadBytes: 50,
		Duration: time.Second, Client: ClientLight,
	}.Workloads()
	if err != nil {
		t.Fatal(err)
	}
	published := make(chan struct{})
	target := startFakeServer(t, &fakeServer{fate: stallOnce(0, 10, published)})
	run := measure(t.Context(), target, w[0], testLimits, func(phase string) {
		if phase == "draining" {
			close(published)
		}
	})
	if run.faulty() {
		t.Fatalf("nothing was lost: %+v", run)
	}
	// The stall holds up publisher 0's last 90 messages, which are due 5 ms after one another and
	// come behind the last one: of 300 deliveries about 70 waited over 100 ms, so the 95th
	// percentile stands above it, the first of them waited for 445 ms, and the mean is at least 90
	// × 222 ms / 300.
	if l := run.Latency; l.P95 < int64(100*time.Millisecond) || l.Mean < float64(60*time.Millisecond) || l.Max < int64(440*time.Millisecond) {
		t.Errorf("the stall does not show: %+v", l)
	}
}

// slowPublisher takes its time over one message, as a socket does whose server reads nothing.
type slowPublisher struct {
	t     *testing.T
	sent  []stamp
	slow  uint32
	delay time.Duration
}

func (p *slowPublisher) publish(payload []byte) error {
	s, whole := readStamp(payload)
	if !whole {
		p.t.Error("published a payload without a stamp")
	}
	if s.sequence == p.slow {
		time.Sleep(p.delay)
	}
	p.sent = append(p.sent, s)
	return nil
}

func (p *slowPublisher) flush(context.Context) error { return nil }

// TestALatePublisherKeepsThePlannedTimes: a delayed publisher skips no message, and its late
// messages keep their due times.
func TestALatePublisherKeepsThePlannedTimes(t *testing.T) {
	w, err := Fanout{Subscribers: []int{1}, MessagesPerTopic: 20, Pace: 2 * time.Millisecond, Rounds: 1, PayloadBytes: 32, Duration: time.Second, Client: ClientLight}.Workloads()
	if err != nil {
		t.Fatal(err)
	}
	p := &slowPublisher{t: t, slow: 5, delay: 60 * time.Millisecond}
	other := &slowPublisher{t: t, slow: 1 << 31}
	r := &runner{
		workload: w[0], status: quietly, publishers: []publisher{p, other, other},
		published: make([]int, 3), failed: make([]error, 3), late: newRecorder(),
	}
	zero := now() + int64(10*time.Millisecond)
	if err := r.publishAll(t.Context(), zero); err != nil {
		t.Fatal(err)
	}
	if len(p.sent) != 20 || len(other.sent) != 40 {
		t.Fatalf("sent %d and %d messages, want 20 and 40", len(p.sent), len(other.sent))
	}
	for i, s := range p.sent {
		if want := zero + int64(i)*int64(2*time.Millisecond); s.due != want {
			t.Errorf("message %d says it was due %v off the plan", i, time.Duration(s.due-want))
		}
	}
	if late := r.late.summary(); late.Count != 60 || late.Max < int64(50*time.Millisecond) {
		t.Errorf("lateness %+v", late)
	}
}

func TestMeasurementWaitsForInterestToArriveEverywhere(t *testing.T) {
	t.Parallel()
	run := measure(t.Context(), startFakeServer(t, &fakeServer{deafFor: 1}), smallForward(t, ClientLight), testLimits, quietly)
	if run.faulty() {
		t.Errorf("probes that were lost before the measurement count: %+v", run)
	}
	if run.SettleNS < int64(probeAgain) {
		t.Errorf("settled in %v, without the second probe", time.Duration(run.SettleNS))
	}
}

func TestServerThatDeliversNothingEndsTheRun(t *testing.T) {
	t.Parallel()
	limits := testLimits
	limits.Connect = 5 * time.Second // connecting needs it, and settling waits for all of it
	run := measure(t.Context(), startFakeServer(t, &fakeServer{deafFor: 1000}), smallForward(t, ClientLight), limits, quietly)
	if !strings.Contains(run.Error, "still hear nothing from 6 of 6 publishers") || run.Published != 0 {
		t.Errorf("error %q, published %d", run.Error, run.Published)
	}
}

func TestAnInterruptKeepsTheMeasurements(t *testing.T) {
	t.Parallel()
	for _, client := range []string{ClientNATS, ClientLight} {
		w, err := Fanout{
			Subscribers: []int{4}, MessagesPerTopic: 10, Pace: 2 * time.Millisecond, PayloadBytes: 50, Client: client,
			Duration: time.Hour,
		}.Workloads()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		told := 0 // publishing says so several times a second
		run := measure(ctx, startFakeServer(t, &fakeServer{}), w[0], testLimits, func(phase string) {
			if strings.HasPrefix(phase, "measuring") {
				if told++; told == 2 {
					cancel()
				}
			}
		})
		cancel()
		if !run.Partial || run.faulty() {
			t.Errorf("%s: partial %v, error %q, %+v", client, run.Partial, run.Error, run.Deliveries)
		}
		if run.Latency.Count == 0 || run.Deliveries.Expected != run.Deliveries.Received {
			t.Errorf("%s: what was published before is not measured: %+v", client, run.Deliveries)
		}
	}
}

// TestBothReadersAcceptPartialReads: the readers of Linux and of other systems both accept partial
// reads.
func TestBothReadersAcceptPartialReads(t *testing.T) {
	for name, make := range map[string]func(int) readers{"epoll": newReaders, "goroutines": newGoroutineReaders} {
		t.Run(name, func(t *testing.T) {
			w := smallFanout(t, ClientLight)
			c := newCollector(99, w)
			d := newLightDriver(c, make)
			target := startFakeServer(t, &fakeServer{dribble: true})
			if err := d.subscribe(t.Context(), target, "x.", w.subscribers); err != nil {
				t.Fatal(err)
			}
			publishers, err := d.connect(t.Context(), target, []string{"x.topic.1", "x.topic.2", "x.topic.3"})
			if err != nil {
				t.Fatal(err)
			}
			payload := [headerBytes]byte{}
			for sequence := range w.schedule.perPublisher() {
				for i, p := range publishers {
					stamp{run: 99, publisher: uint32(i), sequence: uint32(sequence), due: now()}.put(payload[:])
					if err := p.publish(payload[:]); err != nil {
						t.Fatal(err)
					}
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), testutil.Patience)
			defer cancel()
			for _, p := range publishers {
				if err := p.flush(ctx); err != nil {
					t.Fatal(err)
				}
			}
			expected := int64((6*2 + 5) * w.schedule.perPublisher())
			for c.received() < expected {
				if err := sleep(ctx, time.Millisecond); err != nil {
					t.Fatalf("received %d of %d", c.received(), expected)
				}
			}
			d.close()
			n := w.schedule.perPublisher()
			if got, _, _ := c.collect([]int{n, n, n}); got.faulty() {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestRefusedConnectionNamesTheServerAndTheReason(t *testing.T) {
	target, err := ParseTarget("gone", "127.0.0.1:1", "", "", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, client := range []string{ClientNATS, ClientLight} {
		run := measure(t.Context(), target, smallForward(t, client), testLimits, quietly)
		if !strings.Contains(run.Error, "connect the subscribers to gone: connection 1 of 3") && !strings.Contains(run.Error, "of 3") {
			t.Errorf("%s: %q", client, run.Error)
		}
	}
	c := Campaign{Workloads: []Workload{smallForward(t, ClientLight)}, Server: target, Repeat: 1, Wait: 50 * time.Millisecond, Limits: testLimits, Status: quietly}
	if _, err := c.Run(t.Context()); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("campaign: %v", err)
	}
}
