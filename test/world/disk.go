package world

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

var errDead = errors.New("the process is dead")

// stallTick is how often an operation on a hanging disk checks whether the disk still hangs.
const stallTick = 50 * time.Millisecond

// disk is a machine's file system as one process sees it. When the process is killed, its pending
// operations have no effect, and its earlier writes stay in the page cache.
type disk struct {
	life *life
	fs   *crashfs.FS
}

// begin delays an operation by the disk's latency, and returns an error if it must not happen.
func (d *disk) begin(kind, path string) error {
	l := d.life
	m := l.m
	if l.dead.Load() {
		return d.died(kind, path)
	}
	changes := crashfs.Op{Kind: kind}.Changes()
	if changes && l.operations.Add(1) == l.dieAt.Load() {
		m.w.notef("%s dies before it does %s %s", m.id, kind, path)
		l.die()
		return d.died(kind, path)
	}
	for m.stalled && !l.dead.Load() {
		m.w.io(stallTick, m.id+" hangs in "+kind)
	}
	switch {
	case kind == "sync" || kind == "syncall" || kind == "syncdir":
		m.w.io(m.w.delay(100*time.Microsecond, 2*time.Millisecond)+m.slow, fmt.Sprintf("%s %s %s", m.id, kind, path))
	case changes && m.slow > 0:
		m.w.io(m.slow/4, fmt.Sprintf("%s %s %s", m.id, kind, path))
	}
	if l.dead.Load() {
		return d.died(kind, path)
	}
	return nil
}

func (d *disk) died(kind, path string) error {
	return &env.DiskError{Op: kind, Path: path, Err: crashfs.ErrCrashed}
}

// hook runs before each operation of a machine's file system: it makes syncs and writes fail.
func (m *machine) hook(op crashfs.Op) error {
	if op.Kind == "write" && m.failingWrites > 0 && strings.HasSuffix(op.Path, ".log") {
		m.failingWrites--
		if other := m.beside; other != nil {
			m.beside = nil
			m.w.after(m.w.delay(0, 10*time.Millisecond), other.id+" dies beside", func() { m.w.crash([]*machine{other}, false) })
		}
		return syscall.EIO
	}
	if m.failing && (op.Kind == "sync" || op.Kind == "syncall") {
		return syscall.EIO
	}
	return nil
}

// failSyncsThenPower has the syncs of all machines fail for a moment, and cuts the power of all
// some seconds later. Each broker starts again and reads its last round from the page cache, whose
// pages are clean and not on the disk. What it vouches for then must be written again.
func (w *world) failSyncsThenPower() {
	for _, m := range w.machines {
		m.failing = true
	}
	w.after(w.between(10*time.Millisecond, 300*time.Millisecond), "all sync again", func() {
		for _, m := range w.machines {
			m.failing = false
		}
	})
	w.after(w.between(3*time.Second, 8*time.Second), "power fails everywhere", func() { w.crash(w.machines, true) })
}

func (d *disk) Create(path string) (env.File, error) {
	if err := d.begin("create", path); err != nil {
		return nil, err
	}
	return d.wrap(d.fs.Create(path))(path)
}

func (d *disk) Open(path string) (env.File, error) {
	if err := d.begin("open", path); err != nil {
		return nil, err
	}
	return d.wrap(d.fs.Open(path))(path)
}

func (d *disk) wrap(f env.File, err error) func(path string) (env.File, error) {
	return func(path string) (env.File, error) {
		if err != nil {
			return nil, err
		}
		return &diskFile{File: f, disk: d, path: path}, nil
	}
}

func (d *disk) MkdirAll(path string) error {
	if err := d.begin("mkdir", path); err != nil {
		return err
	}
	return d.fs.MkdirAll(path)
}

func (d *disk) Rename(from, to string) error {
	if err := d.begin("rename", from); err != nil {
		return err
	}
	return d.fs.Rename(from, to)
}

func (d *disk) Remove(path string) error {
	if err := d.begin("remove", path); err != nil {
		return err
	}
	return d.fs.Remove(path)
}

func (d *disk) List(dir string) ([]string, error) {
	if err := d.begin("list", dir); err != nil {
		return nil, err
	}
	return d.fs.List(dir)
}

func (d *disk) Stat(path string) (env.FileInfo, error) {
	if err := d.begin("stat", path); err != nil {
		return env.FileInfo{}, err
	}
	return d.fs.Stat(path)
}

func (d *disk) SyncDir(dir string) error {
	if err := d.begin("syncdir", dir); err != nil {
		return err
	}
	return d.fs.SyncDir(dir)
}

func (d *disk) OpenVolume(path string) (env.Volume, error) {
	if err := d.begin("open", path); err != nil {
		return nil, err
	}
	v, err := d.fs.OpenVolume(path)
	if err != nil {
		return nil, err
	}
	return &diskVolume{Volume: v, disk: d, path: path}, nil
}

type diskVolume struct {
	env.Volume
	disk *disk
	path string
}

func (v *diskVolume) Sync() error {
	if err := v.disk.begin("syncall", v.path); err != nil {
		return err
	}
	return v.Volume.Sync()
}

func (d *disk) Free(path string) (uint64, error) {
	if err := d.begin("free", path); err != nil {
		return 0, err
	}
	return d.fs.Free(path)
}

type diskFile struct {
	env.File
	disk *disk
	path string
}

func (f *diskFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.disk.begin("read", f.path); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

func (f *diskFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.disk.begin("write", f.path); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

func (f *diskFile) Preallocate(size int64) error {
	if err := f.disk.begin("preallocate", f.path); err != nil {
		return err
	}
	return f.File.Preallocate(size)
}

func (f *diskFile) Truncate(size int64) error {
	if err := f.disk.begin("truncate", f.path); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *diskFile) Sync() error {
	if err := f.disk.begin("sync", f.path); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *diskFile) Size() (int64, error) {
	if err := f.disk.begin("stat", f.path); err != nil {
		return 0, err
	}
	return f.File.Size()
}
