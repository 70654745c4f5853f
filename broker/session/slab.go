package session

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

// slab is a buffer that messages are read into and that they alias. It holds no pointers, so the
// garbage collector never scans it. It returns to its pool when the last reference is released.
type slab struct {
	refs  atomic.Int32
	class int
	buf   []byte
}

// Slabs have sizes of powers of two, from smallestSlab to largestSlab. A larger one is allocated
// when needed and not pooled.
const (
	smallestSlab = 1 << 10
	largestSlab  = 16 << 20
)

var slabs [15]sync.Pool // 1 KiB << class

func slabClass(n int) int {
	if n <= smallestSlab {
		return 0
	}
	return bits.Len(uint(n-1)) - 10
}

// slabSize returns the size of the slab that newSlab returns.
func slabSize(n int) int {
	if class := slabClass(n); class < len(slabs) {
		return smallestSlab << class
	}
	return n
}

// newSlab returns a slab of at least n bytes with one reference.
func newSlab(n int) *slab {
	class := slabClass(n)
	if class >= len(slabs) {
		s := &slab{class: -1, buf: make([]byte, n)}
		s.refs.Store(1)
		return s
	}
	s, _ := slabs[class].Get().(*slab)
	if s == nil {
		s = &slab{class: class, buf: make([]byte, smallestSlab<<class)}
	}
	s.refs.Store(1)
	return s
}

// Retain implements protocol.Memory.
func (s *slab) Retain() { s.refs.Add(1) }

// Release implements protocol.Memory.
func (s *slab) Release() {
	if s.refs.Add(-1) == 0 && s.class >= 0 {
		slabs[s.class].Put(s)
	}
}

// Size implements protocol.Memory.
func (s *slab) Size() int { return len(s.buf) }
