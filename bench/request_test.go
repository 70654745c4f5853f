package bench

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/internal/testutil"
)

func smallRequest(t *testing.T, pairs int, rate float64) Workload {
	t.Helper()
	made, err := Request{Pairs: []int{pairs}, Rate: rate, PayloadBytes: 40, Warmup: 50 * time.Millisecond, Duration: 200 * time.Millisecond, Seed: 7}.Workloads()
	if err != nil {
		t.Fatal(err)
	}
	return made[0]
}

func TestARequestPlanIsChecked(t *testing.T) {
	good := Request{Pairs: []int{1, 16, 64}, PayloadBytes: 128, Duration: time.Second}
	made, err := good.Workloads()
	if err != nil || len(made) != 3 || made[2].sockets() != 128 || made[2].request.schedule != nil {
		t.Fatalf("%d plans, %v", len(made), err)
	}
	for want, change := range map[string]func(*Request){
		"pairs is 0":       func(c *Request) { c.Pairs = []int{0} },
		"pairs is 1001":    func(c *Request) { c.Pairs = []int{1001} },
		"payload is 16":    func(c *Request) { c.PayloadBytes = 16 },
		"rate is -1":       func(c *Request) { c.Rate = -1 },
		"duration is 0s":   func(c *Request) { c.Duration = 0 },
		"no number of pai": func(c *Request) { c.Pairs = nil },
	} {
		bad := good
		change(&bad)
		if _, err := bad.Workloads(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// TestRequestsAreAnswered: in a closed loop as many as there is time for, in an open one as many as
// are due.
func TestRequestsAreAnswered(t *testing.T) {
	t.Parallel()
	for name, rate := range map[string]float64{"closed": 0, "open": 500} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := smallRequest(t, 3, rate)
			run := measure(t.Context(), startFakeServer(t, &fakeServer{}), w, testLimits, quietly)
			f, d := run.Request, run.Deliveries
			if run.faulty() || run.Partial || f.Rate <= 0 || f.Answered != run.Latency.Count || f.Answered == 0 {
				t.Fatalf("%+v %+v", run, f)
			}
			if d.Received != d.Expected || int(d.Expected) != run.Published || f.Answered >= d.Received {
				t.Errorf("%+v of %d, %d counted", d, run.Published, f.Answered)
			}
			if s := w.request.schedule; s != nil && (run.Published != s.len() || f.Answered != int64(s.len()-warmSlots(s)) || run.Late.Count != f.Answered) {
				t.Errorf("%d of %d requests, %d counted, %d latenesses", run.Published, s.len(), f.Answered, run.Late.Count)
			}
			if l := run.Latency; l.Min <= 0 || l.P99 < l.P50 || l.Max < l.P999 || run.HDR == "" {
				t.Errorf("%+v", l)
			}
			var counted int64
			for _, p := range run.OverTime {
				counted += p.Count
			}
			if counted != f.Answered {
				t.Errorf("%d latencies over time, and %d in all", counted, f.Answered)
			}
		})
	}
}

// TestAStallCountsForEveryRequestThatWasDue: with a rate, a server can't hide it.
func TestAStallCountsForEveryRequestThatWasDue(t *testing.T) {
	t.Parallel()
	const stall = 100 * time.Millisecond
	server := &fakeServer{fate: func(s stamp) fate {
		if s.sequence == 50 {
			time.Sleep(stall) // what is measured
		}
		return deliverOnce
	}}
	// 500 a second: of one pair, 50 are due while the server stalls, after 25 of warm-up.
	run := measure(t.Context(), startFakeServer(t, server), smallRequest(t, 1, 500), testLimits, quietly)
	if run.faulty() || run.Latency.Max < int64(stall) || run.Latency.P95 < int64(stall)/2 || run.Latency.Mean < float64(stall)/10 {
		t.Errorf("%+v %s", run.Latency, run.Error)
	}
}

