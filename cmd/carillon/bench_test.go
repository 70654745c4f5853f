package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/yaml"
)

func TestBenchRefusesWrongCommandLinesBeforeItConnects(t *testing.T) {
	for _, line := range []string{
		"bench sideways",
		"bench forward extra",
		"bench forward --groups 0",
		"bench forward --groups x",
		"bench forward --queries 0",
		"bench forward --queries 30000",
		"bench forward --queries 10 --client light",
		"bench forward --client other",
		"bench forward --size 8",
		"bench forward --output xml",
		"bench forward --repeat 0",
		"bench forward --user u --password p --token t",
		"bench forward --server http://127.0.0.1",
		"bench forward --against 127.0.0.1:4222",
		"bench forward --against a=127.0.0.1:4223,a=127.0.0.1:4224",
		"bench forward --against a=127.0.0.1:4223,b=127.0.0.1:4224 --against-name c",
		"bench forward --against 127.0.0.1:4223 --against-pid 1,2",
		"bench forward --against-name c",
		"bench forward --json /nonexistent/report.json",
		"bench forward --report /nonexistent/report.html",
		"bench forward --report /",
		"bench throughput --clients 4",
		"bench throughput --clients 0:1",
		"bench throughput --size 15",
		"bench throughput --duration 0s",
		"bench request extra",
		"bench request --pairs 0",
		"bench request --size 16",
		"bench request --rate -1",
		"bench connections --connections 0",
		"bench connections --rate -1",
		"bench connections --hold -1s",
		"bench noisy --noise drum",
		"bench noisy --subscribers 0",
		"bench noisy --rate 0",
		"bench filter extra",
		"bench filter --filters 0",
		"bench filter --filters 100000",
		"bench filter --rate 0",
		"bench filter --size 64",
		"bench filter --durability maybe",
		"bench filter --replicas 9",
		"bench cluster extra",
		"bench cluster --brokers 0",
		"bench cluster --coordinators 2",
		"bench cluster --subscribers 0",
		"bench cluster --rate 0",
		"bench cluster --size 16",
		"bench cluster --interval 2s,1s",
		"bench cluster --duration 0s",
		"bench cluster --user me --password secret",
		"bench cluster --output xml",
		"bench query extra",
		"bench query --records 0",
		"bench query --share 0",
		"bench query --scans 0",
		"bench query --size 64",
		"bench query --durability maybe",
		"bench query --replicas 9",
		"bench requery extra",
		"bench requery --start --server nats://h:1",
		"bench requery --kill-leader",
		"bench requery --start --kill-leader --midway true",
		"bench requery --start --coordinators 4",
		"bench requery --publishers 0",
		"bench requery --queries 100000",
		"bench requery --queries 2000 --share 0.5",
		"bench requery --share 0",
		"bench requery --sessions 0",
		"bench requery --changes -1",
		"bench requery --interval soon",
		"bench requery --interval 20ms,10ms",
		"bench fanout --subscribers 1000000",
		"bench fanout --pace -1s",
		"bench all --duration 0s",
		"bench all --durable-duration 0s",
		"bench durable --publishers 0",
		"bench durable --window 1000000",
		"bench durable --publishers= --window 0",
		"bench durable --size 16",
		"bench failover",
		"bench failover --server nats://h:1,nats://h:2",
		"bench failover --server nats://h:1,nats://h:2 --pid-file-pattern ./broker/pid",
		"bench failover --server nats://h:1,nats://h:2 --pids a=1x",
		"bench failover --server nats://h:1,nats://h:2 --pids a=12,b=13",
		"bench failover --server nats://h:1,nats://h:2 --pids a=12,b=13 --pids c=14",
		"bench failover --server nats://h:1,nats://h:2 --against x=nats://h:3,nats://h:4 --pid-file-pattern ./%d/pid",
		"bench failover --server nats://h:1,nats://h:2 --pid-file-pattern ./%d/pid --fault flood",
		"bench failover --server nats://h:1,nats://h:2 --pid-file-pattern ./%d/pid --fault cut",
		"bench failover --server nats://h:1,nats://h:2 --pid-file-pattern ./%d/pid --tries 0",
		"bench log --size 12",
		"bench log --batch 65537",
		"bench log --readers 1,2,3",
		"bench log --durability maybe",
		"bench consume extra",
		"bench consume --consumers 0",
		"bench consume --batch 0",
		"bench consume --messages 0",
		"bench consume --rate -1",
		"bench consume --ack-wait 1ms",
		"bench consume --ack-pending -1",
		"bench consume --size 16",
		"bench consume --client other",
		"bench consume --replicas 6",
		"bench kv extra",
		"bench kv --keys 0",
		"bench kv --keys 10 --writers 11",
		"bench kv --readers 0",
		"bench kv --size 16",
		"bench kv --client light",
		"bench kv --replicas 0",
		"bench durable --replicas 0",
		"bench durable --replicas 1,6",
		"bench durable --connect-to nobody",
		"bench durable --server-pid 12+x",
		"bench durable --against a=127.0.0.1:4223 --against-pid 12+",
	} {
		if code := run(t.Context(), strings.Fields(line)); code != exitUsage {
			t.Errorf("carillon %s: exit code %d, want %d", line, code, exitUsage)
		}
	}
}

