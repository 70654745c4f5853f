package main

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestBenchNoisy: a Carillon broker serves a bystander beside a noise, and the stream is deleted.
func TestBenchNoisy(t *testing.T) {
	dev := startDev(t, "--data", t.TempDir())
	table, found := runBench(t, "bench noisy --server "+dev.url+" --subscribers 3 --rate 100 --warmup 50ms --duration 300ms --drain-timeout 60s")
	if len(found.Results) != 2 {
		t.Fatalf("%d results\n%s", len(found.Results), table)
	}
	for _, result := range found.Results {
		m := result.Measured[0]
		f, d := m.Noisy, m.Deliveries
		if f == nil || f.Alone.Latency.P50 <= 0 || f.Beside.Latency.P50 <= 0 || f.Noise.ReceiveRate <= 0 || d.Lost+d.Duplicated+d.Unexpected != 0 {
			t.Errorf("%s: %+v %+v", result.Parameters.Noise, f, d)
		}
	}
	if !strings.Contains(table, "noisy: flood beside a request") || !strings.Contains(table, "fan-out to 3 beside a stream") {
		t.Errorf("the table is\n%s", table)
	}
	noStreams(t, dev.url)
	dev.stop()
}

// TestBenchOverTLS: the program's own clients measure over TLS.
func TestBenchOverTLS(t *testing.T) {
	data := t.TempDir()
	dev := startDev(t, "--data", data, "--tls")
	for _, line := range []string{
		"bench connections --connections 50 --hold 50ms",
		"bench throughput --clients 1:1 --size 128 --warmup 0s --duration 200ms",
		"bench request --pairs 2 --warmup 0s --duration 200ms",
		"bench forward --client light --groups 2 --publishers 2 --rate 10 --warmup 0s --duration 500ms",
		"bench fanout --client light --subscribers 5 --messages 4 --warmup 0s --duration 200ms",
		"bench durable --client light --publishers 2 --window 8 --warmup 0s --duration 200ms",
		"bench noisy --noise fanout --subscribers 2 --rate 100 --warmup 0s --duration 200ms --drain-timeout 60s",
	} {
		_, found := runBench(t, line+" --tls-ca "+filepath.Join(data, "tls", "ca.crt")+" --server "+dev.url)
		if m := found.Results[0].Measured[0]; m.Deliveries.Received == 0 || m.Deliveries.Received != m.Deliveries.Expected {
			t.Errorf("%s: %+v", line, m.Deliveries)
		}
	}
	dev.end()
}

// TestBenchConnections: connections to a Carillon broker, and what each costs.
func TestBenchConnections(t *testing.T) {
	data := t.TempDir()
	dev := startDev(t, "--data", data)
	pid := strconv.Itoa(dev.cmd.Process.Pid)
	for _, rate := range []string{"0", "1000"} {
		table, found := runBench(t, "bench connections --server "+dev.url+" --server-pid "+pid+" --connections 300 --hold 100ms --rate "+rate)
		m := found.Results[0].Measured[0]
		if f, d := m.Connections, m.Deliveries; f == nil || f.Opened != 300 || f.AllIn <= 0 || f.Idle <= 0 || d.Received != 300 || d.Lost != 0 || m.Median.Count != 300 {
			t.Errorf("rate %s: %+v %+v", rate, f, d)
		}
		if !strings.Contains(table, "connections: opened") {
			t.Errorf("the table is\n%s", table)
		}
	}
	dev.stop()
}
