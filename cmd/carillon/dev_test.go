package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// asCarillon makes the test binary behave as the program, so that tests can start it as a child.
const asCarillon = "CARILLON_TEST_AS_PROGRAM"

// beside is how many parallel tests run at once. They use less than half a core together when they
// run one after the other, and wait for brokers to start, and for what is told every few seconds.
// Tests with commands that give up after milliseconds are not parallel.
const beside = 4

func TestMain(m *testing.M) {
	if os.Getenv(asCarillon) != "" {
		main()
	}
	testutil.RunBeside(beside)
	os.Exit(m.Run())
}

type child struct {
	t      *testing.T
	cmd    *exec.Cmd
	url    string
	stderr bytes.Buffer
	stdout *bufio.Reader
}

// startDev runs carillon dev as a process of its own and waits for its line.
func startDev(t *testing.T, args ...string) *child {
	t.Helper()
	c := &child{t: t, cmd: exec.Command(os.Args[0], append([]string{"dev", "--listen", "127.0.0.1:0"}, args...)...)}
	c.cmd.Env = append(os.Environ(), asCarillon+"=1")
	c.cmd.Stderr = &c.stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.stdout = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.cmd.Process.Kill() })
	giveUp := time.AfterFunc(2*testutil.Patience, func() { _ = c.cmd.Process.Kill() })
	defer giveUp.Stop()
	line, err := c.stdout.ReadString('\n')
	if err != nil {
		t.Fatalf("no line on standard output: %v\n%s", err, c.stderr.String())
	}
	var found bool
	if c.url, found = strings.CutPrefix(strings.TrimSpace(line), "ready: "); !found || !strings.HasPrefix(c.url, "nats://127.0.0.1:") && !strings.HasPrefix(c.url, "tls://127.0.0.1:") {
		t.Fatalf("the line is %q", line)
	}
	return c
}

// slowMachine has parts of warnings about a machine that gave the program no processor, or no disk,
// for seconds. It is right to print them.
var slowMachine = []string{
	"The disk is slow or hangs", "The wall clock of this machine jumped", "Taking clients before all links are up", "Waiting for links to other brokers",
	"etcd has not answered", "following etcd was interrupted", "the registration was lost", "registering with etcd failed",
	"standing for controller failed", "Could not carry out a plan; trying again", "A shard waits", "A broker is silent", "Evicted a broker",
	"The attributes of subjects are not read yet", "Could not delete the attributes of connections that are gone", "without telling etcd", "Not all clients had left",
}

// warned returns what the program printed on standard error, without slowMachine, and without what
// it tries again after a warning of that: a broker whose registration was lost leads no shard for a
// moment.
func (c *child) warned() string {
	var rest []string
	slow := false
	for line := range strings.Lines(c.stderr.String()) {
		if slices.ContainsFunc(slowMachine, func(part string) bool { return strings.Contains(line, part) }) {
			slow = true
		} else if !slow || !strings.Contains(line, "trying again") {
			rest = append(rest, line)
		}
	}
	return strings.Join(rest, "")
}

// stop sends SIGTERM, and fails unless the program ends well, quietly and soon.
func (c *child) stop() {
	c.t.Helper()
	if rest := c.end() + c.warned(); rest != "" {
		c.t.Errorf("it was to print one line only, and printed more:\n%s", rest)
	}
}

// end does the same, quiet or not, and returns what was printed after the line.
func (c *child) end() string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), testutil.Patience)
	defer cancel()
	stuck := context.AfterFunc(ctx, func() { _ = c.cmd.Process.Kill() })
	defer stuck()
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		c.t.Fatal(err)
	}
	rest, _ := io.ReadAll(c.stdout)
	if err := c.cmd.Wait(); err != nil {
		c.t.Errorf("after SIGTERM: %v\n%s", err, c.stderr.String())
	}
	return string(rest)
}

