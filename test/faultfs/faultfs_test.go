//go:build e2e && linux

package faultfs

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/internal/testutil"
)

func mount(t *testing.T) (*FS, string) {
	t.Helper()
	dir := t.TempDir()
	at := filepath.Join(dir, "disk")
	f, err := Mount(filepath.Join(dir, "below"), at)
	testutil.Must(t, err)
	t.Cleanup(func() {
		if err := f.Unmount(); err != nil {
			t.Error(err)
		}
	})
	return f, at
}

// page returns the content of some pages.
func page(c byte, pages int) []byte { return bytes.Repeat([]byte{c}, pages*pageSize) }

func create(t *testing.T, path string, size int64) env.File {
	t.Helper()
	f, err := env.OS.Create(path)
	testutil.Must(t, err)
	testutil.Must(t, f.Preallocate(size))
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func write(t *testing.T, f env.File, data []byte, at int) {
	t.Helper()
	_, err := f.WriteAt(data, int64(at*pageSize))
	testutil.Must(t, err)
}

func holds(t *testing.T, what, path string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	testutil.Must(t, err)
	if !bytes.Equal(got, want) {
		t.Errorf("%s: it has %d bytes, want %d", what, len(got), len(want))
		for n := 0; n*pageSize < min(len(got), len(want)); n++ {
			t.Errorf("page %d begins with %q, want %q", n, got[n*pageSize], want[n*pageSize])
		}
	}
}

// TestAFailedSyncLosesItsWrites: after a failed sync, readers see its writes and the next sync
// succeeds. A power cut shows that neither sync wrote them: only pages that were written again are
// kept.
func TestAFailedSyncLosesItsWrites(t *testing.T) {
	disk, dir := mount(t)
	path := filepath.Join(dir, "log")
	f := create(t, path, 4*pageSize)
	write(t, f, page('a', 3), 0)
	testutil.Must(t, f.Sync())
	write(t, f, page('b', 2), 0)
	disk.FailSyncs(true)
	if err := f.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("a sync that is to fail: %v", err)
	}
	disk.FailSyncs(false)
	write(t, f, page('c', 1), 1)
	testutil.Must(t, f.Sync())
	write(t, f, page('d', 1), 3)
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	holds(t, "before the power cut", path, join(page('b', 1), page('c', 1), page('a', 1), page('d', 1)))
	testutil.Must(t, disk.CutPower())
	if _, err := f.WriteAt([]byte("late"), 0); !errors.Is(err, syscall.EIO) {
		t.Errorf("a write without power: %v", err)
	}
	testutil.Must(t, f.Close())
	disk.PowerOn()
	holds(t, "after it", path, join(page('a', 1), page('c', 1), page('a', 1), page(0, 1)))
	if n := disk.FailedSyncs(); n != 1 {
		t.Errorf("%d syncs failed, want 1", n)
	}
}

// TestNamesAndLengthsOutliveAPowerCut: names and lengths are safe at once; truncated data does not
// come back.
func TestNamesAndLengthsOutliveAPowerCut(t *testing.T) {
	disk, dir := mount(t)
	testutil.Must(t, env.OS.MkdirAll(filepath.Join(dir, "a", "b")))
	path, to := filepath.Join(dir, "a", "file"), filepath.Join(dir, "a", "b", "moved")
	f := create(t, path, 2*pageSize)
	write(t, f, page('a', 2), 0)
	testutil.Must(t, f.Sync())
	write(t, f, page('b', 2), 0)
	testutil.Must(t, f.Truncate(pageSize+10))
	testutil.Must(t, env.OS.Rename(path, to))
	testutil.Must(t, f.Close())
	testutil.Must(t, disk.CutPower())
	disk.PowerOn()
	holds(t, "the file under its new name", to, page('a', 2)[:pageSize+10])
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the former name: %v", err)
	}
	testutil.Must(t, env.OS.Remove(to))
	if names, err := env.OS.List(filepath.Dir(to)); err != nil || len(names) != 0 {
		t.Error(names, err)
	}
}

func TestAFullDisk(t *testing.T) {
	disk, dir := mount(t)
	f := create(t, filepath.Join(dir, "file"), pageSize)
	disk.Fill(true)
	if _, err := env.OS.Create(filepath.Join(dir, "other")); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("create: %v", err)
	}
	if err := f.Preallocate(2 * pageSize); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("preallocate: %v", err)
	}
	if _, err := f.WriteAt([]byte("x"), pageSize); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("write beyond the end: %v", err)
	}
	write(t, f, page('a', 1), 0)
	if free, err := env.OS.Free(dir); err != nil || free != 0 {
		t.Errorf("%d bytes are free: %v", free, err)
	}
	disk.Fill(false)
	testutil.Must(t, f.Preallocate(2*pageSize))
}

// TestAHungDiskHoldsItsProcesses: a process in an operation on a hung disk can't be killed before
// the disk is released.
func TestAHungDiskHoldsItsProcesses(t *testing.T) {
	disk, dir := mount(t)
	began := time.Now()
	disk.Slow(50 * time.Millisecond)
	testutil.Must(t, os.WriteFile(filepath.Join(dir, "slow"), nil, 0o600))
	if took := time.Since(began); took < 50*time.Millisecond {
		t.Errorf("on a slow disk a file was made within %v", took)
	}
	disk.Slow(0)
	disk.Hang()
	cmd := exec.Command("dd", "if=/dev/zero", "of="+filepath.Join(dir, "file"), "count=1")
	testutil.Must(t, cmd.Start())
	waiting := func() bool {
		disk.mu.Lock()
		defer disk.mu.Unlock()
		return disk.waiting > 0
	}
	for deadline := time.Now().Add(testutil.Patience); !waiting(); {
		if time.Now().After(deadline) {
			t.Fatal("no operation came")
		}
	}
	testutil.Must(t, cmd.Process.Kill())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		t.Errorf("the process could be killed: %v", err)
		return
	case <-time.After(200 * time.Millisecond):
	}
	disk.Release()
	select {
	case <-ended:
	case <-time.After(testutil.Patience):
		t.Error("the process is not released")
	}
}
