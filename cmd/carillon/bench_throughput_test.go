package main

import (
	"strconv"
	"strings"
	"testing"
)

// TestBenchThroughput: a Carillon broker delivers all of a flood, and the report has its rates.
func TestBenchThroughput(t *testing.T) {
	dev := startDev(t, "--data", t.TempDir())
	pid := strconv.Itoa(dev.cmd.Process.Pid)
	table, found := runBench(t, "bench throughput --server "+dev.url+" --server-pid "+pid+" --clients 1:1,2:2,1:0 --size 16,1024 --warmup 50ms --duration 300ms")
	if len(found.Results) != 6 {
		t.Fatalf("%d results\n%s", len(found.Results), table)
	}
	for _, result := range found.Results {
		p, m := result.Parameters, result.Measured[0]
		f, d := m.Throughput, m.Deliveries
		if f == nil || f.Published == 0 || f.PublishRate <= 0 || (p.Subscribers > 0) != (f.ReceiveRate > 0) {
			t.Errorf("%d:%d: %+v", p.Publishers, p.Subscribers, f)
		}
		if d.Expected != int64(m.Runs[0].Published*p.Subscribers) || d.Received != d.Expected || d.Duplicated+d.OutOfOrder+d.Unexpected != 0 {
			t.Errorf("%d:%d: %+v", p.Publishers, p.Subscribers, d)
		}
	}
	if !strings.Contains(table, "publish only 16 B") || !strings.Contains(table, "2:2 1 KiB") {
		t.Errorf("the table is\n%s", table)
	}
	dev.stop()
}
