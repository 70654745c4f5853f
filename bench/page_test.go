package bench

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// samplePage has two servers with latencies of 1 to 1000 times a unit, the second one's twice as
// long.
func samplePage(t *testing.T) *Report {
	t.Helper()
	r := &Report{Servers: []Server{{Name: "carillon", Version: "1", URL: "nats://a:1"}, {Name: "<b>nats</b>", Version: "2"}}}
	r.Environment = Environment{Date: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Version: "1.2.3", CPUs: 2, CPUModel: "A processor", Repeat: 3, Command: []string{"carillon", "bench", "request", "--pairs=16"}}
	result := newResult(smallRequest(t, 16, 0), []Target{{Name: "carillon"}, {Name: "<b>nats</b>"}})
	for i := range 2 {
		for n := range 3 {
			latency, over := newRecorder(), newTimeline(60_000).begin(1)
			for v := range int64(1000) {
				took := (v + 1) * int64(i+1) * int64(time.Microsecond)
				latency.record(took)
				over.record(1+v*60, took)
			}
			run := sampleRun(n+1, 1000, time.Duration(i+1)*time.Millisecond)
			run.Latency, run.OverTime = latency.summary(), over.points()
			run.HDR = latency.hdr()
			run.Request = &RequestFigures{Answered: 1000, Rate: 10_000 / float64(i+1), Server: &CPU{PerDelivery: 20_000}}
			result.Measured[i].Runs = append(result.Measured[i].Runs, run)
		}
	}
	result.summarize()
	throughput := newResult(smallThroughput(t, "1:1", 128), []Target{{Name: "carillon"}, {Name: "<b>nats</b>"}})
	for i := range 2 {
		throughput.Measured[i].Runs = []Run{sampleThroughput(float64(i + 1))}
	}
	throughput.summarize()
	r.Results = []Result{result, throughput}
	return r
}

// An element of the page, with the text inside.
type element struct {
	name, text string
	attributes map[string]string
}

// elementsOf parses a page.
func elementsOf(t *testing.T, data []byte) (all []element) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(data))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	var open []int
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			if len(open) != 0 {
				t.Errorf("%s is not closed", all[open[len(open)-1]].name)
			}
			return all
		}
		if err != nil {
			t.Fatalf("the page can't be parsed: %v", err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			e := element{name: token.Name.Local, attributes: map[string]string{}}
			for _, a := range token.Attr {
				e.attributes[a.Name.Local] = a.Value
			}
			all, open = append(all, e), append(open, len(all))
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			for _, i := range open {
				all[i].text += string(token)
			}
		}
	}
}

func pageOf(t *testing.T, r *Report) (text string, all []element) {
	t.Helper()
	var out bytes.Buffer
	if err := r.WritePage(&out); err != nil {
		t.Fatal(err)
	}
	return out.String(), elementsOf(t, out.Bytes())
}

func TestThePageHoldsItsNumbers(t *testing.T) {
	text, all := pageOf(t, samplePage(t))
	var rows []string
	for _, e := range all {
		if e.name == "tr" {
			rows = append(rows, strings.Join(strings.Fields(strings.ReplaceAll(e.text, "\n", " ")), " "))
		}
	}
	for _, want := range []string{
		"requests10,000/s5,000/s2.00×more", "server CPU per request20.0µs20.0µs1.00×less", "latency p50500µs1.00ms0.50×less",
		"latency p99990µs1.98ms0.50×less", "latency max1.00ms2.00ms0.50×less", "lost00–",
		"messages published1,000,000/s2,000,000/s0.50×more", "bytes received123 MiB/s246 MiB/s0.50×more",
	} {
		if !slices.Contains(rows, want) {
			t.Errorf("no row %q among %q", want, rows)
		}
	}
	for _, want := range []string{"<span>carillon</span> <span>bench</span> <span>request</span> <span>--pairs=16</span>", "carillon 1.2.3", "2 CPUs, A processor", "2026-01-02 03:04 UTC", "medians of 3 runs", "request 16 pairs", "throughput 1:1 of 128 B"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in the page", want)
		}
	}
	if strings.Contains(text, "<b>nats") || !strings.Contains(text, "&lt;b&gt;nats") {
		t.Error("a server's name is taken for markup")
	}
}

// TestThePageNeedsNothingElse: no script, and no address that a browser would fetch.
func TestThePageNeedsNothingElse(t *testing.T) {
	text, all := pageOf(t, samplePage(t))
	for _, e := range all {
		if slices.Contains([]string{"script", "link", "img", "iframe", "object", "use", "image"}, e.name) {
			t.Errorf("the page has a %s", e.name)
		}
		for name := range e.attributes {
			if name == "src" || name == "href" || strings.HasPrefix(name, "on") {
				t.Errorf("a %s has %s", e.name, name)
			}
		}
	}
	if strings.Contains(text, "url(") || strings.Contains(text, "@import") || strings.Contains(text, "ZgotmplZ") {
		t.Error("the page refers to something else, or the template refused a value")
	}
	if !strings.Contains(text, "prefers-color-scheme: dark") {
		t.Error("the page has no dark colours")
	}
}

