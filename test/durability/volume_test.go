//go:build e2e && linux

package durability

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// volume is an ext4 file system of its own, on a loop device.
type volume struct {
	t     *testing.T
	dir   string // where it is mounted
	image string
	loop  *os.File // as long as it or a mount is open, the device keeps its file
}

// howItGoes is how a file system is shut down (EXT4_IOC_SHUTDOWN).
type howItGoes uint32

const (
	flushed  howItGoes = 0 // what was written before is on the disk; all that comes after fails
	powerCut howItGoes = 2 // nothing is flushed, not even the journal
)

const (
	ext4Shutdown = 0x8004587d // _IOR('X', 125, __u32)
	// Only syncs make things safe: left alone, ext4's journal would do so every five seconds.
	mountOptions = "commit=900"
)

// newVolume makes and mounts one at dir.
func newVolume(t *testing.T, dir string, megabytes int64) *volume {
	t.Helper()
	const needs = "these tests need root, loop devices and ext4: on Linux, outside a container without privileges"
	if os.Geteuid() != 0 {
		t.Fatalf("this is user %d; %s", os.Geteuid(), needs)
	}
	image, err := os.CreateTemp(runDir, "image-")
	must(t, err)
	must(t, image.Truncate(megabytes<<20))
	v := &volume{t: t, dir: dir, image: image.Name()}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", "-m", "0", image.Name()).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4 %s: %v: %s (it is in the package e2fsprogs)", image.Name(), err, out)
	}
	if v.loop, err = attach(image); err != nil {
		t.Fatalf("attach %s to a loop device: %v; %s", image.Name(), err, needs)
	}
	must(t, image.Close())
	t.Cleanup(v.remove)
	must(t, os.MkdirAll(dir, 0o755))
	if err := v.mount(); err != nil {
		t.Fatalf("%v; %s", err, needs)
	}
	return v
}

// attach finds a free loop device for a file. It frees itself when the last who uses it is gone.
func attach(image *os.File) (*os.File, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	for deadline := time.Now().Add(10 * time.Second); ; {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find a free loop device: %w", err)
		}
		path := fmt.Sprintf("/dev/loop%d", n)
		loop, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		config := unix.LoopConfig{Fd: uint32(image.Fd())}
		config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
		copy(config.Info.File_name[:len(config.Info.File_name)-1], image.Name())
		if err = unix.IoctlLoopConfigure(int(loop.Fd()), &config); err == nil {
			return loop, nil
		}
		_ = loop.Close()
		if err != unix.EBUSY || time.Now().After(deadline) { // busy: somebody else was faster
			return nil, fmt.Errorf("configure %s: %w", path, err)
		}
	}
}

func (v *volume) mount() error {
	if err := unix.Mount(v.loop.Name(), v.dir, "ext4", 0, mountOptions); err != nil {
		return fmt.Errorf("mount %s at %s: %w", v.loop.Name(), v.dir, err)
	}
	return nil
}

// shutdown ends the file system; all that uses it gets errors from now on.
func (v *volume) shutdown(how howItGoes) {
	v.t.Helper()
	dir, err := os.Open(v.dir)
	must(v.t, err)
	defer dir.Close()
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), ext4Shutdown, uintptr(unsafe.Pointer(&how))); errno != 0 {
		v.t.Fatalf("shut down the file system at %s: %v", v.dir, errno)
	}
}

// sync makes all that is on it safe.
func (v *volume) sync() {
	v.t.Helper()
	dir, err := os.Open(v.dir)
	must(v.t, err)
	defer dir.Close()
	must(v.t, unix.Syncfs(int(dir.Fd())))
}

// again mounts the volume anew, when no process uses it any more: with the journal replayed, as after a power cut.
func (v *volume) again() {
	v.t.Helper()
	eventually(v.t, "unmount "+v.dir, func() error { return unix.Unmount(v.dir, 0) })
	must(v.t, v.mount())
}

// fill leaves about as much free, or nothing at all, in a file that takes all else. The function returned frees it again.
func (v *volume) fill(name string, leave int64) (free func()) {
	v.t.Helper()
	var stat unix.Statfs_t
	must(v.t, unix.Statfs(v.dir, &stat))
	ballast, err := os.Create(filepath.Join(v.dir, name))
	must(v.t, err)
	if size := int64(stat.Bavail)*stat.Bsize - max(leave, 1<<20); size > 0 {
		if err := unix.Fallocate(int(ballast.Fd()), 0, 0, size); err != nil {
			v.t.Fatalf("fill %s: %v", v.dir, err)
		}
	}
	_, err = ballast.Seek(0, io.SeekEnd)
	for err == nil && leave == 0 {
		_, err = ballast.Write(make([]byte, 4096))
	}
	if leave == 0 && !errors.Is(err, unix.ENOSPC) {
		v.t.Fatalf("fill %s: %v", v.dir, err)
	}
	must(v.t, errors.Join(ballast.Sync(), ballast.Close()))
	return func() { must(v.t, os.Remove(ballast.Name())) }
}

// remove unmounts and frees all, whatever state it is in.
func (v *volume) remove() {
	err := unix.Unmount(v.dir, 0)
	if err != nil {
		err = unix.Unmount(v.dir, unix.MNT_DETACH)
	}
	if err != nil && err != unix.EINVAL && err != unix.ENOENT { // it may not be mounted
		v.t.Errorf("unmount %s: %v", v.dir, err)
	}
	must(v.t, v.loop.Close())
	must(v.t, os.Remove(v.image))
}
