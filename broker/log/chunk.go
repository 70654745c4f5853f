package log

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

// chunk is a piece of memory that batches are encoded into, once: the disk, followers and tail
// readers all see these bytes. It holds no pointers, so the garbage collector never looks inside.
// Bytes are only appended, so readers may hold the earlier ones.
type chunk struct {
	refs  atomic.Int32
	class int
	buf   []byte
	size  int64 // of its memory

	// Guarded by the log's mu.
	id      uint64 // counts up within the log
	first   uint64 // offset of the first record in it
	end     uint64
	written uint64 // records below are in the file
	kept    bool   // counted among the disk's tails
	// index has where some of the batches begin. Like the bytes it only grows.
	index []indexEntry
}

// Chunks come in powers of two, from smallestChunk up.
const (
	smallestChunk = 4 << 10
	usualChunk    = 1 << 20
	// indexedEvery is how many bytes of a chunk a reader of one record passes at most to find it. A
	// chunk of the usual size has an index of 4 KiB.
	indexedEvery = 4 << 10
)

var chunks [13]sync.Pool // 4 KiB << class, up to 16 MiB

func chunkClass(n int) int {
	if n <= smallestChunk {
		return 0
	}
	return bits.Len(uint(n-1)) - 12
}

// newChunk returns an empty chunk with room for n bytes and one reference.
func newChunk(n int) *chunk {
	class := chunkClass(n)
	if class >= len(chunks) {
		c := &chunk{class: -1, buf: make([]byte, 0, n), size: int64(n)}
		c.refs.Store(1)
		return c
	}
	c, _ := chunks[class].Get().(*chunk)
	if c == nil {
		c = &chunk{class: class, buf: make([]byte, 0, smallestChunk<<class), size: smallestChunk << class}
	}
	c.buf = c.buf[:0]
	c.index = c.index[:0]
	c.id, c.first, c.end, c.written, c.kept = 0, 0, 0, 0, false
	c.refs.Store(1)
	return c
}

// note indexes a batch that was appended, unless it is near the last one that is.
func (c *chunk) note(b Batch) {
	pos := int64(len(c.buf) - len(b))
	if n := len(c.index); n == 0 || pos-c.index[n-1].pos >= indexedEvery {
		c.index = append(c.index, indexEntry{offset: b.Base(), pos: pos})
	}
}

func (c *chunk) retain() { c.refs.Add(1) }

func (c *chunk) release() {
	if c.refs.Add(-1) == 0 && c.class >= 0 {
		chunks[c.class].Put(c)
	}
}
