//go:build e2e && linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/internal/testutil"
	"github.com/carillon-mq/carillon/test/durability/checker"
)

// handOverTime is the time within which other brokers lead after a disk has hung.
const handOverTime = 10 * time.Second

// noBroker is not a broker's number.
const noBroker = -1

// handsOver makes the disk of a broker hang. If that lasts longer than the broker waits, the
// following holds while the disk hangs, although the process can't exit:
//
//  1. The broker reports it to its probes and in its metrics, until it gives up.
//  2. Other brokers lead every shard within handOverTime.
//  3. Publishers that are connected to them get acks on every shard.
//  4. Nothing listens at the broker's addresses.
func (w *world) handsOver(s Step) error {
	node := s.Nodes[0]
	p := w.processes[node]
	disk := p.volume.(faultyVolume)
	disk.Hang()
	defer disk.Release()
	began := time.Now()
	if s.For < limits.DiskStallLimit {
		time.Sleep(s.For)
		return nil
	}
	other := w.there()[0]
	if other == node {
		other = w.there()[1]
	}
	nc, err := checker.Connect(w.url(other), "chaos, hang", clientOptions...)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Second))
	if err != nil {
		return err
	}
	if err := tellsOfStall(node); err != nil {
		return err
	}
	led := map[string]int{} // acknowledged messages of each shard when another broker first led it
	err = within(handOverTime-time.Since(began), "others lead while a disk hangs", func() error {
		for _, h := range w.histories() {
			if _, ok := led[h.Stream]; ok {
				continue
			}
			ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
			is, err := js.Stream(ctx, h.Stream)
			cancel()
			if err != nil {
				return fmt.Errorf("stream %s: %w", h.Stream, err)
			}
			if leader := is.CachedInfo().Cluster.Leader; leader == "" || leader == nodeName(node) {
				return fmt.Errorf("stream %s: %q leads", h.Stream, leader)
			}
			led[h.Stream] = h.Progress().Acked
		}
		return nil
	})
	elected := time.Since(began)
	if err == nil {
		err = within(handOverTime-elected, "publishing goes on while a disk hangs", func() error {
			for _, h := range w.histories() {
				if n := h.Progress().Acked - led[h.Stream]; n < 3 {
					return fmt.Errorf("%d messages to %s were acknowledged", n, h.Stream)
				}
			}
			return nil
		})
	}
	if err != nil {
		return err
	}
	w.t.Logf("the disk of %s hangs: others led after %v, and acknowledged on every shard after %v", nodeName(node),
		elected.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	p.mu.Lock()
	alive := p.cmd != nil
	p.mu.Unlock()
	if !alive {
		return errors.New("the process has ended while its disk hangs, so this shows nothing")
	}
	for _, port := range []string{"4222", "6222", "8222"} {
		if conn, err := net.DialTimeout("tcp", net.JoinHostPort(address(node), port), time.Second); err == nil {
			_ = conn.Close()
			return fmt.Errorf("the disk of %s hangs, others lead, and it still listens on port %s", nodeName(node), port)
		}
	}
	time.Sleep(s.For - time.Since(began))
	return nil
}

// stalledFor matches a stall in the metrics.
var stalledFor = regexp.MustCompile(`(?m)^carillon_disk_stalled_seconds [1-9]`)

// tellsOfStall waits until a broker reports that its disk is stalled.
func tellsOfStall(node int) error {
	client := http.Client{Timeout: time.Second}
	get := func(path string) (string, error) {
		answer, err := client.Get("http://" + address(node) + ":8222" + path)
		if err != nil {
			return "", err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		return string(text), err
	}
	return within(limits.DiskStallLimit, nodeName(node)+" says that its disk is stalled", func() error {
		health, err := get("/healthz")
		if err != nil {
			return err
		}
		metrics, err := get("/metrics")
		if err != nil {
			return err
		}
		if !strings.Contains(health, "stalled") || !stalledFor.MatchString(metrics) {
			return fmt.Errorf("/healthz is %s and /metrics have %q", health, stalledFor.FindString(metrics))
		}
		return nil
	})
}

// TestADiskThatHangsHandsOverLeadership runs a world with a hanging disk as the only fault.
func TestADiskThatHangsHandsOverLeadership(t *testing.T) {
	program, err := binary()
	testutil.Must(t, err)
	faulty := int(seed % founders)
	round := Round{{Kind: Hang, For: longestHang, Nodes: []int{faulty}}}
	for _, err := range live(t, program, seed, faulty, func() Round { return round }, 1) {
		t.Error(err)
	}
}
