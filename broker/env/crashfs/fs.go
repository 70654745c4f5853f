package crashfs

import (
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/carillon-mq/carillon/broker/env"
)

// ErrCrashed is the error of every operation after the crash.
var ErrCrashed = errors.New("the process has crashed")

// ShortWrite, returned by a Hook for a write, writes the first N bytes and fails with Err.
type ShortWrite struct {
	N   int
	Err error
}

func (s *ShortWrite) Error() string { return s.Err.Error() }

// Op is an operation about to run.
type Op struct {
	// Kind is one of create, open, mkdir, rename, remove, list, stat, syncdir, syncall, free, read,
	// write, preallocate, truncate and sync.
	Kind string
	Path string
	Off  int64
	Len  int
}

// Changes reports whether the operation changes the content of the disk or its durability.
func (o Op) Changes() bool {
	return !slices.Contains([]string{"open", "list", "stat", "free", "read"}, o.Kind)
}

// FS is the file system. It is safe for concurrent use.
type FS struct {
	mu       sync.Mutex
	root     *node
	renames  []*change // of all directories, oldest first
	hook     func(Op) error
	changes  int
	stopAt   int
	stopped  bool
	capacity int64
	used     int64
	syncAll  bool
	failures failures // of write-back, over all files
}

// failures counts failed write-backs, as the kernel's errseq_t does.
type failures struct {
	n    int
	seen bool // the last one was reported
}

func (e *failures) add() { *e = failures{n: e.n + 1} }

// sample returns the number of failures that a new descriptor counts as reported.
func (e *failures) sample() int {
	if e.n > 0 && !e.seen {
		return e.n - 1
	}
	return e.n
}

// report reports whether there was a failure since told, and marks it as reported.
func (e *failures) report(told *int) bool {
	if *told == e.n {
		return false
	}
	*told, e.seen = e.n, true
	return true
}

// node is a file or a directory.
type node struct {
	dir     bool
	names   map[string]*node // visible
	safe    map[string]*node // certain to survive a crash
	data    []byte           // visible
	durable []byte
	pending []fileOp

	failures failures // of write-back
}

// fileOp is a write at off, or a new length if data is nil.
type fileOp struct {
	off  int64
	data []byte
}

// change is one change of a name: it now refers to the node to. A move also removes an old name.
type change struct {
	dir  *node
	name string
	to   *node
	from *node // the directory of the old name
	old  string
}

// New returns an empty file system.
func New() *FS {
	return &FS{root: newDir(), stopAt: -1, syncAll: true}
}

func newDir() *node {
	return &node{dir: true, names: map[string]*node{}, safe: map[string]*node{}}
}

// SetHook sets the function that is called before every operation. Its error becomes the
// operation's.
func (f *FS) SetHook(hook func(Op) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = hook
}

// SetCapacity bounds the bytes of all files; 0: no bound.
func (f *FS) SetCapacity(bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.capacity = bytes
}

// Used returns the bytes of all files.
func (f *FS) Used() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.used
}

// Snapshot returns a file system with what is visible now, all of it durable, as a copy of a volume
// to restore later.
func (f *FS) Snapshot() *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	other := New()
	other.capacity, other.syncAll, other.used = f.capacity, f.syncAll, f.used
	other.root = f.root.snapshot()
	return other
}

func (n *node) snapshot() *node {
	if !n.dir {
		return &node{data: slices.Clone(n.data), durable: slices.Clone(n.data)}
	}
	dir := newDir()
	for name, child := range n.names {
		copied := child.snapshot()
		dir.names[name], dir.safe[name] = copied, copied
	}
	return dir
}

// WithoutSyncAll makes OpenVolume fail, as on a system without syncfs.
func (f *FS) WithoutSyncAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.syncAll = false
}

// StopAfter crashes the process after n more changing operations.
func (f *FS) StopAfter(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopAt = f.changes + n
}

// Changes returns the number of changing operations so far.
func (f *FS) Changes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changes
}

