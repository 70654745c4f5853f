package bench

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// peerCluster runs three nats-servers with JetStream until the test ends, each started again when
// it dies, as a cluster's are. Each has its process id in DIR/peer-N/pid.
type peerCluster struct {
	target  Target
	dir     string
	pattern string // of the files with the process ids
}

// startPeerCluster returns nil, and says why, if there is no nats-server to try.
func startPeerCluster(t *testing.T) *peerCluster {
	t.Helper()
	path := os.Getenv("CARILLON_NATS_SERVER")
	if path == "" {
		t.Log("CARILLON_NATS_SERVER names no nats-server to try this with")
		return nil
	}
	const size = 3
	var listen, route, routes []string
	for i, port := range testutil.FreePorts(t, 2*size) {
		if address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port)); i < size {
			listen = append(listen, address)
		} else {
			route, routes = append(route, address), append(routes, "nats://"+address)
		}
	}
	c := &peerCluster{dir: t.TempDir(), target: Target{Name: "peers"}}
	c.pattern = filepath.Join(c.dir, "peer-%d", "pid")
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	for i := range size {
		name := fmt.Sprintf("peer-%d", i)
		data := filepath.Join(c.dir, name)
		if err := os.Mkdir(data, 0o755); err != nil {
			t.Fatal(err)
		}
		config := filepath.Join(c.dir, name+".conf")
		text := fmt.Sprintf("server_name: %s\nlisten: %q\ncluster { name: peers, listen: %q, routes: [%s] }\njetstream { store_dir: %q }\n",
			name, listen[i], route[i], strings.Join(routes, ", "), data)
		if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for ctx.Err() == nil {
				server := exec.CommandContext(ctx, path, "-c", config, "-P", filepath.Join(data, "pid"), "-l", filepath.Join(c.dir, name+".log"))
				if err := server.Start(); err != nil {
					t.Errorf("start %s: %v", name, err)
					return
				}
				_ = server.Wait()
				_ = sleep(ctx, 50*time.Millisecond)
			}
		})
		c.target.Addresses = append(c.target.Addresses, Address{HostPort: listen[i]})
	}
	return c
}

// TestDurableRunOnAClusterOfPeers: durable measures replicated streams of a real cluster, for each
// placement of the publishers.
func TestDurableRunOnAClusterOfPeers(t *testing.T) {
	t.Parallel()
	peers := startPeerCluster(t)
	if peers == nil {
		return
	}
	var loads []Workload
	for _, d := range []Durable{
		{Connect: ConnectSpread, Client: ClientLight, Replicas: []int{1, 3}}, {Connect: ConnectSpread, Client: ClientNATS, Replicas: []int{3}},
		{Connect: ConnectLeader, Client: ClientLight, Replicas: []int{3}}, {Connect: ConnectFollower, Client: ClientLight, Replicas: []int{3}},
	} {
		d.Publishers, d.Window, d.PayloadBytes, d.Duration = []int{8}, 64, 40, 100*time.Millisecond
		made, err := d.Workloads()
		if err != nil {
			t.Fatal(err)
		}
		loads = append(loads, made...)
	}
	c := Campaign{Workloads: loads, Server: peers.target, Repeat: 1, Wait: time.Minute, Limits: DefaultLimits, Status: quietly}
	r, err := c.Run(t.Context())
	if err != nil || r.Err() != nil {
		t.Fatalf("%v, %v", err, r.Err())
	}
	for i, result := range r.Results {
		run, p := result.Measured[0].Runs[0], result.Parameters
		if run.Placement == nil || run.Acks == nil || run.Acks.Acked == 0 {
			t.Fatalf("run %d: %+v", i, run)
		}
		want := map[string]int{ConnectSpread: min(3, p.Publishers), ConnectLeader: 1, ConnectFollower: min(2, p.Publishers)}[p.Connect]
		atLeader := run.Placement.AtLeader
		right := p.Connect == ConnectLeader && atLeader == p.Publishers || p.Connect == ConnectFollower && atLeader == 0 ||
			p.Connect == ConnectSpread && (p.Publishers == 1 || atLeader == 2 || atLeader == 3)
		if run.Placement.Connections != want || !right || run.Placement.Leader == "" || run.Placement.Replicas != p.Replicas {
			t.Errorf("publishers %d, window %d, connect to %s, %s: %+v", p.Publishers, p.Window, p.Connect, result.Client, run.Placement)
		}
	}
	table := string(tableOf(t, r, false))
	for _, want := range []string{"a connection to each broker\n", "one connection, to the broker that leads", "each broker but the one that leads", "on 3 replicas"} {
		if !strings.Contains(table, want) {
			t.Errorf("%q is not in:\n%s", want, table)
		}
	}
}

// TestConsumeAndKVOnAClusterOfPeers: consume and kv measure replicated streams of a real cluster,
// with each client and kind of consumer, and find no fault.
func TestConsumeAndKVOnAClusterOfPeers(t *testing.T) {
	t.Parallel()
	peers := startPeerCluster(t)
	if peers == nil {
		return
	}
	loads, err := KV{Keys: 50, Writers: []int{8}, Readers: 8, Replicas: []int{1, 3}, PayloadBytes: 40, Duration: 200 * time.Millisecond}.Workloads()
	if err != nil {
		t.Fatal(err)
	}
	for _, client := range []string{ClientLight, ClientNATS} {
		for _, push := range []bool{false, true} {
			made, err := Consume{
				Consumers: []int{4}, Batches: []int{50}, Push: push, Replicas: []int{1, 3}, Messages: 2000, Rate: 200, AckWait: time.Minute,
				PayloadBytes: 40, Duration: 200 * time.Millisecond, Client: client,
			}.Workloads()
			if err != nil {
				t.Fatal(err)
			}
			loads = append(loads, made...)
		}
	}
	c := Campaign{Workloads: loads, Server: peers.target, Repeat: 1, Wait: time.Minute, Limits: DefaultLimits, Status: quietly}
	r, err := c.Run(t.Context())
	if err != nil || r.Err() != nil {
		t.Fatalf("%v, %v", err, r.Err())
	}
	for _, result := range r.Results {
		if m := result.Measured[0]; m.KV == nil && (m.Consume == nil || m.Consume.Taken != 2000 || m.Deliveries.Received != 2040) {
			t.Errorf("%s: %+v %+v", result.load(), m.Consume, m.Deliveries)
		}
	}
}
