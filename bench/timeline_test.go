package bench

import (
	"math"
	"testing"
	"time"
)

// TestATimelineHasEachLatencyWhereItBegan: and what began outside the measured time nowhere.
func TestATimelineHasEachLatencyWhereItBegan(t *testing.T) {
	const span = int64(60 * time.Second)
	l := newTimeline(span)
	l.record(5, 7) // nothing counts yet
	const from = int64(1000)
	l.begin(from)
	for _, outside := range []int64{from - 1, from + span, from + 2*span} {
		l.record(outside, 9)
	}
	second := int64(time.Second)
	for n := range int64(100) {
		l.record(from+second/2, (n+1)*int64(time.Microsecond))
	}
	l.record(from+span-1, int64(3*time.Hour)) // beyond the buckets
	points := l.points()
	if len(points) != 2 {
		t.Fatalf("%+v", points)
	}
	first, last := points[0], points[1]
	near := func(got int64, want time.Duration) bool {
		return math.Abs(float64(got)-float64(want)) < 0.07*float64(want)
	}
	if first.At != second/2 || first.Count != 100 || !near(first.P50, 50*time.Microsecond) || !near(first.P99, 99*time.Microsecond) || first.Max != int64(100*time.Microsecond) {
		t.Errorf("%+v", first)
	}
	if last.At != span-second/2 || last.Count != 1 || last.Max != int64(3*time.Hour) {
		t.Errorf("%+v", last)
	}
}

func TestATimelinesBucketsAreNarrow(t *testing.T) {
	for v := int64(0); v < int64(time.Hour); v += v/50 + 1 {
		got := slotValue(slotBucket(v))
		if math.Abs(float64(got-v)) > float64(v)/16 {
			t.Fatalf("%d is kept as %d", v, got)
		}
	}
}

func TestATimelineAllocatesNothingPerLatency(t *testing.T) {
	l := newTimeline(int64(time.Hour)).begin(1)
	if n := testing.AllocsPerRun(100, func() { l.record(5, 12345) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
