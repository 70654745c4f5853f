// Package etcd starts a real etcd of one member in a test's process.
package etcd

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// startTime bounds how long etcd may take to start on a busy machine.
const startTime = 2 * time.Minute

// etcd reserves space for two segments of its log of 64 MiB each when it starts, which delays many
// of them on a busy disk.
func init() { wal.SegmentSizeBytes = 1 << 20 }

// Server is an etcd that a test may stop and start again. It ends with the test.
type Server struct {
	t      testing.TB
	dir    string
	server *embed.Etcd
	grpc   *grpc.Server

	backups int
}

// Start starts an etcd that listens on a Unix socket. It syncs nothing to the disk.
func Start(t testing.TB) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "etcd") // t.TempDir is too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{t: t, dir: dir}
	t.Cleanup(func() { s.Stop(); os.RemoveAll(dir) })
	s.Start()
	return s
}

// Start starts the etcd again, with the data that it had when it was stopped.
func (s *Server) Start() {
	s.t.Helper()
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir = "only", s.data()
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	cfg.UnsafeNoFsync = true
	cfg.TickMs, cfg.ElectionMs = 20, 100
	peer, client := url.URL{Scheme: "unix", Path: filepath.Join(s.dir, "p")}, url.URL{Scheme: "unix", Path: s.Socket()}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.InitialCluster = "only=" + peer.String()
	serving := make(chan *grpc.Server, 1)
	cfg.ServiceRegister = func(g *grpc.Server) { serving <- g }
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.server = server
	select {
	case s.grpc = <-serving:
	case <-time.After(startTime):
		s.t.Fatal("etcd did not start")
	}
}

// Backup keeps a copy of the data as they are now, of which Restore makes the data. The etcd is
// stopped for a moment.
func (s *Server) Backup() (backup string) {
	s.t.Helper()
	s.Stop()
	s.backups++
	backup = filepath.Join(s.dir, fmt.Sprintf("backup%d", s.backups))
	if err := os.CopyFS(backup, os.DirFS(s.data())); err != nil {
		s.t.Fatal(err)
	}
	s.Start()
	return backup
}

// Restore stops the etcd, and gives it the data of a backup. Start starts it.
func (s *Server) Restore(backup string) {
	s.t.Helper()
	s.Stop()
	if err := os.RemoveAll(s.data()); err != nil {
		s.t.Fatal(err)
	}
	if err := os.CopyFS(s.data(), os.DirFS(backup)); err != nil {
		s.t.Fatal(err)
	}
	// etcd refuses data that others can read.
	for _, dir := range []string{".", "member", "member/snap", "member/wal"} {
		if err := os.Chmod(filepath.Join(s.data(), dir), 0o700); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// Stop stops the etcd as suddenly as a crash. A graceful stop would let leases end before the eyes
// of watchers while it refuses to renew them.
func (s *Server) Stop() {
	if s.server == nil {
		return
	}
	if s.grpc != nil {
		s.grpc.Stop()
	}
	s.server.Close()
	s.server, s.grpc = nil, nil
}

// Socket is the path of the Unix socket for clients.
func (s *Server) Socket() string { return filepath.Join(s.dir, "c") }

// Endpoint is the address for clients.
func (s *Server) Endpoint() string { return "unix://" + s.Socket() }
