//go:build linux

package devcluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/carillon-mq/carillon/coordinator"
	"github.com/carillon-mq/carillon/internal/testutil"
	"github.com/carillon-mq/carillon/test/durability/checker"
)

// apart is a cluster whose etcd runs in this process, so that it can be restored while the brokers
// run. The test starts the three brokers.
type apart struct {
	*scene
	etcd      *coordinator.Local // nil: stopped
	endpoints []string           // of etcd, the same in all its lives
	brokers   [3]*exec.Cmd
	listens   [3][]string // addresses of each broker: for clients, links, HTTP
}

// volume returns the directory of a broker's data.
func (a *apart) volume(broker int) string {
	return filepath.Join(a.data, fmt.Sprintf("broker-%d", broker))
}

func (a *apart) startBroker(t *testing.T, broker int) {
	t.Helper()
	at := a.listens[broker]
	c := exec.Command(program, "broker", "--name", fmt.Sprintf("dev-%d", broker), "--cluster", "local/dev", "--data", a.volume(broker),
		"--client-listen", at[0], "--route-listen", at[1], "--http-listen", at[2],
		"--etcd-endpoints", strings.Join(a.endpoints, ","), "--disk-stall-limit", "0", "--log-level", "warn")
	c.Stdout, c.Stderr = a.log, a.log
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	a.brokers[broker] = c
}

// killBroker kills a broker, and waits until its process has ended.
func (a *apart) killBroker(broker int) {
	if c := a.brokers[broker]; c != nil {
		_ = c.Process.Kill()
		_ = c.Wait()
		a.brokers[broker] = nil
	}
}

func (a *apart) startEtcd(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	etcd, err := coordinator.StartLocal(ctx, filepath.Join(a.data, "etcd"), nil)
	if err != nil {
		t.Fatal(err)
	}
	a.etcd = etcd
	if a.endpoints == nil {
		a.endpoints = etcd.Endpoints()
	} else if now := etcd.Endpoints(); !slices.Equal(now, a.endpoints) {
		t.Fatalf("etcd is at %v now, and the brokers know %v (set TMPDIR to a shorter path)", now, a.endpoints)
	}
}

func (a *apart) stopEtcd(t *testing.T) {
	t.Helper()
	if a.etcd == nil {
		return
	}
	err := a.etcd.Close()
	if a.etcd = nil; err != nil {
		t.Error(err)
	}
}

// beginApart starts etcd, the brokers, and clients that use a stream of three replicas.
func beginApart(t *testing.T, stream string) *apart {
	t.Helper()
	data, err := os.MkdirTemp("", "live-") // a short path: etcd's socket is in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(data) })
	a := &apart{scene: &scene{cluster: &cluster{t: t, data: data}, history: checker.NewHistory(stream)}}
	if a.log, err = os.CreateTemp(t.TempDir(), "log-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.log.Close() })
	t.Cleanup(func() { a.stopEtcd(t) }) // after the brokers
	a.startEtcd(t)
	for n := range a.brokers {
		for _, port := range testutil.FreePorts(t, 3) {
			a.listens[n] = append(a.listens[n], fmt.Sprintf("127.0.0.1:%d", port))
		}
		a.urls = append(a.urls, "nats://"+a.listens[n][0])
		if err := os.Mkdir(a.volume(n), 0o700); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { a.killBroker(n) })
		a.startBroker(t, n)
	}
	t.Cleanup(func() {
		if t.Failed() {
			all, _ := os.ReadFile(a.log.Name())
			t.Logf("the brokers' log ends with:\n%s", all[max(0, len(all)-12000):])
		}
	})
	for _, url := range a.urls {
		testutil.Eventually(t, "a broker takes clients", func() error {
			nc, err := checker.Connect(url, "devcluster")
			if err == nil {
				nc.Close()
			}
			return err
		})
	}
	a.js = a.connect()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	testutil.Eventually(t, "a stream of three replicas is made", func() error {
		_, err := a.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: stream, Subjects: []string{stream + ".>"}, Replicas: 3})
		return err
	})
	a.whole(a.js, stream)
	for _, url := range a.urls {
		a.publishers = append(a.publishers, startPublisher(t, a.history, url))
	}
	return a
}

// TestEtcdIsRestoredWhileBrokersRun: etcd is stopped, restored from an older backup and started,
// while the brokers run and clients publish. A leader was drained after the backup, so that another
// broker leads under an epoch unknown to etcd. No acknowledged message is lost, and publishers soon
// get acks again.
func TestEtcdIsRestoredWhileBrokersRun(t *testing.T) {
	t.Parallel()
	a := beginApart(t, "live")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for round := range 2 { // the second restore goes back to before the first one
		leader := a.wholeAndBusy(t)
		file := filepath.Join(a.data, "snapshot.db")
		if round == 0 {
			if _, err := snapshot.NewV3(zap.NewNop()).Save(ctx, clientv3.Config{Endpoints: a.endpoints}, file); err != nil {
				t.Fatal(err)
			}
		}
		for _, do := range []string{"drain", "undrain"} {
			args := []string{"brokers", do, fmt.Sprintf("dev-%d", leader), "--server", a.urls[leader]}
			if do == "drain" {
				args = append(args, "--leadership")
			}
			if out, err := exec.CommandContext(ctx, program, args...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %v: %s", args, err, out)
			}
			if do == "drain" {
				testutil.EventuallyTrue(t, "another broker leads", func() bool { return a.whole(a.js, "live") != leader })
			}
		}
		a.wholeAndBusy(t)

		noticed := func() int {
			log, err := os.ReadFile(a.log.Name())
			if err != nil {
				t.Fatal(err)
			}
			return strings.Count(string(log), "etcd was restored from a backup")
		}
		before, stopped := noticed(), time.Now()
		a.stopEtcd(t)
		a.restoreSnapshot(t, file, false)
		a.startEtcd(t)
		testutil.EventuallyTrue(t, "the restore is noticed", func() bool { return noticed() > before })
		a.wholeAndBusy(t)
		longest := time.Duration(0)
		for _, p := range a.publishers {
			longest = max(longest, p.longest(stopped, time.Now()))
		}
		t.Logf("the longest time without acks was %v", longest.Round(time.Millisecond))
		if longest > resumption {
			t.Errorf("there were no acks for %v, want at most %v", longest, resumption)
		}
	}
	a.judge(t)
}

// judge stops the publishers and compares the stream with the acks.
func (a *apart) judge(t *testing.T) {
	t.Helper()
	for _, p := range a.publishers {
		p.end()
		p.close()
		t.Logf("a publisher: %s", p.told())
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	entries, err := a.history.Read(ctx, a.js)
	if err != nil {
		t.Fatal(err)
	}
	verdict := a.history.Judge(entries)
	t.Logf("%s; %s", a.history, verdict)
	if err := verdict.Err(); err != nil {
		t.Error(err)
	}
}
