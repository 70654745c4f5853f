package bench

import (
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// The range and precision of the histograms: a nanosecond to an hour, to 3 digits.
const (
	leastValue  = 1
	mostValue   = int64(time.Hour)
	valueDigits = 3
)

// A recorder collects durations. Percentiles come from an HDR histogram; count, mean,
// deviation, least and greatest are exact. One goroutine at a time.
type recorder struct {
	histogram *hdrhistogram.Histogram
	count     int64
	mean, m2  float64 // Welford's
	min, max  int64
}

func newRecorder() *recorder {
	return &recorder{histogram: hdrhistogram.New(leastValue, mostValue, valueDigits)}
}

func (r *recorder) record(ns int64) {
	ns = max(ns, 0)
	// What lies beyond the range counts as its end: a percentile may be cut, never a sample lost.
	_ = r.histogram.RecordValue(min(max(ns, leastValue), mostValue))
	if r.count == 0 || ns < r.min {
		r.min = ns
	}
	r.max = max(r.max, ns)
	r.count++
	delta := float64(ns) - r.mean
	r.mean += delta / float64(r.count)
	r.m2 += delta * (float64(ns) - r.mean)
}

// merge adds what other holds (Chan's formula for the deviation).
func (r *recorder) merge(other *recorder) {
	if other.count == 0 {
		return
	}
	r.histogram.Merge(other.histogram)
	if r.count == 0 || other.min < r.min {
		r.min = other.min
	}
	r.max = max(r.max, other.max)
	n, m := float64(r.count), float64(other.count)
	delta := other.mean - r.mean
	r.mean += delta * m / (n + m)
	r.m2 += other.m2 + delta*delta*n*m/(n+m)
	r.count += other.count
}

// Latency is what is told of a set of durations, in nanoseconds.
type Latency struct {
	Count int64   `json:"count"`
	Min   int64   `json:"min_ns"`
	Mean  float64 `json:"mean_ns"`
	SD    float64 `json:"sd_ns"`
	P50   int64   `json:"p50_ns"`
	P95   int64   `json:"p95_ns"`
	P99   int64   `json:"p99_ns"`
	P999  int64   `json:"p99_9_ns"`
	Max   int64   `json:"max_ns"`
}

// summary returns zeros when nothing was recorded.
func (r *recorder) summary() Latency {
	if r.count == 0 {
		return Latency{}
	}
	// A histogram answers with the upper end of a bucket, which may lie above the greatest sample.
	at := func(q float64) int64 { return min(r.histogram.ValueAtQuantile(q), r.max) }
	return Latency{
		Count: r.count, Min: r.min, Mean: r.mean, SD: math.Sqrt(r.m2 / float64(r.count)),
		P50: at(50), P95: at(95), P99: at(99), P999: at(99.9), Max: r.max,
	}
}

// hdr is the histogram in the HdrHistogram V2 format, for tools that read it; empty: there are no
// durations.
func (r *recorder) hdr() string {
	if r.count == 0 {
		return ""
	}
	data, err := r.histogram.EncodeV2()
	if err != nil {
		return ""
	}
	return string(data)
}

// enoughAbove is how many samples must lie above a percentile for it to be shown without a
// mark: with 10, its place among the samples is known to about a third.
const enoughAbove = 10

// supported tells whether a percentile (0 to 1) of count samples rests on enough of them.
func supported(count int64, quantile float64) bool {
	return float64(count)*(1-quantile) >= enoughAbove-1e-6
}
