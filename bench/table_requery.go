package bench

import (
	"fmt"
	"time"
)

func requeryHeadline(p Parameters) string {
	return fmt.Sprintf("requery: %s live queries on %d connections, each matches %s %% of the publishers",
		thousands(int64(p.Queries)), p.Sessions, number(100*p.Share))
}

func requeryExtent(p Parameters) string {
	return fmt.Sprintf("publishers arrive every %v to %v; then %s changes of attributes at the same rate",
		time.Duration(p.LeastNS), time.Duration(p.MostNS), thousands(int64(p.Changes)))
}

// answers shows how soon changes of attributes were acknowledged.
func (t *table) answers(results []Result) {
	for i, r := range results {
		for _, m := range r.Measured {
			f := m.Requery
			if f == nil {
				continue
			}
			if i == 0 {
				t.line()
			}
			l := f.Answer
			t.linef("%s, %s %s: all queries were open after %s;", cut(m.Server, 24),
				thousands(int64(r.Size)),
				r.unit(), duration(float64(f.OpenNS)))
			repeated := ""
			if f.Repeated > 0 {
				repeated = fmt.Sprintf("; %s were repeated", thousands(f.Repeated))
			}
			t.linef("  %s changes were acknowledged: p50 %s, p99 %s, max %s%s.", thousands(f.Answered),
				duration(float64(l.P50)), duration(float64(l.P99)), duration(float64(l.Max)), repeated)
		}
	}
}

func (t *table) requeryNotes() {
	t.line("requery: from when a change of a publisher's attributes was due until the client of a query has")
	t.line("its notice, that the publisher joins or leaves. offered/s and delivered/s: notices. lost: notices")
	t.line("that did not come. late: how long after it was due a change left its publisher, which waits for")
	t.line("the notices of its last one. bench CPU: of this program, 100% is one core.")
}
