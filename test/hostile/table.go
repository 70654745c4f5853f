package hostile

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Result is the outcome of all runs of one attack on a number of brokers.
type Result struct {
	Attack        string
	Brokers       int
	Runs          int
	Sent, Refused int64 // of the attacker, in the last run
	Run                 // the medians
	Broken        []string
}

// WriteTable writes a row for each kind of operation of the bystander, and the broken bounds.
func WriteTable(to io.Writer, results []Result) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "attack\tbrokers\tsent\trefused\tbystander\tundisturbed p99\tunder attack\tratio\tnats-server's\tMiB before/peak/after\truns\tverdict")
	for _, r := range results {
		for i, l := range r.Latencies {
			memory, verdict := "", "held"
			if i == 0 {
				memory = memories(r.Memories)
			}
			if len(r.Broken) > 0 {
				verdict = "BROKEN"
			}
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\t%s\t%s\t%.1f\t%s\t%s\t%d\t%s\n", r.Attack, r.Brokers, r.Sent, r.Refused, l.What,
				short(l.Undisturbed), short(l.Attacked), l.Ratio(), short(l.Peer), memory, r.Runs, verdict)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, r := range results {
		if len(r.Broken) == 0 {
			continue
		}
		if _, err := fmt.Fprintf(to, "%s, %d brokers: %s\n", r.Attack, r.Brokers, strings.Join(r.Broken, "; ")); err != nil {
			return err
		}
	}
	return nil
}

// memories shows the process whose peak is highest.
func memories(all []Memory) string {
	var worst Memory
	for _, m := range all {
		if m.Peak >= worst.Peak {
			worst = m
		}
	}
	return fmt.Sprintf("%d/%d/%d", worst.Before>>20, worst.Peak>>20, worst.After>>20)
}
