package main

import (
	"strconv"
	"strings"
	"testing"
)

// TestBenchForwardByAttributes: subscribers get the messages of the publishers that their live
// queries match, beside more queries than a broker accepts from one address. No attributes stay.
func TestBenchForwardByAttributes(t *testing.T) {
	dev := startDev(t, "--data", t.TempDir())
	table, found := runBench(t,
		"bench forward --server "+dev.url+" --groups 3 --publishers 4 --rate 20 --queries 5,1100"+
			" --warmup 100ms --duration 500ms --drain-timeout 60s --server-pid "+strconv.Itoa(dev.cmd.Process.Pid))
	if len(found.Results) != 2 {
		t.Fatalf("%d results\n%s", len(found.Results), table)
	}
	for _, result := range found.Results {
		m := result.Measured[0]
		if d := m.Deliveries; d.Expected != 3*4*12 || d.Received != d.Expected ||
			d.Lost+d.Duplicated+d.OutOfOrder+d.Unexpected != 0 {
			t.Errorf("%d queries: %+v", result.Parameters.Queries, d)
		}
		if m.Dropped != 0 || m.Median.Count != 3*4*10 {
			t.Errorf("%d queries: %d dropped, %+v", result.Parameters.Queries, m.Dropped, m.Median)
		}
	}
	for _, want := range []string{"chosen by live queries beside others",
		"groups; queries", "3; 1,100"} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
	noAttributes(t, dev.url)
	dev.stop()
}
