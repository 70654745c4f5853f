//go:build e2e && linux

package hostile

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/internal/testutil"
)

const (
	usualTime = 10 * time.Second // of each measurement
	// recovery is how long brokers have to give back memory.
	recovery = 30 * time.Second
	// usualRuns are those of an attack that breaks a bound at first.
	usualRuns = 3
)

func TestMain(m *testing.M) {
	child()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "hostile:", err)
		code = 1
	}
	os.Exit(code)
}

var (
	cpu      *groups
	carillon string // the program
)

func run(m *testing.M) (code int, err error) {
	if os.Geteuid() != 0 {
		return 0, errors.New("these tests give processes fixed shares of the CPU, which takes root")
	}
	if os.Getenv("NATS_SERVER") == "" {
		return 0, errors.New("NATS_SERVER is not set: give the path of nats-server, or use make test-hostile")
	}
	dir, err := os.MkdirTemp("", "carillon-hostile-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if carillon = os.Getenv("HOSTILE_PROGRAM"); carillon == "" {
		carillon = filepath.Join(dir, "carillon")
		if out, err := exec.Command("go", "build", "-o", carillon, "../../cmd/carillon").CombinedOutput(); err != nil {
			return 0, fmt.Errorf("build carillon: %w: %s", err, out)
		}
	}
	if cpu, err = newGroups(); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, cpu.remove()) }()
	return m.Run(), nil
}

// TestBystandersAreUnharmed runs the attacks that HOSTILE chooses, and judges them.
func TestBystandersAreUnharmed(t *testing.T) {
	chosen := regexp.MustCompile(os.Getenv("HOSTILE")) // it panics with what is wrong
	long, err := time.ParseDuration(or(os.Getenv("HOSTILE_TIME"), usualTime.String()))
	if err != nil {
		t.Fatalf("HOSTILE_TIME: %v", err)
	}
	runs, err := strconv.Atoi(or(os.Getenv("HOSTILE_RUNS"), strconv.Itoa(usualRuns)))
	if err != nil {
		t.Fatalf("HOSTILE_RUNS: %v", err)
	}
	numbers := []int{1, 3}
	if text := os.Getenv("HOSTILE_BROKERS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n != 1 && n != 3 {
			t.Fatalf("HOSTILE_BROKERS is %q; give 1 or 3", text)
		}
		numbers = []int{n}
	}
	busy, _ := os.ReadFile("/proc/loadavg")
	t.Logf("%d CPUs, load %s: a load above 0.5 makes all figures doubtful", runtime.NumCPU(), strings.TrimSpace(string(busy)))
	var results []Result
	for _, a := range attacks {
		for _, brokers := range numbers {
			if !chosen.MatchString(a.name) || a.linked && brokers == 1 {
				continue
			}
			result, err := campaign(t, a, brokers, runs, long)
			if err != nil {
				t.Errorf("%s, %d brokers: %v", a.name, brokers, err)
				continue
			}
			if len(result.Broken) > 0 {
				t.Errorf("%s, %d brokers: %s", a.name, brokers, strings.Join(result.Broken, "; "))
			}
			results = append(results, result)
		}
	}
	if len(results) == 0 && !t.Failed() {
		t.Fatalf("HOSTILE=%s chooses no attack", chosen)
	}
	if err := WriteTable(os.Stdout, results); err != nil {
		t.Error(err)
	}
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// campaign runs an attack once, and up to that many times if it breaks a bound at first.
func campaign(t *testing.T, a attack, brokers, runs int, long time.Duration) (result Result, err error) {
	result = Result{Attack: a.name, Brokers: brokers}
	var all []Run
	for len(all) == 0 || len(all) < runs && len(Promised.Judge(all[0])) > 0 {
		one, did, err := runOnce(t, a, brokers, long)
		if err != nil {
			return result, err
		}
		all = append(all, one)
		result.Sent, result.Refused = did.Sent, did.Refused
		t.Logf("%s, %d brokers: sent %d, refused %d (%s); broken: %q", a.name, brokers, did.Sent, did.Refused, did.Why, Promised.Judge(one))
	}
	result.Runs, result.Run = len(all), Median(all)
	result.Broken = Promised.Judge(result.Run)
	return result, nil
}

