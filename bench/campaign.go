package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"
)

// A Campaign takes workloads to one target, or to several in turn.
type Campaign struct {
	Workloads []Workload
	Server    Target
	Against   []Target      // what the server is compared with
	Repeat    int           // runs of each workload on each target
	Wait      time.Duration // for the targets to answer at all
	Limits    Limits
	Seed      uint64
	Command   []string // the command line, for the report; without secrets
	Version   string   // of this program
	Status    func(string)
}

// maxAgainst bounds how many servers one is compared with: a table of more is not read.
const maxAgainst = 8

// breather is the pause between runs, in which a server closes what the last one left.
const breather = 500 * time.Millisecond

// ErrUnreachable marks a target that did not answer, or did not let us in.
var ErrUnreachable = errors.New("server unreachable")

// Run measures everything and reports it. It returns an error only when there is nothing to
// report; faults and an interrupt are in the Report (see Report.Err).
func (c Campaign) Run(ctx context.Context) (*Report, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	for _, w := range c.Workloads {
		if err := ensureFiles(w.sockets()); err != nil {
			return nil, fmt.Errorf("%s with %d: %w", w.Scenario, w.Size, err)
		}
	}
	report := &Report{Schema: Schema, Environment: readEnvironment(c)}
	targets := append([]Target{c.Server}, c.Against...)
	for i, t := range targets {
		c.Status("waiting for " + t.Name)
		server, err := t.Reach(ctx, c.Wait)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
		report.Servers = append(report.Servers, server)
		// What can't be read is left out of the figures.
		targets[i].memory, _ = anonymousMemory(t.PIDs)
	}
	if err := c.leaveOut(ctx, targets, report); err != nil {
		return nil, err
	}
	total, done := len(c.Workloads)*c.Repeat*len(targets), 0
	for _, w := range c.Workloads {
		result := newResult(w, targets)
		for repeat := range c.Repeat {
			for _, which := range order(repeat, len(targets)) {
				if ctx.Err() != nil {
					break
				}
				if done > 0 && sleep(ctx, breather) != nil {
					break
				}
				done++
				label := fmt.Sprintf("[%d/%d] %s", done, total, result.load())
				if len(targets) > 1 {
					label += " on " + targets[which].Name
				}
				// What the last run left is not this one's to collect.
				runtime.GC()
				run := measure(ctx, targets[which], w, c.Limits, func(phase string) { c.Status(label + ": " + phase) })
				run.Repeat = repeat + 1
				result.Measured[which].Runs = append(result.Measured[which].Runs, run)
			}
		}
		if ctx.Err() != nil && len(result.Measured[0].Runs) == 0 {
			break // interrupted before it began
		}
		result.summarize()
		report.Results = append(report.Results, result)
	}
	report.compareSizes()
	report.Partial = ctx.Err() != nil
	return report, nil
}

// leaveOut takes out of the campaign what one of the targets does not offer, if it may.
func (c *Campaign) leaveOut(ctx context.Context, targets []Target, report *Report) error {
	durable := func(w Workload) bool { return w.durable != nil }
	stored := func(w Workload) bool {
		return w.durable != nil || w.failover != nil || w.log != nil || w.consume != nil || w.kv != nil || w.noisy != nil && w.noisy.stream
	}
	live := func(w Workload) bool {
		return w.requery != nil || w.cluster != nil || w.filter != nil || w.query != nil || w.Parameters.Queries > 0
	}
	if slices.ContainsFunc(c.Workloads, live) {
		for _, t := range targets {
			if err := t.hasQueries(ctx); err != nil {
				return err
			}
		}
	}
	first := slices.IndexFunc(c.Workloads, stored)
	if first < 0 {
		return nil
	}
	optional := c.Workloads[first].durable != nil && c.Workloads[first].durable.optional
	for _, t := range targets {
		err := t.hasStreams(ctx)
		switch {
		case err == nil:
		case errors.Is(err, ErrNoStreams) && optional:
			report.Skipped = append(report.Skipped, fmt.Sprintf("durable: %v", err))
			c.Workloads = slices.DeleteFunc(slices.Clone(c.Workloads), durable)
			return nil
		case errors.Is(err, ErrNoStreams):
			return fmt.Errorf("%w, which the %s scenario needs", err, c.Workloads[first].Scenario)
		default:
			return err
		}
	}
	return nil
}

