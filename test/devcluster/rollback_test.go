//go:build linux

package devcluster

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestAVolumeIsRolledBack: a broker's whole volume is rolled back: logs, manifests, the journal of
// sync points, the last state of etcd that it saw, and its saved clock, which is an hour old. The
// broker led then. Later leaders were killed, and etcd counts. No acknowledged message is lost if
// only that broker dies, or if all die and the others start first, as docs/architecture.md
// promises. The broker is killed again before it has caught up.
func TestAVolumeIsRolledBack(t *testing.T) {
	for _, c := range []struct {
		name string
		all  bool // all brokers die
	}{{"alone", false}, {"all", true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := beginApart(t, "rolled")
			old := a.wholeAndBusy(t)
			before := filepath.Join(t.TempDir(), "before")
			testutil.EventuallyTrue(t, "its clock is saved, and what it saw of etcd", func() bool {
				for _, file := range []string{"clock.json", "etcd-seen.json"} {
					if _, err := os.Stat(filepath.Join(a.volume(old), file)); err != nil {
						return false
					}
				}
				return true
			})
			a.killBroker(old)
			copyTo(t, before, a.volume(old))
			savedAnHourAgo(t, filepath.Join(before, "clock.json"))
			a.startBroker(t, old)
			for range 3 {
				leader := a.wholeAndBusy(t)
				a.killBroker(leader)
				for n, p := range a.publishers {
					if n != leader {
						p.goesOn(t, 100)
					}
				}
				a.startBroker(t, leader)
			}
			a.wholeAndBusy(t)

			a.killBroker(old)
			others := []int{(old + 1) % 3, (old + 2) % 3}
			if c.all {
				for _, n := range others {
					a.killBroker(n)
				}
			}
			testutil.Must(t, os.RemoveAll(a.volume(old)))
			copyTo(t, a.volume(old), before)
			if c.all {
				for _, n := range others {
					a.startBroker(t, n)
				}
			}
			for _, n := range others {
				a.publishers[n].goesOn(t, 100)
			}
			a.startBroker(t, old)
			a.publishers[others[0]].goesOn(t, 1)
			a.killBroker(old)
			a.startBroker(t, old)
			a.wholeAndBusy(t)
			a.judge(t)
		})
	}
}

// savedAnHourAgo makes a broker's saved clock an hour older, but not older than the start of the
// machine.
func savedAnHourAgo(t *testing.T, path string) {
	t.Helper()
	saved, err := clock.File(path).Load()
	if err != nil || saved == nil {
		t.Fatalf("what a broker saved of its clock: %v, %v", saved, err)
	}
	by := min(int64(time.Hour), saved.Mono)
	saved.Time, saved.Mono = saved.Time-by, saved.Mono-by
	saved.Begun = min(saved.Begun, saved.Mono)
	testutil.Must(t, clock.File(path).Save(*saved))
}
