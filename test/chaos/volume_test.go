//go:build e2e && linux

package chaos

import (
	"errors"
	"path/filepath"

	"github.com/carillon-mq/carillon/test/disk"
	"github.com/carillon-mq/carillon/test/faultfs"
)

// volume is the disk of one process.
type volume interface {
	Path() string
	// CutPower fails all operations and drops unsynced data. Fail fails them, too, and keeps what
	// was written.
	CutPower() error
	Fail() error
	// Again ends either fault. It fails while a process uses the volume.
	Again() error
	// Fill leaves at most so many bytes free, until the returned function is called.
	Fill(name string, leave int64) (free func() error, err error)
	Remove() error
}

// newVolume makes a volume at a directory, with its files in another one: on ext4 or, if the test
// controls its faults, through FUSE.
func newVolume(files, at string, megabytes int64, faulty bool) (volume, error) {
	if !faulty {
		v, err := disk.New(files, at, megabytes)
		return ext4Volume{v}, err
	}
	f, err := faultfs.Mount(filepath.Join(files, "below"), at)
	return faultyVolume{f, at}, err
}

// ext4Volume is an ext4 file system on a loop device.
type ext4Volume struct{ *disk.Volume }

func (v ext4Volume) Path() string    { return v.Dir }
func (v ext4Volume) CutPower() error { return v.Shutdown(disk.PowerCut) }
func (v ext4Volume) Fail() error     { return v.Shutdown(disk.Flushed) }

// faultyVolume is a disk whose faults the test controls. After CutPower all its operations fail,
// and while it is full it has no room at all.
type faultyVolume struct {
	*faultfs.FS
	at string
}

func (v faultyVolume) Path() string { return v.at }

func (v faultyVolume) Fail() error { return errors.Join(v.Sync(), v.CutPower()) }

func (v faultyVolume) Again() error {
	v.PowerOn()
	return nil
}

func (v faultyVolume) Fill(string, int64) (func() error, error) {
	v.FS.Fill(true)
	return func() error {
		v.FS.Fill(false)
		return nil
	}, nil
}

func (v faultyVolume) Remove() error { return v.Unmount() }
