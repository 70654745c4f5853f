package bench

import (
	"strings"
	"testing"
	"time"
)

func smallNoisy(t *testing.T, noise string) Workload {
	t.Helper()
	made, err := Noisy{Noises: []string{noise}, Subscribers: 3, Rate: 200, PayloadBytes: 64, Warmup: 50 * time.Millisecond, Duration: 200 * time.Millisecond, Seed: 7}.Workloads()
	if err != nil {
		t.Fatal(err)
	}
	return made[0]
}

func TestANoisyPlanIsChecked(t *testing.T) {
	good := Noisy{Noises: []string{NoiseFlood, NoiseFanout}, Subscribers: 100, Rate: 500, PayloadBytes: 128, Duration: time.Second}
	made, err := good.Workloads()
	if err != nil || len(made) != 2 || made[0].noisy.stream || !made[1].noisy.stream || made[1].noisy.subscribers != 100 || made[1].sockets() != 104 {
		t.Fatalf("%d plans, %v", len(made), err)
	}
	for want, change := range map[string]func(*Noisy){
		`noise is "drum"`:     func(c *Noisy) { c.Noises = []string{"drum"} },
		"no noise":            func(c *Noisy) { c.Noises = nil },
		"subscribers is 0":    func(c *Noisy) { c.Subscribers = 0 },
		"subscribers is 1001": func(c *Noisy) { c.Subscribers = 1001 },
		"rate is 0":           func(c *Noisy) { c.Rate = 0 },
		"payload is 16":       func(c *Noisy) { c.PayloadBytes = 16 },
	} {
		bad := good
		change(&bad)
		if _, err := bad.Workloads(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// TestABystanderIsMeasuredAloneAndBesideAFlood: the server holds up one message while nobody
// disturbs, and all are held up beside the flood.
func TestABystanderIsMeasuredAloneAndBesideAFlood(t *testing.T) {
	t.Parallel()
	const held = 3 * time.Millisecond
	w := smallNoisy(t, NoiseFlood)
	per := int64(w.noisy.schedule.len())
	server := &fakeServer{fate: func(s stamp) fate {
		if s.publisher == 0 && int64(s.sequence) >= per { // the second phase
			time.Sleep(held) // what is measured
		}
		return deliverOnce
	}}
	run := measure(t.Context(), startFakeServer(t, server), w, testLimits, quietly)
	f := run.Noisy
	if run.faulty() || run.Partial || f.Noise.Received == 0 || f.Noise.ReceiveRate <= 0 {
		t.Fatalf("%+v %+v", run, f)
	}
	counted := per - int64(warmSlots(w.noisy.schedule))
	if f.Alone.Answered != counted || f.Beside.Answered != counted || f.Alone.HDR == "" || f.Beside.HDR == "" || len(f.Alone.OverTime) == 0 || len(f.Beside.OverTime) == 0 {
		t.Errorf("%d counted, %+v", counted, f)
	}
	if f.Beside.Latency.Min < int64(held) || f.Alone.Latency.Min >= int64(held) || run.Latency != f.Beside.Latency {
		t.Errorf("alone %+v, beside %+v", f.Alone.Latency, f.Beside.Latency)
	}
	if run.Deliveries.Expected <= 2*per || run.Deliveries.Received != run.Deliveries.Expected {
		t.Errorf("%+v", run.Deliveries)
	}
}

func TestAnAckOfAnotherStreamIsWrong(t *testing.T) {
	check := checkAck("mine")
	for payload, want := range map[string]string{
		`{"stream":"mine","seq":3}`:                              "",
		`{"stream":"other","seq":3}`:                             "of the stream",
		`{"stream":"mine","seq":0}`:                              "sequence 0",
		`{"error":{"code":503,"err_code":1,"description":"no"}}`: "no (1)",
		"": "nobody answers",
	} {
		if err := check([]byte(payload), stamp{}); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", payload, err, want)
		}
	}
}

func TestNoisysTable(t *testing.T) {
	r := &Report{Servers: []Server{{Name: "carillon"}, {Name: "nats-server"}}}
	for _, noise := range []string{NoiseFlood, NoiseFanout} {
		result := newResult(smallNoisy(t, noise), []Target{{Name: "carillon"}, {Name: "nats-server"}})
		for i := range 2 {
			run := sampleRun(1, 20_000, time.Duration(i+1)*time.Millisecond)
			run.Noisy = &NoisyFigures{
				Alone: NoisyPhase{Answered: 20_000, Latency: sampleRun(1, 20_000, 100*time.Microsecond).Latency}, Beside: NoisyPhase{Answered: 20_000, Latency: run.Latency},
				Noise: ThroughputFigures{Published: 1, Received: 1, ReceiveRate: 1e6 / float64(i+1)},
			}
			result.Measured[i].Runs = append(result.Measured[i].Runs, run)
		}
		result.summarize()
		if q := result.Ratio; q == nil || q.Noisy == nil || q.Noisy.Noise != 2 || q.Noisy.Alone.P99 != 1 || q.Noisy.Beside.P99 != 0.5 {
			t.Fatalf("%+v", q)
		}
		r.Results = append(r.Results, result)
	}
	table := string(tableOf(t, r, false))
	for _, want := range []string{"noisy: flood beside a request; 200 requests a second", "noisy: fan-out to 3 beside a stream; 200 publishes with acks a second", "1,000,000", "100µs", "0.50×", "noise/s: messages"} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
}