// begin starts an operation. Without an error it returns with mu held.
func (f *FS) begin(op Op) error {
	f.mu.Lock()
	hook := f.hook
	f.mu.Unlock()
	var err error
	if hook != nil {
		err = hook(op)
	}
	f.mu.Lock()
	if f.stopped || f.stopAt >= 0 && op.Changes() && f.changes >= f.stopAt {
		f.stopped = true
		f.mu.Unlock()
		return fail(op, ErrCrashed)
	}
	if err != nil {
		if short := (*ShortWrite)(nil); errors.As(err, &short) || op.Kind == "sync" || op.Kind == "syncall" {
			return err // with mu held: a part of the operation is still to be done
		}
		f.mu.Unlock()
		return fail(op, err)
	}
	if op.Changes() {
		f.changes++
	}
	return nil
}

func fail(op Op, err error) error { return &env.DiskError{Op: op.Kind, Path: op.Path, Err: err} }

// find returns the node at path, or nil. mu is held.
func (f *FS) find(path string) *node {
	at := f.root
	for _, name := range strings.Split(filepath.ToSlash(filepath.Clean(path)), "/") {
		if name == "" || name == "." {
			continue
		}
		if at == nil || !at.dir {
			return nil
		}
		at = at.names[name]
	}
	return at
}

func (f *FS) parent(path string) (*node, string) {
	return f.find(filepath.Dir(path)), filepath.Base(path)
}

func (f *FS) change(c *change) {
	if c.from != nil {
		delete(c.from.names, c.old)
	}
	set(c.dir.names, c.name, c.to)
	f.renames = append(f.renames, c)
}

func set(names map[string]*node, name string, to *node) {
	if to == nil {
		delete(names, name)
		return
	}
	names[name] = to
}

func (c *change) settle() {
	if c.from != nil {
		delete(c.from.safe, c.old)
	}
	set(c.dir.safe, c.name, c.to)
}

// Create implements env.FS.
func (f *FS) Create(path string) (env.File, error) {
	op := Op{Kind: "create", Path: path}
	if err := f.begin(op); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	dir, name := f.parent(path)
	if dir == nil || !dir.dir {
		return nil, fail(op, syscall.ENOENT)
	}
	if dir.names[name] != nil {
		return nil, fail(op, syscall.EEXIST)
	}
	n := &node{}
	f.change(&change{dir: dir, name: name, to: n})
	return &file{fs: f, n: n, path: path}, nil
}

// Open implements env.FS.
func (f *FS) Open(path string) (env.File, error) {
	op := Op{Kind: "open", Path: path}
	if err := f.begin(op); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	n := f.find(path)
	if n == nil {
		return nil, fail(op, syscall.ENOENT)
	}
	if n.dir {
		return nil, fail(op, syscall.EISDIR)
	}
	return &file{fs: f, n: n, path: path, told: n.failures.sample()}, nil
}

// MkdirAll implements env.FS.
func (f *FS) MkdirAll(path string) error {
	op := Op{Kind: "mkdir", Path: path}
	if err := f.begin(op); err != nil {
		return err
	}
	defer f.mu.Unlock()
	at := f.root
	for _, name := range strings.Split(filepath.ToSlash(filepath.Clean(path)), "/") {
		if name == "" || name == "." {
			continue
		}
		next := at.names[name]
		if next == nil {
			next = newDir()
			f.change(&change{dir: at, name: name, to: next})
		}
		if !next.dir {
			return fail(op, syscall.ENOTDIR)
		}
		at = next
	}
	return nil
}

// Rename implements env.FS.
func (f *FS) Rename(from, to string) error {
	op := Op{Kind: "rename", Path: from}
	if err := f.begin(op); err != nil {
		return err
	}
	defer f.mu.Unlock()
	src, old := f.parent(from)
	dst, name := f.parent(to)
	if src == nil || dst == nil || src.names[old] == nil {
		return fail(op, syscall.ENOENT)
	}
	if over := dst.names[name]; over != nil {
		if over.dir {
			return fail(op, syscall.EEXIST)
		}
		f.used -= int64(len(over.data))
	}
	f.change(&change{dir: dst, name: name, to: src.names[old], from: src, old: old})
	return nil
}

// Remove implements env.FS.
func (f *FS) Remove(path string) error {
	op := Op{Kind: "remove", Path: path}
	if err := f.begin(op); err != nil {
		return err
	}
	defer f.mu.Unlock()
	dir, name := f.parent(path)
	if dir == nil || dir.names[name] == nil {
		return fail(op, syscall.ENOENT)
	}
	n := dir.names[name]
	if len(n.names) > 0 {
		return fail(op, syscall.ENOTEMPTY)
	}
	f.used -= int64(len(n.data))
	f.change(&change{dir: dir, name: name})
	return nil
}

