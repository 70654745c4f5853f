//go:build e2e && linux

package durability

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/internal/testutil"
	"github.com/carillon-mq/carillon/test/durability/checker"
)

// cutPower cuts the power some times under load on one volume, and returns the verdict after each
// cut. It stops at the first verdict with a finding.
func cutPower(t *testing.T, times int, serve func(t *testing.T, dir string) *server) []*checker.Verdict {
	t.Helper()
	rng := moments(t)
	v := newVolume(t, filepath.Join(runDir, "power"), 1024)
	s := serve(t, filepath.Join(v.dir, "data"))
	s.start()
	_, js := s.connect(t)
	consumers := []string{"one", "two"}
	h := checker.NewHistory("power")
	s.create(js, h, consumers...)
	// With few dirty logs each file is synced, with many the whole disk: both must hold.
	all := []*checker.History{h}
	for i := range 6 {
		other := checker.NewHistory(fmt.Sprintf("power%d", i))
		s.create(js, other)
		all = append(all, other)
	}
	v.sync() // nats-server does not sync the files that it creates
	verdicts := make([]*checker.Verdict, len(all))
	for round := range times {
		loads := []*checker.Load{}
		start := func(h *checker.History, w checker.Workload) {
			load, err := h.Start(t.Context(), w)
			testutil.Must(t, err)
			loads = append(loads, load)
		}
		before := h.Progress()
		start(h, checker.Workload{URL: s.url, Sync: 6, Again: 3, Async: 2, Consumers: consumers})
		if round%2 == 1 {
			for _, o := range all[1:] {
				start(o, checker.Workload{URL: s.url, Sync: 1})
			}
		}
		s.progress(h, before, 300, 30)
		time.Sleep(upTo(rng, time.Second))
		// A sync in progress while ext4 is shut down may report success although its data is lost.
		// Answers from now on count as not received.
		for _, h := range all {
			h.Unplug(true)
		}
		v.shutdown(powerCut)
		time.Sleep(upTo(rng, 20*time.Millisecond)) // long or short enough for it to notice or not
		s.kill()
		for _, load := range loads {
			load.Stop()
		}
		v.again()
		for rng.IntN(2) == 0 { // the power fails again while it recovers
			s.start()
			time.Sleep(upTo(rng, 1500*time.Millisecond))
			v.shutdown(powerCut)
			s.kill()
			v.again()
		}
		s.start()
		bad := false
		for i, h := range all {
			h.Unplug(false)
			if i == 0 {
				verdicts[i] = s.judge(js, h, consumers...)
			} else {
				verdicts[i] = s.judge(js, h)
			}
			bad = bad || verdicts[i].Err() != nil
		}
		if bad {
			break
		}
	}
	return verdicts
}

func TestNothingAcknowledgedIsLostInAPowerCut(t *testing.T) {
	for _, v := range cutPower(t, rounds(t, 6), carillon) {
		if err := v.Err(); err != nil {
			t.Error(err)
		}
	}
}

// TestTheCheckerFindsMessagesThatAPowerCutLoses proves the checker with a server that acknowledges
// before it syncs. With syncs before each ack, the server keeps its messages; messages that its
// consumers acknowledged may be delivered again, and the log shows it.
func TestTheCheckerFindsMessagesThatAPowerCutLoses(t *testing.T) {
	if os.Getenv("DURABILITY_PEER") == "" {
		t.Log("it proves the checker, not the broker, and needs DURABILITY_PEER: the package's comment says how")
		return
	}
	t.Run("default", func(t *testing.T) {
		v := cutPower(t, 3, func(t *testing.T, dir string) *server { return peer(t, dir, "") })[0]
		if v.Count(checker.LostEnd) == 0 {
			t.Errorf("nats-server at its default lost nothing: %s", v)
		}
		t.Logf("found: %v", v.Err())
	})
	t.Run("sync_interval always", func(t *testing.T) {
		v := cutPower(t, 3, func(t *testing.T, dir string) *server { return peer(t, dir, "sync_interval: always") })[0]
		if v.Lost() != 0 {
			t.Errorf("nats-server that syncs always lost acknowledged messages: %s", v)
		}
		t.Logf("found: %v", v.Err())
	})
}
