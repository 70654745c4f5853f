//go:build linux

package devcluster

import (
	"context"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/test/durability/checker"
)

const (
	// outage bounds the time without acks for publishers on the other brokers after a leader is
	// killed, and silence after a broker is paused.
	outage, silence = time.Second, 5 * time.Second
	// lag bounds the latency of a message that was sent when a follower had just been paused: a
	// later ack comes from a leader that continues without it.
	lag = 100 * time.Millisecond
)

// scene is a cluster with a stream of three replicas and a consumer, under load.
type scene struct {
	*cluster
	js         jetstream.JetStream
	history    *checker.History
	publishers []*publisher
	load       *checker.Load
}

const consumer = "billing"

func begin(t *testing.T, stream string) *scene {
	t.Helper()
	s := &scene{cluster: startCluster(t), history: checker.NewHistory(stream)}
	s.js = s.connect()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := s.js.CreateStream(ctx, jetstream.StreamConfig{Name: stream, Subjects: []string{stream + ".>"}, Replicas: 3}); err != nil {
		t.Fatal(err)
	}
	config := jetstream.ConsumerConfig{Durable: consumer, AckPolicy: jetstream.AckExplicitPolicy, AckWait: checker.AckWait}
	if _, err := s.js.CreateConsumer(ctx, stream, config); err != nil {
		t.Fatal(err)
	}
	s.whole(s.js, stream)
	for _, url := range s.urls {
		s.publishers = append(s.publishers, startPublisher(t, s.history, url))
	}
	var err error
	s.load, err = s.history.Start(t.Context(), checker.Workload{URL: strings.Join(s.urls, ","), Sync: 1, Again: 1, Async: 1, Consumers: []string{consumer}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.load.Stop)
	return s
}

// wholeAndBusy waits until all brokers are in sync and acknowledge messages, and returns the
// leader.
func (s *scene) wholeAndBusy(t *testing.T) (leader int) {
	t.Helper()
	leader = s.whole(s.js, s.history.Stream)
	for _, p := range s.publishers {
		p.goesOn(t, 40)
	}
	return leader
}

// judge stops the load and compares the stream with the acks, also after an orderly restart.
func (s *scene) judge(t *testing.T) {
	t.Helper()
	for _, p := range s.publishers {
		p.end()
	}
	for n, p := range s.publishers {
		p.close()
		t.Logf("publisher at broker %d: %s", n, p.told())
	}
	s.load.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	for _, when := range []string{"at the end", "after a restart in order"} {
		if err := s.history.Drain(ctx, s.js, consumer); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		entries, err := s.history.Read(ctx, s.js)
		if err != nil {
			t.Errorf("%s: %v", when, err)
		}
		verdict := s.history.Judge(entries)
		t.Logf("%s: %s; %s", when, s.history, verdict)
		if err := verdict.Err(); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		if when == "at the end" && !t.Failed() {
			s.stop()
			s.start()
			s.whole(s.js, s.history.Stream)
		}
	}
}

// TestALeaderIsKilled: publishers on the other brokers get acks again within a second. Each of
// their messages is acknowledged, including those in flight.
func TestALeaderIsKilled(t *testing.T) {
	s := begin(t, "leader")
	var outages []time.Duration
	for range tries(5, 20) {
		leader := s.wholeAndBusy(t)
		refused := s.refusals()
		killed := time.Now()
		s.kill(leader)
		longest := time.Duration(0)
		for n, p := range s.publishers {
			if n != leader {
				longest = max(longest, p.recovers(t, killed))
			}
		}
		s.unharmed(t, leader, refused)
		outages = append(outages, longest.Round(time.Millisecond))
		s.publishers[leader].reconnects(t, killed)
	}
	t.Logf("without acks for %v", outages)
	bounded(t, outages)
	s.judge(t)
}

// bounded fails if an outage was too long.
func bounded(t *testing.T, outages []time.Duration) {
	t.Helper()
	if slices.Max(outages) > outage {
		t.Errorf("publishers were without acks for %v, want at most %v each time", outages, outage)
	}
}

// refusals returns the number of unacknowledged messages of each publisher.
func (s *scene) refusals() (all []int) {
	for _, p := range s.publishers {
		all = append(all, p.refusals())
	}
	return all
}

// unharmed fails unless all messages of the publishers on the other brokers were acknowledged.
func (s *scene) unharmed(t *testing.T, but int, before []int) {
	t.Helper()
	for n, p := range s.publishers {
		if n == but {
			continue
		}
		if p.settled(t); p.refusals() != before[n] {
			t.Errorf("%d messages of the publisher at broker %d were not acknowledged: %s", p.refusals()-before[n], n, p.told())
		}
	}
}

// TestALeaderIsStopped: a leader that is told to stop transfers its leadership first.
func TestALeaderIsStopped(t *testing.T) {
	s := begin(t, "stopped")
	var outages []time.Duration
	for range tries(2, 10) {
		leader := s.wholeAndBusy(t)
		refused := s.refusals()
		stopped := time.Now()
		s.signal(syscall.SIGTERM, leader)
		for n, p := range s.publishers {
			if n != leader {
				p.goesOn(t, 40)
				outages = append(outages, p.longest(stopped, time.Now()).Round(time.Millisecond))
			}
		}
		s.unharmed(t, leader, refused)
		s.publishers[leader].reconnects(t, stopped)
	}
	t.Logf("without acks for %v", outages)
	bounded(t, outages)
	s.judge(t)
}

// TestAllBrokersAreKilledAtOnce: acknowledged messages survive a kill of all brokers.
func TestAllBrokersAreKilledAtOnce(t *testing.T) {
	t.Parallel()
	s := begin(t, "all")
	var outages []time.Duration
	for range tries(2, 10) {
		s.wholeAndBusy(t)
		killed := time.Now()
		s.kill(0, 1, 2)
		longest := time.Duration(0)
		for _, p := range s.publishers {
			longest = max(longest, p.recovers(t, killed))
		}
		outages = append(outages, longest.Round(time.Millisecond))
	}
	t.Logf("without acks for %v", outages)
	s.judge(t)
}

// TestALeaderWithPausedFollowersIsKilled: a leader whose followers are paused is killed: it must
// not have acknowledged messages that they lack.
func TestALeaderWithPausedFollowersIsKilled(t *testing.T) {
	t.Parallel()
	s := begin(t, "still")
	for range tries(3, 10) {
		leader := s.wholeAndBusy(t)
		thaw := s.freeze((leader+1)%3, (leader+2)%3)
		time.Sleep(300 * time.Millisecond) // for messages that they miss
		killed := time.Now()
		s.kill(leader)
		thaw()
		for _, p := range s.publishers {
			p.recovers(t, killed)
		}
	}
	s.judge(t)
}

// TestALeaderIsKilledAfterAFollowerWasLeftBehind: a paused follower leaves the in-sync set, so it
// can't lead when it is resumed.
func TestALeaderIsKilledAfterAFollowerWasLeftBehind(t *testing.T) {
	t.Parallel()
	s := begin(t, "behind")
	var silences, outages []time.Duration
	for i := range tries(1, 6) {
		leader := s.wholeAndBusy(t)
		still := (leader + 1 + i%2) % 3
		frozen := time.Now()
		thaw := s.freeze(still)
		silences = append(silences, s.publishers[leader].recovers(t, frozen.Add(lag)).Round(time.Millisecond)+lag)
		killed := time.Now()
		s.kill(leader)
		thaw()
		outages = append(outages, s.publishers[3-leader-still].recovers(t, killed).Round(time.Millisecond))
		for _, p := range s.publishers {
			p.recovers(t, killed)
		}
	}
	t.Logf("without acks for %v when a follower stood still, and then for %v when the leader died", silences, outages)
	if slices.Max(silences) > silence {
		t.Errorf("publishers were without acks for %v while a follower stood still, want at most %v each time", silences, silence)
	}
	s.judge(t)
}

// TestOneBrokerAfterTheOtherIsKilled: a kill loses nothing, even if another broker is still
// catching up after the kill before.
func TestOneBrokerAfterTheOtherIsKilled(t *testing.T) {
	t.Parallel()
	s := begin(t, "rolling")
	s.wholeAndBusy(t)
	for i := range tries(4, 30) {
		killed := time.Now()
		s.kill(i % 3)
		for _, p := range s.publishers {
			p.recovers(t, killed)
		}
	}
	s.whole(s.js, "rolling")
	s.judge(t)
}
