//go:build !linux && !darwin

package env

import (
	"errors"
	"os"
)

func datasync(f *os.File) error { return f.Sync() }

func preallocate(*os.File, int64) error { return errors.ErrUnsupported }

// SyncAll has no counterpart here.
func (osFS) SyncAll(path string) error {
	return diskError("sync file system", path, errors.ErrUnsupported)
}

// Free is not known here.
func (osFS) Free(path string) (uint64, error) {
	return 0, diskError("statfs", path, errors.ErrUnsupported)
}