// runOnce attacks Carillon, and nats-server if it has what is attacked.
func runOnce(t *testing.T, a attack, brokers int, long time.Duration) (r Run, did attacked, err error) {
	dir := t.TempDir()
	s, err := startCarillon(cpu, carillon, dir, a, brokers)
	if err != nil {
		return r, did, err
	}
	r, did, err = s.attack(t, "carillon", a, long)
	s.stop()
	if err != nil || a.ours {
		return r, did, err
	}
	peer, err := startPeer(cpu, os.Getenv("NATS_SERVER"), dir, a, brokers)
	if err != nil {
		return r, did, err
	}
	defer peer.stop()
	theirs, _, err := peer.attack(t, "nats-server", a, long)
	if err != nil {
		return r, did, fmt.Errorf("nats-server: %w", err)
	}
	for i := range r.Latencies {
		r.Latencies[i].Peer = theirs.Latencies[i].Attacked
	}
	return r, did, nil
}

// attack attacks these servers, and measures.
func (s *servers) attack(t *testing.T, name string, a attack, long time.Duration) (r Run, did attacked, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, s.lastWords())
		}
	}()
	bystander, err := startPartner(cpu, "bystander", s.target, "")
	if err != nil {
		return r, did, err
	}
	defer bystander.end()
	if _, err := bystander.measure(long / 5); err != nil { // servers that have just started are slower
		return r, did, err
	}
	calm, err := bystander.measure(long)
	if err != nil {
		return r, did, err
	}
	restarted := -1
	if a.kills && !s.target.Peer {
		restarted = s.processes[2].pid // behind the coordinator and the first broker
		s.processes = slices.Delete(s.processes, 2, 3)
	}
	for _, p := range s.processes {
		m := Memory{Process: p.name, Limit: p.limit}
		if m.Before, _, err = resident(p.pid); err == nil {
			err = resetPeak(p.pid)
		}
		if err != nil {
			return r, did, err
		}
		r.Memories = append(r.Memories, m)
	}
	attacker, err := startPartner(cpu, "attacker", s.target, a.name)
	if err != nil {
		return r, did, err
	}
	defer attacker.end()
	var attacks bool
	if err := attacker.hear(prepareTime, &attacks); err != nil {
		return r, did, err
	}
	if restarted > 0 {
		if err := syscall.Kill(restarted, syscall.SIGKILL); err != nil {
			return r, did, err
		}
	}
	harmed, err := bystander.measure(long)
	if err != nil {
		return r, did, err
	}
	if restarted > 0 {
		r.Ended = s.serves(1)
	}
	if err := attacker.say("stop"); err != nil {
		return r, did, err
	}
	if err := attacker.hear(prepareTime, &did); err != nil {
		return r, did, err
	}
	if did.Sent+did.Refused == 0 {
		return r, did, errors.New("the attacker did nothing, so nothing is shown")
	}
	attacker.end()
	for i, m := range harmed {
		r.Latencies = append(r.Latencies, Latency{What: m.What, Undisturbed: calm[i].P99, Attacked: m.P99})
		t.Logf("%s, %s, %s: undisturbed p50 %s, p99 %s, max %s, failed %d of %d; attacked p50 %s, p99 %s, max %s, failed %d of %d", a.name, name, m.What,
			short(calm[i].P50), short(calm[i].P99), short(calm[i].Max), calm[i].Failed, calm[i].Count, short(m.P50), short(m.P99), short(m.Max), m.Failed, m.Count)
	}
	r.Ended = append(r.Ended, s.ended()...)
	if len(r.Ended) > 0 {
		t.Logf("%s", s.lastWords())
	}
	if !s.target.Peer { // whose memory is not judged
		s.recover(r.Memories)
	}
	return r, did, nil
}

// serves returns why clients of a broker that was killed do not reach the bystander, if they don't.
func (s *servers) serves(broker int) []string {
	err := testutil.Within(recovery, 500*time.Millisecond, "a broker that was killed serves", func() error {
		nc, err := s.target.connect("attacker", s.target.Clients[broker])
		if err != nil {
			return err
		}
		defer nc.Close()
		_, err = nc.Request("bystander.ask", nil, time.Second)
		return err
	})
	if err != nil {
		return []string{fmt.Sprintf("a broker that was killed has not served within %s: %v", recovery, err)}
	}
	return nil
}

// recover waits until the processes have given back their memory, and notes it.
func (s *servers) recover(all []Memory) {
	for began := time.Now(); ; time.Sleep(500 * time.Millisecond) {
		settled := true
		for i, p := range s.processes {
			now, peak, err := resident(p.pid)
			if err != nil {
				continue // it has ended, which is judged
			}
			m := &all[i]
			m.Peak, m.After = max(m.Peak, peak), now
			settled = settled && float64(now) <= Promised.Left*float64(m.Before)
		}
		if settled || time.Since(began) > recovery {
			return
		}
	}
}

// measure has the bystander measure.
func (p *partner) measure(long time.Duration) (all []measured, err error) {
	if err := p.say(long.String()); err != nil {
		return nil, err
	}
	err = p.hear(prepareTime+long, &all)
	return all, err
}
