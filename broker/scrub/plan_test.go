package scrub

import (
	"slices"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/log"
)

var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// ages makes segments that hold records of so many hours ago and were scrubbed so many minutes ago;
// -1: never.
func ages(minutes ...int) (all []Segment[int]) {
	for i, m := range minutes {
		s := Segment[int]{SegmentCheck: log.SegmentCheck{Base: uint64(i + 1), Last: noon.Add(time.Duration(i-len(minutes)) * time.Hour)}}
		if m >= 0 {
			s.Since = noon.Add(-time.Duration(m) * time.Minute)
		}
		all = append(all, s)
	}
	return all
}

func bases(plan []Segment[int]) (out []uint64) {
	for _, s := range plan {
		out = append(out, s.Base)
	}
	return out
}

func TestWhichSegmentsAreScrubbedNext(t *testing.T) {
	for name, c := range map[string]struct {
		segments []Segment[int]
		began    time.Time
		want     []uint64
	}{
		"nothing is due":                          {ages(59, 0, 30), time.Time{}, nil},
		"longest waiting first":                   {ages(61, 200, 10, 90), time.Time{}, []uint64{2, 4, 1}},
		"never scrubbed is longest":               {ages(61, 200, -1), time.Time{}, []uint64{3, 2, 1}},
		"the clock was ahead":                     {ages(61, -600), time.Time{}, []uint64{2, 1}},
		"after a crash newest and oldest in turn": {ages(30, 50, 20, 40, 10, 1), noon.Add(-5 * time.Minute), []uint64{5, 2, 4, 1, 3}},
		"after a crash what is due as well":       {ages(1, 70, 2, 3), noon.Add(-90 * time.Second), []uint64{4, 2, 3}},
	} {
		if m := c.segments; name == "the clock was ahead" {
			m[1].Since = noon.Add(10 * time.Hour)
		}
		if got := bases(Plan(c.segments, noon, c.began)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	checks := func(minutes ...int) (all []log.SegmentCheck) {
		for _, s := range ages(minutes...) {
			all = append(all, s.SegmentCheck)
		}
		return all
	}
	if age := Oldest(checks(61, 200, 10), noon); age != 200*time.Minute {
		t.Errorf("the oldest is %v old", age)
	}
	if age := Oldest(checks(1, -1), noon); age != time.Hour { // since its records were written
		t.Errorf("the oldest is %v old", age)
	}
	if age := Oldest(nil, noon); age != 0 {
		t.Errorf("the oldest is %v old", age)
	}
}

// TestABrokerThatKeepsCrashingScrubsAllSegments: a broker crashes every ten minutes, comes to four
// segments each time, and writes two new ones. It scrubs each segment eventually, and the newest
// ones of each life within that life.
func TestABrokerThatKeepsCrashingScrubsAllSegments(t *testing.T) {
	all := ages(slices.Repeat([]int{-1}, 200)...)
	now := noon
	for life := range 400 {
		began := now
		all = append(all, Segment[int]{SegmentCheck: log.SegmentCheck{Base: uint64(1000 + 2*life), Last: now, Since: now.Add(-time.Minute)}},
			Segment[int]{SegmentCheck: log.SegmentCheck{Base: uint64(1001 + 2*life), Last: now, Since: now.Add(-time.Minute)}})
		plan := Plan(all, now.Add(time.Minute), began)
		for _, done := range plan[:4] {
			i := slices.IndexFunc(all, func(s Segment[int]) bool { return s.Base == done.Base })
			all[i].Since = now.Add(2 * time.Minute)
		}
		for _, s := range all[len(all)-2:] {
			if s.Since.Before(began) {
				t.Fatalf("life %d: the newest segments are not scrubbed", life)
			}
		}
		now = now.Add(10 * time.Minute)
	}
	for _, s := range all[:200] {
		if s.Since.IsZero() {
			t.Fatalf("segment %d was never scrubbed", s.Base)
		}
	}
}
