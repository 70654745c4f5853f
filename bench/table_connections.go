package bench

import "fmt"

func (t *table) connections(results []Result) {
	p := results[0].Parameters
	how := "all at once"
	if p.ConnectRate > 0 {
		how = fmt.Sprintf("%s a second", thousands(int64(p.ConnectRate)))
	}
	t.line()
	t.linef("connections: opened %s, idle for %s s, client %s", how, number(float64(p.DurationNS)/1e9), results[0].Client)
	t.line()
	t.line(padRight("connections", nameWidth), padLeft("opened", countWidth), padLeft("all in", timeWidth), padLeft("p50", timeWidth), padLeft("p99", timeWidth),
		padLeft("p99.9", timeWidth), padLeft("max", timeWidth), padLeft("CPU/conn", 10), padLeft("memory/conn", 13), padLeft("lost", lostWidth))
	for _, r := range results {
		size := thousands(int64(r.Size))
		if len(r.Measured) == 1 {
			t.connectionsOf(size, r.Measured[0])
			continue
		}
		t.line(size)
		for _, m := range r.Measured {
			t.connectionsOf("  "+m.Server, m)
		}
		for _, q := range r.Ratios {
			if q.Connections != nil {
				t.line(padRight(cut("  / "+q.Against, nameWidth-1), nameWidth+countWidth), ratio(q.Connections.AllIn), ratio(q.P50), ratio(q.P99), ratio(q.P999),
					ratio(q.Max), padLeft(ratio(q.Connections.ServerCPU), 10), padLeft(ratio(q.Connections.PerConnection), 13))
			}
		}
	}
}

func (t *table) connectionsOf(name string, m Measured) {
	name = padRight(cut(name, nameWidth-1), nameWidth)
	f, l := m.Connections, m.Median
	if f == nil {
		t.line(name, padLeft("nothing was measured", 3*timeWidth))
		return
	}
	memory := "–"
	if f.PerConnection > 0 {
		memory = byteCount(f.PerConnection)
	}
	t.line(name, padLeft(thousands(l.Count), countWidth), padLeft(duration(float64(f.AllIn)), timeWidth), t.percentile(l, l.P50, 0.50), t.percentile(l, l.P99, 0.99),
		t.percentile(l, l.P999, 0.999), padLeft(duration(float64(l.Max)), timeWidth), perOperation(f.Server, 10), padLeft(memory, 13), padLeft(thousands(m.Deliveries.Lost), lostWidth))
}

func (t *table) connectionsNotes() {
	t.line("connections: from when one was due until its PONG, TCP and TLS included. CPU/conn: of the server")
	t.line("while they are opened. memory/conn: the server's memory, without files, while all are idle, less")
	t.line("that before the first run. lost: not opened, or without an answer at the end.")
	t.ratioNote()
}
