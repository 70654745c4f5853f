package main

import (
	"os"
	"strings"
	"testing"
)

// TestBenchCluster: three coordinators and three brokers are started, every message comes to the
// subscriber whose query matches its publisher at the time, also while publishers change, and no
// process and no file is left.
func TestBenchCluster(t *testing.T) {
	t.Setenv(asCarillon, "1") // its processes are this test's program
	t.Setenv("NATS_URL", "")
	data := t.TempDir()
	table, found := runBench(t,
		"bench cluster --data "+data+" --subscribers 1 --rate 20 --interval 400ms,1200ms"+
			" --duration 5s --drain-timeout 60s --connect-timeout 60s")
	m := found.Results[0].Measured[0]
	f, d := m.Cluster, m.Deliveries
	if d.Received == 0 || d.Lost+d.Duplicated+d.OutOfOrder+d.Unexpected != 0 ||
		d.Received != d.Expected || m.Median.Count != d.Received {
		t.Errorf("%+v, %d measured", d, m.Median.Count)
	}
	// 36 publishers change some six times, and twice of twelve changes a membership changes.
	if f == nil || f.Changes < 36*4 || f.Notices < 12 || m.Runs[0].Published != 36*100 ||
		m.Runs[0].ServerCPU == nil {
		t.Errorf("%+v, %+v", f, m.Runs[0])
	}
	for _, want := range []string{"cluster: 3 brokers, 3 subscribers with a live query each",
		"carillon: attributes were changed"} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
	left, err := os.ReadDir(data)
	if err != nil || len(left) != 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// TestBenchClusterSaysWhyNothingStarts: what a process says before it ends is in the error, and
// nothing is left.
func TestBenchClusterSaysWhyNothingStarts(t *testing.T) {
	data := t.TempDir()
	c := &benchCluster{dir: data + "/x", log: data + "/log"}
	c.failed = func(error) {}
	if err := os.WriteFile(c.log, []byte("coordinator-1: no space left\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := c.explain(os.ErrDeadlineExceeded)
	if !strings.Contains(err.Error(), "They said last:\ncoordinator-1: no space left") {
		t.Error(err)
	}
	if err := c.stop(); err != nil {
		t.Error(err)
	}
}
