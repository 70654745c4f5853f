package bench

import (
	"math"
)

func (t *table) noisy(results []Result) {
	p := results[0].Parameters
	what := "requests"
	if p.Noise == NoiseFanout {
		what = "publishes with acks"
	}
	t.line()
	t.linef("noisy: %s; %s %s a second, %d B, client %s", noisyName(p), number(p.RequestRate), what, p.PayloadBytes, results[0].Client)
	t.linef("%s s measured after %s s of warm-up, without and with the noise", number(float64(p.DurationNS)/1e9), number(float64(p.WarmupNS)/1e9))
	t.line()
	t.line(padRight("", nameWidth), padLeft("noise/s", 10), padLeft("alone p50", 11), padLeft("p99", timeWidth), padLeft("p99.9", timeWidth),
		padLeft("beside p50", 12), padLeft("p99", timeWidth), padLeft("p99.9", timeWidth), padLeft("max", timeWidth), padLeft("lost", lostWidth))
	for _, r := range results {
		for _, m := range r.Measured {
			t.noisyOf(m)
		}
		for _, q := range r.Ratios {
			if q.Noisy == nil || q.Noisy.Alone == nil || q.Noisy.Beside == nil {
				continue
			}
			alone, beside := q.Noisy.Alone, q.Noisy.Beside
			t.line(padRight(cut("/ "+q.Against, nameWidth-1), nameWidth), padLeft(ratio(q.Noisy.Noise), 10), padLeft(ratio(alone.P50), 11), ratio(alone.P99), ratio(alone.P999),
				padLeft(ratio(beside.P50), 12), ratio(beside.P99), ratio(beside.P999), ratio(beside.Max))
		}
	}
}

func (t *table) noisyOf(m Measured) {
	name := padRight(cut(m.Server, nameWidth-1), nameWidth)
	f := m.Noisy
	if f == nil {
		t.line(name, padLeft("nothing was measured", 3*timeWidth))
		return
	}
	a, b := f.Alone.Latency, f.Beside.Latency
	t.line(name, padLeft(thousands(int64(math.Round(f.Noise.ReceiveRate))), 10), padLeft(t.percentile(a, a.P50, 0.50), 11), t.percentile(a, a.P99, 0.99), t.percentile(a, a.P999, 0.999),
		padLeft(t.percentile(b, b.P50, 0.50), 12), t.percentile(b, b.P99, 0.99), t.percentile(b, b.P999, 0.999), padLeft(duration(float64(b.Max)), timeWidth),
		padLeft(thousands(m.Deliveries.Lost), lostWidth))
}

func (t *table) noisyNotes() {
	t.line("noisy: latency from when a request (or a publish) was due until its reply (or ack), alone and")
	t.line("beside the noise, which is as loud as the server lets it be. noise/s: messages that it delivered.")
	t.ratioNote()
}
