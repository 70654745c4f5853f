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

// ErrCrashed is what every operation returns once the process is dead.
var ErrCrashed = errors.New("the process has crashed")

// ShortWrite, returned by a Hook for a write, lets the first N bytes through and fails with Err.
type ShortWrite struct {
	N   int
	Err error
}

func (s *ShortWrite) Error() string { return s.Err.Error() }

// Op is an operation about to happen.
type Op struct {
	Kind string // create, open, mkdir, rename, remove, list, stat, syncdir, syncall, free, read, write, preallocate, truncate, sync
	Path string
	Off  int64
	Len  int
}

// Changes says whether the operation changes what is on the disk, or what is safe there.
func (o Op) Changes() bool {
	return !slices.Contains([]string{"open", "list", "stat", "free", "read"}, o.Kind)
}

// FS is the file system. Set the exported fields before it is used, or by SetHook.
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
	failures failures // of write-back, of all files
}

// failures counts failed write-backs, as the kernel's errseq_t does.
type failures struct {
	n    int
	seen bool // somebody was told of the last one
}

func (e *failures) add() { *e = failures{n: e.n + 1} }

// sample is what a descriptor that is opened now has been told.
func (e *failures) sample() int {
	if e.n > 0 && !e.seen {
		return e.n - 1
	}
	return e.n
}

// report says whether there was a failure since told, and notes that it was reported.
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
	names   map[string]*node // what is visible
	safe    map[string]*node // what a crash keeps for certain
	data    []byte           // what is visible
	durable []byte
	pending []fileOp

	failures failures // of write-back
}

// fileOp is a write at off, or a new length if data is nil.
type fileOp struct {
	off  int64
	data []byte
}

// change is one step in the name space: a name that now means to, and for a move also one that is gone.
type change struct {
	dir  *node
	name string
	to   *node
	from *node // the directory that it left
	old  string
}

// New returns an empty file system.
func New() *FS {
	return &FS{root: newDir(), stopAt: -1, syncAll: true}
}

func newDir() *node {
	return &node{dir: true, names: map[string]*node{}, safe: map[string]*node{}}
}

// SetHook sets what sees every operation before it happens; its error becomes the operation's.
func (f *FS) SetHook(hook func(Op) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = hook
}

// SetCapacity bounds the bytes that all files may hold; 0 is no bound.
func (f *FS) SetCapacity(bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.capacity = bytes
}

// Used is how many bytes all files hold.
func (f *FS) Used() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.used
}

// Snapshot returns a file system with what is visible now, all of it durable: a copy of a volume, to go back to later.
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

// WithoutSyncAll makes the file system one that has no syncfs.
func (f *FS) WithoutSyncAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.syncAll = false
}

// StopAfter lets n more changing operations happen; the one after them and all others find the
// process dead.
func (f *FS) StopAfter(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopAt = f.changes + n
}

// Changes is how many changing operations happened.
func (f *FS) Changes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changes
}

// begin admits an operation. It returns with mu held if there is no error.
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
			return err // with mu held: there is something left to do
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

// Create makes a file.
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

// Open opens a file.
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

// MkdirAll makes a directory and those above it.
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

// Rename moves a file or a directory.
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

// Remove deletes a file or an empty directory.
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

// List returns the names in a directory.
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

// Stat says how large a file is.
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

// SyncDir makes the names in a directory durable.
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
	told int // of the file system's failures
}

// OpenVolume opens the file system for syncing all of it.
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

// FailWriteBack lets the kernel fail to write what a file has that is not synced: the bytes stay
// visible and are clean. The next sync of whoever had the file or a volume open says so.
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

// DropCache forgets all clean pages: what failed syncs and write-back have lost is not visible any more.
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

// Free says how much of the capacity is left.
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

// Flip inverts one bit of a file, on the disk and for who reads it.
func (f *FS) Flip(path string, bit int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.find(path)
	if n == nil || bit/8 >= int64(len(n.data)) {
		return fail(Op{Kind: "flip", Path: path}, io.EOF)
	}
	n.data = slices.Clone(n.data)
	n.data[bit/8] ^= 1 << (bit % 8)
	if bit/8 < int64(len(n.durable)) {
		n.durable = slices.Clone(n.durable)
		n.durable[bit/8] ^= 1 << (bit % 8)
	}
	return nil
}

// Kill ends the process and returns the file system as the next one finds it: all that was written is
// visible, and what was not synced is as unsafe as it was.
func (f *FS) Kill() *FS {
	f.mu.Lock()
	f.stopped = true
	f.mu.Unlock()
	return f.Clone()
}

// Clone returns what Kill would. The process lives on, and the two file systems share nothing.
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

// Crash cuts the power and returns the file system as it is found afterwards; rng decides what
// survives of what was not synced. The old one is dead, and may be crashed again with other dice.
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
