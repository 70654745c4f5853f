package coordinator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"

	"github.com/carillon-mq/carillon/broker/env"
)

// The names in a data directory.
const (
	etcdDir = "etcd" // etcd's own
	// asideDir has the last data of etcd that were unusable.
	asideDir = "etcd.set-aside"
)

// volume is a data directory, locked by this process.
type volume struct {
	dir  string
	lock *env.DirLock
}

// openVolume creates the directory if needed, and locks it until Close or the end of the process.
// While another process has the lock, it waits until ctx ends.
func openVolume(ctx context.Context, dir string) (*volume, error) {
	lock, err := env.LockDir(ctx, dir)
	if err != nil {
		return nil, err
	}
	return &volume{dir, lock}, nil
}

func (v *volume) Close() error { return v.lock.Close() }

// hasMember reports whether the data are those of a member that has been in a cluster. A member
// that was killed between creating its log and the first write knows no members, not even itself,
// and could never start again.
func (v *volume) hasMember() (bool, error) {
	dir := filepath.Join(v.dir, etcdDir, "member", "wal")
	segments, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	if err != nil {
		return false, fmt.Errorf("look for a member in %s: %w", v.dir, err)
	}
	if len(segments) != 1 {
		return len(segments) > 0, nil
	}
	state, err := wal.Verify(nil, dir, &walpb.Snapshot{})
	if err != nil {
		return true, nil //nolint:nilerr // etcd reports what is wrong with its log
	}
	return state.GetCommit() > 0, nil
}

// setAside moves etcd's data aside. It keeps the last such data only, so that repeated failures
// don't fill the volume.
func (v *volume) setAside() error {
	from, to := filepath.Join(v.dir, etcdDir), filepath.Join(v.dir, asideDir)
	if _, err := os.Stat(from); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := os.RemoveAll(to); err != nil {
		return fmt.Errorf("set etcd's data aside: %w", err)
	}
	if err := os.Rename(from, to); err != nil {
		return fmt.Errorf("set etcd's data aside: %w", err)
	}
	return nil
}
