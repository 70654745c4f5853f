//go:build linux

package devcluster

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// copyTo copies a folder that no process uses, with its permissions.
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

// resumption bounds the time without acks around a restore of etcd. An idle machine takes 3 to 4 s,
// mostly the lease for which brokers that may be alive are waited for. The rest is for a machine
// that is busy with other tests.
const resumption = 30 * time.Second

// etcdName, etcdPeer and etcdToken are the settings of the etcd of `carillon dev`, which etcdutl
// needs.
const (
	etcdName  = "local"
	etcdPeer  = "http://localhost:2380"
	etcdToken = "local"
)

// saveSnapshot does what `etcdctl snapshot save` does.
func (s *scene) saveSnapshot(t *testing.T, to string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), answerTime)
	defer cancel()
	if _, err := snapshot.NewV3(zap.NewNop()).Save(ctx, clientv3.Config{Endpoints: []string{s.endpoint()}}, to); err != nil {
		t.Fatal(err)
	}
}

// restoreSnapshot does what `etcdutl snapshot restore` does; with bump, as with `--bump-revision
// 1000000000 --mark-compacted`.
func (s *scene) restoreSnapshot(t *testing.T, from string, bump bool) {
	t.Helper()
	dir := filepath.Join(s.data, "etcd", "etcd")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	restore := snapshot.RestoreConfig{
		SnapshotPath: from, OutputDataDir: dir, Name: etcdName, PeerURLs: []string{etcdPeer},
		InitialCluster: etcdName + "=" + etcdPeer, InitialClusterToken: etcdToken,
	}
	if bump {
		restore.RevisionBump, restore.MarkCompacted = 1_000_000_000, true
	}
	if err := snapshot.NewV3(zap.NewNop()).Restore(restore); err != nil {
		t.Fatal(err)
	}
}

// logged waits for a text in the cluster's log.
func (s *scene) logged(t *testing.T, what string) {
	t.Helper()
	testutil.EventuallyTrue(t, "the log says: "+what, func() bool {
		log, err := os.ReadFile(s.log.Name())
		return err == nil && strings.Contains(string(log), what)
	})
}

// create creates a stream of three replicas with one message.
func (s *scene) create(t *testing.T, stream string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := s.js.CreateStream(ctx, jetstream.StreamConfig{Name: stream, Subjects: []string{stream + ".>"}, Replicas: 3}); err != nil {
		t.Fatal(err)
	}
	s.whole(s.js, stream)
	if ack, err := s.js.Publish(ctx, stream+".a", []byte("kept")); err != nil || ack.Sequence != 1 {
		t.Fatalf("the first message of %s: %+v, %v", stream, ack, err)
	}
}

// TestEtcdIsRestoredFromABackup: etcd is restored from a backup that was made before two leaders
// were killed and replaced, and before all brokers registered again. Messages that the later
// leaders acknowledged are kept, and publishing continues. A stream that was created after the
// backup is set aside. A stream that was deleted after the backup exists again without its
// messages, and can be deleted.
func TestEtcdIsRestoredFromABackup(t *testing.T) {
	snapshots := func(bump bool) func(*testing.T, *scene) func() {
		return func(t *testing.T, s *scene) func() {
			file := filepath.Join(t.TempDir(), "snapshot.db")
			s.saveSnapshot(t, file)
			return func() { s.restoreSnapshot(t, file, bump) }
		}
	}
	for _, c := range []struct {
		name string
		// backUp makes a backup, and returns a function that restores it while the cluster is
		// stopped.
		backUp func(t *testing.T, s *scene) (restore func())
	}{
		{"copied", func(t *testing.T, s *scene) func() {
			s.stop()
			etcd, backup := filepath.Join(s.data, "etcd"), filepath.Join(t.TempDir(), "backup")
			copyTo(t, backup, etcd)
			s.start()
			return func() {
				if err := os.RemoveAll(etcd); err != nil {
					t.Fatal(err)
				}
				copyTo(t, etcd, backup)
			}
		}},
		{"etcdutl", snapshots(false)},
		{"etcdutl-bumped", snapshots(true)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := begin(t, "restored")
			s.create(t, "deleted")
			s.wholeAndBusy(t)
			restore := c.backUp(t, s)
			s.wholeAndBusy(t)
			s.create(t, "made")
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := s.js.DeleteStream(ctx, "deleted"); err != nil {
				t.Fatal(err)
			}
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
			restore()
			s.start()
			restored, longest := time.Now(), time.Duration(0)
			for _, p := range s.publishers {
				longest = max(longest, p.recovers(t, restored))
			}
			t.Logf("acks came again %v after a restored etcd was up", longest.Round(time.Millisecond))
			if longest > resumption {
				t.Errorf("acks came again after %v, want at most %v", longest, resumption)
			}
			s.logged(t, "the generation is raised")
			s.wholeAndBusy(t)
			s.logged(t, "was set aside; delete it if nobody misses it")
			s.logged(t, "no broker that is there has a record of it")
			testutil.Eventually(t, "the deleted stream is deleted again", func() error {
				if err := s.js.DeleteStream(ctx, "deleted"); !errors.Is(err, jetstream.ErrStreamNotFound) {
					return err
				}
				return nil // an answer was lost
			})
			for _, stream := range []string{"deleted", "made"} {
				s.create(t, stream)
			}
			s.judge(t)
		})
	}
}
