package main

import (
	"strconv"
	"strings"
	"testing"
)

// TestBenchFilter: each message comes to the one Subscription that it matches, and the stream is
// deleted.
func TestBenchFilter(t *testing.T) {
	dev := startDev(t, "--data", t.TempDir())
	table, found := runBench(t,
		"bench filter --server "+dev.url+" --filters 1,12 --rate 500 --warmup 50ms"+
			" --duration 400ms --drain-timeout 60s --server-pid "+strconv.Itoa(dev.cmd.Process.Pid))
	if len(found.Results) != 2 {
		t.Fatalf("%d results\n%s", len(found.Results), table)
	}
	for _, result := range found.Results {
		m := result.Measured[0]
		if d := m.Deliveries; d.Expected != 225 || d.Received != 225 ||
			d.Lost+d.Duplicated+d.OutOfOrder+d.Unexpected != 0 || m.Median.Count != 200 {
			t.Errorf("%d filters: %+v, %d measured", result.Size, d, m.Median.Count)
		}
		if run := m.Runs[0]; run.ServerCPU == nil || run.Delivered <= 0 || run.Published != 225 {
			t.Errorf("%d filters: %+v", result.Size, run)
		}
	}
	for _, want := range []string{"filter: Subscriptions of one Topic",
		"each message matches one; 1 replica, durability synced", "CPU/msg"} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
	noStreams(t, dev.url)
	dev.stop()
}
