//go:build e2e && linux

package durability

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/test/durability/checker"
)

// cutPower is a few power cuts under load on one volume, and the verdict after each. The first
// that finds something is the last.
func cutPower(t *testing.T, times int, serve func(t *testing.T, dir string) *server) *checker.Verdict {
	t.Helper()
	rng := moments(t)
	v := newVolume(t, filepath.Join(runDir, "power"), 1024)
	s := serve(t, filepath.Join(v.dir, "data"))
	s.start()
	_, js := s.connect(t)
	h := checker.NewHistory("power")
	consumers := []string{"one", "two"}
	s.create(js, h, consumers...)
	v.sync() // nats-server does not do so for what it has created
	var verdict *checker.Verdict
	for range times {
		load, err := h.Start(t.Context(), checker.Workload{URL: s.url, Sync: 8, Async: 2, Consumers: consumers})
		must(t, err)
		s.progress(h, h.Progress(), 300, 30)
		time.Sleep(upTo(rng, time.Second))
		v.shutdown(powerCut)
		time.Sleep(upTo(rng, 20*time.Millisecond)) // it may notice, and must not acknowledge any more
		s.kill()
		load.Stop()
		v.again()
		for rng.IntN(2) == 0 { // the power fails again while it recovers
			s.start()
			time.Sleep(upTo(rng, 1500*time.Millisecond))
			v.shutdown(powerCut)
			s.kill()
			v.again()
		}
		s.start()
		if verdict = s.judge(js, h, consumers...); verdict.Err() != nil {
			break
		}
	}
	return verdict
}

func TestNothingAcknowledgedIsLostInAPowerCut(t *testing.T) {
	must(t, cutPower(t, rounds(t, 6), carillon).Err())
}

// TestTheCheckerFindsWhatAPowerCutLoses proves the checker with a server that is known to acknowledge
// before it syncs. Even where it syncs messages it does not sync what its consumers acknowledged.
func TestTheCheckerFindsWhatAPowerCutLoses(t *testing.T) {
	if os.Getenv("DURABILITY_PEER") == "" {
		return // it proves the checker, not the broker; the package's comment says how
	}
	t.Run("default", func(t *testing.T) {
		v := cutPower(t, 3, func(t *testing.T, dir string) *server { return peer(t, dir, "") })
		if v.Count(checker.LostEnd) == 0 {
			t.Errorf("nats-server at its default lost nothing: %s", v)
		}
		t.Logf("found: %v", v.Err())
	})
	t.Run("sync_interval always", func(t *testing.T) {
		v := cutPower(t, 3, func(t *testing.T, dir string) *server { return peer(t, dir, "sync_interval: always") })
		if v.Lost() != 0 || v.Count(checker.Redelivered) == 0 {
			t.Errorf("of nats-server that syncs always: %s, %d redelivered", v, v.Count(checker.Redelivered))
		}
		t.Logf("found: %v", v.Err())
	})
}
