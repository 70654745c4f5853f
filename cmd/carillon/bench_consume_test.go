package main

import (
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/bench"
)

// TestBenchConsume: against a Carillon broker, consumers of every kind take all messages once, in
// both phases, and the stream is deleted.
func TestBenchConsume(t *testing.T) {
	dev := startDev(t, "--data", t.TempDir())
	for _, load := range []string{"--batch 1,100 --client light", "--batch 100 --client nats", "--push --client light", "--push --client nats"} {
		line := "bench consume --server " + dev.url + " --consumers 1,3 --messages 3000 --rate 500 --warmup 100ms --duration 400ms " + load
		table, found := runBench(t, line)
		for _, result := range found.Results {
			m := result.Measured[0]
			want := bench.Deliveries{Expected: 3000 + 250, Received: 3000 + 250}
			if f := m.Consume; f == nil || f.Taken != 3000 || f.Rate <= 0 || f.Redelivered != 0 || f.PacedRate != 500 || f.Paced != 200 || m.Deliveries != want || m.Median.Count != 200 {
				t.Errorf("%s, %d consumers: %+v %+v %+v", load, result.Size, f, m.Deliveries, m.Median)
			}
		}
		if want := 1 + strings.Count(load, ","); len(found.Results) != 2*want || !strings.Contains(table, "consume: 3,000 messages of 128 B") {
			t.Errorf("%s: %d results, and the table is\n%s", load, len(found.Results), table)
		}
	}
	noStreams(t, dev.url)
	dev.stop()
}
