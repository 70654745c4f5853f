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

type osVolume struct{ dir *os.File }

// OpenVolume keeps a descriptor of path open; see Volume.
func (osFS) OpenVolume(path string) (Volume, error) {
	d, err := os.Open(path)
	if err != nil {
		return nil, diskError("open file system", path, err)
	}
	return &osVolume{d}, nil
}

// Sync calls syncfs, which reports failed writes since Linux 5.8.
func (v *osVolume) Sync() error {
	return diskError("sync file system", v.dir.Name(), retry(func() error { return unix.Syncfs(int(v.dir.Fd())) }))
}

func (v *osVolume) Close() error { return diskError("close", v.dir.Name(), v.dir.Close()) }

// retry repeats a call that a signal interrupted.
func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}
