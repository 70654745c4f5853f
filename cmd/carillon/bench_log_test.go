package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/bench"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestBenchLog: against a Carillon broker, all written records are read, in batches and one by one,
// and the stream is deleted.
func TestBenchLog(t *testing.T) {
	dev := startDev(t, "--data", t.TempDir())
	table, found := runBench(t, "bench log --server "+dev.url+" --publishers 1,3 --readers 2 --batch 1,500 --records 20000000 --warmup 0s --duration 400ms --durability replicated")
	if len(found.Results) != 4 {
		t.Fatalf("%d results\n%s", len(found.Results), table)
	}
	for _, result := range found.Results {
		m := result.Measured[0]
		if m.Log == nil || m.Log.Written == 0 || m.Log.WriteRate == 0 || m.Log.ReadRate == 0 || m.Log.Read < m.Log.Written || m.Deliveries.Lost+m.Deliveries.Unexpected != 0 || m.Median.Count == 0 {
			t.Errorf("%d publishers, batch %d: %+v %+v", result.Size, result.Parameters.Batch, m.Log, m.Deliveries)
		}
	}
	if !strings.Contains(table, "records of 64 B, one shard, 1 replicas, durability replicated") {
		t.Errorf("the table is\n%s", table)
	}
	noStreams(t, dev.url)
	dev.stop()
}

// runBench runs a command line that has to succeed, and returns its table and its report.
func runBench(t *testing.T, line string) (table string, found bench.Report) {
	t.Helper()
	if !strings.Contains(line, "--drain-timeout") {
		line += " --drain-timeout 60s" // a busy machine takes longer than a server may
	}
	report := t.TempDir() + "/report.json"
	stdout := os.Stdout
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	os.Stdout = write
	code := run(t.Context(), append(strings.Fields(line), "--json", report))
	os.Stdout = stdout
	write.Close()
	printed, _ := io.ReadAll(read)
	data, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &found); err != nil || code != 0 {
		t.Fatalf("%s: exit code %d, %v\n%s", line, code, err, printed)
	}
	return string(printed), found
}

// noStreams checks that the broker has no stream left.
func noStreams(t *testing.T, url string) {
	t.Helper()
	nc, err := nats.Connect(url, nats.Timeout(testutil.Patience))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(testutil.Patience))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testutil.Patience)
	defer cancel()
	for name := range js.StreamNames(ctx).Name() {
		t.Errorf("stream %s is still there", name)
	}
}
