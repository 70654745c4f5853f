package env

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// lockFile is what a process holds a lock on while a directory is its own.
const lockFile = "lock"

// lockPoll is how long Lock rests between two tries: short beside the start of a process.
const lockPoll = 50 * time.Millisecond

// LockWait is how long a starting process waits for the one before it: the grace that a pod has to end,
// and some more.
const LockWait = 75 * time.Second

// InUseError says that another process holds a directory.
type InUseError struct{ Dir string }

func (e *InUseError) Error() string {
	return fmt.Sprintf("data directory %s: another process is using it (stop that one, or use another directory)", e.Dir)
}

// DirLock is a directory that this process alone uses, until Close or its end.
type DirLock struct{ f *os.File }

// LockDir makes the directory if need be and locks it. While another process holds it, it asks again
// until ctx ends, and then returns an *InUseError; with a ctx that has ended it asks once.
//
// A pod that is deleted by force is replaced while its process still runs, on the same volume:
// two brokers that append to the same logs would destroy what both acknowledge.
func LockDir(ctx context.Context, dir string) (*DirLock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open the data directory: %w (it must be writable)", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the data directory: %w (it must be writable)", err)
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return &DirLock{f}, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock the data directory %s: %w", dir, err), f.Close())
		}
		timer := time.NewTimer(lockPoll)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, errors.Join(&InUseError{dir}, f.Close())
		case <-timer.C:
		}
	}
}

// Close lets other processes have the directory.
func (l *DirLock) Close() error { return l.f.Close() }
