package bench

import (
	"fmt"
	"math"
	"time"
)

// The columns that only the consume scenario has.
const (
	perWidth   = 9
	redelWidth = 7
)

// consumeSize names the load of a result: 16 consumers, batch 500.
func consumeSize(r Result) string {
	text := thousands(int64(r.Size))
	if r.Parameters.Push {
		return text + " pushed to"
	}
	return text + ", batch " + thousands(int64(r.Parameters.PullBatch))
}

func (t *table) consume(results []Result) {
	p := results[0].Parameters
	t.line()
	kind := "a shared pull consumer"
	if p.Push {
		kind = "a push consumer with a queue group"
	}
	t.line(cut(fmt.Sprintf("consume: %s messages of %d B, %s, %s, client %s", thousands(int64(p.Messages)), p.PayloadBytes, kind, replicasOf(p), results[0].Client), maxWidth))
	t.linef("each acknowledged; then messages at a fixed rate, %s s measured after %s s of warm-up",
		number(float64(p.DurationNS)/1e9), number(float64(p.WarmupNS)/1e9))
	t.line()
	t.line(padRight("consumers", nameWidth), padLeft("taken/s", rateWidth), padLeft("CPU/msg", perWidth), padLeft("redel", redelWidth),
		padLeft("paced/s", perWidth), padLeft("p50", timeWidth), padLeft("p99", timeWidth), padLeft("p99.9", timeWidth), padLeft("max", timeWidth),
		padLeft("lost", lostWidth), padLeft("dup", faultWidth), padLeft("ooo", faultWidth))
	for _, r := range results {
		size := consumeSize(r)
		if len(r.Measured) == 1 {
			t.takers(size, r.Measured[0])
			continue
		}
		t.line(size)
		for _, m := range r.Measured {
			t.takers("  "+m.Server, m)
		}
		for _, q := range r.Ratios {
			if q.Consume == nil {
				continue
			}
			t.line(padRight(cut("  / "+q.Against, nameWidth-1), nameWidth), padLeft(ratio(q.Consume.Rate), rateWidth), padLeft(ratio(q.Consume.ServerCPU), perWidth),
				padLeft("", redelWidth+perWidth), ratio(q.P50), ratio(q.P99), ratio(q.P999), ratio(q.Max))
		}
	}
	t.consumeConditions(results)
}

func replicasOf(p Parameters) string {
	if p.Replicas > 1 {
		return fmt.Sprintf("%d replicas", p.Replicas)
	}
	return "1 replica"
}

func (t *table) takers(name string, m Measured) {
	cells := []string{padRight(cut(name, nameWidth-1), nameWidth)}
	l, f, d := m.Median, m.Consume, m.Deliveries
	if f == nil {
		cells = append(cells, padLeft("nothing was measured", rateWidth+2*perWidth+redelWidth+4*timeWidth))
	} else {
		cells = append(cells, padLeft(thousands(int64(math.Round(f.Rate))), rateWidth), perOperation(f.Server, perWidth),
			padLeft(thousands(f.Redelivered), redelWidth), padLeft(thousands(int64(math.Round(f.PacedRate))), perWidth),
			t.percentile(l, l.P50, 0.50), t.percentile(l, l.P99, 0.99), t.percentile(l, l.P999, 0.999), padLeft(duration(float64(l.Max)), timeWidth))
	}
	t.line(append(cells, padLeft(thousands(d.Lost), lostWidth), padLeft(thousands(d.Duplicated), faultWidth), padLeft(thousands(d.OutOfOrder), faultWidth))...)
}

func perOperation(c *CPU, width int) string {
	if c == nil {
		return padLeft("–", width)
	}
	return padLeft(duration(c.PerDelivery), width)
}

// consumeConditions shows how much the runs differ, and what they cost.
func (t *table) consumeConditions(results []Result) {
	t.line()
	t.line(padRight("the runs", nameWidth), padLeft("least taken/s", 14), padLeft("most", rateWidth), padLeft("bench CPU", 11), padLeft("per msg", perWidth),
		padLeft("paced: CPU/msg", 16), padLeft("late p99", 10), padLeft("RSS", 8))
	for _, r := range results {
		if len(r.Measured) > 1 {
			t.line(consumeSize(r))
		}
		for _, m := range r.Measured {
			if m.Consume == nil {
				continue
			}
			name := consumeSize(r)
			if len(r.Measured) > 1 {
				name = "  " + m.Server
			}
			t.consumeCondition(name, m)
		}
	}
}

func (t *table) consumeCondition(name string, m Measured) {
	least, most, rss := math.Inf(1), 0.0, "–"
	for _, run := range m.Runs {
		if run.Consume != nil && run.Consume.Rate > 0 {
			least, most = min(least, run.Consume.Rate), max(most, run.Consume.Rate)
		}
	}
	if m.Consume.Server != nil {
		rss = fmt.Sprintf("%dMiB", median(m.Runs, func(r Run) int64 { return r.ServerRSS })>>20)
	}
	t.line(padRight(cut(name, nameWidth-1), nameWidth), padLeft(thousands(int64(math.Round(least))), 14), padLeft(thousands(int64(math.Round(most))), rateWidth),
		padLeft(fmt.Sprintf("%.0f%%", 100*m.Consume.Client.Cores), 11), padLeft(duration(m.Consume.Client.PerDelivery), perWidth),
		perOperation(m.Consume.PacedServer, 16), padLeft(duration(float64(m.Late.P99)), 10), padLeft(rss, 8))
}

func (t *table) consumeNotes() {
	t.line("consume: taken/s counts until the server reports every message as acknowledged. CPU/msg: of the")
	t.line("server. Latency is that of the second phase, from the time a message was due until it was taken.")
	t.linef("redel: delivered again with a mark; before the ack wait of %v that is a fault.", t.ackWait())
	t.ratioNote()
}

func (t *table) ackWait() time.Duration {
	for _, r := range t.report.Results {
		if r.Scenario == scenarioConsume {
			return time.Duration(r.Parameters.AckWaitNS)
		}
	}
	return 0
}

// ratioNote explains the lines of ratios.
func (t *table) ratioNote() {
	if len(t.report.Servers) > 1 {
		t.linef("/ NAME: %s over NAME; rates above 1, times and CPU below 1 are better.", cut(t.report.Servers[0].Name, 24))
	}
}