func TestRequestsFaultsAreCounted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		fate  fate
		rate  float64
		want  Deliveries
		error string
	}{
		{"a lost one in a closed loop", drop, 0, Deliveries{Lost: 1}, ""},
		{"a lost one in an open loop", drop, 500, Deliveries{Lost: 1}, ""},
		{"a damaged one", damage, 500, Deliveries{Unexpected: 1}, "it is damaged"},
		{"one answered twice", deliverTwice, 500, Deliveries{Duplicated: 1}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var met bool
			server := &fakeServer{fate: func(s stamp) fate {
				// One goroutine serves the requester; the reply has the same stamp.
				if s.publisher == 0 && s.sequence == 30 && !met {
					met = true
					return c.fate
				}
				return deliverOnce
			}}
			run := measure(t.Context(), startFakeServer(t, server), smallRequest(t, 1, c.rate), lossLimits, quietly)
			d := run.Deliveries
			if d.Expected, d.Received = 0, 0; d != c.want || !strings.Contains(run.Error, c.error) {
				t.Errorf("found %+v, want %+v; %s", d, c.want, run.Error)
			}
		})
	}
}

// TestRequestsTable: medians, ratios and faults.
func TestRequestsTable(t *testing.T) {
	w := smallRequest(t, 16, 0)
	result := newResult(w, []Target{{Name: "carillon"}, {Name: "nats-server"}})
	for i, scale := range []time.Duration{time.Microsecond, 2 * time.Microsecond} {
		for n := range 3 {
			run := sampleRun(n+1, 30_000, 100*scale)
			run.Request = &RequestFigures{Answered: 30_000, Rate: 30_000 / float64(i+1), Client: CPU{PerDelivery: 20_000}, Server: &CPU{PerDelivery: 25_000 * float64(i+1)}}
			result.Measured[i].Runs = append(result.Measured[i].Runs, run)
		}
	}
	result.summarize()
	if q := result.Ratio; q == nil || q.Request == nil || q.Request.Rate != 2 || q.Request.ServerCPU != 0.5 || q.P99 != 0.5 {
		t.Fatalf("%+v", q)
	}
	r := &Report{Servers: []Server{{Name: "carillon"}, {Name: "nats-server"}}, Results: []Result{result}}
	table := string(tableOf(t, r, false))
	for _, want := range []string{"pairs of a requester and a responder, 40 B each way, a closed loop", "30,000", "200µs", "2.00×", "0.50×", "request: from sending"} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
}

// TestARequestWithoutResponderFails: it does not wait for ever.
func TestARequestWithoutResponderFails(t *testing.T) {
	t.Parallel()
	a := newAsking(startFakeServer(t, &fakeServer{}), 1, []string{"bench.nobody"}, 40, Limits{Connect: testutil.Patience}, checkEcho)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := a.connect(ctx)
	a.close()
	if err == nil || !strings.Contains(err.Error(), "1 of 1 requesters of fake get no reply") {
		t.Errorf("the error is %v", err)
	}
}

// TestALateRequestsLatencyCountsFromItsDueTime: also where it was the requester that was held up.
func TestALateRequestsLatencyCountsFromItsDueTime(t *testing.T) {
	t.Parallel()
	target := startFakeServer(t, &fakeServer{})
	subjects := []string{"bench.late"}
	answering := newAnswering(target, subjects, 40)
	asking := newAsking(target, 1, subjects, 40, testLimits, checkEcho)
	defer answering.close()
	defer asking.close()
	for _, connect := range []func(context.Context) error{answering.connect, asking.connect} {
		if err := connect(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	const late = int64(time.Hour)
	at := now()
	asking.begin(at-2*late, at+late)
	if err := asking.askers[0].ask(at - late); err != nil {
		t.Fatal(err)
	}
	asking.drain(t.Context())
	if l := asking.latency().summary(); l.Count != 1 || l.Min < late {
		t.Errorf("%+v", l)
	}
	if points := asking.over.Load().points(); len(points) != 1 || points[0].Max < late {
		t.Errorf("%+v", points)
	}
}
