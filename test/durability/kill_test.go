//go:build e2e && linux

package durability

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/internal/testutil"
	"github.com/carillon-mq/carillon/test/durability/checker"
)

// killAgain kills a server repeatedly while clients continue, and judges from time to time.
func killAgain(t *testing.T, lives, kills int, s *server) {
	t.Helper()
	rng := moments(t)
	s.start()
	_, js := s.connect(t)
	h := checker.NewHistory("killed")
	consumers := []string{"one", "two"}
	s.create(js, h, consumers...)
	for range lives {
		load, err := h.Start(t.Context(), checker.Workload{URL: s.url, Sync: 4, Again: 3, Async: 2, Consumers: consumers})
		testutil.Must(t, err)
		for i := range kills {
			s.progress(h, h.Progress(), 100, 10)
			time.Sleep(upTo(rng, 300*time.Millisecond))
			if i == kills-1 {
				s.stop()
			} else {
				s.kill()
			}
			if rng.IntN(3) == 0 { // a second time, while it starts
				s.start()
				time.Sleep(upTo(rng, time.Second))
				s.kill()
			}
			s.start()
		}
		s.progress(h, h.Progress(), 100, 10)
		load.Stop()
		testutil.Must(t, s.judge(js, h, consumers...).Err())
	}
}

func TestNothingAcknowledgedIsLostByAKill(t *testing.T) {
	killAgain(t, rounds(t, 3), 6, carillon(t, filepath.Join(runDir, "killed")))
}
