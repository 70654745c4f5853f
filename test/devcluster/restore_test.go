//go:build linux

package devcluster

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// copyTo copies a folder that nobody uses, with its permissions.
func copyTo(t *testing.T, to, from string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		at := filepath.Join(to, strings.TrimPrefix(path, from))
		switch {
		case entry.IsDir():
			return os.MkdirAll(at, 0o700)
		case !entry.Type().IsRegular():
			return nil // a socket
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(at, data, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// etcd is as it was before two leaders were killed and replaced, and all brokers have registered
// since. What was acknowledged by the leaders that it doesn't know is there, and publishing goes
// on.
func TestEtcdIsRestoredFromABackup(t *testing.T) {
	t.Parallel()
	s := begin(t, "restored")
	s.wholeAndBusy(t)
	s.stop()
	etcd, backup := filepath.Join(s.data, "etcd"), filepath.Join(t.TempDir(), "backup")
	copyTo(t, backup, etcd)
	s.start()
	for range 2 {
		leader := s.wholeAndBusy(t)
		killed := time.Now()
		s.kill(leader)
		for _, p := range s.publishers {
			p.recovers(t, killed)
		}
	}
	s.wholeAndBusy(t)

	_ = s.process.Process.Kill() // its brokers die with it
	_ = s.process.Wait()
	if err := os.RemoveAll(etcd); err != nil {
		t.Fatal(err)
	}
	copyTo(t, etcd, backup)
	restored := time.Now()
	s.start()
	longest := time.Duration(0)
	for _, p := range s.publishers {
		longest = max(longest, p.recovers(t, restored))
	}
	t.Logf("acks came again %v after etcd was restored", longest.Round(time.Millisecond))
	s.wholeAndBusy(t)
	s.judge(t)
	if log, err := os.ReadFile(s.log.Name()); err != nil || !strings.Contains(string(log), "the generation is raised") {
		t.Errorf("no broker noticed that etcd was restored (%v)", err)
	}
}
