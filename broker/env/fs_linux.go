package env

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

func datasync(f *os.File) error { return retry(func() error { return unix.Fdatasync(int(f.Fd())) }) }

func preallocate(f *os.File, size int64) error {
	err := retry(func() error { return unix.Fallocate(int(f.Fd()), 0, 0, size) })
	if errors.Is(err, unix.EOPNOTSUPP) {
		return errors.ErrUnsupported
	}
	return err
}

// SyncAll is syncfs, which reports failed writes since Linux 5.8.
func (osFS) SyncAll(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return diskError("sync file system", path, err)
	}
	err = unix.Syncfs(int(d.Fd()))
	return diskError("sync file system", path, errors.Join(err, d.Close()))
}

// retry repeats a call that a signal interrupted before it did anything.
func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}
