package bench

import (
	"strings"
	"testing"
	"time"
)

func forwardBy(queries ...int) Forward {
	return Forward{
		Groups: []int{1,
			10}, PublishersPerGroup: 10, Rate: 5, PayloadBytes: 32, Duration: time.Second,
		Client: ClientNATS, Queries: queries,
	}
}

func TestForwardByAttributesIsChecked(t *testing.T) {
	made, err := forwardBy(10, 10_000).Workloads()
	if err != nil || len(made) != 4 || made[1].Size != 1 || made[1].Parameters.Queries != 10_000 {
		t.Fatalf("%d plans, %v", len(made), err)
	}
	// Ten publishers, one subscriber, 12 for other queries, and one that sets the attributes.
	if n := made[1].sockets(); n != 24 {
		t.Errorf("%d sockets", n)
	}
	for want, bad := range map[string]Forward{"queries is 0": forwardBy(0),
		"queries is 20001": forwardBy(20_001)} {
		if _, err := bad.Workloads(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	light := forwardBy(1)
	light.Client = ClientLight
	if _, err := light.Workloads(); err == nil || !strings.Contains(err.Error(),
		"live queries have the client nats only") {
		t.Error(err)
	}
}

// TestForwardByAttributesComparesNumbersOfQueries: each number of groups is compared with itself.
func TestForwardByAttributesComparesNumbersOfQueries(t *testing.T) {
	made, err := forwardBy(10, 10_000).Workloads()
	if err != nil {
		t.Fatal(err)
	}
	r := &Report{Servers: []Server{{Name: "carillon"}}}
	for i, w := range made {
		result := newResult(w, []Target{{Name: "carillon"}})
		run := sampleRun(1, 20_000, time.Millisecond)
		run.ServerCPU = &CPU{PerDelivery: []float64{10_000, 10_500, 20_000, 30_000}[i]}
		result.Measured[0].Runs = append(result.Measured[0].Runs, run)
		result.summarize()
		r.Results = append(r.Results, result)
	}
	r.compareSizes()
	table := string(tableOf(t, r, false))
	for _, want := range []string{
		"forward: groups of 10 publishers, chosen by live queries beside others; 5 msg/s each, 32 B",
		"groups; queries", "10; 10,000",
		"carillon, 1 groups: 10,000 other queries take 1.050 × the server's CPU time of 10, per message.",
		"carillon, 10 groups: 10,000 other queries take 1.500 × the server's CPU time of 10, per message.",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
	if name := r.Results[1].load(); name != "forward 1 groups, 10,000 other queries" {
		t.Error(name)
	}
}
