package bench

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// The columns: a name, a count, seven times, three counts of faults.
const (
	maxWidth   = 99
	nameWidth  = 16
	countWidth = 9
	timeWidth  = 8
	lostWidth  = 6
	faultWidth = 5
)

// WriteTable writes the report for a reader, at most 100 characters wide. With originals it
// adds what the systems that the workloads come from reported.
func (r *Report) WriteTable(out io.Writer, originals bool) error {
	t := &table{out: bufio.NewWriter(out), report: r, originals: originals}
	t.write()
	if err := t.out.Flush(); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	return nil
}

type table struct {
	out        *bufio.Writer
	report     *Report
	originals  bool
	fewSamples bool // some percentile was marked
	serverCPU  bool // the server's CPU is shown
}

// line writes cells without leaving spaces at the end.
func (t *table) line(cells ...string) {
	t.out.WriteString(strings.TrimRight(strings.Join(cells, ""), " "))
	t.out.WriteByte('\n')
}

func (t *table) linef(format string, arguments ...any) { t.line(fmt.Sprintf(format, arguments...)) }

func (t *table) write() {
	e := t.report.Environment
	t.linef("carillon bench %s · %s", e.Version, e.Date.Format("2006-01-02 15:04 UTC"))
	model := ""
	if e.CPUModel != "" {
		model = " (" + cut(e.CPUModel, 40) + ")"
	}
	t.linef("%d CPUs%s · %s · %s", e.CPUs, model, e.Kernel, e.Go)
	for _, s := range t.report.Servers {
		t.line(cut(fmt.Sprintf("%s: version %s, %s, at %s", s.Name, s.Version, cut(s.Server, 24), s.URL), maxWidth))
	}
	var section []Result
	for i, result := range t.report.Results {
		section = append(section, result)
		if last := i+1 == len(t.report.Results); last || !result.besides(t.report.Results[i+1]) {
			t.section(section)
			section = nil
		}
	}
	for _, what := range t.report.Skipped {
		t.line()
		t.line("Left out: " + what + ".")
	}
	t.line()
	t.notes()
	if t.serverCPU {
		t.line("CPU/msg: CPU time of the server per delivery, or per ack.")
	}
	if e.Repeat > 1 {
		t.linef("Times are medians of %d runs; lost, dup and ooo are sums over them.", e.Repeat)
	}
	if t.fewSamples {
		t.linef("~ fewer than %d samples lie above it.", enoughAbove)
	}
	faults := t.report.faults()
	if t.report.Partial {
		faults = append(faults, "PARTIAL: interrupted; what was measured until then is above.")
	}
	if len(faults) > 0 {
		t.line()
	}
	for _, fault := range faults {
		t.line("! " + fault)
	}
}

// notes explain the columns of the scenarios that are there.
func (t *table) notes() {
	has := map[string]bool{}
	for _, r := range t.report.Results {
		has[r.Scenario] = true
	}
	if has[scenarioForward] || has["fanout"] {
		t.line("Latency counts from the time a message was due (open loop), warm-up left out.")
		t.line("late: how long after that it left its publisher. bench CPU: of this program, 100% is one core.")
	}
	if has[scenarioDurable] {
		t.line("durable: a closed loop; latency counts from publishing to the ack.")
		t.line("bad ack: missing, refused, twice, out of order or wrong. lost: acknowledged, and not in the stream")
		t.line("when it was read back. bench CPU, per ack: of this program, 100% is one core.")
		if len(t.report.Servers) > 1 {
			t.linef("/ NAME: %s over NAME; acks/s above 1 and times below 1 are better.", cut(t.report.Servers[0].Name, 24))
		}
	}
	if has[scenarioFailover] {
		t.failoverNotes()
	}
	if has[scenarioLog] {
		t.logNotes()
	}
	if has[scenarioConsume] {
		t.consumeNotes()
	}
	if has[scenarioKV] {
		t.kvNotes()
	}
	if has[scenarioThroughput] {
		t.throughputNotes()
	}
	if has[scenarioConnections] {
		t.connectionsNotes()
	}
	if has[scenarioNoisy] {
		t.noisyNotes()
	}
	if has[scenarioCluster] {
		t.clusterNotes()
	}
	if has[scenarioQuery] {
		t.queryNotes()
	}
	if has[scenarioFilter] {
		t.filterNotes()
	}
	if has[scenarioRequery] {
		t.requeryNotes()
	}
	if has[scenarioRequest] {
		t.requestNotes()
	}
}