// List implements env.FS.
func (f *FS) List(dir string) ([]string, error) {
	op := Op{Kind: "list", Path: dir}
	if err := f.begin(op); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	n := f.find(dir)
	if n == nil || !n.dir {
		return nil, fail(op, syscall.ENOENT)
	}
	names := make([]string, 0, len(n.names))
	for name := range n.names {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// Stat implements env.FS.
func (f *FS) Stat(path string) (env.FileInfo, error) {
	op := Op{Kind: "stat", Path: path}
	if err := f.begin(op); err != nil {
		return env.FileInfo{}, err
	}
	defer f.mu.Unlock()
	n := f.find(path)
	if n == nil {
		return env.FileInfo{}, fail(op, fs.ErrNotExist)
	}
	return env.FileInfo{Size: int64(len(n.data)), Dir: n.dir}, nil
}

// SyncDir implements env.FS.
func (f *FS) SyncDir(dir string) error {
	op := Op{Kind: "syncdir", Path: dir}
	if err := f.begin(op); err != nil {
		return err
	}
	defer f.mu.Unlock()
	n := f.find(dir)
	if n == nil || !n.dir {
		return fail(op, syscall.ENOENT)
	}
	f.settle(func(c *change) bool { return c.dir == n })
	return nil
}

func (f *FS) settle(which func(*change) bool) {
	f.renames = slices.DeleteFunc(f.renames, func(c *change) bool {
		if !which(c) {
			return false
		}
		c.settle()
		return true
	})
}

type volume struct {
	fs   *FS
	path string
	told int // failures of the file system that this descriptor has reported
}

// OpenVolume implements env.FS.
func (f *FS) OpenVolume(path string) (env.Volume, error) {
	op := Op{Kind: "open", Path: path}
	if err := f.begin(op); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	if f.find(path) == nil {
		return nil, fail(op, syscall.ENOENT)
	}
	return &volume{fs: f, path: path, told: f.failures.sample()}, nil
}

func (v *volume) Close() error { return nil }

// Sync makes everything durable.
func (v *volume) Sync() error {
	f, op := v.fs, Op{Kind: "syncall", Path: v.path}
	err := f.begin(op)
	if errors.Is(err, ErrCrashed) {
		return err
	}
	defer f.mu.Unlock()
	if !f.syncAll {
		return fail(op, errors.ErrUnsupported)
	}
	if f.failures.report(&v.told) && err == nil {
		err = syscall.EIO
	}
	f.walk(f.root, func(n *node) { n.written(err) })
	if err != nil {
		return fail(op, err)
	}
	f.settle(func(*change) bool { return true })
	return nil
}

// FailWriteBack makes the kernel fail to write the unsynced data of a file: the bytes stay visible
// and count as clean. The next sync of each file or volume that was open reports it.
func (f *FS) FailWriteBack(path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.find(path)
	if n == nil || n.dir {
		return fail(Op{Kind: "write back", Path: path}, syscall.ENOENT)
	}
	n.written(syscall.EIO)
	n.failures.add()
	f.failures.add()
	return nil
}

// DropCache drops all clean pages, so that what failed syncs and write-back have lost is not
// visible any more.
func (f *FS) DropCache() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.walk(f.root, func(n *node) {
		before := len(n.data)
		n.data = apply(slices.Clone(n.durable), n.pending)
		f.used += int64(len(n.data) - before)
	})
}

func (f *FS) walk(n *node, visit func(*node)) {
	if !n.dir {
		visit(n)
	}
	for _, child := range n.names {
		f.walk(child, visit)
	}
}

// Free implements env.FS.
func (f *FS) Free(path string) (uint64, error) {
	if err := f.begin(Op{Kind: "free", Path: path}); err != nil {
		return 0, err
	}
	defer f.mu.Unlock()
	if f.capacity == 0 {
		return 1 << 40, nil
	}
	return uint64(max(f.capacity-f.used, 0)), nil
}

// Flip inverts one bit of a file, on the disk and in the cache.
func (f *FS) Flip(path string, bit int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.find(path)
	if n == nil || bit/8 >= int64(len(n.data)) {
		return fail(Op{Kind: "flip", Path: path}, io.EOF)
	}
	n.flip(bit)
	return nil
}

// FlipPayload inverts a bit of the first 16 equal bytes, other than zeros, at or behind an offset.
// Tests write such payloads, and what a log writes around them holds no such bytes: so this is
// damage to a record, and not to a marker.
func (f *FS) FlipPayload(path string, from int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.find(path); n != nil {
		for at, equal := from, 0; at+1 < int64(len(n.data)); at++ {
			if n.data[at] == 0 || n.data[at] != n.data[at+1] {
				equal = 0
			} else if equal++; equal == 15 {
				n.flip(at * 8)
				return nil
			}
		}
	}
	return fail(Op{Kind: "flip", Path: path}, io.EOF)
}

// flip inverts a bit. The file system's mu is held.
func (n *node) flip(bit int64) {
	n.data = slices.Clone(n.data)
	n.data[bit/8] ^= 1 << (bit % 8)
	if bit/8 < int64(len(n.durable)) {
		n.durable = slices.Clone(n.durable)
		n.durable[bit/8] ^= 1 << (bit % 8)
	}
}

// Kill ends the process and returns the file system as the next process finds it: everything
// written is visible, and what was not synced is not durable still.
func (f *FS) Kill() *FS {
	f.mu.Lock()
	f.stopped = true
	f.mu.Unlock()
	return f.Clone()
}

// Clone returns what Kill would, without ending the process. The two file systems share nothing.
func (f *FS) Clone() *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	after := New()
	after.capacity, after.syncAll, after.used, after.failures = f.capacity, f.syncAll, f.used, f.failures
	nodes := map[*node]*node{}
	var again func(n *node) *node
	again = func(n *node) *node {
		if n == nil || nodes[n] != nil {
			return nodes[n]
		}
		next := &node{dir: n.dir, data: slices.Clone(n.data), durable: slices.Clone(n.durable), pending: slices.Clone(n.pending), failures: n.failures}
		nodes[n] = next
		if n.dir {
			next.names, next.safe = map[string]*node{}, map[string]*node{}
			for name, child := range n.names {
				next.names[name] = again(child)
			}
			for name, child := range n.safe {
				next.safe[name] = again(child)
			}
		}
		return next
	}
	after.root = again(f.root)
	for _, c := range f.renames {
		after.renames = append(after.renames, &change{dir: again(c.dir), name: c.name, to: again(c.to), from: again(c.from), old: c.old})
	}
	return after
}

