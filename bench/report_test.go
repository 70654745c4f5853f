package bench

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/carillon-mq/carillon/internal/testutil"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; if that is meant, run the test with -update and review the diff. Got:\n%s", path, got)
	}
}

// sampleRun has every time a multiple of scale, so that tables can be checked by eye.
func sampleRun(repeat int, count int64, scale time.Duration) Run {
	at := func(n float64) int64 { return int64(n * float64(scale)) }
	return Run{
		Repeat: repeat, Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Latency:    Latency{Count: count, Min: at(0.5), Mean: float64(at(1.1)), SD: float64(at(0.25)), P50: at(1), P95: at(1.5), P99: at(2), P999: at(3), Max: at(12.5)},
		Late:       Latency{Count: count, Min: at(0.01), Mean: float64(at(0.06)), SD: float64(at(0.01)), P50: at(0.05), P95: at(0.07), P99: at(0.08), P999: at(0.09), Max: at(0.2)},
		Deliveries: Deliveries{Expected: count + 20, Received: count + 20}, Planned: int(count + 20), Published: int(count + 20),
		ConnectNS: 1e6, SettleNS: 2e6, Rate: 50, Delivered: float64(count) / 10,
		ClientCPU: CPU{Seconds: 1.5, Cores: 0.15, PerDelivery: 3000},
		ServerCPU: &CPU{Seconds: 0.5, Cores: 0.05, PerDelivery: 12_300}, ServerRSS: 23 << 20, HDR: "HISTF...",
	}
}

func sampleReport(t *testing.T, against bool) *Report {
	t.Helper()
	forward, err := Forward{Groups: []int{1, 10, 100}, PublishersPerGroup: 10, Rate: 5, PayloadBytes: 32, Warmup: 2 * time.Second, Duration: 10 * time.Second, Client: ClientNATS}.Workloads()
	if err != nil {
		t.Fatal(err)
	}
	fanout, err := Fanout{Subscribers: []int{10, 10_000}, MessagesPerTopic: 10, PayloadBytes: 50, Warmup: time.Second, Duration: 20 * time.Second, Client: ClientLight}.Workloads()
	if err != nil {
		t.Fatal(err)
	}
	r := &Report{
		Schema: Schema,
		Environment: Environment{
			Date: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Version: "1.2.3", Go: "go1.26.0", Platform: "linux/amd64", Kernel: "Linux 6.1",
			CPUs: 2, GOMAXPROCS: 2, CPUModel: "A processor", Command: []string{"carillon", "bench", "all"}, Repeat: 1, Seed: 1,
		},
		Servers: []Server{{Name: "carillon", URL: "nats://127.0.0.1:4222", Server: "main-0", Version: "2.12.0-1", ID: "ID", Payload: 1 << 20}},
	}
	targets := []Target{{Name: "carillon"}}
	if against {
		r.Environment.Repeat = 3
		r.Servers = append(r.Servers, Server{Name: "nats-server", URL: "nats://127.0.0.1:4223", Server: strings.Repeat("N", 56), Version: "2.15.2"})
		targets = append(targets, Target{Name: "nats-server"})
	}
	for i, w := range append(forward, fanout...) {
		result := newResult(w, targets)
		for repeat := range r.Environment.Repeat {
			result.Measured[0].Runs = append(result.Measured[0].Runs, sampleRun(repeat+1, 500*int64(i*i*i+1), time.Duration(i+1+repeat)*100*time.Microsecond))
			if against {
				result.Measured[1].Runs = append(result.Measured[1].Runs, sampleRun(repeat+1, 500*int64(i*i*i+1), time.Duration(i+1+repeat)*200*time.Microsecond))
			}
		}
		result.summarize()
		r.Results = append(r.Results, result)
	}
	return r
}

func tableOf(t *testing.T, r *Report, originals bool) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := r.WriteTable(&out, originals); err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(out.String(), "\n") {
		if strings.HasPrefix(line, "! ") {
			continue // faults are sentences
		}
		if n := utf8.RuneCountInString(line); n > maxWidth {
			t.Errorf("%d characters wide: %s", n, line)
		}
	}
	return out.Bytes()
}

func TestReportOfOneServer(t *testing.T) {
	r := sampleReport(t, false)
	if err := r.Err(); err != nil {
		t.Errorf("a faultless report has the error %v", err)
	}
	golden(t, "one.txt", tableOf(t, r, false))
	r.Results = r.Results[:1]
	var out bytes.Buffer
	if err := r.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	golden(t, "one.json", out.Bytes())
}