func TestBenchFailsWhenNoServerAnswers(t *testing.T) {
	if code := run(t.Context(), strings.Fields("bench forward --server 127.0.0.1:1 --wait 10ms")); code != exitFailure {
		t.Errorf("exit code %d, want %d", code, exitFailure)
	}
}

func TestBenchKeepsSecretsOutOfTheReport(t *testing.T) {
	t.Setenv("NATS_URL", "nats://env:hush@127.0.0.1")
	if strings.Contains(newBenchForwardCommand().UsageString(), "hush") {
		t.Error("help shows the password in NATS_URL")
	}
	for _, secret := range []string{"--user me --password hush", "--token hush"} {
		f, cmd := &benchFlags{}, &cobra.Command{Use: "bench"}
		f.common(cmd)
		if err := cmd.ParseFlags(strings.Fields("--server nats://a:hush@h --against nats://b:hush@i --against=j=nats://hush@k --repeat 2 " + secret)); err != nil {
			t.Fatal(err)
		}
		c, err := f.campaign(cmd)
		if err != nil {
			t.Fatal(err)
		}
		line := strings.Join(c.Command, " ")
		if strings.Contains(line, "hush") || !strings.Contains(line, "--server=nats://h:4222") || !strings.Contains(line, "--against=nats://i:4222 --against=j=nats://k:4222") || !strings.Contains(line, "--repeat=2") {
			t.Errorf("the report says %q", line)
		}
	}
}

// TestBenchDurableRepeats: single runs vary too much where a disk takes part, so durable repeats by
// default, and reports that.
func TestBenchDurableRepeats(t *testing.T) {
	cmd := newBenchDurableCommand()
	repeat := cmd.Flags().Lookup("repeat")
	if repeat.DefValue != "5" || repeat.Value.String() != "5" {
		t.Errorf("repeat is %s, and help says %s", repeat.Value, repeat.DefValue)
	}
}

// TestTheBenchmarkJobIsAValidCommandLine: the command line of the sample Job is valid.
func TestTheBenchmarkJobIsAValidCommandLine(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "config", "samples", "benchmark-job.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var job batchv1.Job
	if err := yaml.UnmarshalStrict(raw, &job); err != nil {
		t.Fatal(err)
	}
	cmd, rest, err := newRoot().Find(job.Spec.Template.Spec.Containers[0].Args)
	if err != nil || cmd.CommandPath() != "carillon bench all" {
		t.Fatalf("the Job runs %q: %v", cmd.CommandPath(), err)
	}
	if err := cmd.ParseFlags(rest); err != nil {
		t.Error(err)
	}
}
