//go:build e2e && linux

package chaos

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/internal/testutil"
)

func writeFile(path, text string) error { return os.WriteFile(path, []byte(text), 0o600) }

// TestPromisesHoldUnderEveryFault starts world after world, each from the next seed, until its time
// is over.
func TestPromisesHoldUnderEveryFault(t *testing.T) {
	lasts := setting(t, "CHAOS_TIME", time.Minute, time.ParseDuration)
	rounds := setting(t, "CHAOS_ROUNDS", 6, strconv.Atoi)
	kinds := chosenKinds(t)
	program, err := binary()
	testutil.Must(t, err)
	for began := time.Now(); ; seed++ {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			planner := NewPlanner(seed, kinds)
			planner.Long = lasts > 10*time.Minute
			for _, err := range live(t, program, seed, planner.Faulty, planner.Next, rounds) {
				t.Error(err)
			}
		})
		if time.Since(began) > lasts || t.Failed() && os.Getenv("CHAOS_GO_ON") == "" {
			return
		}
	}
}
