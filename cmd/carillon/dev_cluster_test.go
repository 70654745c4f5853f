package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// soon waits for a condition.
func soon(t *testing.T, what string, ok func() bool) {
	t.Helper()
	testutil.EventuallyTrue(t, what, ok)
}

// startDevBrokers runs carillon dev with several brokers, and returns the URL of each.
func startDevBrokers(t *testing.T, brokers int, args ...string) (*child, []string) {
	t.Helper()
	c := startDev(t, append([]string{"--brokers", strconv.Itoa(brokers)}, args...)...)
	urls := strings.Split(c.url, ",")
	if len(urls) != brokers {
		t.Fatalf("%d brokers are ready at %q", brokers, urls)
	}
	return c, urls
}

func connect(t *testing.T, url string, options ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, append(options, nats.Timeout(testutil.Patience), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// pidOf is the process of a broker; 0: there is none.
func pidOf(data string, broker int) int {
	text, err := os.ReadFile(filepath.Join(data, "broker-"+strconv.Itoa(broker), "pid"))
	if err != nil {
		return 0
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return pid
}

func pids(t *testing.T, data string, brokers int) (all []int) {
	t.Helper()
	for n := range brokers {
		pid := pidOf(data, n)
		if !alive(pid) {
			t.Fatalf("broker %d is said to be process %d, which is not there", n, pid)
		}
		all = append(all, pid)
	}
	return all
}

// alive reports whether there is such a process. One that has ended and is not waited for counts as
// gone.
func alive(pid int) bool {
	if pid == 0 || syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || !bytes.Contains(stat, []byte(") Z "))
}

func TestDevRunsACluster(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	dev, urls := startDevBrokers(t, 3, "--data", data)
	was := pids(t, data, 3)

	// The ports are consecutive, and the brokers are one server.
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(urls[0], "nats://"))
	first, _ := strconv.Atoi(port)
	for n, url := range urls {
		if want := "nats://127.0.0.1:" + strconv.Itoa(first+n); url != want {
			t.Errorf("broker %d is at %s, want %s", n, url, want)
		}
	}
	var clients []*nats.Conn
	for _, url := range urls {
		clients = append(clients, connect(t, url))
	}
	sub, err := clients[0].SubscribeSync("greet.*")
	if err != nil {
		t.Fatal(err)
	}
	if err := clients[0].Flush(); err != nil {
		t.Fatal(err)
	}
	soon(t, "a message goes from one broker to another", func() bool {
		if err := clients[2].Publish("greet.world", []byte("hello")); err != nil {
			t.Fatal(err)
		}
		m, err := sub.NextMsg(100 * time.Millisecond)
		return err == nil && string(m.Data) == "hello"
	})

	// What a broker keeps survives its process.
	js, err := jetstream.New(clients[0], jetstream.WithDefaultTimeout(testutil.Patience))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*testutil.Patience)
	defer cancel()
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(ctx, "orders", []byte("one")); err != nil {
		t.Fatal(err)
	}
	leader := stream.CachedInfo().Cluster.Leader
	killed, err := strconv.Atoi(strings.TrimPrefix(leader, "dev-"))
	if err != nil {
		t.Fatalf("the leader is %q", leader)
	}
	if err := syscall.Kill(was[killed], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	soon(t, "the killed broker is another process", func() bool {
		pid := pidOf(data, killed)
		return pid != 0 && pid != was[killed] && alive(pid)
	})
	soon(t, "it serves what it had", func() bool {
		asked, cancel := context.WithTimeout(ctx, 10*time.Second) // it is lost with its broker
		defer cancel()
		m, err := stream.GetMsg(asked, 1)
		return err == nil && string(m.Data) == "one"
	})
	for n := range was {
		if is := pidOf(data, n); n != killed && is != was[n] {
			t.Errorf("broker %d was process %d and is %d, and nobody touched it", n, was[n], is)
		}
	}

	// Who starts another one with these data is told at once, and harms nothing.
	began := time.Now()
	second := exec.Command(os.Args[0], "dev", "--listen", "127.0.0.1:0", "--brokers", "3", "--data", data)
	second.Env = append(os.Environ(), asCarillon+"=1")
	out, err := second.CombinedOutput()
	if took := time.Since(began); err == nil || !strings.Contains(string(out), "another process is using it") || took > time.Minute {
		t.Errorf("a second one with the same data: %v after %v:\n%s", err, took, out)
	}
	was = pids(t, data, 3)

	for _, nc := range clients {
		nc.Close()
	}
	if rest := dev.end(); !strings.Contains(rest, "carillon sub") {
		t.Errorf("it does not say what to try: %q", rest)
	}
	if log := dev.stderr.String(); strings.Count(log, "is started again") != 1 || !strings.Contains(log, "broker="+leader) {
		t.Errorf("the log has not one line about the broker that died:\n%s", log)
	}
	for n, pid := range was {
		if alive(pid) || pidOf(data, n) != 0 {
			t.Errorf("broker %d is left: process %d, pid file %d", n, pid, pidOf(data, n))
		}
	}

	again, _ := startDevBrokers(t, 3, "--data", data)
	js, err = jetstream.New(connect(t, again.url), jetstream.WithDefaultTimeout(testutil.Patience))
	if err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "the stream is there in the next life", func() error {
		info, err := js.Stream(ctx, "orders")
		if err == nil && info.CachedInfo().State.Msgs != 1 {
			err = fmt.Errorf("it is %+v", info.CachedInfo())
		}
		return err
	})
	again.end()
}

func TestDevGrowsAndDoesNotShrink(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	dev := startDev(t, "--data", data)
	ctx, cancel := context.WithTimeout(t.Context(), 3*testutil.Patience)
	defer cancel()
	js, err := jetstream.New(connect(t, dev.url), jetstream.WithDefaultTimeout(testutil.Patience))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "orders"}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(ctx, "orders", []byte("one")); err != nil {
		t.Fatal(err)
	}
	js.Conn().Close()
	dev.stop()

	cluster, urls := startDevBrokers(t, 2, "--data", data, "--token", "t0ken")
	if _, err := nats.Connect(urls[1]); err == nil {
		t.Error("a client without credentials got in")
	}
	if text, err := os.ReadFile("/proc/" + strconv.Itoa(pidOf(data, 1)) + "/cmdline"); err == nil && bytes.Contains(text, []byte("t0ken")) {
		t.Errorf("everybody can read the token: %q", text)
	}
	if js, err = jetstream.New(connect(t, urls[1], nats.Token("t0ken")), jetstream.WithDefaultTimeout(testutil.Patience)); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "what the broker had when it was alone is there", func() error {
		stream, err := js.Stream(ctx, "orders")
		if err == nil && (stream.CachedInfo().State.Msgs != 1 || stream.CachedInfo().Cluster.Leader != "dev-0") {
			err = fmt.Errorf("it is %+v", stream.CachedInfo())
		}
		return err
	})
	js.Conn().Close()
	cluster.end()

	one := exec.Command(os.Args[0], "dev", "--listen", "127.0.0.1:0", "--data", data)
	one.Env = append(os.Environ(), asCarillon+"=1")
	if out, err := one.CombinedOutput(); err == nil || !strings.Contains(string(out), "use --brokers 2") {
		t.Errorf("one broker with the data of two: %v\n%s", err, out)
	}
}

