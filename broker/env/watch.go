package env

import (
	"sync"
	"time"
)

// Operation is an operation on a file system that is under way.
type Operation struct {
	Op, Path string
	Since    time.Time
}

// Watched is an FS that tracks the operations under way. A hung disk returns no error and completes
// no operation, so only the age of the oldest operation shows it. Tracking costs a short critical
// section per operation. It allocates nothing once as many operations have run at a time.
//
// Every operation of FS and File that may wait for the disk is tracked. The methods are safe for
// concurrent use.
type Watched struct {
	FS
	mu    sync.Mutex
	first *pending // operations under way, in the order of their start
	last  *pending
	free  *pending
}

// Watch returns fsys with its operations tracked.
func Watch(fsys FS) *Watched { return &Watched{FS: fsys} }

// pending is an operation in one of the two lists of a Watched.
type pending struct {
	Operation
	before, after *pending
}

// reads is the Op of File.ReadAt.
const reads = "read"

// Oldest returns the read and the other operation that have been under way the longest, or zero
// Operations. They are separate because a drive may retry one bad sector for tens of seconds while
// everything else works.
func (w *Watched) Oldest() (read, other Operation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p := w.first; p != nil && (read.Op == "" || other.Op == ""); p = p.after {
		switch {
		case p.Op != reads && other.Op == "":
			other = p.Operation
		case p.Op == reads && read.Op == "":
			read = p.Operation
		}
	}
	return read, other
}

func (w *Watched) begin(op, path string) *pending {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.free
	if p == nil {
		p = new(pending)
	} else {
		w.free = p.after
	}
	*p = pending{Operation: Operation{op, path, time.Now()}, before: w.last}
	if w.last == nil {
		w.first = p
	} else {
		w.last.after = p
	}
	w.last = p
	return p
}

func (w *Watched) end(p *pending) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.before == nil {
		w.first = p.after
	} else {
		p.before.after = p.after
	}
	if p.after == nil {
		w.last = p.before
	} else {
		p.after.before = p.before
	}
	*p = pending{after: w.free}
	w.free = p
}

// Create implements FS.
func (w *Watched) Create(path string) (File, error) {
	defer w.end(w.begin("create", path))
	f, err := w.FS.Create(path)
	return w.file(f, path, err)
}

// Open implements FS.
func (w *Watched) Open(path string) (File, error) {
	defer w.end(w.begin("open", path))
	f, err := w.FS.Open(path)
	return w.file(f, path, err)
}

func (w *Watched) file(f File, path string, err error) (File, error) {
	if err != nil {
		return nil, err
	}
	return &watchedFile{f, w, path}, nil
}

// MkdirAll implements FS.
func (w *Watched) MkdirAll(path string) error {
	defer w.end(w.begin("mkdir", path))
	return w.FS.MkdirAll(path)
}

// Rename implements FS.
func (w *Watched) Rename(from, to string) error {
	defer w.end(w.begin("rename", from))
	return w.FS.Rename(from, to)
}

// Remove implements FS.
func (w *Watched) Remove(path string) error {
	defer w.end(w.begin("remove", path))
	return w.FS.Remove(path)
}

// List implements FS.
func (w *Watched) List(dir string) ([]string, error) {
	defer w.end(w.begin("list", dir))
	return w.FS.List(dir)
}

// Stat implements FS.
func (w *Watched) Stat(path string) (FileInfo, error) {
	defer w.end(w.begin("stat", path))
	return w.FS.Stat(path)
}

// SyncDir implements FS.
func (w *Watched) SyncDir(dir string) error {
	defer w.end(w.begin("sync directory", dir))
	return w.FS.SyncDir(dir)
}

// OpenVolume implements FS.
func (w *Watched) OpenVolume(path string) (Volume, error) {
	defer w.end(w.begin("open file system", path))
	v, err := w.FS.OpenVolume(path)
	if err != nil {
		return nil, err
	}
	return &watchedVolume{v, w, path}, nil
}

// Free implements FS.
func (w *Watched) Free(path string) (uint64, error) {
	defer w.end(w.begin("statfs", path))
	return w.FS.Free(path)
}

// watchedFile is an open file of a Watched.
type watchedFile struct {
	File
	w    *Watched
	path string
}

func (f *watchedFile) ReadAt(p []byte, off int64) (int, error) {
	defer f.w.end(f.w.begin(reads, f.path))
	return f.File.ReadAt(p, off)
}

func (f *watchedFile) WriteAt(p []byte, off int64) (int, error) {
	defer f.w.end(f.w.begin("write", f.path))
	return f.File.WriteAt(p, off)
}

func (f *watchedFile) Preallocate(size int64) error {
	defer f.w.end(f.w.begin("preallocate", f.path))
	return f.File.Preallocate(size)
}

func (f *watchedFile) Truncate(size int64) error {
	defer f.w.end(f.w.begin("truncate", f.path))
	return f.File.Truncate(size)
}

func (f *watchedFile) Sync() error {
	defer f.w.end(f.w.begin("sync", f.path))
	return f.File.Sync()
}

func (f *watchedFile) Size() (int64, error) {
	defer f.w.end(f.w.begin("stat", f.path))
	return f.File.Size()
}

func (f *watchedFile) Close() error {
	defer f.w.end(f.w.begin("close", f.path))
	return f.File.Close()
}

// watchedVolume is an open file system of a Watched.
type watchedVolume struct {
	Volume
	w    *Watched
	path string
}

func (v *watchedVolume) Sync() error {
	defer v.w.end(v.w.begin("sync file system", v.path))
	return v.Volume.Sync()
}

func (v *watchedVolume) Close() error {
	defer v.w.end(v.w.begin("close", v.path))
	return v.Volume.Close()
}
