package env

import (
	"errors"
	"os"
	"slices"
)

// OS is the machine's file system.
var OS FS = osFS{}

type osFS struct{}

type osFile struct {
	f    *os.File
	path string
}

func (osFS) Create(path string) (File, error) {
	return openFile("create", path, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

func (osFS) Open(path string) (File, error) { return openFile("open", path, os.O_RDWR) }

func openFile(op, path string, flags int) (File, error) {
	f, err := os.OpenFile(path, flags, 0o640)
	if err != nil {
		return nil, diskError(op, path, err)
	}
	return &osFile{f: f, path: path}, nil
}

func (osFS) MkdirAll(path string) error { return diskError("mkdir", path, os.MkdirAll(path, 0o750)) }

func (osFS) Rename(from, to string) error {
	err := os.Rename(from, to)
	if link, ok := errors.AsType[*os.LinkError](err); ok {
		err = link.Err
	}
	return diskError("rename to "+to, from, err)
}

func (osFS) Remove(path string) error { return diskError("remove", path, os.Remove(path)) }

func (osFS) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, diskError("list", dir, err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	slices.Sort(names)
	return names, nil
}

func (osFS) Stat(path string) (FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return FileInfo{}, diskError("stat", path, err)
	}
	return FileInfo{Size: info.Size(), Dir: info.IsDir(), Modified: info.ModTime()}, nil
}

func (osFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return diskError("sync directory", dir, err)
	}
	err = d.Sync()
	return diskError("sync directory", dir, errors.Join(err, d.Close()))
}

func (f *osFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.f.ReadAt(p, off)
	return n, diskError("read", f.path, err)
}

func (f *osFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.f.WriteAt(p, off)
	return n, diskError("write", f.path, err)
}

func (f *osFile) Preallocate(size int64) error {
	err := preallocate(f.f, size)
	if errors.Is(err, errors.ErrUnsupported) {
		err = f.fill(size)
	}
	return diskError("preallocate", f.path, err)
}

// fill reserves space by writing zeros, on file systems without fallocate.
func (f *osFile) fill(size int64) error {
	info, err := f.f.Stat()
	if err != nil {
		return err
	}
	zeros := make([]byte, 1<<20)
	for at := info.Size(); at < size; {
		n, err := f.f.WriteAt(zeros[:min(int64(len(zeros)), size-at)], at)
		if err != nil {
			return err
		}
		at += int64(n)
	}
	return nil
}

func (f *osFile) Truncate(size int64) error { return diskError("truncate", f.path, f.f.Truncate(size)) }

func (f *osFile) Sync() error { return diskError("sync", f.path, datasync(f.f)) }

func (f *osFile) Size() (int64, error) {
	info, err := f.f.Stat()
	if err != nil {
		return 0, diskError("stat", f.path, err)
	}
	return info.Size(), nil
}

func (f *osFile) Close() error { return diskError("close", f.path, f.f.Close()) }
