package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

const (
	// maxSocketPath is the longest path of a socket on macOS, which has the shortest limit of our
	// systems, with room for a final zero byte.
	maxSocketPath = 103
	// notInEndpoints are the characters that a path in a list of URLs may not have.
	notInEndpoints = `%?#,"`
	// A single member elects itself, sooner with shorter times than in a cluster. etcd permits no
	// fewer than five heartbeats, each of which costs a member at rest some wake-ups.
	localHeartbeatMillis = 100
	localElectionMillis  = 500
	// localStartTimeout bounds the start: reading a volume at its quota takes seconds.
	localStartTimeout = 60 * time.Second
)

// Local is a single member without TLS, on a unix socket that only this user can reach.
type Local struct {
	volume *volume
	server *server
	socket string
	temp   string // directory of the socket, if it is not the data directory
}

// StartLocal starts a single member in dataDir and waits until it serves or ctx ends. The socket is
// in dataDir or, if that path is unsuitable, in a new temporary directory. etcd's warnings go to
// log; warnings that the machine is busy have level Info.
func StartLocal(ctx context.Context, dataDir string, log *slog.Logger) (*Local, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	dataDir, err := filepath.Abs(dataDir)
	if err != nil {
		return nil, fmt.Errorf("open the data directory: %w", err)
	}
	now, cancel := context.WithCancel(ctx)
	cancel() // a second start fails at once
	volume, err := openVolume(now, dataDir)
	if err != nil {
		return nil, err
	}
	l := &Local{volume: volume}
	if err := l.start(ctx, log); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *Local) start(ctx context.Context, log *slog.Logger) (err error) {
	// Access to the directory is access to the socket, so only this user has it.
	if err := os.Chmod(l.volume.dir, 0o700); err != nil {
		return fmt.Errorf("open the data directory: %w (it must belong to the user that runs this)", err)
	}
	if l.socket, l.temp, err = socketPath(l.volume.dir); err != nil {
		return err
	}
	// An interrupted first start may have left files.
	if has, err := l.volume.hasMember(); err != nil {
		return err
	} else if !has {
		if err := l.volume.setAside(); err != nil {
			return err
		}
	}
	if l.server, err = startServer(localEtcd(l.volume.dir, l.socket), slogCore{log: log, laptop: true}); err != nil {
		return err
	}
	timer := time.NewTimer(localStartTimeout)
	defer timer.Stop()
	select {
	case <-l.server.etcd.Server.ReadyNotify():
		return nil
	case <-l.Done():
		return fmt.Errorf("etcd in %s stopped while it was starting; its log says why", l.volume.dir)
	case <-timer.C:
		return fmt.Errorf("etcd in %s was not ready within %v", l.volume.dir, localStartTimeout)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func localEtcd(dir, socket string) *embed.Config {
	cfg := baseEtcd("local", dir)
	cfg.TickMs, cfg.ElectionMs = localHeartbeatMillis, localElectionMillis
	client := url.URL{Scheme: "unix", Path: socket}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	// It has no peers, so nothing listens there. The address is only a name, and stays the same
	// when the directory is moved.
	peer := url.URL{Scheme: "http", Host: "localhost:2380"}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = nil, []url.URL{peer}
	cfg.InitialCluster, cfg.InitialClusterToken = cfg.Name+"="+peer.String(), "local"
	return cfg
}

// Endpoints returns the endpoints for coordination.Config, without TLS.
func (l *Local) Endpoints() []string { return []string{"unix://" + l.socket} }

// Done is closed when the member has stopped, by Close or by itself.
func (l *Local) Done() <-chan struct{} { return l.server.etcd.Server.StopNotify() }

// Close stops the member. Its data stay.
func (l *Local) Close() (err error) {
	if l.server != nil {
		err = l.server.stop()
	}
	if l.temp != "" {
		err = errors.Join(err, os.RemoveAll(l.temp))
	}
	return errors.Join(err, l.volume.Close())
}

// socketPath returns a path for the socket, and the temporary directory that it created for it, if
// any.
func socketPath(dir string) (socket, temp string, err error) {
	const name = "etcd.sock"
	if socket = filepath.Join(dir, name); len(socket) <= maxSocketPath && !strings.ContainsAny(socket, notInEndpoints) {
		return socket, "", nil
	}
	for _, parent := range []string{os.TempDir(), "/tmp"} {
		if temp, err = os.MkdirTemp(parent, "carillon-"); err != nil {
			continue
		}
		if socket = filepath.Join(temp, name); len(socket) <= maxSocketPath && !strings.ContainsAny(socket, notInEndpoints) {
			return socket, temp, nil
		}
		_ = os.RemoveAll(temp)
	}
	return "", "", fmt.Errorf("no place for a unix socket: %s is longer than %d bytes or has one of %s in it, and no other directory is writable (use another data directory): %w",
		dir, maxSocketPath, notInEndpoints, errors.Join(err, errors.New("set TMPDIR to a short path")))
}
