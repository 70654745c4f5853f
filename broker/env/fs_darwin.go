package env

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// datasync uses F_FULLFSYNC, as os.File.Sync does here: a plain fsync leaves the bytes in the
// drive's cache.
func datasync(f *os.File) error { return f.Sync() }

func preallocate(f *os.File, size int64) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if more := size - info.Size(); more > 0 {
		store := unix.Fstore_t{Flags: unix.F_ALLOCATEALL, Posmode: unix.F_PEOFPOSMODE, Length: more}
		if err := unix.FcntlFstore(f.Fd(), unix.F_PREALLOCATE, &store); err != nil {
			if errors.Is(err, unix.ENOTSUP) {
				return errors.ErrUnsupported
			}
			return err
		}
		return f.Truncate(size)
	}
	return nil
}

// OpenVolume is not supported here.
func (osFS) OpenVolume(path string) (Volume, error) {
	return nil, diskError("open file system", path, errors.ErrUnsupported)
}