// TestTheFiguresCanBeReadWithoutEyes: each has a title and a description with the numbers.
func TestTheFiguresCanBeReadWithoutEyes(t *testing.T) {
	_, all := pageOf(t, samplePage(t))
	texts := map[string]string{}
	for _, e := range all {
		if id := e.attributes["id"]; id != "" {
			texts[id] = e.text
		}
	}
	var described []string
	for _, e := range all {
		if e.name != "svg" || e.attributes["role"] != "img" {
			continue
		}
		for _, id := range strings.Fields(e.attributes["aria-labelledby"]) {
			if texts[id] == "" {
				t.Errorf("there is no text %s", id)
			}
			described = append(described, texts[id])
		}
	}
	if len(described) != 4 {
		t.Fatalf("%d texts of figures", len(described))
	}
	for i, want := range []string{"Percentiles of latency: request 16 pairs", "carillon: p50 500µs, p99 990µs, p99.9 999µs; <b>nats</b>: p50 1.00ms", "Latency over time: request 16 pairs", "carillon p99: at most "} {
		if !strings.HasPrefix(described[i], want) {
			t.Errorf("%q does not begin with %q", described[i], want)
		}
	}
}

// TestTheFiguresLinesAreWhereTheirNumbersAre: percentiles rise, the slower server's line lies
// above, and nothing is drawn outside.
func TestTheFiguresLinesAreWhereTheirNumbersAre(t *testing.T) {
	r := samplePage(t)
	figures := r.Results[0].figures("x", histogramsOf(scenarioRequest)[0])
	if len(figures) != 2 || len(figures[0].Lines) != 2 || len(figures[1].Lines) != 4 {
		t.Fatalf("%d figures", len(figures))
	}
	point := regexp.MustCompile(`[ML](-?[0-9.]+) (-?[0-9.]+)`)
	read := func(path string) (x, y []float64) {
		for _, m := range point.FindAllStringSubmatch(path, -1) {
			a, _ := strconv.ParseFloat(m[1], 64)
			b, _ := strconv.ParseFloat(m[2], 64)
			x, y = append(x, a), append(y, b)
		}
		return x, y
	}
	for _, f := range figures {
		for _, l := range f.Lines {
			x, y := read(l.Path)
			if len(x) < 50 || slices.Min(x) < plotLeft || slices.Max(x) > plotRight || slices.Min(y) < plotTop || slices.Max(y) > plotBottom || !slices.IsSorted(x) {
				t.Errorf("%s, %s: %d points, x %v to %v, y %v to %v", f.Title, l.Name, len(x), slices.Min(x), slices.Max(x), slices.Min(y), slices.Max(y))
			}
		}
	}
	_, quick := read(figures[0].Lines[0].Path)
	x, slow := read(figures[0].Lines[1].Path)
	for i := range quick {
		if slow[i] > quick[i] || i > 0 && quick[i] > quick[i-1] {
			t.Fatalf("at %d: %v above %v", i, slow[i], quick[i])
		}
	}
	// 1000 samples reach 99.9 %, where the axis ends.
	if last := figures[0].XTicks[len(figures[0].XTicks)-1]; last.Text != "99.9 %" || math.Abs(last.At-x[len(x)-1]) > 0.1 {
		t.Errorf("the last tick is %+v, the line ends at %v", last, x[len(x)-1])
	}
}

func TestThePageShowsFaults(t *testing.T) {
	r := samplePage(t)
	if text, _ := pageOf(t, r); strings.Contains(text, "Not all is well") {
		t.Error("a faultless page shows faults")
	}
	r.Results[0].Measured[1].Runs[0].Deliveries.Lost = 3
	r.Results[0].summarize()
	r.Partial = true
	text, _ := pageOf(t, r)
	for _, want := range []string{"Not all is well", "on &lt;b&gt;nats&lt;/b&gt;: 3 lost", "the figures are partial"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in the page", want)
		}
	}
}

// TestEveryScenarioHasAPage: also one that measured nothing.
func TestEveryScenarioHasAPage(t *testing.T) {
	for _, scenario := range []string{"forward", "fanout", scenarioDurable, scenarioFailover, scenarioLog, scenarioConsume, scenarioKV, scenarioThroughput, scenarioRequest, scenarioConnections, scenarioNoisy} {
		hdr := newRecorder()
		hdr.record(5)
		encoded := hdr.hdr()
		phase := KVPhase{HDR: encoded, OverTime: []LatencyPoint{{At: 1, Count: 1, P50: 5, P99: 5, Max: 5}}}
		noisy := NoisyPhase{HDR: encoded, OverTime: phase.OverTime}
		result := Result{Scenario: scenario, Measured: []Measured{{Server: "a", Runs: []Run{{HDR: encoded, OverTime: phase.OverTime, KV: &KVFigures{Put: phase, Get: phase, One: phase}, Noisy: &NoisyFigures{Alone: noisy, Beside: noisy}}}}, {Server: "b"}}}
		text, all := pageOf(t, &Report{Servers: []Server{{Name: "a"}, {Name: "b"}}, Results: []Result{result}})
		want, got := 2*len(histogramsOf(scenario)), 0
		for _, e := range all {
			if e.name == "figure" {
				got++
			}
		}
		if got != want {
			t.Errorf("%s: %d figures, want %d", scenario, got, want)
		}
		if strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
			t.Errorf("%s: the page has what is not a number", scenario)
		}
	}
}

func TestAxesHaveRoundNumbers(t *testing.T) {
	for _, c := range []struct {
		v        float64
		down, up float64
	}{{1, 1, 1}, {3, 2, 5}, {70_000, 50_000, 100_000}, {5e6, 5e6, 5e6}, {999, 500, 1000}} {
		if down, up := roundTo125(c.v, false), roundTo125(c.v, true); math.Abs(down-c.down) > 1e-6*c.down || math.Abs(up-c.up) > 1e-6*c.up {
			t.Errorf("%v: %v and %v", c.v, down, up)
		}
	}
	for v, want := range map[float64]string{1: "1ns", 50_000: "50µs", 1e6: "1ms", 2.5e9: "2.5s"} {
		if got := shortDuration(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
}
