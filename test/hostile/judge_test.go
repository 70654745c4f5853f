package hostile

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// calm is a run in which an attack did nothing.
func calm() Run {
	return Run{
		Latencies: []Latency{{What: "requests", Undisturbed: time.Millisecond, Attacked: time.Millisecond, Peer: time.Millisecond}},
		Memories:  []Memory{{Process: "broker", Before: 100 << 20, Peak: 100 << 20, After: 100 << 20, Limit: 640 << 20}},
	}
}

// TestEachBrokenBoundIsFound: what is at a bound holds, and what is beyond it is reported.
func TestEachBrokenBoundIsFound(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Run)
		want   string // nothing: it holds
	}{
		{"nothing happened", func(*Run) {}, ""},
		{"5 times slower", func(r *Run) { r.Latencies[0].Attacked = 5 * time.Millisecond }, ""},
		{"slower than that", func(r *Run) { r.Latencies[0].Attacked = 5*time.Millisecond + 1 }, "p99 of requests is 5.00 ms, of at most 5.00 ms"},
		{"slower than that, as nats-server is", func(r *Run) { r.Latencies[0].Attacked, r.Latencies[0].Peer = 8*time.Millisecond, 8*time.Millisecond }, ""},
		{"slower than nats-server", func(r *Run) { r.Latencies[0].Attacked, r.Latencies[0].Peer = 9*time.Millisecond, 8*time.Millisecond }, "p99 of requests is 9.00 ms, of at most 8.00 ms"},
		{"without a peer", func(r *Run) { r.Latencies[0].Attacked, r.Latencies[0].Peer = 6*time.Millisecond, 0 }, "p99 of requests is 6.00 ms, of at most 5.00 ms"},
		{"all of the memory", func(r *Run) { r.Memories[0].Peak = 640 << 20 }, ""},
		{"more memory than there is", func(r *Run) { r.Memories[0].Peak = 641 << 20 }, "broker took 641 MiB, of at most 640 MiB"},
		{"20 % are kept", func(r *Run) { r.Memories[0].After = 120 << 20 }, ""},
		{"more is kept", func(r *Run) { r.Memories[0].After = 121 << 20 }, "broker keeps 121 MiB, of at most 120 MiB"},
		{"it ended", func(r *Run) { r.Ended = []string{"broker ended"} }, "broker ended"},
	} {
		r := calm()
		c.change(&r)
		if got := strings.Join(Promised.Judge(r), "; "); got != c.want {
			t.Errorf("%s: the judge says %q, want %q", c.name, got, c.want)
		}
	}
	tight := Bounds{Slowdown: 0.001, Left: 0.001}
	if got := tight.Judge(Run{Latencies: []Latency{{What: "requests", Undisturbed: time.Millisecond, Attacked: time.Millisecond}}, Memories: calm().Memories}); len(got) != 2 {
		t.Errorf("bounds of nearly nothing are broken by a calm run, and the judge says %q", got)
	}
}

// TestOneNoisyRunDecidesNothing: figures are medians, but each end of a process counts.
func TestOneNoisyRunDecidesNothing(t *testing.T) {
	noisy := calm()
	noisy.Latencies[0].Attacked, noisy.Memories[0].After = time.Second, 600<<20
	if got := Promised.Judge(Median([]Run{noisy, calm(), calm()})); len(got) != 0 {
		t.Errorf("one noisy run of three broke %q", got)
	}
	if got := Promised.Judge(Median([]Run{noisy, calm(), noisy})); len(got) != 2 {
		t.Errorf("two of three runs break two bounds, and the judge says %q", got)
	}
	if noisy.Ended = []string{"broker ended"}; !slices.Contains(Promised.Judge(Median([]Run{noisy, calm(), calm()})), "broker ended") {
		t.Error("a process ended in one run, and the judge does not say so")
	}
}

func TestPercentilesAreOfTheSamples(t *testing.T) {
	var all []time.Duration
	for i := range 1000 {
		all = append(all, time.Duration(i))
	}
	if p50, p99, p100 := Percentile(all, 0.5), Percentile(all, 0.99), Percentile(all, 1); p50 != 500 || p99 != 990 || p100 != 999 {
		t.Errorf("of 0 to 999: p50 %d, p99 %d, greatest %d", p50, p99, p100)
	}
}

// TestTheTableSaysWhatBroke: a row for each kind of operation, and each broken bound.
func TestTheTableSaysWhatBroke(t *testing.T) {
	r := calm()
	r.Latencies = append(r.Latencies, Latency{What: "publishes", Undisturbed: 2 * time.Millisecond, Attacked: time.Second})
	var out strings.Builder
	if err := WriteTable(&out, []Result{{Attack: "flood", Brokers: 3, Runs: 3, Sent: 7, Run: r, Broken: Promised.Judge(r)}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"requests", "publishes", "500.0", "100/100/100", "BROKEN", "flood, 3 brokers: p99 of publishes is 1.0 s, of at most 10 ms"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, out.String())
		}
	}
}
