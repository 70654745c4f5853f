package crashfs

import (
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"syscall"
)

// sector is the unit that a disk writes atomically, in bytes.
const sector = 512

type file struct {
	fs   *FS
	n    *node
	path string
	told int // failures that this descriptor has reported
}

func (f *file) op(kind string, off int64, n int) Op {
	return Op{Kind: kind, Path: f.path, Off: off, Len: n}
}

func (f *file) ReadAt(p []byte, off int64) (int, error) {
	if err := f.fs.begin(f.op("read", off, len(p))); err != nil {
		return 0, err
	}
	defer f.fs.mu.Unlock()
	if off >= int64(len(f.n.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.n.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *file) WriteAt(p []byte, off int64) (int, error) {
	op := f.op("write", off, len(p))
	err := f.fs.begin(op)
	var short *ShortWrite
	switch {
	case errors.As(err, &short):
		p = p[:min(short.N, len(p))]
		err = short.Err
	case err != nil:
		return 0, err
	}
	defer f.fs.mu.Unlock()
	if grow := off + int64(len(p)) - int64(len(f.n.data)); grow > 0 && !f.fs.room(grow) {
		return 0, fail(op, syscall.ENOSPC)
	}
	if len(p) > 0 {
		f.change(fileOp{off: off, data: slices.Clone(p)})
	}
	if err != nil {
		return len(p), fail(op, err)
	}
	return len(p), nil
}

// room reports whether n more bytes fit the capacity. mu is held.
func (f *FS) room(n int64) bool {
	if f.capacity > 0 && f.used+n > f.capacity {
		return false
	}
	return true
}

func (f *file) change(op fileOp) {
	before := len(f.n.data)
	f.n.pending = append(f.n.pending, op)
	f.n.data = apply(f.n.data, []fileOp{op})
	f.fs.used += int64(len(f.n.data) - before)
}

func (f *file) resize(kind string, size int64, shrink bool) error {
	op := f.op(kind, size, 0)
	if err := f.fs.begin(op); err != nil {
		return err
	}
	defer f.fs.mu.Unlock()
	grow := size - int64(len(f.n.data))
	if grow > 0 && !f.fs.room(grow) {
		return fail(op, syscall.ENOSPC)
	}
	if grow > 0 || shrink && grow < 0 {
		f.change(fileOp{off: size})
	}
	return nil
}

func (f *file) Preallocate(size int64) error { return f.resize("preallocate", size, false) }

func (f *file) Truncate(size int64) error { return f.resize("truncate", size, true) }

func (f *file) Sync() error {
	op := f.op("sync", 0, 0)
	err := f.fs.begin(op)
	if errors.Is(err, ErrCrashed) {
		return err
	}
	defer f.fs.mu.Unlock()
	if f.n.failures.report(&f.told) && err == nil {
		err = syscall.EIO
	}
	f.n.written(err)
	if err != nil {
		return fail(op, err)
	}
	return nil
}

// written applies the result of a sync to a file.
func (n *node) written(err error) {
	if err == nil {
		n.durable, n.pending = apply(n.durable, n.pending), nil
		return
	}
	n.pending = slices.DeleteFunc(n.pending, func(op fileOp) bool { return op.data != nil })
}

func (f *file) Size() (int64, error) {
	if err := f.fs.begin(f.op("stat", 0, 0)); err != nil {
		return 0, err
	}
	defer f.fs.mu.Unlock()
	return int64(len(f.n.data)), nil
}

func (f *file) Close() error { return nil }

// apply applies ops in order. It may write into data.
func apply(data []byte, ops []fileOp) []byte {
	for _, op := range ops {
		end := op.off + int64(len(op.data))
		if op.data == nil && end < int64(len(data)) {
			data = data[:end:end]
			continue
		}
		if grow := end - int64(len(data)); grow > 0 {
			data = append(data, make([]byte, grow)...)
		}
		copy(data[op.off:], op.data)
	}
	return data
}

// survive returns the content of a file after a crash: each sector, and the length, as of some
// moment since the last sync.
func survive(durable []byte, ops []fileOp, rng *rand.Rand) []byte {
	if len(ops) == 0 {
		return slices.Clone(durable)
	}
	moment := func() int { return rng.IntN(len(ops) + 1) }
	switch fixed := moment(); rng.IntN(4) {
	case 0:
		moment = func() int { return 0 }
	case 1:
		moment = func() int { return len(ops) }
	case 2:
		moment = func() int { return fixed }
	}
	states := make([][]byte, len(ops)+1)
	states[0] = durable
	for i := range ops {
		states[i+1] = apply(slices.Clone(states[i]), ops[i:i+1])
	}
	out := make([]byte, len(states[moment()]))
	for at := 0; at < len(out); at += sector {
		if from := states[moment()]; at < len(from) {
			copy(out[at:min(at+sector, len(out))], from[at:])
		}
	}
	return out
}