// Validate says what is wrong with the campaign, if anything.
func (c Campaign) Validate() error {
	if len(c.Workloads) == 0 {
		return errors.New("there is nothing to measure")
	}
	if c.Repeat < 1 || c.Repeat > 1000 {
		return fmt.Errorf("repeat is %d; give 1 to 1000", c.Repeat)
	}
	if len(c.Against) > maxAgainst {
		return fmt.Errorf("%d servers to compare with; give at most %d", len(c.Against), maxAgainst)
	}
	names := map[string]bool{c.Server.Name: true}
	for _, t := range c.Against {
		if names[t.Name] {
			return fmt.Errorf("two servers are called %q; give one another name (--name, --against NAME=URL)", t.Name)
		}
		names[t.Name] = true
	}
	for _, w := range c.Workloads {
		for _, t := range append([]Target{c.Server}, c.Against...) {
			if w.failover == nil {
				continue
			}
			if err := w.failover.suits(t); err != nil {
				return err
			}
		}
	}
	return nil
}

// order alternates in which direction the turn goes (A B B A ..., A B C C B A ...), so that
// none always has the warmer machine.
func order(repeat, targets int) []int {
	turn := make([]int, targets)
	for i := range turn {
		turn[i] = i
	}
	if repeat%2 == 1 {
		slices.Reverse(turn)
	}
	return turn
}

func (r *Result) summarize() {
	for i := range r.Measured {
		r.Measured[i].summarize()
	}
	r.Ratio, r.Ratios = nil, nil
	for i, m := range r.Measured[1:] {
		ratio := ratioOf(r.Measured[0].Median, m.Median)
		throughput := ratioOfThroughput(r.Measured[0].Throughput, m.Throughput)
		if ratio == nil && throughput != nil {
			ratio = &Ratio{} // nothing waited for an answer
		}
		if ratio != nil {
			if m.AckRate > 0 {
				ratio.AckRate = r.Measured[0].AckRate / m.AckRate
			}
			ratio.Consume = ratioOfConsume(r.Measured[0].Consume, m.Consume)
			ratio.KV = ratioOfKV(r.Measured[0].KV, m.KV)
			ratio.Throughput = throughput
			ratio.Request = ratioOfRequest(r.Measured[0].Request, m.Request)
			ratio.Connections = ratioOfConnections(r.Measured[0].Connections, m.Connections)
			ratio.Noisy = ratioOfNoisy(r.Measured[0].Noisy, m.Noisy)
			ratio.Query = ratioOfQuery(r.Measured[0].Query, m.Query)
			ratio.Against = m.Server
			r.Ratios = append(r.Ratios, *ratio)
		}
		if i == 0 {
			r.Ratio = ratio
		}
	}
}

func (m *Measured) summarize() {
	m.Deliveries, m.Dropped, m.Acks, m.Outage, m.Log = Deliveries{}, 0, nil, summarizeOutages(m.Runs), summarizeLogs(m.Runs)
	m.Consume, m.KV, m.Throughput = summarizeConsume(m.Runs), summarizeKV(m.Runs), summarizeThroughput(m.Runs)
	m.Request, m.Connections, m.Noisy = summarizeRequest(m.Runs), summarizeConnections(m.Runs), summarizeNoisy(m.Runs)
	m.Requery, m.Query = summarizeRequery(m.Runs), summarizeQuery(m.Runs)
	m.Cluster = summarizeCluster(m.Runs)
	for _, run := range m.Runs {
		if run.Acks != nil {
			if m.Acks == nil {
				m.Acks = &Acks{}
			}
			*m.Acks = m.Acks.plus(*run.Acks)
		}
		m.Deliveries = m.Deliveries.plus(run.Deliveries)
		m.Dropped += run.Dropped
	}
	counted := m.counted()
	m.Median = medianOf(counted, func(r Run) Latency { return r.Latency })
	m.Late = medianOf(counted, func(r Run) Latency { return r.Late })
	if m.Acks != nil && len(counted) > 0 {
		m.AckRate = median(counted, func(r Run) float64 { return r.AckRate })
	}
}

