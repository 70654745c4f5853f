//go:build !linux && !darwin

package env

import (
	"errors"
	"os"
)

func datasync(f *os.File) error { return f.Sync() }

func preallocate(*os.File, int64) error { return errors.ErrUnsupported }

// OpenVolume is not supported here.
func (osFS) OpenVolume(path string) (Volume, error) {
	return nil, diskError("open file system", path, errors.ErrUnsupported)
}

// Free is not supported here.
func (osFS) Free(path string) (uint64, error) {
	return 0, diskError("statfs", path, errors.ErrUnsupported)
}
