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

// lockFile is the file that the owner of a directory holds a lock on.
const lockFile = "lock"

// lockPoll is the pause between two attempts of LockDir, short compared with the start of a
// process.
const lockPoll = 50 * time.Millisecond

// LockWait is how long a starting process waits for the one before it: a pod's termination grace
// period, and some more.
const LockWait = 75 * time.Second

// InUseError reports that another process owns a directory.
type InUseError struct{ Dir string }

func (e *InUseError) Error() string {
	return fmt.Sprintf("data directory %s: another process is using it (stop that one, or use another directory)", e.Dir)
}

// DirLock is a directory that this process owns, until Close or its end.
type DirLock struct{ f *os.File }

// LockDir creates the directory if needed and locks it. While another process owns it, LockDir
// tries again until ctx ends, and then returns an *InUseError. If ctx has ended already it tries
// once.
//
// A pod that is deleted by force is replaced while its process still runs, on the same volume. Two
// brokers that append to the same logs would destroy each other's acknowledged records.
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

// Close releases the directory.
func (l *DirLock) Close() error { return l.f.Close() }