// counted is the runs that measured anything.
func (m *Measured) counted() (runs []Run) {
	for _, run := range m.Runs {
		if run.Latency.Count > 0 {
			runs = append(runs, run)
		}
	}
	return runs
}

func medianOf(runs []Run, of func(Run) Latency) Latency {
	if len(runs) == 0 {
		return Latency{}
	}
	whole := func(f func(Latency) int64) int64 {
		return median(runs, func(r Run) int64 { return f(of(r)) })
	}
	return Latency{
		Count: whole(func(l Latency) int64 { return l.Count }),
		Min:   whole(func(l Latency) int64 { return l.Min }),
		Mean:  median(runs, func(r Run) float64 { return of(r).Mean }),
		SD:    median(runs, func(r Run) float64 { return of(r).SD }),
		P50:   whole(func(l Latency) int64 { return l.P50 }),
		P95:   whole(func(l Latency) int64 { return l.P95 }),
		P99:   whole(func(l Latency) int64 { return l.P99 }),
		P999:  whole(func(l Latency) int64 { return l.P999 }),
		Max:   whole(func(l Latency) int64 { return l.Max }),
	}
}

// median of an even number of values is the mean of the middle two.
func median[N int64 | float64](runs []Run, of func(Run) N) N {
	values := make([]N, len(runs))
	for i, run := range runs {
		values[i] = of(run)
	}
	slices.Sort(values)
	middle := len(values) / 2
	if len(values)%2 == 1 {
		return values[middle]
	}
	return (values[middle-1] + values[middle]) / 2
}

// over is 0 where the second figure is not known.
func over(x, y float64) float64 {
	if y == 0 {
		return 0
	}
	return x / y
}

func ratioOf(a, b Latency) *Ratio {
	if a.Count == 0 || b.Count == 0 {
		return nil
	}
	return &Ratio{
		Mean: over(a.Mean, b.Mean), SD: over(a.SD, b.SD), P50: over(float64(a.P50), float64(b.P50)),
		P95: over(float64(a.P95), float64(b.P95)), P99: over(float64(a.P99), float64(b.P99)),
		P999: over(float64(a.P999), float64(b.P999)), Max: over(float64(a.Max), float64(b.Max)),
	}
}

// Err says what a user must know besides the figures: nil if every run was whole and
// faultless.
func (r *Report) Err() error {
	faults := r.faults()
	switch {
	case len(faults) > 0:
		return errors.New(strings.Join(faults, "; "))
	case r.Partial:
		return errors.New("interrupted: the figures are partial")
	}
	return nil
}

// faults has a sentence for each measurement in which something went wrong.
func (r *Report) faults() (list []string) {
	for _, result := range r.Results {
		for i, m := range result.Measured {
			text := m.faults()
			// Those that it is compared with are as slow as they are.
			if limit := time.Duration(result.Parameters.WithinNS); limit > 0 && i == 0 {
				if n := m.slower(limit); n > 0 {
					text = strings.TrimPrefix(text+fmt.Sprintf(", in %d of %d tries the other brokers' publishers waited longer than %v", n, m.Outage.Tries, limit), ", ")
				}
			}
			if text != "" {
				list = append(list, fmt.Sprintf("%s on %s: %s", result.load(), m.Server, text))
			}
		}
	}
	return list
}

// faults is empty for a faultless measurement.
func (m Measured) faults() string {
	var parts []string
	add := func(n int64, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	if a := m.Acks; a != nil {
		add(a.Unanswered, "unanswered")
		add(a.Refused, "refused")
		add(a.Duplicated, "answered twice")
		add(a.OutOfOrder, "answered out of order")
		add(a.Wrong, "answered wrongly")
	}
	if m.Outage != nil {
		add(m.Outage.Wrong, "answered wrongly")
	}
	add(m.Deliveries.Lost, "lost")
	add(m.Deliveries.Duplicated, "duplicated")
	add(m.Deliveries.OutOfOrder, "out of order")
	add(m.Deliveries.Unexpected, "damaged or misrouted")
	add(int64(m.Dropped), "subscribers cut off")
	for _, run := range m.Runs {
		if run.Error != "" {
			parts = append(parts, run.Error)
			break
		}
	}
	return strings.Join(parts, ", ")
}
