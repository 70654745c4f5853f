package bench

import (
	"fmt"
	"math"
)

func (t *table) request(results []Result) {
	p := results[0].Parameters
	loop := "a closed loop"
	if p.RequestRate > 0 {
		loop = fmt.Sprintf("open loop, %s requests/s", number(p.RequestRate))
	}
	t.line()
	t.line(cut(fmt.Sprintf("request: pairs of a requester and a responder, %d B each way, %s, client %s", p.PayloadBytes, loop, results[0].Client), maxWidth))
	t.linef("%s s measured after %s s of warm-up", number(float64(p.DurationNS)/1e9), number(float64(p.WarmupNS)/1e9))
	t.line()
	t.line(padRight("pairs", nameWidth), padLeft("requests/s", 11), padLeft("mean", timeWidth), padLeft("p50", timeWidth), padLeft("p99", timeWidth), padLeft("p99.9", timeWidth),
		padLeft("max", timeWidth), padLeft("CPU/req", timeWidth), padLeft("bench", timeWidth), padLeft("lost", lostWidth), padLeft("dup", faultWidth), padLeft("ooo", faultWidth))
	for _, r := range results {
		size := thousands(int64(r.Size))
		if len(r.Measured) == 1 {
			t.requestOf(size, r.Measured[0])
			continue
		}
		t.line(size)
		for _, m := range r.Measured {
			t.requestOf("  "+m.Server, m)
		}
		for _, q := range r.Ratios {
			if q.Request != nil {
				t.line(padRight(cut("  / "+q.Against, nameWidth-1), nameWidth), padLeft(ratio(q.Request.Rate), 11), ratio(q.Mean), ratio(q.P50), ratio(q.P99), ratio(q.P999),
					ratio(q.Max), ratio(q.Request.ServerCPU))
			}
		}
	}
}

func (t *table) requestOf(name string, m Measured) {
	name = padRight(cut(name, nameWidth-1), nameWidth)
	f, l, d := m.Request, m.Median, m.Deliveries
	if f == nil {
		t.line(name, padLeft("nothing was measured", 3*timeWidth))
		return
	}
	t.line(name, padLeft(thousands(int64(math.Round(f.Rate))), 11), padLeft(duration(l.Mean), timeWidth), t.percentile(l, l.P50, 0.50), t.percentile(l, l.P99, 0.99),
		t.percentile(l, l.P999, 0.999), padLeft(duration(float64(l.Max)), timeWidth), perOperation(f.Server, timeWidth), perOperation(&f.Client, timeWidth),
		padLeft(thousands(d.Lost), lostWidth), padLeft(thousands(d.Duplicated), faultWidth), padLeft(thousands(d.OutOfOrder), faultWidth))
}

func (t *table) requestNotes() {
	t.line("request: from sending a request, or with a rate from when it was due, until the read of its reply.")
	t.line("Per request: CPU/req of the server, bench of this program, which is requester and responder.")
	t.ratioNote()
}
