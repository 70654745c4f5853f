//go:build linux

package faultfs

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// FS is one mounted file system. Its methods are safe for concurrent use.
type FS struct {
	at     string
	server *fuse.Server

	mu      sync.Mutex
	calm    *sync.Cond // signalled when it no longer hangs
	hangs   bool
	off     bool // without power
	eio     bool // syncs fail
	full    bool
	delay   time.Duration
	failed  int // syncs
	waiting int // operations, while it hangs

	pages pages
}

// Mount mounts the directory lower at another path, until Unmount.
func Mount(lower, at string) (*FS, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("mount a faulty disk at %s: this is user %d; it takes root", at, os.Geteuid())
	}
	for _, dir := range []string{lower, at} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	f := &FS{at: at, pages: newPages()}
	f.calm = sync.NewCond(&f.mu)
	loopback, err := fs.NewLoopbackRoot(lower)
	if err != nil {
		return nil, err
	}
	root := &node{loopback.(*fs.LoopbackNode), f}
	root.RootData.RootNode = root
	raw := fs.NewNodeFS(root, &fs.Options{})
	f.server, err = fuse.NewServer(&gate{raw, f}, at, &fuse.MountOptions{
		DirectMountStrict: true, AllowOther: true, DisableXAttrs: true, FsName: lower, Name: "faultfs", MaxWrite: 512 << 10,
	})
	if err != nil {
		return nil, fmt.Errorf("mount a faulty disk at %s: %w (it takes root and /dev/fuse)", at, err)
	}
	go f.server.Serve() // Unmount waits for it
	if err := f.server.WaitMount(); err != nil {
		return nil, errors.Join(err, f.server.Unmount())
	}
	return f, nil
}

// Unmount ends the file system after a sync. It fails while a process uses it.
func (f *FS) Unmount() error {
	f.Release()
	if err := f.server.Unmount(); err != nil {
		return fmt.Errorf("unmount %s: %w", f.at, err)
	}
	return f.pages.close()
}

// FailSyncs makes syncs fail with an I/O error and lose their writes, or succeed again.
func (f *FS) FailSyncs(fail bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.eio = fail
}

// FailedSyncs returns the number of failed syncs.
func (f *FS) FailedSyncs() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

// Hang makes every operation wait until Release.
func (f *FS) Hang() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hangs = true
}

// Release ends Hang: waiting operations continue, including those of killed processes.
func (f *FS) Release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hangs = false
	f.calm.Broadcast()
}

// Slow delays every operation by a duration; 0 ends the delay.
func (f *FS) Slow(by time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.delay = by
}

// Fill makes operations that need space fail with ENOSPC, or succeed again.
func (f *FS) Fill(full bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.full = full
}

// Sync makes all writes safe.
func (f *FS) Sync() error {
	if errno := f.pages.sync(); errno != 0 {
		return errno
	}
	return nil
}

// CutPower ends all operations with an error, and drops unsynced data. The processes that use the
// file system must be killed before PowerOn.
func (f *FS) CutPower() error {
	f.mu.Lock()
	f.off = true
	f.mu.Unlock()
	return f.pages.revert()
}

// PowerOn ends CutPower. No process may still have a file open from before.
func (f *FS) PowerOn() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.off = false
	f.pages.on()
}

// enter begins every operation: it waits while the disk hangs or is slow, and fails without power.
func (f *FS) enter() syscall.Errno {
	f.mu.Lock()
	for f.hangs {
		f.waiting++
		f.calm.Wait()
		f.waiting--
	}
	delay, off := f.delay, f.off
	f.mu.Unlock()
	if off {
		return syscall.EIO
	}
	if delay > 0 {
		time.Sleep(delay)
	}
	return 0
}

// room begins every operation that needs space.
func (f *FS) room() syscall.Errno {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.full {
		return syscall.ENOSPC
	}
	return 0
}

// sync makes all dirty pages safe, or loses them.
func (f *FS) sync() syscall.Errno {
	f.mu.Lock()
	fail, off := f.eio, f.off
	if fail {
		f.failed++
	}
	f.mu.Unlock()
	switch {
	case off:
		return syscall.EIO
	case fail:
		f.pages.lose()
		return syscall.EIO
	}
	return f.pages.sync()
}

// stat returns the status of an open file.
func stat(file *os.File) (st syscall.Stat_t, err error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return st, err
	}
	if controlErr := raw.Control(func(fd uintptr) { err = syscall.Fstat(int(fd), &st) }); controlErr != nil {
		return st, controlErr
	}
	return st, err
}

// reserve calls fallocate.
func reserve(file *os.File, mode uint32, off, size int64) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	if controlErr := raw.Control(func(fd uintptr) { err = unix.Fallocate(int(fd), mode, off, size) }); controlErr != nil {
		return controlErr
	}
	return err
}
