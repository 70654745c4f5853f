package bench

import (
	"fmt"
	"slices"
)

func filterHeadline(r Result) string {
	p := r.Parameters
	return fmt.Sprintf("filter: Subscriptions of one Topic, each with another json.k == …; %s msg/s of %d B",
		thousands(int64(p.OfferedMessages)), p.PayloadBytes)
}

func filterExtent(p Parameters) string {
	return fmt.Sprintf("each message matches one; %s, durability %s; %s s measured after %s s of warm-up",
		replicasOf(p), p.Durability, number(float64(p.DurationNS)/1e9), number(float64(p.WarmupNS)/1e9))
}

// overFirst shows what the server's CPU time is over that of the first size.
func (t *table) overFirst(results []Result) {
	began := false
	for i, r := range results {
		first := slices.IndexFunc(results[:i], func(other Result) bool { return other.sizeOf(r) })
		for _, m := range r.Measured {
			if m.OverFirst == 0 || first < 0 {
				continue
			}
			if !began {
				began = true
				t.line()
			}
			name, of, size := cut(m.Server, 24), "filters", Result.label
			if r.Scenario == scenarioForward {
				name += fmt.Sprintf(", %s groups", thousands(int64(r.Size)))
				of = "other queries"
				size = func(r Result) string { return thousands(int64(r.Parameters.Queries)) }
			}
			t.linef("%s: %s %s take %.3f × the server's CPU time of %s, per message.", name, size(r), of,
				m.OverFirst, size(results[first]))
		}
	}
}

func (t *table) filterNotes() {
	t.line("filter: from when a message was due until the Subscription that it matches has it, stored before.")
	t.line("lost: not delivered to the one that it matches. Its publisher gets an ack of each message. The CPU")
	t.line("time of the server needs --server-pid. bench CPU: of this program, 100% is one core.")
}
