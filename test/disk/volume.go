//go:build linux

package disk

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Volume is an ext4 file system of its own, on a loop device.
type Volume struct {
	Dir   string // where it is mounted
	image string
	loop  *os.File // the device keeps its image while loop or a mount is open
}

// ShutdownMode is how a file system is shut down (EXT4_IOC_SHUTDOWN).
type ShutdownMode uint32

const (
	Flushed  ShutdownMode = 0 // earlier writes are on the disk, and later operations fail
	PowerCut ShutdownMode = 2 // nothing is flushed, not even the journal
)

const (
	ext4Shutdown = 0x8004587d // _IOR('X', 125, __u32)
	// Only a sync makes data safe: by default, ext4's journal would do so every five seconds.
	mountOptions = "commit=900"
)

const needs = "it takes root, loop devices and ext4: Linux, outside a container without privileges"

// New makes a volume of some MiB, with its image in a folder, and mounts it at dir.
func New(images, dir string, megabytes int64) (_ *Volume, err error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("make a volume: this is user %d; %s", os.Geteuid(), needs)
	}
	image, err := os.CreateTemp(images, "image-")
	if err != nil {
		return nil, err
	}
	v := &Volume{Dir: dir, image: image.Name()}
	defer func() {
		_ = image.Close()
		if err == nil {
			return
		}
		if v.loop != nil {
			_ = v.loop.Close()
		}
		_ = os.Remove(v.image)
	}()
	if err := image.Truncate(megabytes << 20); err != nil {
		return nil, err
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", "-m", "0", v.image).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mkfs.ext4 %s: %w: %s (it is in the package e2fsprogs)", v.image, err, out)
	}
	if v.loop, err = attach(image); err != nil {
		return nil, fmt.Errorf("attach %s to a loop device: %w; %s", v.image, err, needs)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if err := v.mount(); err != nil {
		return nil, fmt.Errorf("%w; %s", err, needs)
	}
	return v, nil
}

// attach attaches a file to a free loop device. The device is freed when its last user closes it.
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

func (v *Volume) mount() error {
	if err := unix.Mount(v.loop.Name(), v.Dir, "ext4", 0, mountOptions); err != nil {
		return fmt.Errorf("mount %s at %s: %w", v.loop.Name(), v.Dir, err)
	}
	return nil
}

// Shutdown ends the file system; all that uses it gets errors from now on.
func (v *Volume) Shutdown(how ShutdownMode) error {
	dir, err := os.Open(v.Dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), ext4Shutdown, uintptr(unsafe.Pointer(&how))); errno != 0 {
		return fmt.Errorf("shut down the file system at %s: %w", v.Dir, errno)
	}
	return nil
}

// Sync makes all that is on it safe.
func (v *Volume) Sync() error {
	dir, err := os.Open(v.Dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	return unix.Syncfs(int(dir.Fd()))
}

// Again mounts the volume anew, with the journal replayed, as after a power cut. It fails while a
// process uses the volume.
func (v *Volume) Again() error {
	if err := unix.Unmount(v.Dir, 0); err != nil {
		return fmt.Errorf("unmount %s: %w", v.Dir, err)
	}
	return v.mount()
}

// fillTries is how often Fill takes what is free: whoever uses the volume may take some of it
// meanwhile.
const fillTries = 10

// Fill leaves about as much free, or nothing at all, in a file that takes all else. The function
// returned frees it again.
func (v *Volume) Fill(name string, leave int64) (free func() error, err error) {
	ballast, err := os.Create(filepath.Join(v.Dir, name))
	if err != nil {
		return nil, err
	}
	defer ballast.Close()
	for tries := 1; ; tries++ {
		var stat unix.Statfs_t
		var taken unix.Stat_t
		if err := errors.Join(unix.Statfs(v.Dir, &stat), unix.Fstat(int(ballast.Fd()), &taken)); err != nil {
			return nil, err
		}
		size := int64(stat.Bavail)*stat.Bsize - max(leave, 1<<20)
		if size <= 0 {
			break
		}
		err := unix.Fallocate(int(ballast.Fd()), 0, taken.Blocks*512, size)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.ENOSPC) || tries == fillTries {
			return nil, fmt.Errorf("fill %s: %w", v.Dir, err)
		}
	}
	_, err = ballast.Seek(0, io.SeekEnd)
	for err == nil && leave == 0 {
		_, err = ballast.Write(make([]byte, 4096))
	}
	if err != nil && !errors.Is(err, unix.ENOSPC) {
		return nil, fmt.Errorf("fill %s: %w", v.Dir, err)
	}
	if err := ballast.Sync(); err != nil {
		return nil, err
	}
	return func() error { return os.Remove(ballast.Name()) }, nil
}

// Remove unmounts and frees all, whatever state it is in.
func (v *Volume) Remove() error {
	err := unix.Unmount(v.Dir, 0)
	if err != nil {
		err = unix.Unmount(v.Dir, unix.MNT_DETACH)
	}
	if err == unix.EINVAL || err == unix.ENOENT { // it may not be mounted
		err = nil
	}
	return errors.Join(err, v.loop.Close(), os.Remove(v.image))
}