func TestReportOfTwoServers(t *testing.T) {
	golden(t, "two.txt", tableOf(t, sampleReport(t, true), true))
}

// sampleDurable has three servers. The last one does not sustain the largest load.
func sampleDurable(t *testing.T) *Report {
	t.Helper()
	plans, err := Durable{Publishers: []int{1, 256}, Replicas: []int{1}, Connect: ConnectSpread, Window: 4096, PayloadBytes: 128, Warmup: time.Second, Duration: 3 * time.Second, Client: ClientLight}.Workloads()
	if err != nil {
		t.Fatal(err)
	}
	r := sampleReport(t, true)
	r.Results, r.Environment.Repeat = nil, 2
	targets := []Target{{Name: "carillon"}, {Name: "default"}, {Name: "synced"}}
	r.Servers[1].Name = "default"
	r.Servers = append(r.Servers, Server{Name: "synced", URL: "nats://127.0.0.1:4224", Server: strings.Repeat("N", 56), Version: "2.15.2"})
	for i, w := range plans {
		result := newResult(w, targets)
		for which := range targets {
			for repeat := range r.Environment.Repeat {
				run := sampleRun(repeat+1, 30_000*int64(i*i*i*20+1)/int64(which+1), time.Duration((which+1)*(i+1+repeat))*100*time.Microsecond)
				run.Late, run.Rate, run.Delivered, run.Planned = Latency{}, 0, 0, 0
				run.Acks = &Acks{Published: run.Latency.Count, Acked: run.Latency.Count}
				run.AckRate = float64(run.Latency.Count) / 3
				result.Measured[which].Runs = append(result.Measured[which].Runs, run)
			}
		}
		r.Results = append(r.Results, result)
	}
	last := r.Results[2].Measured[2].Runs
	*last[0].Acks = Acks{Published: 40, Acked: 36, Unanswered: 2, Refused: 1, Duplicated: 3, OutOfOrder: 4, Wrong: 1}
	last[0].Deliveries = Deliveries{Expected: 36, Received: 35, Lost: 1, Duplicated: 5, OutOfOrder: 6}
	last[1] = Run{Error: "make the stream bench-0 on synced: timeout"}
	for i := range r.Results {
		r.Results[i].summarize()
	}
	return r
}

func TestReportOfDurablePublishing(t *testing.T) {
	r := sampleDurable(t)
	golden(t, "durable.txt", tableOf(t, r, true))
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), "durable, 4096 in flight on synced: 2 unanswered, 1 refused, 3 answered twice, 4 answered out of order, 1 answered wrongly, 1 lost, 5 duplicated, 6 out of order, make the stream") {
		t.Errorf("error: %v", err)
	}
	r.Results = r.Results[:1]
	var out bytes.Buffer
	if err := r.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	golden(t, "durable.json", out.Bytes())
}

