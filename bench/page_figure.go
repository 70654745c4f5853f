package bench

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A figure is a picture of the page: lines over two axes, in the coordinates of its SVG.
type figure struct {
	ID, Title, Description string
	XLabel, YLabel         string
	XTicks, YTicks         []tick
	Lines                  []figureLine
}

type tick struct {
	At   float64
	Text string
}

type figureLine struct{ Class, Path, Name string }

// The room for lines in a figure of 640 by 340.
const (
	plotLeft, plotRight = 64.0, 612.0
	plotTop, plotBottom = 14.0, 288.0
)

// A curve is one server's values: x and y before they are scaled.
type curve struct {
	class, name string
	x, y        []float64
	value       func(quantile float64) float64 // of percentiles
}

// figures draws percentiles, and latency over time; none where there is nothing to draw.
func (r Result) figures(id string, h pageHistogram) (list []figure) {
	var percentiles, times []curve
	var told []string
	for i, m := range r.Measured {
		if c := percentileCurve(m.Runs, h); len(c.x) > 0 {
			c.class, c.name = fmt.Sprintf("s%d", i), m.Server
			percentiles = append(percentiles, c)
			told = append(told, fmt.Sprintf("%s: p50 %s, p99 %s, p99.9 %s", m.Server, c.at(0.5), c.at(0.99), c.at(0.999)))
		}
		for _, line := range timeCurves(m.Runs, h) {
			line.class, line.name = fmt.Sprintf("s%d %s", i, line.class), m.Server+" "+line.name
			times = append(times, line)
		}
	}
	name := strings.TrimSuffix(r.load()+", "+h.name, ", ")
	if len(percentiles) > 0 {
		f := figure{ID: id + "p", Title: "Percentiles of latency: " + name, Description: strings.Join(told, "; ") + ".", XLabel: "percentile", YLabel: "latency"}
		last := 1.0
		for _, c := range percentiles {
			last = max(last, c.x[len(c.x)-1])
		}
		f.draw(percentiles, 0, last, percentileTicks(last))
		list = append(list, f)
	}
	if len(times) > 0 {
		f := figure{ID: id + "t", Title: "Latency over time: " + name, XLabel: "time since the measurement began", YLabel: "latency"}
		last := 0.0
		for _, c := range times {
			last = max(last, c.x[len(c.x)-1]*(1+0.5/timelineSlots))
			f.Description += fmt.Sprintf("%s: at most %s. ", c.name, duration(slices.Max(c.y)))
		}
		f.Description = strings.TrimSpace(f.Description)
		f.draw(times, 0, last, timeTicks(last))
		list = append(list, f)
	}
	return list
}

// percentileCurve has the median over the runs at each percentile; x is the logarithm of 1/(1-p).
// It ends where a run has less than one sample above.
func percentileCurve(runs []Run, h pageHistogram) (c curve) {
	var histograms []*hdrhistogram.Histogram
	least := int64(math.MaxInt64)
	for _, run := range runs {
		encoded, _ := h.of(run)
		if encoded == "" {
			continue
		}
		if decoded, err := hdrhistogram.Decode([]byte(encoded)); err == nil && decoded.TotalCount() > 0 {
			histograms = append(histograms, decoded)
			least = min(least, decoded.TotalCount())
		}
	}
	if len(histograms) == 0 {
		return c
	}
	c.value = func(quantile float64) float64 {
		values := make([]int64, len(histograms))
		for i, histogram := range histograms {
			values[i] = histogram.ValueAtQuantile(100 * quantile)
		}
		return float64(middle(values))
	}
	const step = 0.02
	last := math.Log10(float64(least))
	for n := 0; ; n++ {
		x := min(float64(n)*step, last)
		c.x, c.y = append(c.x, x), append(c.y, c.value(1-math.Pow(10, -x)))
		if x >= last {
			return c
		}
	}
}

// at tells the value at a percentile, if the curve reaches it.
func (c curve) at(p float64) string {
	if -math.Log10(1-p) > c.x[len(c.x)-1]+1e-9 {
		return "unknown"
	}
	return duration(c.value(p))
}

// middle is the median of values, which it sorts.
func middle(values []int64) int64 {
	slices.Sort(values)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}

