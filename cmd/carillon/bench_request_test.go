package main

import (
	"strings"
	"testing"
)

// TestBenchRequest: a Carillon broker carries requests and replies, in a closed and an open loop.
func TestBenchRequest(t *testing.T) {
	dev := startDev(t, "--data", t.TempDir())
	for _, loop := range []string{"", " --rate 500"} {
		table, found := runBench(t, "bench request --server "+dev.url+" --pairs 1,16 --warmup 50ms --duration 300ms"+loop)
		if len(found.Results) != 2 {
			t.Fatalf("%d results\n%s", len(found.Results), table)
		}
		for _, result := range found.Results {
			m := result.Measured[0]
			if f, d := m.Request, m.Deliveries; f == nil || f.Rate <= 0 || f.Answered != m.Median.Count || d.Received == 0 || d.Received != d.Expected || d.Unexpected+d.Duplicated != 0 {
				t.Errorf("%d pairs: %+v %+v", result.Size, f, d)
			}
		}
		if !strings.Contains(table, "pairs of a requester and a responder") {
			t.Errorf("the table is\n%s", table)
		}
	}
	dev.stop()
}
