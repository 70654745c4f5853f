package bench

import (
	"fmt"
	"time"
)

func clusterHeadline(p Parameters) string {
	return fmt.Sprintf("cluster: %d brokers, %d subscribers with a live query each; %s msg/s per publisher, %d B",
		p.Brokers, p.Subscribers, number(p.RatePerPublisher), p.PayloadBytes)
}

func clusterExtent(p Parameters) string {
	return fmt.Sprintf("%s s measured from the start; a publisher changes its room every %v to %v",
		number(float64(p.DurationNS)/1e9), time.Duration(p.LeastNS), time.Duration(p.MostNS))
}

// memberships shows how often publishers became members, and what that cost.
func (t *table) memberships(results []Result) {
	for _, r := range results {
		for _, m := range r.Measured {
			if f := m.Cluster; f != nil {
				t.line()
				t.linef("%s: attributes were changed %s times, subscribers were told of %s changes of their",
					cut(m.Server, 24), thousands(f.Changes), thousands(f.Notices))
				t.linef("members; %s messages of new members were missed at a broker that was slow.", thousands(f.Missed))
			}
		}
	}
}

func (t *table) clusterNotes() {
	t.line("cluster: from when a message was due until the subscriber whose query its publisher matches has")
	t.line("it. All begin at once, and a message that changes attributes, and those behind it, wait for that:")
	t.line("both are part of the latency. bench CPU: of this program, 100% is one core.")
}
