//go:build linux

package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Folder is that of one run, locked for as long as its process lives, so that a later run knows
// what was left behind.
type Folder struct {
	Dir  string
	lock *os.File
}

// NewFolder makes one below parent, or where temporary files go if that is empty, with a name that
// begins with prefix. First it removes what runs that died have left there, with all that is
// mounted in it.
func NewFolder(parent, prefix string) (*Folder, error) {
	if parent == "" {
		parent = os.TempDir()
	}
	if err := sweep(parent, prefix); err != nil {
		return nil, fmt.Errorf("remove what an earlier run left behind: %w", err)
	}
	dir, err := os.MkdirTemp(parent, prefix)
	if err != nil {
		return nil, err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	return &Folder{dir, lock}, nil
}

// Remove unmounts what is mounted in it, and deletes it.
func (f *Folder) Remove() error { return errors.Join(remove(f.Dir), f.lock.Close()) }

// lockDir holds a folder's lock for as long as this process lives.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// sweep removes the folders of runs that are dead, and what is mounted in them.
func sweep(parent, prefix string) error {
	dirs, err := filepath.Glob(filepath.Join(parent, prefix+"*"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		lock, err := lockDir(dir)
		if errors.Is(err, unix.EWOULDBLOCK) {
			continue
		}
		if err != nil {
			return err
		}
		if err := errors.Join(remove(dir), lock.Close()); err != nil {
			return err
		}
	}
	return nil
}

// remove unmounts what is mounted below dir and deletes the rest. Loop devices go with their
// mounts.
func remove(dir string) error {
	table, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	var errs []error
	for line := range strings.Lines(string(table)) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], dir+"/") {
			if err := unix.Unmount(fields[1], unix.MNT_DETACH); err != nil {
				errs = append(errs, fmt.Errorf("unmount %s: %w", fields[1], err))
			}
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...) // nothing is deleted through a mount
	}
	return os.RemoveAll(dir)
}
