package bench

import (
	"fmt"
	"math"
)

func (t *table) log(results []Result) {
	p := results[0].Parameters
	t.line()
	t.line(cut(fmt.Sprintf("log: records of %d B, one shard, %d replicas, durability %s; %s s measured after %s s",
		p.PayloadBytes, p.Replicas, p.Durability, number(float64(p.DurationNS)/1e9), number(float64(p.WarmupNS)/1e9)), maxWidth))
	t.line()
	t.line(padRight("", nameWidth), padLeft("", 7), padLeft("write", 6+12+10), padLeft("an ack took", 2*timeWidth), padLeft("read", 6+12+10))
	t.line(padRight("server", nameWidth), padLeft("batch", 7), padLeft("n", 6), padLeft("records/s", 12), padLeft("server CPU", 11),
		padLeft("p50", timeWidth-1), padLeft("p99", timeWidth), padLeft("n", 6), padLeft("records/s", 12), padLeft("server CPU", 11))
	for _, r := range results {
		for _, m := range r.Measured {
			t.logOf(r, m)
		}
	}
	t.line()
	for _, r := range results {
		for _, m := range r.Measured {
			if f := m.Log; f != nil {
				t.line(cut(fmt.Sprintf("%s, batch %d, %d and %d clients: written %s, read and checked %s; bench CPU %.0f%% and %.0f%%; lost %s, dup %s, ooo %s", cut(m.Server, 24),
					r.Parameters.Batch, r.Parameters.Publishers, r.Parameters.Readers, thousands(f.Written), thousands(f.Read), 100*f.WriteCPU.Cores, 100*f.ReadCPU.Cores,
					thousands(m.Deliveries.Lost), thousands(m.Deliveries.Duplicated), thousands(m.Deliveries.OutOfOrder)), 2*maxWidth))
			}
		}
	}
}

func (t *table) logOf(r Result, m Measured) {
	name := padRight(cut(m.Server, nameWidth-1), nameWidth) + padLeft(thousands(int64(r.Parameters.Batch)), 7)
	f := m.Log
	if f == nil {
		t.line(name, padLeft("nothing was measured", 7*timeWidth))
		return
	}
	per := func(of func(*LogFigures) *CPU) string {
		known := 0
		var sum float64
		for _, run := range m.Runs {
			if run.Log != nil && of(run.Log) != nil {
				known++
				sum += of(run.Log).PerDelivery
			}
		}
		if known == 0 {
			return padLeft("–", 11)
		}
		return padLeft(nanoseconds(sum/float64(known)), 11)
	}
	rate := func(v float64) string { return padLeft(thousands(int64(math.Round(v))), 12) }
	t.line(name, padLeft(fmt.Sprint(r.Parameters.Publishers), 6), rate(f.WriteRate), per(func(f *LogFigures) *CPU { return f.WriteServer }),
		padLeft(duration(float64(m.Median.P50)), timeWidth-1), padLeft(duration(float64(m.Median.P99)), timeWidth),
		padLeft(fmt.Sprint(r.Parameters.Readers), 6), rate(f.ReadRate), per(func(f *LogFigures) *CPU { return f.ReadServer }))
}

// nanoseconds has a digit behind the point where duration has none: a record costs a few.
func nanoseconds(ns float64) string {
	if ns < 100 {
		return fmt.Sprintf("%.1fns", ns)
	}
	return duration(ns)
}

func (t *table) logNotes() {
	t.line("log: written counts what was acknowledged. Readers go through the whole log, again and again, each")
	t.line("on its own; of every record they add up all bytes, and compare them with what its publisher wrote.")
	t.line("lost, dup and ooo are of a pass over everything that was written. server CPU: for each record.")
	if w := t.report.Environment.CPUs; w > 0 {
		t.linef("Clients and server share this machine's %d CPUs.", w)
	}
}