func TestReportSaysWhatWentWrong(t *testing.T) {
	r := sampleReport(t, true)
	m := &r.Results[1].Measured[1]
	m.Runs[0].Deliveries.Lost, m.Runs[1].Deliveries.Duplicated, m.Runs[2].Deliveries.OutOfOrder = 1234, 2, 3
	m.Runs[1].Dropped, m.Runs[1].Error = 7, "nats-server cut off 7 of 10 subscribers: Slow Consumer"
	r.Results[4].Measured[0] = Measured{Server: "carillon", Runs: []Run{{Error: "connect the subscribers to carillon: refused"}}}
	r.Results[1].summarize()
	r.Results[4].summarize()
	r.Partial = true
	golden(t, "faults.txt", tableOf(t, r, false))
	err := r.Err()
	if err == nil {
		t.Fatal("the report passes")
	}
	for _, want := range []string{"forward 10 groups on nats-server: 1234 lost, 2 duplicated, 3 out of order, 7 subscribers cut off", "fanout 10000 subscribers on carillon: connect"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	whole := sampleReport(t, false)
	whole.Partial = true
	if err := whole.Err(); err == nil || !strings.Contains(err.Error(), "partial") {
		t.Errorf("an interrupted campaign says %v", err)
	}
}

func TestMediansAndRatios(t *testing.T) {
	result := Result{Measured: []Measured{{Server: "a"}, {Server: "b"}}}
	for _, mean := range []float64{30, 10, 20} {
		result.Measured[0].Runs = append(result.Measured[0].Runs, Run{Latency: Latency{Count: 5, Mean: mean, P99: int64(mean)}})
	}
	for _, mean := range []float64{70, 10, 30, 50} {
		result.Measured[1].Runs = append(result.Measured[1].Runs, Run{Latency: Latency{Count: 5, Mean: mean, P99: int64(mean)}})
	}
	result.Measured[1].Runs = append(result.Measured[1].Runs, Run{Error: "nothing was measured"})
	result.summarize()
	if a, b := result.Measured[0].Median, result.Measured[1].Median; a.Mean != 20 || b.Mean != 40 || b.P99 != 40 {
		t.Errorf("medians %v and %v, want 20 and 40 (a run without figures is not a zero)", a.Mean, b.Mean)
	}
	if q := result.Ratio; q == nil || q.Mean != 0.5 || q.P99 != 0.5 || q.Max != 0 || q.Against != "b" {
		t.Errorf("ratio %+v", result.Ratio)
	}
	silent, slow := Measured{Server: "c"}, Measured{Server: "d", Runs: []Run{{Latency: Latency{Count: 5, Mean: 80, P99: 10}}}}
	result.Measured = append(result.Measured, silent, slow)
	result.summarize()
	if q := result.Ratios; len(q) != 2 || q[0] != *result.Ratio || q[1].Against != "d" || q[1].Mean != 0.25 || q[1].P99 != 2 {
		t.Errorf("ratios over those that were measured: %+v", q)
	}
}

func TestServersTakeTurnsABBA(t *testing.T) {
	for servers, want := range map[int][]int{2: {0, 1, 1, 0, 0, 1, 1, 0}, 3: {0, 1, 2, 2, 1, 0, 0, 1, 2, 2, 1, 0}} {
		var turns []int
		for repeat := range 4 {
			turns = append(turns, order(repeat, servers)...)
		}
		if !slices.Equal(turns, want) {
			t.Errorf("%d servers: %v, want %v", servers, turns, want)
		}
	}
}

func TestCampaignOverTwoServers(t *testing.T) {
	t.Parallel()
	good := startFakeServer(t, &fakeServer{})
	bad := startFakeServer(t, &fakeServer{fate: func(s stamp) fate {
		if s.publisher == 0 && s.sequence == 5 {
			return drop
		}
		return deliverOnce
	}})
	good.Name, bad.Name = "good", "bad"
	var runs []string
	c := Campaign{
		Workloads: []Workload{smallForward(t, ClientLight)}, Server: good, Against: []Target{bad}, Repeat: 2, Wait: testutil.Patience,
		Limits: lossLimits, Version: "test", Status: func(s string) {
			if strings.HasSuffix(s, ": connecting") {
				runs = append(runs, s)
			}
		},
	}
	r, err := c.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"[1/4] forward 3 groups on good: connecting", "[2/4] forward 3 groups on bad: connecting", "[3/4] forward 3 groups on bad: connecting", "[4/4] forward 3 groups on good: connecting"}
	if !slices.Equal(runs, want) {
		t.Errorf("runs: %q", runs)
	}
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), "on bad: 2 lost") || strings.Contains(err.Error(), "good") {
		t.Errorf("error: %v", err)
	}
	if r.Servers[0].Version != "2.12.0" || r.Servers[1].Name != "bad" || r.Results[0].Ratio == nil {
		t.Errorf("%+v", r.Servers)
	}
	for _, again := range [][]Target{{good}, {bad, bad}} {
		c.Against = again
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "two servers are called") {
			t.Errorf("two servers of one name: %v", err)
		}
	}
}

func TestInterruptedCampaignStillReports(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := smallForward(t, ClientLight)
	c := Campaign{
		Workloads: []Workload{w, w}, Server: startFakeServer(t, &fakeServer{}), Repeat: 2, Wait: testutil.Patience, Limits: testLimits,
		Status: func(s string) {
			if strings.HasPrefix(s, "[2/4]") {
				cancel()
			}
		},
	}
	r, err := c.Run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Partial || len(r.Results) == 0 || r.Results[0].Measured[0].Median.Count == 0 {
		t.Errorf("partial %v, results %d", r.Partial, len(r.Results))
	}
	tableOf(t, r, true)
}

