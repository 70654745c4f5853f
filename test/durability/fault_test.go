//go:build e2e && linux

package durability

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/internal/testutil"
	"github.com/carillon-mq/carillon/test/durability/checker"
	"github.com/carillon-mq/carillon/test/faultfs"
)

// faultyVolume makes a disk for the broker's data only. The test controls its faults.
func faultyVolume(t *testing.T, name string) (data string, disk *faultfs.FS) {
	t.Helper()
	data = filepath.Join(runDir, name)
	disk, err := faultfs.Mount(filepath.Join(runDir, name+"-below"), filepath.Join(data, "broker"))
	testutil.Must(t, err)
	t.Cleanup(func() {
		if err := disk.Unmount(); err != nil {
			t.Error(err)
		}
	})
	return data, disk
}

// TestADiskThatFailsAndRecoversLosesNothing: syncs fail for a moment. Afterwards their pages are
// clean and show the writes, though the disk lacks them; the disk stays mounted, and later syncs
// succeed. Every message that is acknowledged after a restart must survive a power cut, including
// messages that the first process had written and refused.
func TestADiskThatFailsAndRecoversLosesNothing(t *testing.T) {
	data, disk := faultyVolume(t, "recovers")
	s := carillon(t, data)
	s.start()
	_, js := s.connect(t)
	h := checker.NewHistory("recovers")
	s.create(js, h, "one")
	work := checker.Workload{URL: s.url, Sync: 4, Again: 4, Async: 1, Consumers: []string{"one"}}
	for range rounds(t, 1) {
		load, err := h.Start(t.Context(), work)
		testutil.Must(t, err)
		s.progress(h, h.Progress(), 300, 30)
		disk.FailSyncs(true)
		if reason := s.refused(js, h); !strings.Contains(reason, "input/output error") {
			t.Errorf("the reason %q does not name the trouble", reason)
		}
		disk.FailSyncs(false)
		s.refused(js, h) // a failed sync is never repeated
		s.kill()
		s.start()
		s.progress(h, h.Progress(), 300, 30) // repeated messages with an id are acknowledged, too
		testutil.Must(t, disk.CutPower())
		s.kill()
		load.Stop()
		disk.PowerOn()
		s.start()
		if err := s.judge(js, h, "one").Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestASlowDiskSlowsAndLosesNothing: every operation is so slow that the disk is reported. A single
// broker continues, since no other could lead.
func TestASlowDiskSlowsAndLosesNothing(t *testing.T) {
	data, disk := faultyVolume(t, "slow")
	s := carillon(t, data)
	s.start()
	nc, js := s.connect(t)
	h := checker.NewHistory("slow")
	s.create(js, h, "one")
	load, err := h.Start(t.Context(), checker.Workload{URL: s.url, Sync: 4, Async: 1, Consumers: []string{"one"}})
	testutil.Must(t, err)
	s.progress(h, checker.Progress{}, 300, 30)
	connected := nc.Stats().Reconnects
	disk.Slow(300 * time.Millisecond)
	s.progress(h, h.Progress(), 20, 0)
	disk.Slow(0)
	s.progress(h, h.Progress(), 300, 30)
	disk.Hang()
	testutil.Eventually(t, "the hang is reported", func() error {
		s.alive()
		return s.says("The disk is slow or hangs")
	})
	s.talks()
	disk.Release()
	s.progress(h, h.Progress(), 300, 30)
	load.Stop()
	if !nc.IsConnected() || nc.Stats().Reconnects != connected {
		t.Error("clients were cut off")
	}
	testutil.Must(t, disk.CutPower())
	s.kill()
	disk.PowerOn()
	s.start()
	testutil.Must(t, s.judge(js, h, "one").Err())
}

// says returns an error unless the server has logged a text.
func (s *server) says(text string) error {
	all, err := os.ReadFile(s.log.Name())
	if err == nil && !strings.Contains(string(all), text) {
		err = os.ErrNotExist
	}
	return err
}
