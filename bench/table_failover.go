package bench

import (
	"fmt"
	"time"
)

func (t *table) failover(results []Result) {
	for _, r := range results {
		t.failoverOf(r)
	}
}

var faultDone = map[string]string{
	FaultKill: "the leader's broker is killed", FaultPause: "the leader's broker is paused for %v",
	FaultCut: "the leader's broker is cut off for %v", FaultOther: "something else fails for %v",
}

func (t *table) failoverOf(r Result) {
	p := r.Parameters
	done := faultDone[p.Fault]
	if p.Fault != FaultKill {
		done = fmt.Sprintf(done, time.Duration(p.FaultNS))
	}
	t.line()
	t.line(cut(fmt.Sprintf("failover: %d publishers wait for each ack, %d replicas, %d B; %s",
		p.Publishers, p.Replicas, p.PayloadBytes, done), maxWidth))
	t.linef("a publisher gives an ack up after %v, and sends a message every %v at most", time.Duration(p.AckTimeoutNS), time.Duration(p.IntervalNS))
	t.line()
	t.line(padRight("", nameWidth), padLeft("", 6), padLeft("gap on the others", 2*timeWidth+2), padLeft("gap of all", 2*timeWidth),
		padLeft("acks", timeWidth), padLeft("an ack took", 2*timeWidth))
	t.line(padRight("server", nameWidth), padLeft("tries", 6), padLeft("median", timeWidth+2), padLeft("worst", timeWidth),
		padLeft("median", timeWidth), padLeft("worst", timeWidth), padLeft("failed", timeWidth), padLeft("p50", timeWidth), padLeft("p99", timeWidth),
		padLeft("lost", lostWidth), padLeft("dup", faultWidth), padLeft("ooo", faultWidth))
	for _, m := range r.Measured {
		t.outage(m)
	}
	t.line()
	for _, m := range r.Measured {
		if o := m.Outage; o != nil {
			t.line(cut(fmt.Sprintf("%s: sent %s, acknowledged %s, read back %s; longest gap undisturbed %s", cut(m.Server, 24),
				thousands(o.Published), thousands(o.Acked), thousands(m.Deliveries.Received), gap(o.LongestSteady)), maxWidth))
		}
	}
	t.tries(r)
}

func (t *table) outage(m Measured) {
	o, name := m.Outage, padRight(cut(m.Server, nameWidth-1), nameWidth)
	if o == nil || o.Tries == 0 {
		t.line(name, padLeft("no try was whole", 7*timeWidth))
		return
	}
	d := m.Deliveries
	t.line(name, padLeft(thousands(int64(o.Tries)), 6), padLeft(gap(o.MedianOthers), timeWidth+2), padLeft(gap(o.WorstOthers), timeWidth),
		padLeft(gap(o.MedianAll), timeWidth), padLeft(gap(o.WorstAll), timeWidth), padLeft(thousands(o.Failed), timeWidth),
		t.percentile(m.Median, m.Median.P50, 0.50), t.percentile(m.Median, m.Median.P99, 0.99),
		padLeft(thousands(d.Lost), lostWidth), padLeft(thousands(d.Duplicated), faultWidth), padLeft(thousands(d.OutOfOrder), faultWidth))
}

// gap shows no time where nobody could see one.
func gap(ns int64) string {
	if ns == 0 {
		return "–"
	}
	return duration(float64(ns))
}

// tries lists every single one: which of them were slow says more than their median.
func (t *table) tries(r Result) {
	t.line()
	t.line(padRight("the tries", nameWidth), padLeft("began", timeWidth), "  ", padRight("leader", nameWidth), padRight("then", nameWidth),
		padLeft("others", timeWidth), padLeft("all", timeWidth), padLeft("failed", timeWidth), padLeft("whole after", 13))
	for _, m := range r.Measured {
		if len(r.Measured) > 1 {
			t.line(cut(m.Server, maxWidth))
		}
		n := 0
		for _, run := range m.Runs {
			if run.Outage == nil {
				continue
			}
			for _, try := range run.Outage.Tries {
				n++
				t.line(padRight(fmt.Sprintf("  %d", n), nameWidth), padLeft(fmt.Sprintf("%.0fs", float64(try.BeganAfter)/1e9), timeWidth), "  ",
					padRight(cut(try.Leader, nameWidth-1), nameWidth), padRight(cut(try.NewLeader, nameWidth-1), nameWidth),
					padLeft(gap(try.GapOthers), timeWidth), padLeft(gap(try.GapAll), timeWidth),
					padLeft(thousands(try.Failed), timeWidth), padLeft(duration(float64(try.WholeAfter)), 13))
			}
		}
	}
}

func (t *table) failoverNotes() {
	t.line("gap: the longest time between two acks of one publisher around the fault; on the others: of those")
	t.line("connected to another broker. failed: acks that said no, or did not come in time; such a message")
	t.line("may be stored or not. an ack took: while nothing was wrong. lost: acknowledged, and not in the")
	t.line("stream when it was read back. whole after: all replicas were current again, or the time that a")
	t.line("fault is watched at least.")
}
