package chaos

import (
	"strings"
	"testing"
)

// TestTheJudgeOfUsageFindsGrowth: a small leak in each round is found; a fluctuation is not.
func TestTheJudgeOfUsageFindsGrowth(t *testing.T) {
	steady := Usage{Descriptors: 120, Goroutines: 300, Heap: 40 << 20, Resident: 110 << 20}
	for name, tc := range map[string]struct {
		at   func(round int, u *Usage)
		want string
	}{
		"nothing":             {func(int, *Usage) {}, ""},
		"what comes and goes": {func(n int, u *Usage) { u.Descriptors += float64(n % 3 * 40); u.Heap += float64(n%4) * (8 << 20) }, ""},
		"one bad moment":      {func(n int, u *Usage) { u.Goroutines += map[bool]float64{true: 5000}[n == 29] }, ""},
		"a start":             {func(n int, u *Usage) { u.Heap -= float64(max(5-n, 0)) * (4 << 20) }, ""},
		"descriptors":         {func(n int, u *Usage) { u.Descriptors += 2 * float64(n) }, "at last, of at most 1"},
		"goroutines":          {func(n int, u *Usage) { u.Goroutines += 5 * float64(n) }, "goroutines at first"},
		"heap":                {func(n int, u *Usage) { u.Heap += float64(n) * (9 << 20) }, "bytes of heap at first"},
		"memory":              {func(n int, u *Usage) { u.Resident += float64(n) * (12 << 20) }, "bytes of memory at first"},
	} {
		var samples []Usage
		for n := range 30 {
			u := steady
			tc.at(n, &u)
			samples = append(samples, u)
		}
		grew := JudgeUsage(samples)
		if got := strings.Join(grew, "; "); !strings.Contains(got, tc.want) || (got == "") != (tc.want == "") || len(grew) > 1 {
			t.Errorf("%s: %q", name, grew)
		}
		if short := JudgeUsage(samples[:leastSamples-1]); short != nil {
			t.Errorf("%s: of a short life it says %q", name, short)
		}
	}
}

func TestUsageIsReadFromMetrics(t *testing.T) {
	const text = `# TYPE go_goroutines gauge
go_goroutines 289
go_memstats_next_gc_bytes 4.194304e+06
process_open_fds 77
process_resident_memory_bytes 1.048576e+08
carillon_other{of="process_open_fds"} 5
`
	u, err := ReadUsage(strings.NewReader(text))
	if want := (Usage{Descriptors: 77, Goroutines: 289, Heap: 4 << 20, Resident: 100 << 20}); err != nil || u != want {
		t.Errorf("it is %v, %v; want %v", u, err, want)
	}
	for _, bad := range []string{"", strings.Replace(text, "77", "many", 1), strings.Replace(text, "process_open_fds 77", "", 1)} {
		if _, err := ReadUsage(strings.NewReader(bad)); err == nil {
			t.Errorf("metrics without all of it are read as %v", u)
		}
	}
}

func TestAMetricIsReadByItsName(t *testing.T) {
	const text = "# TYPE a counter\na_total 3\na 7\nb{of=\"a\"} 5\nc many\n"
	if got, err := ReadMetric(strings.NewReader(text), "a"); err != nil || got != 7 {
		t.Errorf("it is %v, %v; want 7", got, err)
	}
	for _, name := range []string{"b", "c", "d"} {
		if got, err := ReadMetric(strings.NewReader(text), name); err == nil {
			t.Errorf("%s is read as %v", name, got)
		}
	}
}
