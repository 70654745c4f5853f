package env_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

// TestBothFileSystemsBehaveAlike: crashfs and the real file system behave equally as far as is
// visible.
func TestBothFileSystemsBehaveAlike(t *testing.T) {
	for name, c := range map[string]struct {
		fs  env.FS
		dir string
	}{"os": {env.OS, t.TempDir()}, "crashfs": {crashfs.New(), "dir"}} {
		t.Run(name, func(t *testing.T) { walkThrough(t, c.fs, c.dir) })
	}
}

func walkThrough(t *testing.T, fsys env.FS, dir string) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	sub := filepath.Join(dir, "a", "b")
	path := filepath.Join(sub, "file")
	must(fsys.MkdirAll(sub))
	must(fsys.MkdirAll(sub))
	f, err := fsys.Create(path)
	must(err)
	_, err = fsys.Create(path)
	named(t, err, "create", path, fs.ErrExist)
	must(f.Preallocate(10_000))
	must(f.Preallocate(5_000))
	_, err = f.WriteAt([]byte("hello"), 4_000)
	must(err)
	must(f.Sync())
	must(fsys.SyncDir(sub))
	switch v, err := fsys.OpenVolume(dir); {
	case err == nil:
		must(v.Sync())
		must(v.Sync())
		must(v.Close())
	case !errors.Is(err, errors.ErrUnsupported):
		t.Fatal(err)
	}
	buf := make([]byte, 5)
	_, err = f.ReadAt(buf, 4_000)
	must(err)
	if string(buf) != "hello" {
		t.Errorf("read %q", buf)
	}
	if _, err = f.ReadAt(buf, 9_990); err != nil || !bytes.Equal(buf, make([]byte, 5)) {
		t.Errorf("what was only reserved reads as %q, %v", buf, err)
	}
	if n, err := f.ReadAt(buf, 9_998); n != 2 || err != io.EOF {
		t.Error("at the end:", n, err)
	}
	must(f.Truncate(4_003))
	if size, err := f.Size(); err != nil || size != 4_003 {
		t.Error(size, err)
	}
	must(f.Preallocate(4_010))
	if _, err = f.ReadAt(buf, 4_001); err != nil || string(buf) != "el\x00\x00\x00" {
		t.Errorf("what was cut came back: %q, %v", buf, err)
	}
	must(f.Close())
	to := filepath.Join(dir, "a", "moved")
	must(fsys.Rename(path, to))
	_, err = fsys.Open(path)
	named(t, err, "open", path, fs.ErrNotExist)
	if info, err := fsys.Stat(to); err != nil || info.Size != 4_010 || info.Dir {
		t.Error(info, err)
	}
	names, err := fsys.List(filepath.Join(dir, "a"))
	must(err)
	if !slices.Equal(names, []string{"b", "moved"}) {
		t.Error(names)
	}
	named(t, fsys.Remove(filepath.Join(dir, "a")), "remove", filepath.Join(dir, "a"), syscall.ENOTEMPTY)
	named(t, fsys.Remove(path), "remove", path, fs.ErrNotExist)
	must(fsys.Remove(to))
	must(fsys.Remove(sub))
	_, err = fsys.Stat(to)
	named(t, err, "stat", to, fs.ErrNotExist)
	_, err = fsys.List(path)
	named(t, err, "list", path, fs.ErrNotExist)
	if free, err := fsys.Free(dir); err != nil || free == 0 {
		t.Error(free, err)
	}
}

func named(t *testing.T, err error, op, path string, is error) {
	t.Helper()
	var disk *env.DiskError
	if !errors.As(err, &disk) || disk.Op != op || disk.Path != path || !errors.Is(err, is) || strings.Count(err.Error(), path) != 1 {
		t.Errorf("%s %s: %v", op, path, err)
	}
}