func TestDevServesAnUnmodifiedClientAndStopsCleanly(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	for _, life := range []string{"first", "second"} { // the same folder again
		dev := startDev(t, "--data", data)
		nc, err := nats.Connect(dev.url, nats.Timeout(testutil.Patience))
		if err != nil {
			t.Fatalf("%s life: %v", life, err)
		}
		sub, err := nc.SubscribeSync("greet.*")
		if err != nil {
			t.Fatal(err)
		}
		if err := nc.Publish("greet.world", []byte(life)); err != nil {
			t.Fatal(err)
		}
		m, err := sub.NextMsg(testutil.Patience)
		if err != nil || string(m.Data) != life {
			t.Fatalf("%s life: got %v, %v", life, m, err)
		}
		nc.Close()
		dev.stop()
	}
}

func TestDevRequiresTheCredentialsThatItWasGiven(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args []string
		good nats.Option
	}{
		{[]string{"--user", "ann", "--password", "secret"}, nats.UserInfo("ann", "secret")},
		{[]string{"--token", "t0ken"}, nats.Token("t0ken")},
	} {
		dev := startDev(t, append(tc.args, "--data", t.TempDir())...)
		if _, err := nats.Connect(dev.url); err == nil {
			t.Errorf("%v: a client without credentials got in", tc.args)
		}
		if _, err := nats.Connect(dev.url, nats.UserInfo("ann", "wrong")); err == nil {
			t.Errorf("%v: a client with wrong credentials got in", tc.args)
		}
		nc, err := nats.Connect(dev.url, tc.good, nats.Timeout(testutil.Patience))
		if err != nil {
			t.Errorf("%v: %v", tc.args, err)
			continue
		}
		nc.Close()
		dev.stop()
	}
}

// brokerLine is a complete command line of a broker.
const brokerLine = "broker --name a --cluster a/main --data x --etcd-endpoints http://x"

func TestWrongCommandLinesSayWhatToDo(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ args, want string }{
		{"dev", "--data is required"},
		{"dev --data x --listen 4222", "not host:port"},
		{"dev --data x --user ann", "a user and a password go together"},
		{"dev --data x --user a --password b --token c", "choose one"},
		{"dev --data x --profile huge", "choose one of small, medium, large, xlarge"},
		{"dev --data x --brokers 0", "choose 1 to 9"},
		{"dev --data x --brokers 10", "choose 1 to 9"},
		{"dev --data x --brokers 3 --listen 127.0.0.1:65534", "2 more after it"},
		{"dev --data x --brokers 3 --http-listen 8222", "not host:port"},
		{"dev --data x y", "takes no arguments"},
		{"dev --data x --log-level loud", "debug, info, warn or error"},
		{"broker --name a --cluster main --data x --etcd-endpoints http://x", "not namespace/name"},
		{"broker", "--name is required"},
		{brokerLine + " --client-tls optional", "need --client-tls-dir"},
		{brokerLine + " --client-tls-first auto", "need --client-tls-dir"},
		{brokerLine + " --client-tls-verify", "need --client-tls-dir"},
		{brokerLine + " --client-tls-dir x --client-tls maybe", "required or optional"},
		{brokerLine + " --client-tls-dir x --client-tls-first soon", "no, yes, auto, or a wait of at most 2s"},
		{brokerLine + " --client-tls-dir x --client-tls-first 3s", "a wait of at most 2s"},
		{brokerLine + " --client-tls-dir x --client-tls optional --client-tls-verify", "has no certificate"},
		{brokerLine + " --client-tls-dir x --client-tls optional --client-tls-first yes", "choose auto"},
		{"brokr", "did you mean broker"},
		{"--nonsense", "unknown flag"},
	} {
		cmd := exec.Command(os.Args[0], strings.Fields(tc.args)...)
		cmd.Env, cmd.Dir = append(os.Environ(), asCarillon+"=1"), t.TempDir()
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != exitUsage || !strings.Contains(string(out), tc.want) {
			t.Errorf("carillon %s: %v, want exit code 2 and %q:\n%s", tc.args, err, tc.want, out)
		}
		if left, _ := os.ReadDir(cmd.Dir); len(left) > 0 {
			t.Errorf("carillon %s left %v behind", tc.args, left)
		}
	}
}
