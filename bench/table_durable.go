package bench

import (
	"fmt"
	"math"
	"slices"
)

// The columns that only the durable scenario has.
const (
	rateWidth = 10 // a million a second, and room before it
	badWidth  = 8
)

func (t *table) durable(results []Result) {
	p := results[0].Parameters
	t.line()
	replicas := "1 replica"
	if p.Replicas > 1 {
		replicas = fmt.Sprintf("%d replicas", p.Replicas)
	}
	on, where := connected(results)
	t.linef("durable: publishers%s to a stream in files on %s, %d B, client %s", on, replicas, p.PayloadBytes, results[0].Client)
	if where != "" {
		t.line(where)
	}
	t.linef("%s s measured after %s s of warm-up; without a window, each publisher waits for every ack",
		number(float64(p.DurationNS)/1e9), number(float64(p.WarmupNS)/1e9))
	t.line()
	t.line(padRight("publishers", nameWidth), padLeft("acks", countWidth), padLeft("acks/s", rateWidth),
		padLeft("mean", timeWidth), padLeft("p50", timeWidth), padLeft("p99", timeWidth), padLeft("p99.9", timeWidth), padLeft("max", timeWidth),
		padLeft("bad ack", badWidth), padLeft("lost", lostWidth), padLeft("dup", faultWidth), padLeft("ooo", faultWidth))
	for _, r := range results {
		size := durableSize(r)
		if len(r.Measured) == 1 {
			t.acks(size, r.Measured[0])
			continue
		}
		t.line(size)
		for _, m := range r.Measured {
			t.acks("  "+m.Server, m)
		}
		for _, q := range r.Ratios {
			t.line(padRight(cut("  / "+q.Against, nameWidth-1), nameWidth+countWidth+rateWidth-timeWidth), ratio(q.AckRate), ratio(q.Mean), ratio(q.P50),
				ratio(q.P99), ratio(q.P999), ratio(q.Max))
		}
	}
	t.durableConditions(results)
}

// connected says whom the publishers connect to: in the headline, or in a line of its own.
func connected(results []Result) (on, line string) {
	for _, r := range results {
		for _, m := range r.Measured {
			for _, run := range m.Runs {
				if run.Placement == nil {
					continue
				}
				switch r.Parameters.Connect {
				case ConnectLeader:
					return "", "the publishers share one connection, to the broker that leads the stream"
				case ConnectFollower:
					return "", "the publishers share a connection to each broker but the one that leads the stream"
				}
				return "", "the publishers share a connection to each broker"
			}
		}
	}
	return " on one connection", ""
}

func durableSize(r Result) string {
	if window := r.Parameters.Window; window > 1 {
		return "1, window " + thousands(int64(window))
	}
	return thousands(int64(r.Size))
}

func (t *table) acks(name string, m Measured) {
	l := m.Median
	cells := []string{padRight(cut(name, nameWidth-1), nameWidth), padLeft(thousands(l.Count), countWidth)}
	if l.Count == 0 {
		cells = append(cells, padLeft("nothing was measured", rateWidth+5*timeWidth))
	} else {
		cells = append(cells, padLeft(thousands(int64(math.Round(m.AckRate))), rateWidth), padLeft(duration(l.Mean), timeWidth),
			t.percentile(l, l.P50, 0.50), t.percentile(l, l.P99, 0.99), t.percentile(l, l.P999, 0.999), padLeft(duration(float64(l.Max)), timeWidth))
	}
	bad := int64(0)
	if m.Acks != nil {
		bad = m.Acks.bad()
	}
	d := m.Deliveries
	t.line(append(cells, padLeft(thousands(bad), badWidth), padLeft(thousands(d.Lost), lostWidth),
		padLeft(thousands(d.Duplicated), faultWidth), padLeft(thousands(d.OutOfOrder), faultWidth))...)
}

// durableConditions shows how much the runs differ, and what they cost.
func (t *table) durableConditions(results []Result) {
	counted, server := false, false
	for _, r := range results {
		for _, m := range r.Measured {
			for _, run := range m.counted() {
				counted, server = true, server || run.ServerCPU != nil
			}
		}
	}
	if !counted {
		return
	}
	t.line()
	header := []string{padRight("the runs", nameWidth), padLeft("least acks/s", 13), padLeft("most", rateWidth), padLeft("read back", 12),
		padLeft("bench CPU", 11), padLeft("per ack", 9)}
	if server {
		t.serverCPU = true
		header = append(header, padLeft("CPU/msg", 9), padLeft("RSS", 8))
	}
	t.line(header...)
	for _, r := range results {
		size := durableSize(r)
		if len(r.Measured) == 1 {
			t.durableCondition(size, r.Measured[0])
			continue
		}
		t.line(size)
		for _, m := range r.Measured {
			t.durableCondition("  "+m.Server, m)
		}
	}
}

func (t *table) durableCondition(name string, m Measured) {
	counted := m.counted()
	if len(counted) == 0 {
		return
	}
	least, most := counted[0].AckRate, counted[0].AckRate
	for _, run := range counted {
		least, most = min(least, run.AckRate), max(most, run.AckRate)
	}
	cells := []string{padRight(cut(name, nameWidth-1), nameWidth), padLeft(thousands(int64(math.Round(least))), 13),
		padLeft(thousands(int64(math.Round(most))), rateWidth), padLeft(thousands(m.Deliveries.Received), 12),
		padLeft(fmt.Sprintf("%.0f%%", 100*median(counted, func(r Run) float64 { return r.ClientCPU.Cores })), 11),
		padLeft(duration(median(counted, func(r Run) float64 { return r.ClientCPU.PerDelivery })), 9)}
	known := slices.DeleteFunc(counted, func(r Run) bool { return r.ServerCPU == nil })
	if len(known) > 0 {
		per := median(known, func(r Run) float64 { return r.ServerCPU.PerDelivery })
		rss := median(known, func(r Run) int64 { return r.ServerRSS })
		cells = append(cells, padLeft(duration(per), 9), padLeft(fmt.Sprintf("%dMiB", rss>>20), 8))
	}
	t.line(cells...)
}