// Crash cuts the power and returns the file system as found afterwards. rng decides what survives
// of what was not synced. The old file system has ended, and may be crashed again with another rng.
func (f *FS) Crash(rng *rand.Rand) *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopped = true
	keep := []float64{0, 1, 0.5, rng.Float64()}[rng.IntN(4)]
	names := map[*node]map[string]*node{}
	var copySafe func(n *node)
	copySafe = func(n *node) {
		if !n.dir || names[n] != nil {
			return
		}
		m := map[string]*node{}
		names[n] = m
		for name, child := range n.safe {
			m[name] = child
			copySafe(child)
		}
	}
	copySafe(f.root)
	for _, c := range f.renames {
		if rng.Float64() >= keep {
			continue
		}
		copySafe(c.dir)
		if c.from != nil {
			copySafe(c.from)
			delete(names[c.from], c.old)
		}
		if c.to != nil {
			copySafe(c.to)
		}
		set(names[c.dir], c.name, c.to)
	}
	after := New()
	after.capacity, after.syncAll = f.capacity, f.syncAll
	after.root = after.revive(f.root, names, rng)
	return after
}

func (f *FS) revive(n *node, names map[*node]map[string]*node, rng *rand.Rand) *node {
	if !n.dir {
		data := survive(n.durable, n.pending, rng)
		f.used += int64(len(data))
		return &node{data: data, durable: slices.Clone(data)}
	}
	dir := newDir()
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range names[n] {
			if !yield(name) {
				return
			}
		}
	}) {
		child := f.revive(names[n][name], names, rng)
		dir.names[name], dir.safe[name] = child, child
	}
	return dir
}
