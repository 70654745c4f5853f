package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/internal/testutil"
)

func TestGapsAreMeasuredFromTheLastAckBeforeTheFault(t *testing.T) {
	g := newGapWatch(3)
	g.ack(0, 10)
	g.ack(1, 10)
	g.ack(2, 90) // 80 after it began to publish: nobody's gap
	g.enter(gapSteady, 100)
	for at := int64(101); at < 110; at++ {
		g.ack(0, at)
		g.ack(1, at)
	}
	g.ack(0, 113)
	g.ack(2, 115) // since 90, which reaches back behind the beginning
	if g.steady != 4 {
		t.Errorf("undisturbed, the longest gap was %d, want 4", g.steady)
	}
	g.enter(gapFault, 200)
	g.ack(0, 210) // since 113
	g.ack(0, 250)
	g.ack(1, 300) // since 109
	if g.allSince(200) {
		t.Error("publisher 2 was not acknowledged since")
	}
	others, all, n := g.gaps([]bool{false, true, false}, 305)
	if others != 190 || all != 191 || n != 2 { // publisher 2 waits since 115
		t.Errorf("gaps %d and %d of %d, want 190 and 191 of 2", others, all, n)
	}
	g.ack(2, 320) // 205
	if others, all, n := g.gaps([]bool{true, true, true}, 320); others != 0 || all != 205 || n != 0 || !g.allSince(200) {
		t.Errorf("gaps %d and %d of %d, want none of others and 205", others, all, n)
	}
	g.enter(gapIdle, 400)
	g.ack(0, 900)
	g.enter(gapFault, 1000)
	g.ack(0, 1001)
	if _, all, _ := g.gaps([]bool{false, true, true}, 1001); g.steady != 4 || all != 1001-300 || g.longest[0] != 101 {
		t.Errorf("what came before counts: %d, %d, %v", g.steady, all, g.longest)
	}
}

// TestAnAbandonedMessageMayArriveLate: a message without an ack may be stored behind later ones; an
// acknowledged one may not.
func TestAnAbandonedMessageMayArriveLate(t *testing.T) {
	play := func(acknowledged bool) (Deliveries, error) {
		a := newAckAccount("s", 1, 10, 0, 0)
		a.handedOn = true
		for n := range 3 {
			a.send(0, 1)
			if n != 1 || acknowledged {
				// The second stands at 3, whoever says so.
				a.settle(0, n, pubAck{stream: []byte("s"), sequence: []uint64{1, 3, 2}[n], duplicate: n == 2}, nil, 2)
			}
		}
		stored := newStoredAccount(7, a)
		for sequence, n := range []int{0, 2, 1} {
			payload := make([]byte, headerBytes)
			stamp{run: 7, sequence: uint32(n)}.put(payload)
			stored.observe(uint64(sequence+1), payload)
		}
		return stored.close()
	}
	if d, err := play(false); err != nil || d != (Deliveries{Expected: 2, Received: 2}) {
		t.Errorf("given up and late: %+v, %v", d, err)
	}
	if d, err := play(true); err == nil || d.OutOfOrder != 1 {
		t.Errorf("acknowledged and out of order: %+v, %v", d, err)
	}
}

func TestProcessesOfBrokers(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"dev-2": " 1234\n", "other": "77", "dev-3": "x", "dev-4": "1", "dev-5": fmt.Sprint(os.Getpid())} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	byNumber, err := ParseProcesses(filepath.Join(dir, "dev-%d"), "a=12, b=34")
	if err != nil {
		t.Fatal(err)
	}
	byName := Processes{Pattern: filepath.Join(dir, "%s")}
	for _, c := range []struct {
		p    Processes
		name string
		want int
		says string
	}{
		{byNumber, "main-2", 1234, ""}, {byNumber, "b", 34, ""}, {byName, "other", 77, ""},
		{byNumber, "c", 0, "ends in no number"}, {byNumber, "main-9", 0, "no such file"}, {byName, "dev-3", 0, "no process id"},
		{byName, "dev-4", 0, "no process id"}, {byName, "dev-5", 0, "no process id"}, {Processes{PIDs: map[string]int{"a": 12}}, "c", 0, "which process is"},
	} {
		got, err := c.p.find(c.name)
		if got != c.want || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s in %+v: %d, %v", c.name, c.p, got, err)
		}
	}
	for _, wrong := range [][2]string{{"broker/pid", ""}, {"", "a"}, {"", "a=x"}, {"", "=3"}, {"", "a=1"}, {"", "a=2,,b=3"}} {
		if p, err := ParseProcesses(wrong[0], wrong[1]); err == nil {
			t.Errorf("%q passes as %+v", wrong, p)
		}
	}
}

