package bench

import (
	"fmt"
	"math"
)

func (t *table) query(results []Result) {
	p := results[0].Parameters
	t.line()
	t.line(cut(fmt.Sprintf("query: scans of a Topic by carillon query, records of %d B of JSON, %s, durability %s",
		p.PayloadBytes, replicasOf(p), p.Durability), maxWidth))
	t.linef("%d scans of each kind, one after another; selective is %s %% of the records", p.Scans,
		decimal(100*p.Share))
	for _, r := range results {
		t.line()
		t.line(padRight(thousands(int64(r.Size))+" records", nameWidth), padLeft("records/s",
			kvWidth), padLeft("bytes/s", kvWidth),
			padLeft("a scan: p50", kvWidth), padLeft("max", timeWidth), padLeft("CPU/record",
				kvWidth), padLeft("of server", kvWidth))
		for i, kind := range []string{"all", "selective", "none"} {
			t.queryKind(r, i, kind)
		}
		for _, m := range r.Measured {
			if m.Query != nil {
				t.linef("%s: filled with %s records/s; lost %s, too many %s.", m.Server,
					thousands(int64(math.Round(m.Query.FillRate))),
					thousands(m.Deliveries.Lost), thousands(m.Deliveries.Unexpected))
			}
		}
	}
}

func (t *table) queryKind(r Result, i int, kind string) {
	t.line(kind)
	for _, m := range r.Measured {
		name := padRight(cut("  "+m.Server, nameWidth-1), nameWidth)
		if m.Query == nil {
			t.line(name, padLeft("nothing was measured", 2*kvWidth))
			continue
		}
		p := m.Query.phases()[i]
		server := padLeft("–", kvWidth)
		if p.Server != nil {
			server = padLeft(nanoseconds(p.Server.PerDelivery), kvWidth)
		}
		t.line(name, padLeft(thousands(int64(math.Round(p.Rate))), kvWidth),
			padLeft(byteCount(p.Rate*float64(r.Parameters.PayloadBytes))+"/s", kvWidth),
			padLeft(duration(float64(p.Latency.P50)),
				kvWidth), padLeft(duration(float64(p.Latency.Max)), timeWidth),
			padLeft(nanoseconds(p.Client.PerDelivery), kvWidth), server)
	}
	for _, q := range r.Ratios {
		if q.Query == nil || q.Query.phases()[i].Latency == nil {
			continue
		}
		of := q.Query.phases()[i]
		t.line(padRight(cut("  / "+q.Against, nameWidth-1), nameWidth), padLeft(ratio(of.Rate),
			kvWidth), padLeft("", kvWidth),
			padLeft(ratio(of.Latency.P50), kvWidth), ratio(of.Latency.Max), padLeft("",
				kvWidth), padLeft(ratio(of.ServerCPU), kvWidth))
	}
}

// decimal is a number without zeros at its end.
func decimal(v float64) string { return fmt.Sprintf("%.6g", v) }

func (t *table) queryNotes() {
	t.line("query: records/s counts all records of the Topic, also those that need not be read to know that")
	t.line("they don't match. CPU/record: of this program, which judges as carillon query does, and of server,")
	t.line("with --server-pid. Each scan has to find as many records as match.")
	t.ratioNote()
}