func (t *table) section(results []Result) {
	switch results[0].Scenario {
	case scenarioDurable:
		t.durable(results)
		return
	case scenarioFailover:
		t.failover(results)
		return
	case scenarioLog:
		t.log(results)
		return
	case scenarioQuery:
		t.query(results)
		return
	case scenarioConsume:
		t.consume(results)
		return
	case scenarioKV:
		t.kv(results)
		return
	case scenarioThroughput:
		t.throughput(results)
		return
	case scenarioConnections:
		t.connections(results)
		return
	case scenarioNoisy:
		t.noisy(results)
		return
	case scenarioRequest:
		t.request(results)
		return
	}
	t.line()
	t.line(headline(results))
	t.line(extent(results))
	t.line()
	t.line(padRight(results[0].labelHead(), nameWidth), padLeft("count", countWidth),
		padLeft("mean", timeWidth), padLeft("sd", timeWidth), padLeft("p50", timeWidth), padLeft("p95", timeWidth),
		padLeft("p99", timeWidth), padLeft("p99.9", timeWidth), padLeft("max", timeWidth),
		padLeft("lost", lostWidth), padLeft("dup", faultWidth), padLeft("ooo", faultWidth))
	for _, result := range results {
		t.result(result)
	}
	t.conditions(results)
	t.slopes(results)
	t.answers(results)
	t.overFirst(results)
	t.memberships(results)
	compared := slices.ContainsFunc(results, func(r Result) bool { _, known := r.published(); return known })
	if source := publishedBy[results[0].Scenario]; t.originals && compared {
		t.linef("* %s.", source)
	}
}

// headline says what the workload is.
func headline(results []Result) string {
	p := results[0].Parameters
	if results[0].Scenario == scenarioForward {
		if p.Queries > 0 {
			return forwardByQueries(results[0])
		}
		return fmt.Sprintf("forward: groups of %d publishers and 1 subscriber, %s msg/s per publisher, %d B, client %s",
			p.PublishersPerGroup, number(p.RatePerPublisher), p.PayloadBytes, results[0].Client)
	}
	switch results[0].Scenario {
	case scenarioRequery:
		return requeryHeadline(p)
	case scenarioFilter:
		return filterHeadline(results[0])
	case scenarioCluster:
		return clusterHeadline(p)
	}
	return fmt.Sprintf("fanout: subscribers over %d topics, %d messages of %d B on each per round, client %s",
		p.Topics, p.MessagesPerTopic, p.PayloadBytes, results[0].Client)
}

// extent says how much was measured.
func extent(results []Result) string {
	p := results[0].Parameters
	if results[0].Scenario == scenarioForward {
		return fmt.Sprintf("%s s measured after %s s of warm-up",
			number(float64(p.DurationNS)/1e9), number(float64(p.WarmupNS)/1e9))
	}
	switch results[0].Scenario {
	case scenarioRequery:
		return requeryExtent(p)
	case scenarioFilter:
		return filterExtent(p)
	case scenarioCluster:
		return clusterExtent(p)
	}
	var parts []string
	for _, r := range results {
		parts = append(parts, fmt.Sprintf("%d + %d", r.Parameters.WarmupRounds, r.Parameters.Rounds))
	}
	return cut("rounds of warm-up + measured: "+strings.Join(parts, ", "), maxWidth)
}

// label is the size of a result, in the first column.
func (r Result) label() string {
	if r.Scenario == scenarioForward && r.Parameters.Queries > 0 {
		return fmt.Sprintf("%s; %s", thousands(int64(r.Size)), thousands(int64(r.Parameters.Queries)))
	}
	return thousands(int64(r.Size))
}

// labelHead is what stands above.
func (r Result) labelHead() string {
	if r.Scenario == scenarioForward && r.Parameters.Queries > 0 {
		return r.unit() + "; queries"
	}
	return r.unit()
}

func forwardByQueries(r Result) string {
	p := r.Parameters
	return cut(fmt.Sprintf("forward: groups of %d publishers, chosen by live queries beside others; %s msg/s each, %d B",
		p.PublishersPerGroup, number(p.RatePerPublisher), p.PayloadBytes), maxWidth)
}

func (t *table) result(r Result) {
	size := r.label()
	if len(r.Measured) == 1 && !t.originals {
		t.measured(size, r.Measured[0])
		return
	}
	t.line(size)
	for _, m := range r.Measured {
		t.measured("  "+m.Server, m)
	}
	for _, q := range r.Ratios {
		t.line(padRight(r.ratioName(q), nameWidth+countWidth), ratio(q.Mean), ratio(q.SD), ratio(q.P50), ratio(q.P95),
			ratio(q.P99), ratio(q.P999), ratio(q.Max))
	}
	if figures, known := r.published(); known && t.originals {
		ms := func(v float64) string {
			if v == 0 {
				return padLeft("–", timeWidth)
			}
			return padLeft(duration(v*1e6), timeWidth)
		}
		t.line(padRight("  published *", nameWidth+countWidth), ms(figures.mean), ms(figures.sd), ms(figures.p50), ms(figures.p95),
			ms(figures.p99), ms(0), ms(0))
	}
}

// ratioName says over whom, where it could be more than one.
func (r Result) ratioName(q Ratio) string {
	if len(r.Measured) == 2 {
		return "  ratio"
	}
	return cut("  / "+q.Against, nameWidth-1)
}