func TestDurationsHaveThreeDigits(t *testing.T) {
	for ns, want := range map[float64]string{
		0: "0ns", 12: "12ns", 999.4: "999ns", 999.6: "1.00µs", 1234: "1.23µs", 9996: "10.0µs", 99_960: "100µs", 999_600: "1.00ms",
		12_345_678: "12.3ms", 999.6e6: "1.00s", 61.2e9: "61.2s", 3600e9: "3600s", -1500: "-1.50µs",
	} {
		if got := duration(ns); got != want {
			t.Errorf("%v ns is %q, want %q", ns, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567", 100: "100", -100: "-100"} {
		if got := thousands(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}

func TestTargets(t *testing.T) {
	target, err := ParseTarget("", "nats://a:p@h1, tls://tok@h2:4333,h3", "user", "word", "")
	if err != nil {
		t.Fatal(err)
	}
	want := []Address{{HostPort: "h1:4222", User: "a", Password: "p"}, {HostPort: "h2:4333", TLS: true, Token: "tok"}, {HostPort: "h3:4222", User: "user", Password: "word"}}
	if !slices.Equal(target.Addresses, want) || target.Name != "h1:4222" {
		t.Errorf("%+v", target)
	}
	if target.URLs() != "nats://h1:4222,tls://h2:4333,nats://h3:4222" {
		t.Errorf("shown as %s", target.URLs())
	}
	for _, wrong := range []string{"", "nats://", "http://secret:secret@h", "nats://secret:secret@h:port", "a,,b"} {
		if _, err := ParseTarget("", wrong, "", "", ""); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

func TestTargetsOfAComparisonAreParsed(t *testing.T) {
	targets, err := ParseTargets([]string{"default=nats://u:p@h1:1,nats://h2:2, sync=h3:3", "nats://h4,h5", "last=nats://u:a=b@h6", "c2VjcmV0=@h7,nats://u:pa=ss@h8"})
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for _, target := range targets {
		shown = append(shown, target.Name+" "+target.URLs())
	}
	want := []string{"default nats://h1:1,nats://h2:2", "sync nats://h3:3", "h4:4222 nats://h4:4222,nats://h5:4222", "last nats://h6:4222", "h7:4222 nats://h7:4222,nats://h8:4222"}
	if !slices.Equal(shown, want) {
		t.Errorf("got %q\nwant %q", shown, want)
	}
	for i, want := range map[int]Address{0: {HostPort: "h1:1", User: "u", Password: "p"}, 3: {HostPort: "h6:4222", User: "u", Password: "a=b"}, 4: {HostPort: "h7:4222", Token: "c2VjcmV0="}} {
		if got := targets[i].Addresses[0]; got != want {
			t.Errorf("server %d is %+v, want %+v", i, got, want)
		}
	}
	for _, wrong := range []string{"", "a=", "a=nats://h,", "a=http://h"} {
		if _, err := ParseTargets([]string{wrong}); err == nil {
			t.Errorf("%q passes", wrong)
		}
	}
}

func TestProcessFacts(t *testing.T) {
	if err := ensureFiles(10); err != nil {
		t.Error(err)
	}
	if err := ensureFiles(1 << 40); err == nil || !strings.Contains(err.Error(), "ulimit") {
		t.Errorf("too many files: %v", err)
	}
	if ownCPU() <= 0 {
		t.Error("this process used no CPU")
	}
	if runtime.GOOS == "linux" {
		if _, rss, err := processUsage(os.Getpid()); err != nil || rss < 1<<20 {
			t.Errorf("rss %d, %v", rss, err)
		}
	}
	if _, _, err := processUsage(1 << 30); err == nil {
		t.Error("a process that does not exist has figures")
	}
}

func TestProgressKeepsOneLine(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	p := StartProgress(write)
	p.Set(strings.Repeat("é", 200))
	buffer := make([]byte, 1024)
	if err := read.SetReadDeadline(time.Now().Add(testutil.Patience)); err != nil {
		t.Fatal(err)
	}
	n, err := read.Read(buffer)
	if err != nil {
		t.Fatal(err)
	}
	shown := string(buffer[:n])
	if !strings.HasPrefix(shown, clearLine) || utf8.RuneCountInString(shown) > len(clearLine)+progressWidth || strings.Contains(shown, "\n") {
		t.Errorf("shown %q", shown)
	}
	p.Stop()
	write.Close()
	if n, _ := read.Read(buffer); !strings.HasSuffix(string(buffer[:n]), clearLine) {
		t.Errorf("at the end: %q", buffer[:n])
	}
}
