package main

import (
	"strings"
	"testing"
)

// TestBenchKV: against a Carillon broker, every phase has its figures, every value read is the last
// one put, and the bucket is deleted.
func TestBenchKV(t *testing.T) {
	dev := startDev(t, "--data", t.TempDir())
	table, found := runBench(t, "bench kv --server "+dev.url+" --keys 100 --writers 1,16 --readers 3 --warmup 0s --duration 300ms")
	if len(found.Results) != 2 {
		t.Fatalf("%d results", len(found.Results))
	}
	for _, result := range found.Results {
		m := result.Measured[0]
		f, d := m.KV, m.Deliveries
		if f == nil || f.Put.Rate <= 0 || f.Get.Rate <= 0 || f.One.Rate <= 0 || f.Put.Latency.P99 <= 0 || f.One.Latency.P99 <= 0 || f.Watch.Operations != 500 || f.Watch.Latency.Count != 5 || f.Stale != 0 {
			t.Errorf("%d writers: %+v", result.Size, f)
		}
		if d.Expected != 500 || d.Received != 500 || d.Lost+d.Duplicated+d.Unexpected != 0 {
			t.Errorf("%d writers: %+v", result.Size, d)
		}
	}
	if !strings.Contains(table, "kv: 100 keys in a bucket in files on 1 replica") || !strings.Contains(table, "put, 16 writers") {
		t.Errorf("the table is\n%s", table)
	}
	noStreams(t, dev.url)
	dev.stop()
}
