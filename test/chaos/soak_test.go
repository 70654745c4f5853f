//go:build e2e && linux

package chaos

import (
	"context"
	"errors"
	"fmt"
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
	// soakWindow is how long ids of messages are remembered: longer than a round lasts, in which
	// publishers try again; short beside a soak, so that they fill no memory by the end that they
	// didn't have at first.
	soakWindow = time.Minute
	// samplesOfRound are taken after each round, and samplePause apart.
	samplesOfRound = 3
	samplePause    = 300 * time.Millisecond
	// churnPause is how long a client that comes and goes stays away.
	churnPause = 50 * time.Millisecond
)

// soakKinds are faults that end no broker but one: what others keep of them is to be seen.
var soakKinds = []Kind{Pause, Partition, Etcd, Full, Slow, Narrow, Kill}

// soak is a world that lasts, with what its brokers use.
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

// comeAndGo is a client's short life: it subscribes, asks what nobody answers, reads a little of a
// Topic and closes its connection.
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
		for range batch.Messages() { //nolint:revive // they are to be delivered, and no more
		}
	}
}

// next is a round in which at most one broker is killed, always the same one.
func (s *soak) next() Round {
	round := s.planner.Next()
	for i := range round {
		if round[i].Kind == Kill {
			round[i].Nodes = []int{s.planner.Faulty}
		}
	}
	return round
}

// sample notes what all brokers use.
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

// usageOf reads what a broker uses. The files of its logs don't count: without a retention they
// become more, up to limits.OpenSegments. Those that were removed do.
func (s *soak) usageOf(n int) (Usage, error) {
	client := http.Client{Timeout: answerTime, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get("http://" + address(n) + ":8222/metrics")
	if err != nil {
		return Usage{}, err
	}
	defer answer.Body.Close()
	u, err := ReadUsage(answer.Body)
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

// pid is that of its present life; 0: it is down.
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

// soakFor puts the world through rounds for so long, and then for as long as no broker has lived
// through enough of them. It returns what brokers use more and more of.
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

// TestASoakStaysBounded is one world for as long as it is told (CHAOS_TIME), with clients that come
// and go. What brokers use at its end is little more than what they used at first, and everything
// is kept that was promised.
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

// leakTime is how long a leak may stay unnoticed; one of memory has to fill more than the ends of
// logs may.
const leakTime = 4 * time.Minute

// TestTheSoakFindsALeak proves the judge of the soak: each of the resources is found to grow.
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
