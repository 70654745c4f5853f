//go:build e2e && linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// Settings of a soak.
const (
	// soakMegabytes is room for hours of some hundred messages a second. The images of disks are
	// sparse.
	soakMegabytes = 8 << 10
	// soakWindow is the deduplication window. It is longer than a round, in which publishers repeat
	// messages, and short beside a soak, so that ids take no more memory at the end than at the
	// start.
	soakWindow = time.Minute
	// samplesOfRound is the number of samples after each round, samplePause apart.
	samplesOfRound = 3
	samplePause    = 300 * time.Millisecond
	// churnPause is the time between two clients of comeAndGo.
	churnPause = 50 * time.Millisecond
)

// soakKinds are faults that end no process but one broker's: the soak measures what the other
// brokers keep of them.
var soakKinds = []Kind{Pause, Partition, Etcd, Full, Slow, Narrow, Kill}

// soak is a long world, with samples of what its brokers use.
type soak struct {
	*world
	planner *Planner
	samples map[life][]Usage
	latest  *latest
}

// life is one life of a process.
type life struct{ node, number int }

func startSoak(t *testing.T, program string) *soak {
	t.Helper()
	t.Logf("CHAOS_SEED=%d", seed)
	planner := NewPlanner(seed, soakKinds)
	s := &soak{
		planner: planner, samples: map[life][]Usage{},
		world: begin(t, worldOptions{program: program, faulty: planner.Faulty, megabytes: soakMegabytes, window: soakWindow}),
	}
	var err error
	s.latest, err = s.startLatest()
	testutil.Must(t, err)
	t.Cleanup(s.latest.end)
	churning, stop := context.WithCancel(t.Context())
	var churn sync.WaitGroup
	for n := range founders {
		churn.Go(func() {
			for churning.Err() == nil {
				s.comeAndGo(churning, n)
				pause(churning, churnPause)
			}
		})
	}
	t.Cleanup(func() {
		stop()
		churn.Wait()
	})
	return s
}

// comeAndGo is a short-lived client: it subscribes, sends a request without a responder, reads a
// little of a Topic and closes its connection.
func (s *soak) comeAndGo(ctx context.Context, n int) {
	nc, err := nats.Connect(s.url(n), nats.Timeout(time.Second), nats.NoReconnect())
	if err != nil {
		return
	}
	defer nc.Close()
	for i := range 5 {
		if _, err := nc.Subscribe(fmt.Sprintf("soak.%d.%s.*", i, nc.ConnectedServerName()), func(*nats.Msg) {}); err != nil {
			return
		}
	}
	_, _ = nc.Request("soak.nobody", nil, time.Second)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Second))
	if err != nil {
		return
	}
	asked, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	consumer, err := js.CreateConsumer(asked, s.orders.Name, jetstream.ConsumerConfig{
		AckPolicy: jetstream.AckNonePolicy, DeliverPolicy: jetstream.DeliverLastPolicy, InactiveThreshold: 2 * time.Second,
	})
	if err != nil {
		return
	}
	if batch, err := consumer.FetchNoWait(10); err == nil {
		for range batch.Messages() { //nolint:revive // only their delivery counts
		}
	}
}

// next returns a round in which at most one broker is killed, always the same one.
func (s *soak) next() Round {
	round := s.planner.Next()
	for i := range round {
		if round[i].Kind == Kill {
			round[i].Nodes = []int{s.planner.Faulty}
		}
	}
	return round
}

// sample records what all brokers use.
func (s *soak) sample() error {
	for range samplesOfRound {
		time.Sleep(samplePause)
		for n := range founders {
			var u Usage
			var of life
			err := within(patience, "the metrics of "+nodeName(n), func() (err error) {
				of = life{n, s.processes[n].life()}
				u, err = s.usageOf(n)
				return err
			})
			if err != nil {
				return err
			}
			if s.samples[of] = append(s.samples[of], u); len(s.samples[of])%samplesOfRound == 0 {
				s.t.Logf("%s, life %d: %v", nodeName(of.node), of.number, u)
			}
		}
	}
	return nil
}

// usageOf reads what a broker uses. Open files of its logs are excluded, since without retention
// they grow up to limits.OpenSegments. Removed files are included.
func (s *soak) usageOf(n int) (Usage, error) {
	var u Usage
	err := s.metrics(n, func(metrics io.Reader) (err error) {
		u, err = ReadUsage(metrics)
		return err
	})
	if err != nil {
		return u, err
	}
	open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", s.processes[n].pid()))
	segments := 0
	for _, descriptor := range open {
		file, _ := os.Readlink(descriptor)
		if strings.Contains(file, "/data/shards/") && !strings.HasSuffix(file, " (deleted)") {
			segments++
		}
	}
	if segments > limits.OpenSegments {
		err = errors.Join(err, fmt.Errorf("it holds %d files of logs open, of at most %d", segments, limits.OpenSegments))
	}
	u.Descriptors -= float64(segments)
	return u, err
}

// metrics calls read with the metrics of a broker.
func (c *cluster) metrics(n int, read func(metrics io.Reader) error) error {
	client := http.Client{Timeout: answerTime, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get("http://" + address(n) + ":8222/metrics")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	return read(answer.Body)
}

// pid returns the process id; 0: it is down.
func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

func (p *process) life() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lives
}

// soakFor runs rounds for a time, and then until some broker has lived through enough of them. It
// returns the resources whose use grew.
func (s *soak) soakFor(lasts time.Duration) (grew []string) {
	began := time.Now()
	for judged := 0; time.Since(began) < lasts || judged == 0; {
		round := s.next()
		s.note("round: %s", round)
		testutil.Must(s.t, s.suffer(round))
		testutil.Must(s.t, s.sample())
		judged, grew = 0, nil
		for of, samples := range s.samples {
			if len(samples) < leastSamples {
				continue
			}
			judged++
			for _, what := range JudgeUsage(samples) {
				grew = append(grew, fmt.Sprintf("%s, in its life %d: %s", nodeName(of.node), of.number, what))
			}
		}
	}
	return grew
}

// TestASoakStaysBounded runs one world for CHAOS_TIME, with clients that come and go. At its end
// brokers use little more than at its start, and every promise holds.
func TestASoakStaysBounded(t *testing.T) {
	lasts := setting(t, "CHAOS_TIME", time.Minute, time.ParseDuration)
	program, err := binary()
	testutil.Must(t, err)
	s := startSoak(t, program)
	for _, what := range s.soakFor(lasts) {
		t.Error(what)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.latest.judge(ctx, s.world); err != nil {
		t.Error(err)
	}
	for _, err := range s.judge() {
		t.Error(err)
	}
}

// leakTime bounds the time in which a leak must be found. A leak of memory has to exceed what the
// ends of logs may take.
const leakTime = 4 * time.Minute

// TestTheSoakFindsALeak proves the judge of the soak: it finds the growth of each resource.
func TestTheSoakFindsALeak(t *testing.T) {
	program, err := leaking.build()
	testutil.Must(t, err)
	s := startSoak(t, program)
	for began := time.Now(); ; {
		grew, hidden := strings.Join(s.soakFor(0), "; "), []string{}
		for _, b := range bounds {
			if !strings.Contains(grew, b.what+" at first") {
				hidden = append(hidden, b.what)
			}
		}
		if len(hidden) == 0 {
			t.Logf("found after %v: %s", time.Since(began).Round(time.Second), grew)
			return
		}
		if time.Since(began) > leakTime {
			t.Fatalf("it was not found that %v grow, but: %s", hidden, grew)
		}
	}
}