func TestFaultsBeginAndEnd(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	said := func() string { text, _ := os.ReadFile(log); return string(text) }
	command := "echo >>" + log
	for kind, want := range map[string]string{FaultKill: "kill x y\n", FaultPause: "pause x y\nheal x y\n", FaultCut: "cut x y\nheal x y\n"} {
		_ = os.Remove(log)
		heal, err := Fault{Kind: kind, Command: command}.strike(t.Context(), Processes{}, "x y")
		if err = errors.Join(err, heal(t.Context())); err != nil || said() != want {
			t.Errorf("%s: %q, %v", kind, said(), err)
		}
	}
	heal, err := Fault{Kind: FaultCut, Command: "echo no such network; false"}.strike(t.Context(), Processes{}, "x")
	if err == nil || !strings.Contains(err.Error(), "no such network") || heal(t.Context()) == nil {
		t.Errorf("a command that fails: %v", err)
	}

	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = child.Process.Kill() })
	who := Processes{PIDs: map[string]int{"x": child.Process.Pid}}
	next := func() (is syscall.WaitStatus) { // of the process
		for {
			if _, err := syscall.Wait4(child.Process.Pid, &is, syscall.WUNTRACED|syscall.WCONTINUED, nil); err == nil {
				return is
			} else if !errors.Is(err, syscall.EINTR) {
				t.Fatal(err)
			}
		}
	}
	if heal, err = (Fault{Kind: FaultPause}).strike(t.Context(), who, "x"); err != nil {
		t.Fatal(err)
	}
	if is := next(); !is.Stopped() || is.StopSignal() != syscall.SIGSTOP {
		t.Fatalf("paused, it is %x", is)
	}
	if err := heal(t.Context()); err != nil {
		t.Fatal(err)
	}
	if is := next(); !is.Continued() {
		t.Fatalf("healed, it is %x", is)
	}
	if _, err := (Fault{Kind: FaultKill}).strike(t.Context(), who, "x"); err != nil {
		t.Fatal(err)
	}
	if is := next(); !is.Signaled() || is.Signal() != syscall.SIGKILL {
		t.Fatalf("killed, it is %x", is)
	}
	if _, err := (Fault{Kind: FaultKill}).strike(t.Context(), who, "x"); err == nil {
		t.Error("a process that is gone was killed")
	}
}

func smallFailover(kind string, tries int) Failover {
	return Failover{
		Publishers: 3, Replicas: 3, PayloadBytes: 40, Tries: tries, Fault: Fault{Kind: kind, For: 3 * time.Second},
		Steady: 500 * time.Millisecond, AckTimeout: 200 * time.Millisecond, Interval: 5 * time.Millisecond,
	}
}

