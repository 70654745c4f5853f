package bench

import (
	"os"
	"strings"
	"testing"
	"time"
)

func smallConnections(t *testing.T, rate float64) Workload {
	t.Helper()
	made, err := Connections{Connections: []int{40}, Rate: rate, Hold: 20 * time.Millisecond}.Workloads()
	if err != nil {
		t.Fatal(err)
	}
	return made[0]
}

func TestAConnectionsPlanIsChecked(t *testing.T) {
	good := Connections{Connections: []int{1, 10_000}, Rate: 2000, Hold: time.Second}
	made, err := good.Workloads()
	if err != nil || len(made) != 2 || made[1].sockets() != 10_000 {
		t.Fatalf("%d plans, %v", len(made), err)
	}
	for want, change := range map[string]func(*Connections){
		"connections is 0":     func(c *Connections) { c.Connections = []int{0} },
		"connections is 60001": func(c *Connections) { c.Connections = []int{60_001} },
		"rate is -1":           func(c *Connections) { c.Rate = -1 },
		"held for -1s":         func(c *Connections) { c.Hold = -time.Second },
		"no number of":         func(c *Connections) { c.Connections = nil },
	} {
		bad := good
		change(&bad)
		if _, err := bad.Workloads(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

func TestConnectionsAreOpenedWhenTheyAreDue(t *testing.T) {
	t.Parallel()
	for name, rate := range map[string]float64{"all at once": 0, "at a rate": 200} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &fakeServer{}
			target := startFakeServer(t, server)
			target.PIDs, target.memory = []int{os.Getpid()}, 1
			run := measure(t.Context(), target, smallConnections(t, rate), testLimits, quietly)
			f, d := run.Connections, run.Deliveries
			if run.faulty() || run.Partial || f.Opened != 40 || run.Latency.Count != 40 || run.HDR == "" || len(run.OverTime) == 0 {
				t.Fatalf("%+v %+v", run, f)
			}
			if d.Expected != 40 || d.Received != 40 {
				t.Errorf("%+v", d)
			}
			// The last of 40 is due after 39 intervals of 5 ms.
			if rate > 0 && f.AllIn < int64(195*time.Millisecond) {
				t.Errorf("all are in after %v", time.Duration(f.AllIn))
			}
			if rate == 0 && run.Latency.Max > f.AllIn {
				t.Errorf("one took %v, and all were in after %v", time.Duration(run.Latency.Max), time.Duration(f.AllIn))
			}
			if anonymous, err := anonymousMemory(target.PIDs); err == nil && (anonymous < 1<<20 || f.PerConnection <= 0 || f.Idle <= f.Before) {
				t.Errorf("%d bytes of memory, %+v", anonymous, f)
			}
		})
	}
}

// TestAnIdleConnectionThatWasCutOffIsLost: it shows when it is asked for a last answer.
func TestAnIdleConnectionThatWasCutOffIsLost(t *testing.T) {
	t.Parallel()
	server := &fakeServer{}
	target := startFakeServer(t, server)
	made, err := Connections{Connections: []int{5}, Hold: 300 * time.Millisecond}.Workloads()
	if err != nil {
		t.Fatal(err)
	}
	cut := false
	run := measure(t.Context(), target, made[0], lossLimits, func(phase string) {
		if phase != "5 connections are idle" || cut {
			return
		}
		cut = true
		server.mu.Lock()
		defer server.mu.Unlock()
		for c := range server.conns {
			_ = c.Close()
			break
		}
	})
	if d := run.Deliveries; d.Expected != 5 || d.Lost != 1 || !strings.Contains(run.Error, "an idle connection does not answer") {
		t.Errorf("%+v %s", d, run.Error)
	}
}

func TestConnectionsThatFailAreCounted(t *testing.T) {
	t.Parallel()
	server := &fakeServer{}
	target := startFakeServer(t, server)
	_ = server.listener.Close()
	run := measure(t.Context(), target, smallConnections(t, 0), lossLimits, quietly)
	if d := run.Deliveries; d.Expected != 40 || d.Lost != 40 || !strings.Contains(run.Error, "40 of 40 connections to fake failed; the first:") {
		t.Errorf("%+v %s", d, run.Error)
	}
}

func TestConnectionsTable(t *testing.T) {
	result := newResult(smallConnections(t, 2000), []Target{{Name: "carillon"}, {Name: "nats-server"}})
	for i := range 2 {
		for n := range 3 {
			run := sampleRun(n+1, 40, time.Duration(i+1)*time.Millisecond)
			run.Connections = &ConnectionsFigures{Opened: 40, AllIn: int64(i+1) * int64(time.Second), PerConnection: float64(i+1) * 10 * 1024, Server: &CPU{PerDelivery: 1e5 * float64(i+1)}}
			result.Measured[i].Runs = append(result.Measured[i].Runs, run)
		}
	}
	result.summarize()
	if q := result.Ratio; q == nil || q.Connections == nil || *q.Connections != (ConnectionsRatio{0.5, 0.5, 0.5}) {
		t.Fatalf("%+v", q)
	}
	r := &Report{Servers: []Server{{Name: "carillon"}, {Name: "nats-server"}}, Results: []Result{result}}
	table := string(tableOf(t, r, false))
	for _, want := range []string{"opened 2,000 a second, idle for 0 s", "1.00s", "20 KiB", "0.50×", "memory/conn: the server's"} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
}