func TestDevEndsWhenABrokerCanNotStart(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	if err := os.MkdirAll(filepath.Join(data, "broker-1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "broker-1", "identity.json"), []byte(`{"v":1,"id":"abc","cluster":"some/other"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "dev", "--listen", "127.0.0.1:0", "--brokers", "2", "--data", data)
	cmd.Env = append(os.Environ(), asCarillon+"=1")
	out, err := cmd.CombinedOutput()
	for _, want := range []string{"dev-1: carillon: the volume", "broker dev-1 could not start", "exit status 1"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%v, and no %q:\n%s", err, want, out)
		}
	}
	if code := cmd.ProcessState.ExitCode(); code != exitFailure {
		t.Errorf("the exit code is %d", code)
	}
}

func TestDevRefusesPortsThatAreTaken(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	port := ln.Addr().(*net.TCPAddr).Port
	cmd := exec.Command(os.Args[0], "dev", "--listen", "127.0.0.1:"+strconv.Itoa(port-1), "--brokers", "3", "--data", t.TempDir())
	cmd.Env = append(os.Environ(), asCarillon+"=1")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "is another broker running here?") {
		t.Errorf("%v:\n%s", err, out)
	}
}

func TestPausesBetweenTheLivesOfABroker(t *testing.T) {
	var pause time.Duration
	var all []time.Duration
	for range 8 {
		pause = nextPause(pause, time.Second)
		all = append(all, pause/time.Millisecond)
	}
	if got, want := all, []time.Duration{100, 200, 400, 800, 1600, 3200, 5000, 5000}; !slices.Equal(got, want) {
		t.Errorf("the pauses are %v ms, want %v", got, want)
	}
	if pause = nextPause(pause, devSettled); pause != devMinPause {
		t.Errorf("after a long life the pause is %v", pause)
	}
}