// timeCurves has, for each part of the time, the medians over the runs of p50 and p99.
func timeCurves(runs []Run, h pageHistogram) []curve {
	p50, p99 := map[int64][]int64{}, map[int64][]int64{}
	for _, run := range runs {
		_, over := h.of(run)
		for _, p := range over {
			p50[p.At], p99[p.At] = append(p50[p.At], p.P50), append(p99[p.At], p.P99)
		}
	}
	if len(p50) == 0 {
		return nil
	}
	curves := []curve{{class: "p99", name: "p99"}, {class: "p50", name: "p50"}}
	var times []int64
	for at := range p50 {
		times = append(times, at)
	}
	slices.Sort(times)
	for _, at := range times {
		for i, values := range [][]int64{p99[at], p50[at]} {
			curves[i].x, curves[i].y = append(curves[i].x, float64(at)), append(curves[i].y, float64(middle(values)))
		}
	}
	return curves
}

// draw scales the curves, x from first to last and y by logarithm.
func (f *figure) draw(curves []curve, first, last float64, xTicks []tick) {
	low, high := math.Inf(1), 1.0
	for _, c := range curves {
		low, high = min(low, max(1, slices.Min(c.y))), max(high, slices.Max(c.y))
	}
	// To the next of 1, 2 and 5, and never a line without height.
	low, high = roundTo125(low, false), roundTo125(high, true)
	if high <= low {
		high = 2 * low
	}
	x := func(v float64) float64 {
		return plotLeft + (v-first)/max(last-first, 1e-9)*(plotRight-plotLeft)
	}
	y := func(v float64) float64 {
		return plotBottom - (math.Log(max(v, low))-math.Log(low))/(math.Log(high)-math.Log(low))*(plotBottom-plotTop)
	}
	for _, t := range xTicks {
		f.XTicks = append(f.XTicks, tick{At: round1(x(t.At)), Text: t.Text})
	}
	for _, v := range latencyTicks(low, high) {
		f.YTicks = append(f.YTicks, tick{At: round1(y(v)), Text: shortDuration(v)})
	}
	for _, c := range curves {
		var path strings.Builder
		for i := range c.x {
			fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(i, 1)], x(c.x[i]), y(c.y[i]))
		}
		f.Lines = append(f.Lines, figureLine{Class: c.class, Path: path.String(), Name: c.name})
	}
}

func round1(v float64) float64 { return math.Round(10*v) / 10 }

// roundTo125 returns the next of 1, 2 and 5 times a power of ten.
func roundTo125(v float64, up bool) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)+1e-9))
	steps := []float64{1, 2, 5, 10}
	if up {
		for _, s := range steps {
			if s*power >= v*(1-1e-9) {
				return s * power
			}
		}
	}
	for _, s := range slices.Backward(steps) {
		if s*power <= v*(1+1e-9) {
			return s * power
		}
	}
	return power
}

// latencyTicks are 1, 2 and 5 times powers of ten, or the powers only where these are many.
func latencyTicks(low, high float64) (list []float64) {
	steps := []float64{1, 2, 5}
	if high/low > 20_000 {
		steps = steps[:1]
	}
	for power := math.Pow(10, math.Floor(math.Log10(low)+1e-9)); power <= high*1.0001; power *= 10 {
		for _, s := range steps {
			if v := s * power; v >= low*0.9999 && v <= high*1.0001 {
				list = append(list, v)
			}
		}
	}
	return list
}

// shortDuration is duration for round values: 1µs, 500ms.
func shortDuration(ns float64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1e9, "s"}, {1e6, "ms"}, {1e3, "µs"}} {
		if ns >= u.size*0.9999 {
			return fmt.Sprintf("%.4g%s", ns/u.size, u.name)
		}
	}
	return fmt.Sprintf("%.4gns", ns)
}

func percentileTicks(last float64) (list []tick) {
	list = []tick{{0, "0 %"}, {-math.Log10(0.5), "50 %"}}
	for n := 1.0; n <= last+1e-9; n++ {
		digits := max(0, int(n)-2)
		list = append(list, tick{n, fmt.Sprintf("%.*f %%", digits, 100*(1-math.Pow(10, -n)))})
	}
	return list
}

// timeTicks are five to ten round times.
func timeTicks(last float64) (list []tick) {
	step := roundTo125(last/8, true)
	for v := 0.0; v <= last*1.0001 && step > 0; v += step {
		text := shortDuration(v)
		if v == 0 {
			text = "0"
		}
		list = append(list, tick{v, text})
	}
	return list
}
