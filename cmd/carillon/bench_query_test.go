package main

import (
	"strconv"
	"strings"
	"testing"
)

// TestBenchQuery: each scan of a Topic finds what matches, and the stream is deleted.
func TestBenchQuery(t *testing.T) {
	dev := startDev(t, "--data", t.TempDir())
	table, found := runBench(t,
		"bench query --server "+dev.url+" --records 1501 --share 0.1 --scans 2 --drain-timeout 60s"+
			" --server-pid "+strconv.Itoa(dev.cmd.Process.Pid))
	m := found.Results[0].Measured[0]
	f, d := m.Query, m.Deliveries
	// Two scans of all, of every tenth, and of none.
	if d.Expected != 2*(1501+151) || d.Received != d.Expected || d.Lost+d.Unexpected != 0 {
		t.Errorf("%+v", d)
	}
	if f == nil || f.FillRate <= 0 {
		t.Fatalf("%+v", f)
	}
	if f.All.Rate <= 0 || f.Selective.Rate <= 0 || f.None.Rate <= 0 || f.None.Operations != 3002 ||
		f.All.Latency.Count != 2 {
		t.Errorf("%+v", f)
	}
	for _, want := range []string{"query: scans of a Topic by carillon query",
		"selective is 10 % of the records", "1,501 records", "lost 0, too many 0"} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
	noStreams(t, dev.url)
	dev.stop()
}
