package bench

import (
	"fmt"
	"math"
	"slices"
)

func (t *table) throughput(results []Result) {
	p := results[0].Parameters
	t.line()
	t.line("throughput: publishers:subscribers of one subject, every subscriber receives all, client light")
	t.linef("%s s measured after %s s of warm-up", number(float64(p.DurationNS)/1e9), number(float64(p.WarmupNS)/1e9))
	t.line()
	t.line(padRight("", nameWidth+4), padLeft("published/s", 12), padLeft("received/s", 11), padLeft("bytes/s", 10), padLeft("CPU/msg", perWidth),
		padLeft("bench", perWidth), padLeft("bench CPU", 10), padLeft("lost", timeWidth), padLeft("dup", faultWidth), padLeft("ooo", faultWidth))
	for _, r := range results {
		name := fmt.Sprintf("%s %s", r.Parameters.shape(), byteCount(float64(r.Parameters.PayloadBytes)))
		if len(r.Measured) == 1 {
			t.throughputOf(name, r.Measured[0])
			continue
		}
		t.line(name)
		for _, m := range r.Measured {
			t.throughputOf("  "+m.Server, m)
		}
		for _, q := range r.Ratios {
			if q.Throughput != nil {
				t.line(padRight(cut("  / "+q.Against, nameWidth+3), nameWidth+4), padLeft(ratio(q.Throughput.PublishRate), 12), padLeft(ratio(q.Throughput.ReceiveRate), 11),
					padLeft("", 10), padLeft(ratio(q.Throughput.ServerCPU), perWidth))
			}
		}
	}
}

func (t *table) throughputOf(name string, m Measured) {
	name = padRight(cut(name, nameWidth+3), nameWidth+4)
	f, d := m.Throughput, m.Deliveries
	if f == nil {
		t.line(name, padLeft("nothing was measured", 24))
		return
	}
	rate := func(v float64, width int) string {
		if v == 0 {
			return padLeft("–", width)
		}
		return padLeft(thousands(int64(math.Round(v))), width)
	}
	bytes := f.ReceiveBytes
	if f.Received == 0 {
		bytes = f.PublishBytes
	}
	t.line(name, rate(f.PublishRate, 12), rate(f.ReceiveRate, 11), padLeft(byteCount(bytes), 10), perOperation(f.Server, perWidth), perOperation(&f.Client, perWidth),
		padLeft(fmt.Sprintf("%.0f%%", 100*f.Client.Cores), 10), padLeft(thousands(d.Lost), timeWidth), padLeft(thousands(d.Duplicated), faultWidth), padLeft(thousands(d.OutOfOrder), faultWidth))
}

func (t *table) throughputNotes() {
	t.line("throughput: as fast as the server takes it. bytes/s: of payloads, received, or published if nobody")
	t.line("subscribes. Per message received (or published): CPU/msg of the server, bench of this program.")
	t.ratioNote()
}

// byteCount has three digits and a unit: 16 B, 64 KiB, 1.23 GiB.
func byteCount(n float64) string {
	if n < 0 {
		return "-" + byteCount(-n)
	}
	if n < 1024 {
		return fmt.Sprintf("%.0f B", n)
	}
	units := []string{"KiB", "MiB", "GiB", "TiB"}
	v, unit := n/1024, units[0]
	for _, next := range units[1:] {
		if v < 1024 {
			break
		}
		v, unit = v/1024, next
	}
	digits := 0
	if v != math.Trunc(v) {
		digits = slices.IndexFunc([]float64{100, 10, 0}, func(least float64) bool { return v >= least })
	}
	return fmt.Sprintf("%.*f %s", digits, v, unit)
}