func TestFailoverPlans(t *testing.T) {
	for _, wrong := range []func(*Failover){
		func(f *Failover) { f.Publishers = 0 }, func(f *Failover) { f.Publishers = 1000 }, func(f *Failover) { f.Replicas = 6 },
		func(f *Failover) { f.PayloadBytes = 1 }, func(f *Failover) { f.Tries = 0 }, func(f *Failover) { f.Fault.Kind = "" },
		func(f *Failover) { f.Fault.Kind = FaultCut }, func(f *Failover) { f.Fault.For = 0 }, func(f *Failover) { f.Steady = 0 },
		func(f *Failover) { f.AckTimeout = 0 }, func(f *Failover) { f.Interval = 0 }, func(f *Failover) { f.Within = -1 },
	} {
		f := smallFailover(FaultKill, 1)
		if _, err := f.Workloads(); err != nil {
			t.Fatal(err)
		}
		if wrong(&f); true {
			if _, err := f.Workloads(); err == nil {
				t.Errorf("%+v passes", f)
			}
		}
	}
	made, err := smallFailover(FaultKill, 2).Workloads()
	if err != nil {
		t.Fatal(err)
	}
	two := []Address{{HostPort: "h:1"}, {HostPort: "h:2"}}
	for says, target := range map[string]Target{
		"has one address":   {Name: "x", Addresses: two[:1], Processes: Processes{Pattern: "%d"}},
		"which process is":  {Name: "x", Addresses: two},
		"another process":   {Name: "x", Addresses: two, Processes: Processes{PIDs: map[string]int{"a": 3}}},
		"give at most 64":   {Name: "x", Addresses: slices.Repeat(two, 40), Processes: Processes{Pattern: "%d"}},
		"<nothing is amiss": {Name: "x", Addresses: two, Processes: Processes{Pattern: "%d"}},
	} {
		err := Campaign{Workloads: made, Server: target, Repeat: 1}.Validate()
		if says[0] == '<' && err != nil || says[0] != '<' && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

// sampleFailover has two servers. The second one lost something and is slower.
func sampleFailover(t *testing.T) *Report {
	t.Helper()
	f := smallFailover(FaultKill, 3)
	f.Within = time.Second
	made, err := f.Workloads()
	if err != nil {
		t.Fatal(err)
	}
	r := sampleReport(t, true)
	r.Environment.Repeat = 1
	result := newResult(made[0], []Target{{Name: "carillon"}, {Name: "nats-server"}})
	for which := range result.Measured {
		run := sampleRun(1, 4000, time.Duration(which+1)*100*time.Microsecond)
		run.Late, run.Rate, run.Delivered, run.Planned = Latency{}, 0, 0, 3
		run.Outage = &Outage{LongestSteady: int64(12 * time.Millisecond), Published: 9000, Acked: 4020, TimedOut: 9, Refused: 2}
		for n := range 3 {
			scale := time.Duration((which+1)*(n+2)) * 100 * time.Millisecond
			run.Outage.Tries = append(run.Outage.Tries, Try{
				Leader: fmt.Sprintf("dev-%d", n), NewLeader: fmt.Sprintf("dev-%d", n+1), Others: 2, GapOthers: int64(scale), GapAll: int64(2 * scale),
				Failed: int64(3 + n), WholeAfter: int64(7 * time.Second), BeganAfter: int64(time.Duration(n*9+2) * time.Second),
			})
		}
		result.Measured[which].Runs = []Run{run}
	}
	result.Measured[1].Runs[0].Deliveries = Deliveries{Expected: 4020, Received: 4019, Lost: 1}
	result.Measured[0].Runs[0].Outage.Tries[1].GapOthers = int64(1100 * time.Millisecond)
	result.summarize()
	r.Results = []Result{result}
	return r
}

func TestReportOfFailover(t *testing.T) {
	r := sampleFailover(t)
	golden(t, "failover.txt", tableOf(t, r, true))
	err := r.Err()
	for _, want := range []string{"on carillon: in 1 of 3 tries the other brokers' publishers waited longer than 1s", "failover on 3 replicas 3 publishers on nats-server: 1 lost"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	if o := r.Results[0].Measured[0].Outage; o.MedianOthers != int64(400*time.Millisecond) || o.WorstOthers != int64(1100*time.Millisecond) || o.Failed != 11 {
		t.Errorf("summary %+v", o)
	}
}

// fakeOutage is two brokers. A file cuts off the leader while it exists: then the leader takes
// messages and answers none.
type fakeOutage struct {
	target  Target
	streams *fakeStreams
	file    string
	plan    Failover
}

func newFakeOutage(t *testing.T, tries int) *fakeOutage {
	t.Helper()
	o := &fakeOutage{file: filepath.Join(t.TempDir(), "cut")}
	o.streams = &fakeStreams{}
	moved := false // the first time
	o.streams.fate = func(stamp) streamFate {
		if o.cut() {
			moved = true
			return storeOnly
		}
		return storeAndAck
	}
	o.streams.cluster = func() (string, map[string]bool) {
		if moved {
			return "b", map[string]bool{"a": !o.cut()}
		}
		return "a", map[string]bool{"b": true}
	}
	for _, name := range []string{"a", "b"} {
		one := startFakeServer(t, &fakeServer{name: name, streams: o.streams})
		o.target.Addresses = append(o.target.Addresses, one.Addresses...)
	}
	o.target.Name = "fake"
	o.plan = smallFailover(FaultCut, tries)
	o.plan.Replicas, o.plan.Steady, o.plan.AckTimeout = 2, 200*time.Millisecond, 500*time.Millisecond
	o.plan.Fault.For = 4 * time.Second // far longer than a busy machine holds up a message by itself
	o.plan.Fault.Command = "f() { case $1 in cut) echo $2 >" + o.file + ";; heal) rm " + o.file + ";; esac; }; f"
	return o
}

func (o *fakeOutage) cut() bool { _, err := os.Stat(o.file); return err == nil }

func (o *fakeOutage) run(ctx context.Context, t *testing.T, status func(string)) Run {
	t.Helper()
	made, err := o.plan.Workloads()
	if err != nil {
		t.Fatal(err)
	}
	return measure(ctx, o.target, made[0], testLimits, status)
}

func TestOutageIsMeasured(t *testing.T) {
	t.Parallel()
	o := newFakeOutage(t, 2)
	run := o.run(t.Context(), t, quietly)
	if run.faulty() || run.Partial || run.Outage == nil || len(run.Outage.Tries) != 2 {
		t.Fatalf("%+v, %+v", run, run.Outage)
	}
	if left := o.streams.left(); left != "" || o.cut() {
		t.Errorf("the stream %q is left; the fault: %v", left, o.cut())
	}
	for i, try := range run.Outage.Tries {
		lasted := int64(o.plan.Fault.For)
		if try.GapOthers < lasted*9/10 || try.GapAll < try.GapOthers || try.Failed < 3 || try.WholeAfter < lasted+int64(calm) {
			t.Errorf("try %d: %+v", i+1, try)
		}
		// Publishers 1 and 3 are on the first broker.
		if want := []string{"a", "b"}[i]; try.Leader != want || try.NewLeader != "b" || try.Others != i+1 {
			t.Errorf("try %d: %+v", i+1, try)
		}
	}
	out := run.Outage
	if out.Published != out.Acked+out.TimedOut+out.Refused || out.Acked != run.Deliveries.Received || out.TimedOut < 6 || out.Refused != 0 {
		t.Errorf("%+v, %+v", out, run.Deliveries)
	}
	if run.Latency.Count == 0 || time.Duration(run.Latency.Max) >= o.plan.Fault.For || out.LongestSteady == 0 || time.Duration(out.LongestSteady) >= o.plan.Fault.For {
		t.Errorf("undisturbed: latency %+v, gap %v", run.Latency, time.Duration(out.LongestSteady))
	}
}

// TestAPublisherGoesOnWhenItIsConnected: a publisher without a connection fails one message per
// timeout, and publishes as soon as it is connected again, before the end of the timeout: a try
// measures the broker's gap only.
func TestAPublisherGoesOnWhenItIsConnected(t *testing.T) {
	r := &failoverRun{id: 7, plan: failoverPlan{Failover{PayloadBytes: headerBytes, AckTimeout: time.Minute, Interval: time.Minute}}, latency: newRecorder(), gaps: newGapWatch(1)}
	r.account = newAckAccount(streamName(r.id), 1, 100, 0, 0)
	arrived := make(chan stamp, 10)
	target := startFakeServer(t, &fakeServer{streams: &fakeStreams{name: streamName(r.id), fate: func(s stamp) streamFate {
		arrived <- s
		return storeAndAck
	}}})
	p := &failoverPublisher{run: r}
	r.publishers = []*failoverPublisher{p}
	nc, err := nats.Connect(target.Addresses[0].url(), nats.SetCustomDialer(dialFunc(func() (net.Conn, error) {
		if r.failedAcks() == 0 {
			return nil, errors.New("it is away")
		}
		return net.Dial("tcp", target.Addresses[0].HostPort)
	})), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1), nats.ReconnectWait(reconnectEvery), nats.ReconnectJitter(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	p.nc.Store(nc)
	driven, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.drive(t.Context(), driven) }()
	select {
	case s := <-arrived:
		if s.sequence != 1 {
			t.Errorf("message %d was the first that arrived, want the one after a single failure", s.sequence)
		}
	case <-time.After(testutil.Patience):
		t.Error("it has a connection and does not publish")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if p.timedOut != 1 || p.refused != 0 || r.account.published != 2 {
		t.Errorf("of %d messages %d were given up and %d refused; want one of two", r.account.published, p.timedOut, p.refused)
	}
}

type dialFunc func() (net.Conn, error)

func (f dialFunc) Dial(string, string) (net.Conn, error) { return f() }

// TestLossInAnOutageIsCountedExactly: messages that were acknowledged shortly before the fault, and
// are lost with the leader, are found.
func TestLossInAnOutageIsCountedExactly(t *testing.T) {
	t.Parallel()
	o := newFakeOutage(t, 1)
	healthy, lost := o.streams.fate, 0
	o.streams.fate = func(s stamp) streamFate { // one at a time calls it
		if s.publisher == 1 && lost < 5 {
			lost++
			return ackOnly
		}
		return healthy(s)
	}
	run := o.run(t.Context(), t, quietly)
	if d := run.Deliveries; d.Lost != 5 || d.Duplicated+d.OutOfOrder+d.Unexpected != 0 || !run.faulty() {
		t.Errorf("%+v, %q", d, run.Error)
	}
}

func TestOutageEndsHoweverTheRunEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := newFakeOutage(t, 1)
	o.plan.Fault.For = time.Minute
	started := time.Now()
	run := o.run(ctx, t, func(phase string) {
		if strings.Contains(phase, "cut of a") {
			time.AfterFunc(100*time.Millisecond, cancel)
		}
	})
	if o.cut() || o.streams.left() != "" || !run.Partial || run.Error != "" || time.Since(started) >= o.plan.Fault.For {
		t.Errorf("interrupted: cut off still %v, stream %q, error %q, after %v", o.cut(), o.streams.left(), run.Error, time.Since(started))
	}

	o = newFakeOutage(t, 1)
	o.plan.Fault.Command = "echo not allowed; exit 3;"
	if run = o.run(t.Context(), t, quietly); !strings.Contains(run.Error, "not allowed") || o.streams.left() != "" || run.Deliveries.Lost != 0 {
		t.Errorf("a fault that can't be made: %q, %+v", run.Error, run.Deliveries)
	}
	o.target.Addresses[1] = o.target.Addresses[0]
	if run = o.run(t.Context(), t, quietly); !strings.Contains(run.Error, `two addresses of fake are of the broker "a"`) {
		t.Errorf("one broker twice: %q", run.Error)
	}
}

// TestFailoverOfPeers: a real cluster loses its leader, by each signal, and no acknowledged
// message.
func TestFailoverOfPeers(t *testing.T) {
	t.Parallel()
	peers := startPeerCluster(t)
	if peers == nil {
		return
	}
	peers.target.Processes = Processes{Pattern: peers.pattern}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var loads []Workload
	for _, kind := range []string{FaultKill, FaultPause} {
		made, err := smallFailover(kind, 2).Workloads()
		if err != nil {
			t.Fatal(err)
		}
		loads = append(loads, made...)
	}
	c := Campaign{Workloads: loads, Server: peers.target, Repeat: 1, Wait: time.Minute, Limits: DefaultLimits, Status: func(s string) { t.Log(s) }}
	r, err := c.Run(ctx)
	if err != nil || r.Err() != nil {
		t.Fatalf("%v, %v", err, r.Err())
	}
	t.Logf("\n%s", tableOf(t, r, false))
	for _, result := range r.Results {
		run := result.Measured[0].Runs[0]
		if len(run.Outage.Tries) != 2 || run.Partial || run.Latency.Count == 0 || run.Deliveries.Received == 0 || run.Deliveries.Received != run.Outage.Acked {
			t.Fatalf("%+v, %+v", run, run.Outage)
		}
		for _, try := range run.Outage.Tries {
			// Some publisher was connected to the victim, and missed it.
			if try.Others != 2 || try.GapAll < try.GapOthers || try.GapAll < int64(20*time.Millisecond) || try.Leader == "" || try.NewLeader == "" {
				t.Errorf("%s: %+v", result.Parameters.Fault, try)
			}
		}
	}
}
