package bench

import (
	"fmt"
	"math"
)

// kvWidth is the column of rates and counts of the kv scenario.
const kvWidth = 12

func (t *table) kv(results []Result) {
	p := results[0].Parameters
	t.line()
	t.line(cut(fmt.Sprintf("kv: %s keys in a bucket in files on %s, values of %d B, client %s",
		thousands(int64(p.Keys)), replicasOf(p), p.PayloadBytes, results[0].Client), maxWidth))
	t.linef("%s s of each kind measured after %s s of warm-up; then %d watchers, one after another",
		number(float64(p.DurationNS)/1e9), number(float64(p.WarmupNS)/1e9), watches)
	for _, r := range results {
		t.line()
		t.line(padRight("", nameWidth), padLeft("operations", kvWidth), padLeft("a second", kvWidth), padLeft("mean", timeWidth), padLeft("p50", timeWidth),
			padLeft("p99", timeWidth), padLeft("p99.9", timeWidth), padLeft("max", timeWidth), padLeft("CPU/op", perWidth), padLeft("bench", timeWidth))
		for _, phase := range kvPhases(r.Parameters) {
			t.kvPhase(r, phase)
		}
		for _, m := range r.Measured {
			if m.KV != nil && m.KV.Stale > 0 {
				t.linef("%s: %s stale gets.", cut(m.Server, 24), thousands(m.KV.Stale))
			}
		}
	}
}

// A namedPhase is a phase of the kv scenario in the figures and in their ratio.
type namedPhase struct {
	name  string
	of    func(*KVFigures) KVPhase
	ratio func(*KVRatio) KVPhaseRatio
}

func kvPhases(p Parameters) []namedPhase {
	return []namedPhase{
		{fmt.Sprintf("put, %d writers", p.Publishers), func(f *KVFigures) KVPhase { return f.Put }, func(q *KVRatio) KVPhaseRatio { return q.Put }},
		{fmt.Sprintf("get, %d readers", p.Readers), func(f *KVFigures) KVPhase { return f.Get }, func(q *KVRatio) KVPhaseRatio { return q.Get }},
		{"put, one writer", func(f *KVFigures) KVPhase { return f.One }, func(q *KVRatio) KVPhaseRatio { return q.One }},
		{"watch all keys", func(f *KVFigures) KVPhase { return f.Watch }, func(q *KVRatio) KVPhaseRatio { return q.Watch }},
	}
}

func (t *table) kvPhase(r Result, phase namedPhase) {
	t.line(phase.name)
	for _, m := range r.Measured {
		name := padRight(cut("  "+m.Server, nameWidth-1), nameWidth)
		if m.KV == nil || phase.of(m.KV).Operations == 0 {
			t.line(name, padLeft("nothing was measured", 2*kvWidth))
			continue
		}
		p := phase.of(m.KV)
		l := p.Latency
		t.line(name, padLeft(thousands(p.Operations), kvWidth), padLeft(thousands(int64(math.Round(p.Rate))), kvWidth), padLeft(duration(l.Mean), timeWidth),
			t.percentile(l, l.P50, 0.50), t.percentile(l, l.P99, 0.99), t.percentile(l, l.P999, 0.999), padLeft(duration(float64(l.Max)), timeWidth),
			perOperation(p.Server, perWidth), padLeft(duration(p.Client.PerDelivery), timeWidth))
	}
	for _, q := range r.Ratios {
		if q.KV == nil {
			continue
		}
		of := phase.ratio(q.KV)
		if of.Latency == nil {
			continue
		}
		t.line(padRight(cut("  / "+q.Against, nameWidth-1), nameWidth+kvWidth), padLeft(ratio(of.Rate), kvWidth), ratio(of.Latency.Mean), ratio(of.Latency.P50),
			ratio(of.Latency.P99), ratio(of.Latency.P999), ratio(of.Latency.Max), padLeft(ratio(of.ServerCPU), perWidth))
	}
}

func (t *table) kvNotes() {
	t.line("kv: a closed loop; a time is that of nats.go's Put or Get, and of a watcher that until it has all")
	t.line("keys. Of watch, operations are keys. CPU/op: of the server; bench: of this program. Every value")
	t.line("that is read is compared with the last one that was put.")
	t.ratioNote()
}
