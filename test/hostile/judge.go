package hostile

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Bounds are what an attack may do to a bystander and to a broker.
type Bounds struct {
	Slowdown float64 // the p99 under attack, in undisturbed ones; nats-server's may be more
	Left     float64 // the memory after the attack, in the memory before it
}

// Promised are the bounds that Carillon promises.
var Promised = Bounds{Slowdown: 5, Left: 1.2}

// Latency has the p99s of one kind of operation of the bystander.
type Latency struct {
	What                  string        // the operation
	Undisturbed, Attacked time.Duration // at Carillon
	Peer                  time.Duration // at nats-server under the same attack; 0: not attacked
}

// Ratio is the p99 under attack in undisturbed ones.
func (l Latency) Ratio() float64 { return float64(l.Attacked) / float64(max(l.Undisturbed, 1)) }

// Memory is the resident memory of one process in bytes.
type Memory struct {
	Process             string
	Before, Peak, After int64
	Limit               int64
}

// Run is what one run of an attack measured.
type Run struct {
	Latencies []Latency
	Memories  []Memory
	Ended     []string // processes that ended under attack, or did not serve again
}

// Judge returns the bounds that a run breaks.
func (b Bounds) Judge(r Run) (broken []string) {
	for _, l := range r.Latencies {
		most := max(time.Duration(b.Slowdown*float64(l.Undisturbed)), l.Peer)
		if l.Attacked > most {
			broken = append(broken, fmt.Sprintf("p99 of %s is %s, of at most %s", l.What, short(l.Attacked), short(most)))
		}
	}
	for _, m := range r.Memories {
		if m.Peak > m.Limit {
			broken = append(broken, fmt.Sprintf("%s took %s, of at most %s", m.Process, mebibytes(m.Peak), mebibytes(m.Limit)))
		}
		if most := int64(b.Left * float64(m.Before)); m.After > most {
			broken = append(broken, fmt.Sprintf("%s keeps %s, of at most %s", m.Process, mebibytes(m.After), mebibytes(most)))
		}
	}
	return append(broken, r.Ended...)
}

// Median returns the medians of each figure of runs of the same attack, and the ends of processes
// in any of them.
func Median(runs []Run) (m Run) {
	if len(runs) == 0 {
		return m
	}
	m.Latencies = slices.Clone(runs[0].Latencies)
	for i := range m.Latencies {
		l := &m.Latencies[i]
		l.Undisturbed = median(runs, func(r Run) time.Duration { return r.Latencies[i].Undisturbed })
		l.Attacked = median(runs, func(r Run) time.Duration { return r.Latencies[i].Attacked })
		l.Peer = median(runs, func(r Run) time.Duration { return r.Latencies[i].Peer })
	}
	m.Memories = slices.Clone(runs[0].Memories)
	for i := range m.Memories {
		of := &m.Memories[i]
		of.Before = median(runs, func(r Run) int64 { return r.Memories[i].Before })
		of.Peak = median(runs, func(r Run) int64 { return r.Memories[i].Peak })
		of.After = median(runs, func(r Run) int64 { return r.Memories[i].After })
	}
	for _, r := range runs {
		m.Ended = append(m.Ended, r.Ended...)
	}
	return m
}

func median[T cmp.Ordered](runs []Run, figure func(Run) T) T {
	all := make([]T, 0, len(runs))
	for _, r := range runs {
		all = append(all, figure(r))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// Percentile returns the quantile q, from 0 to 1, of sorted durations.
func Percentile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func short(d time.Duration) string {
	switch {
	case d == 0:
		return "-"
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.2f ms", d.Seconds()*1000)
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", d.Seconds()*1000)
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

func mebibytes(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }
