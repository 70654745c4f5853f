//go:build linux

package devcluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/internal/testutil"
	"github.com/carillon-mq/carillon/test/durability/checker"
)

// patience bounds every wait of a test. A passing test never waits that long.
const patience = 2 * testutil.Patience

// answerTime bounds the wait for one answer.
const answerTime = 30 * time.Second

// program is the path of carillon, built once for all tests.
var program string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "carillon-devcluster-")
	if err == nil {
		program = filepath.Join(dir, "carillon")
		var out []byte
		if out, err = exec.Command("go", "build", "-o", program, "../../cmd/carillon").CombinedOutput(); err != nil {
			err = fmt.Errorf("build carillon: %w: %s", err, out)
		}
	}
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, "devcluster:", err)
	} else {
		code = m.Run()
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// tries returns how often a fault is repeated.
func tries(short, long int) int {
	if os.Getenv("CARILLON_LONG") != "" {
		return long
	}
	return short
}

// cluster is a process of `carillon dev` with three brokers.
type cluster struct {
	t       *testing.T
	data    string
	listen  string
	flags   []string // further ones
	urls    []string // of each broker, the same in all lives
	process *exec.Cmd
	log     *os.File
}

func startCluster(t *testing.T, flags ...string) *cluster {
	t.Helper()
	c := &cluster{t: t, data: t.TempDir(), listen: "127.0.0.1:0", flags: flags}
	var err error
	if c.log, err = os.CreateTemp(t.TempDir(), "log-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.process.Process.Kill()
		_ = c.process.Wait()
		if t.Failed() {
			all, _ := os.ReadFile(c.log.Name())
			t.Logf("the cluster's log ends with:\n%s", all[max(0, len(all)-12000):])
		}
		_ = c.log.Close()
	})
	c.start()
	return c
}

func (c *cluster) start() {
	c.t.Helper()
	c.process = exec.Command(program, "dev", "--brokers", "3", "--data", c.data, "--listen", c.listen)
	c.process.Args = append(c.process.Args, c.flags...)
	if level := os.Getenv("CARILLON_LOG"); level != "" {
		c.process.Args = append(c.process.Args, "--log-level", level)
	}
	c.process.Stderr = c.log
	c.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := c.process.StdoutPipe()
	if err == nil {
		err = c.process.Start()
	}
	if err != nil {
		c.t.Fatal(err)
	}
	stuck := time.AfterFunc(patience, func() { _ = c.process.Process.Kill() })
	defer stuck.Stop()
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	urls, ok := strings.CutPrefix(strings.TrimSpace(line), "ready: ")
	if c.urls = strings.Split(urls, ","); err != nil || !ok || len(c.urls) != 3 {
		c.t.Fatalf("the cluster said %q: %v", line, err)
	}
	c.listen = strings.TrimPrefix(c.urls[0], "nats://")
	go func() { _, _ = io.Copy(io.Discard, lines) }() // it ends with the process
}

// stop ends the cluster as a user does, by an interrupt.
func (c *cluster) stop() {
	c.t.Helper()
	stuck := time.AfterFunc(patience, func() { _ = c.process.Process.Kill() })
	defer stuck.Stop()
	if err := errors.Join(c.process.Process.Signal(syscall.SIGTERM), c.process.Wait()); err != nil {
		c.t.Errorf("after SIGTERM the cluster ended with: %v", err)
	}
}

// pid returns the process id of a broker.
func (c *cluster) pid(broker int) (int, error) {
	text, err := os.ReadFile(filepath.Join(c.data, "broker-"+strconv.Itoa(broker), "pid"))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// endpoint returns the brokers' endpoint of etcd.
func (c *cluster) endpoint() string {
	c.t.Helper()
	pid, err := c.pid(0)
	if err != nil {
		c.t.Fatal(err)
	}
	arguments, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil {
		c.t.Fatal(err)
	}
	all := strings.Split(string(arguments), "\x00")
	at := slices.Index(all, "--etcd-endpoints")
	if at < 0 || at+1 == len(all) {
		c.t.Fatalf("broker 0 was started with %q", all)
	}
	return all[at+1]
}

// kill kills brokers.
func (c *cluster) kill(brokers ...int) {
	c.t.Helper()
	c.signal(syscall.SIGKILL, brokers...)
}

// freeze pauses brokers until the returned function is called.
func (c *cluster) freeze(brokers ...int) (thaw func()) {
	c.t.Helper()
	pids := c.signal(syscall.SIGSTOP, brokers...)
	return func() {
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}
}

func (c *cluster) signal(signal syscall.Signal, brokers ...int) (pids []int) {
	c.t.Helper()
	for _, broker := range brokers {
		pid, err := c.pid(broker)
		if err != nil {
			c.t.Fatalf("broker %d has no process: %v", broker, err)
		}
		pids = append(pids, pid)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, signal); err != nil {
			c.t.Fatal(err)
		}
	}
	return pids
}

// connect returns a client that connects to any of the brokers.
func (c *cluster) connect() jetstream.JetStream {
	c.t.Helper()
	return c.connectOnly(strings.Join(c.urls, ","))
}

// connectTo returns a client that connects to one broker, and learns of the others from it.
func (c *cluster) connectTo(broker int) jetstream.JetStream {
	c.t.Helper()
	return c.connectOnly(c.urls[broker])
}

func (c *cluster) connectOnly(urls string) jetstream.JetStream {
	c.t.Helper()
	nc, err := checker.Connect(urls, "devcluster")
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(answerTime))
	if err != nil {
		c.t.Fatal(err)
	}
	return js
}

// whole waits until all three replicas of a stream are in sync, and returns its leader.
func (c *cluster) whole(js jetstream.JetStream, stream string) (leader int) {
	c.t.Helper()
	testutil.Eventually(c.t, "all three replicas of "+stream+" are in sync", func() error {
		ctx, cancel := context.WithTimeout(c.t.Context(), answerTime)
		defer cancel()
		is, err := js.Stream(ctx, stream)
		if err != nil {
			return err
		}
		cluster := is.CachedInfo().Cluster
		told := cluster.Leader + " leads"
		inSync := 0
		for _, replica := range cluster.Replicas {
			told += fmt.Sprintf(", %s %+v", replica.Name, *replica)
			if replica.Current {
				inSync++
			}
		}
		if leader, err = strconv.Atoi(strings.TrimPrefix(cluster.Leader, "dev-")); err != nil || inSync != 2 {
			return errors.New(told)
		}
		return nil
	})
	return leader
}

// killLeaders kills the leader of a stream again and again. Before and after each kill, clients go
// on until count has grown by some; after it, they have noticed it then.
func (c *cluster) killLeaders(js jetstream.JetStream, stream, what string, some int, count func() int) {
	c.t.Helper()
	c.killLeadersOf(js, []string{stream}, what, some, count)
}

// killLeadersOf is killLeaders of several streams in turn.
func (c *cluster) killLeadersOf(js jetstream.JetStream, streams []string, what string, some int, count func() int) {
	c.t.Helper()
	goesOn := func() {
		c.t.Helper()
		before := count()
		testutil.EventuallyTrue(c.t, what, func() bool { return count() > before+some })
	}
	for i := range tries(3, 20) {
		goesOn()
		c.kill(c.whole(js, streams[i%len(streams)]))
		goesOn()
	}
	for _, stream := range streams {
		c.whole(js, stream)
	}
}