// TestBrokersThatKnowEachOther: brokers are announced once each knows the present incarnation of
// every other one, and has a link to it.
func TestBrokersThatKnowEachOther(t *testing.T) {
	for text, want := range map[string]bool{
		`[{"server_id":"a","incarnation":5,"members":[{"id":"a","incarnation":5},{"id":"b","incarnation":6}],"links":[{"id":"b","up":true}]},
		  {"server_id":"b","incarnation":6,"members":[{"id":"a","incarnation":5},{"id":"b","incarnation":6}],"links":[{"id":"a","up":true}]}]`: true,
		`[{"server_id":"a","incarnation":5,"members":[{"id":"a","incarnation":5},{"id":"b","incarnation":2}],"links":[{"id":"b","up":true}]},
		  {"server_id":"b","incarnation":6,"members":[{"id":"a","incarnation":5},{"id":"b","incarnation":6}],"links":[{"id":"a","up":true}]}]`: false,
		`[{"server_id":"a","incarnation":5,"members":[{"id":"a","incarnation":5},{"id":"b","incarnation":6}],"links":[{"id":"b","up":false}]},
		  {"server_id":"b","incarnation":6,"members":[{"id":"a","incarnation":5},{"id":"b","incarnation":6}],"links":[{"id":"a","up":true}]}]`: false,
		`[{"server_id":"a","incarnation":5,"members":[{"id":"a","incarnation":5}]},
		  {"server_id":"b","incarnation":6,"members":[{"id":"a","incarnation":5},{"id":"b","incarnation":6}],"links":[{"id":"a","up":true}]}]`: false,
	} {
		var all []devStatus
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			t.Fatal(err)
		}
		if got := whole(all); got != want {
			t.Errorf("%v, want %v:\n%s", got, want, text)
		}
	}
}

func TestLinesOfBrokersHaveTheirNames(t *testing.T) {
	var out bytes.Buffer
	p := &prefixed{mu: new(sync.Mutex), to: &out, name: "dev-1"}
	for _, part := range []string{"one\ntw", "o\n", "\n{\"level\":\"INFO\"}\n", strings.Repeat("x", longestLine), "y\nend"} {
		if n, err := p.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	p.flush()
	p.flush()
	want := "dev-1: one\ndev-1: two\ndev-1: \n{\"process\":\"dev-1\",\"level\":\"INFO\"}\ndev-1: " + strings.Repeat("x", longestLine) + "\ndev-1: y\ndev-1: end\n"
	if out.String() != want {
		t.Errorf("got %q", strings.ReplaceAll(out.String(), strings.Repeat("x", longestLine), "x..."))
	}
}
