package coordinator

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// The names in a data directory.
const (
	etcdDir  = "etcd"           // etcd's own
	asideDir = "etcd.set-aside" // what etcd had written when it turned out to be unusable; the last one only
	lockFile = "lock"
)

// volume is a data directory that this process alone uses.
type volume struct {
	dir  string
	lock *os.File
}

// openVolume makes the directory if need be, and locks it until Close or the end of the process.
func openVolume(dir string) (*volume, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open the data directory: %w (it must be writable)", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the data directory: %w (it must be writable)", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("data directory %s: another process is using it (stop that one, or use another directory): %w", dir, err)
	}
	return &volume{dir, lock}, nil
}

func (v *volume) Close() error { return v.lock.Close() }

// hasMember says whether a member was ever started here: it has a log.
func (v *volume) hasMember() (bool, error) {
	entries, err := os.ReadDir(filepath.Join(v.dir, etcdDir, "member", "wal"))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for a member in %s: %w", v.dir, err)
	}
	for _, entry := range entries {
		if filepath.Ext(entry.Name()) == ".wal" {
			return true, nil
		}
	}
	return false, nil
}

// setAside moves what etcd wrote out of the way. It keeps the last such only, so that a
// member that goes through this again and again does not fill the volume.
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
