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

// Folder is the folder of one run. It is locked while the process lives, so that a later run can
// recognise and remove the leftovers of a dead one.
type Folder struct {
	Dir  string
	lock *os.File
}

// NewFolder makes a folder below parent, or below the folder for temporary files if parent is
// empty. Its name begins with prefix. First it removes the folders of dead runs with that prefix,
// and unmounts everything in them.
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

// Remove unmounts everything in the folder, and deletes it.
func (f *Folder) Remove() error { return errors.Join(remove(f.Dir), f.lock.Close()) }

// lockDir locks a folder until this process ends.
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

// sweep unmounts everything in the folders of dead runs, and deletes these.
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

// remove unmounts everything below dir and deletes the rest. Loop devices end with their mounts.
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
		return errors.Join(errs...) // never delete through a mount
	}
	return os.RemoveAll(dir)
}