func (t *table) measured(name string, m Measured) {
	l := m.Median
	cells := []string{padRight(cut(name, nameWidth-1), nameWidth), padLeft(thousands(l.Count), countWidth)}
	if l.Count == 0 {
		cells = append(cells, padLeft("nothing was measured", 7*timeWidth))
	} else {
		cells = append(cells, padLeft(duration(l.Mean), timeWidth), padLeft(duration(l.SD), timeWidth),
			t.percentile(l, l.P50, 0.50), t.percentile(l, l.P95, 0.95), t.percentile(l, l.P99, 0.99),
			t.percentile(l, l.P999, 0.999), padLeft(duration(float64(l.Max)), timeWidth))
	}
	d := m.Deliveries
	t.line(append(cells, padLeft(thousands(d.Lost), lostWidth), padLeft(thousands(d.Duplicated), faultWidth),
		padLeft(thousands(d.OutOfOrder), faultWidth))...)
}

func (t *table) percentile(l Latency, value int64, quantile float64) string {
	text := duration(float64(value))
	if !supported(l.Count, quantile) {
		t.fewSamples = true
		text = "~" + text
	}
	return padLeft(text, timeWidth)
}

// conditions shows how the load itself fared: whether it was offered in time, and what it cost.
func (t *table) conditions(results []Result) {
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
	header := []string{padRight("the load", nameWidth), padLeft("pace", 7), padLeft("offered/s", 10), padLeft("delivered/s", 12),
		padLeft("late p50", 9), padLeft("late p99", 9), padLeft("late max", 9), padLeft("bench CPU", 10)}
	if server {
		t.serverCPU = true
		header = append(header, padLeft("CPU/msg", 8), padLeft("RSS", 8))
	}
	t.line(header...)
	for _, r := range results {
		size := r.label()
		if len(r.Measured) == 1 {
			t.condition(size, r, r.Measured[0])
			continue
		}
		t.line(size)
		for _, m := range r.Measured {
			t.condition("  "+m.Server, r, m)
		}
	}
}

func (t *table) condition(name string, r Result, m Measured) {
	if m.Median.Count == 0 {
		return
	}
	pace := time.Duration(float64(time.Second) / r.Parameters.OfferedMessages)
	counted := m.counted()
	cells := []string{padRight(cut(name, nameWidth-1), nameWidth), padLeft(duration(float64(pace)), 7),
		padLeft(thousands(int64(math.Round(r.Parameters.OfferedDeliveries))), 10),
		padLeft(thousands(int64(math.Round(median(counted, func(r Run) float64 { return r.Delivered })))), 12),
		padLeft(duration(float64(m.Late.P50)), 9), padLeft(duration(float64(m.Late.P99)), 9),
		padLeft(duration(float64(m.Late.Max)), 9),
		padLeft(fmt.Sprintf("%.0f%%", 100*median(counted, func(r Run) float64 { return r.ClientCPU.Cores })), 10)}
	known := slices.DeleteFunc(counted, func(r Run) bool { return r.ServerCPU == nil })
	if len(known) > 0 {
		per := median(known, func(r Run) float64 { return r.ServerCPU.PerDelivery })
		rss := median(known, func(r Run) int64 { return r.ServerRSS })
		cells = append(cells, padLeft(duration(per), 8), padLeft(fmt.Sprintf("%dMiB", rss>>20), 8))
	}
	t.line(cells...)
}

// slopes says what one more subscriber costs, which is how the fan-out's source put it.
func (t *table) slopes(results []Result) {
	if results[0].Scenario != "fanout" || len(results) < 2 {
		return
	}
	first, last := results[0], results[len(results)-1]
	if last.Size <= first.Size {
		return
	}
	t.line()
	for i, m := range last.Measured {
		if m.Median.Count == 0 || first.Measured[i].Median.Count == 0 {
			continue
		}
		slope := (m.Median.Mean - first.Measured[i].Median.Mean) / float64(last.Size-first.Size)
		t.linef("%s: from %s to %s subscribers, each adds %s to the mean.", m.Server,
			thousands(int64(first.Size)), thousands(int64(last.Size)), duration(slope))
	}
}

func ratio(v float64) string {
	if v == 0 {
		return padLeft("–", timeWidth)
	}
	return padLeft(fmt.Sprintf("%.2f×", v), timeWidth)
}

// duration has three digits and a unit: 912ns, 12.3µs, 1.23ms, 45.6s.
func duration(ns float64) string {
	if ns < 0 {
		return "-" + duration(-ns)
	}
	if ns < 999.5 {
		return fmt.Sprintf("%.0fns", ns)
	}
	for _, u := range []struct {
		size time.Duration
		name string
	}{{time.Microsecond, "µs"}, {time.Millisecond, "ms"}, {time.Second, "s"}} {
		v := ns / float64(u.size)
		switch {
		case v < 9.995:
			return fmt.Sprintf("%.2f%s", v, u.name)
		case v < 99.95:
			return fmt.Sprintf("%.1f%s", v, u.name)
		case v < 999.5 || u.size == time.Second:
			return fmt.Sprintf("%.0f%s", v, u.name)
		}
	}
	return "" // not reached: seconds take every value
}

// thousands groups digits: 12,345.
func thousands(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func number(v float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") }

func padLeft(text string, width int) string {
	return strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text))) + text
}

func padRight(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text)))
}
