package bench

import (
	"strings"
	"testing"
	"time"
)

func smallFilter() Filter {
	return Filter{
		Filters: []int{3}, Rate: 100, PayloadBytes: 200, Durability: DurabilitySynced, Replicas: 1,
		Warmup: 20 * time.Millisecond, Duration: 100 * time.Millisecond,
	}
}

func TestAFilterPlanIsChecked(t *testing.T) {
	for want, change := range map[string]func(*Filter){
		"filters is 0":             func(c *Filter) { c.Filters = []int{0} },
		"no number of filters":     func(c *Filter) { c.Filters = nil },
		"filters is 60000":         func(c *Filter) { c.Filters = []int{60_000} },
		"rate is 0":                func(c *Filter) { c.Rate = 0 },
		"messages have 100":        func(c *Filter) { c.PayloadBytes = 100 },
		"messages have 100000":     func(c *Filter) { c.PayloadBytes = 100_000 },
		`durability is "maybe"`:    func(c *Filter) { c.Durability = "maybe" },
		"replicas":                 func(c *Filter) { c.Replicas = 6 },
		"account of every message": func(c *Filter) { c.Rate, c.Duration = 1_000_000, time.Hour },
	} {
		bad := smallFilter()
		change(&bad)
		if _, err := bad.Workloads(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// TestFilteredMessagesAreCountedExactly: a message that is lost, comes twice, late, damaged or to
// another Subscription is found, also beside others.
func TestFilteredMessagesAreCountedExactly(t *testing.T) {
	made, err := smallFilter().Workloads()
	if err != nil {
		t.Fatal(err)
	}
	p := made[0].filter
	if p.messages != 12 || p.warm != 2 {
		t.Fatalf("%+v", p)
	}
	a := newFilterAccount(p, 77, int64(time.Second))
	message := func(filter, number int) []byte { return a.payload(nil, 200, filter, number, 1) }
	if m := message(2, 5); len(m) != 200 {
		t.Errorf("%d bytes: %s", len(m), m)
	}
	for filter := range 3 {
		a.deliver(filter, message(filter, filterProbe), 1)
	}
	a.deliver(1, message(1, filterProbe), 1)                     // again
	for _, n := range []int{0, 1, 2, 6, 3, 4, 5, 8, 9, 10, 11} { // 3 behind 6, 7 is lost
		a.deliver(n%3, message(n%3, n), 3)
	}
	a.deliver(2, message(2, 11), 3)                                        // again
	a.deliver(1, message(2, 11), 3)                                        // another one's
	a.deliver(0, message(0, 12), 3)                                        // never sent
	a.deliver(-1, message(0, 9), 3)                                        // to whom
	a.deliver(0, []byte("{}"), 3)                                          // damaged
	a.deliver(0, newFilterAccount(p, 78, 1).payload(nil, 200, 0, 9, 1), 3) // of another run
	found, first := a.close(12)
	want := Deliveries{Expected: 12, Received: 11, Lost: 1, Duplicated: 2, OutOfOrder: 1,
		Unexpected: 5}
	if found != want || first == nil || a.missing() != 0 || a.latency.count != 9 {
		t.Errorf("%+v, want %+v; %d measured; %v", found, want, a.latency.count, first)
	}
}

// TestSizesAreCompared: the table and the report have the server's CPU time over that of the first
// number of filters.
func TestSizesAreCompared(t *testing.T) {
	c := smallFilter()
	c.Filters = []int{1, 10_000}
	made, err := c.Workloads()
	if err != nil {
		t.Fatal(err)
	}
	r := &Report{Servers: []Server{{Name: "carillon"}}}
	for i, w := range made {
		result := newResult(w, []Target{{Name: "carillon"}})
		run := sampleRun(1, 20_000, time.Millisecond)
		run.ServerCPU = &CPU{PerDelivery: 10_000 * float64(1+i) / float64(2-i)}
		result.Measured[0].Runs = append(result.Measured[0].Runs, run)
		result.summarize()
		r.Results = append(r.Results, result)
	}
	r.compareSizes()
	if one, many := r.Results[0].Measured[0], r.Results[1].Measured[0]; one.OverFirst != 0 ||
		many.OverFirst != 4 {
		t.Errorf("%v, %v", one.OverFirst, many.OverFirst)
	}
	table := string(tableOf(t, r, true))
	for _, want := range []string{"filter: Subscriptions of one Topic, each with another json.k",
		"carillon: 10,000 filters take 4.000 × the server's CPU time of 1, per message",
		"CPU/msg"} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
}
