package log

import "sync"

// blockCache keeps the blocks that were decompressed last, so that reading a compressed segment in
// order decompresses each block once, however small the reads are.
type blockCache struct {
	mu     sync.Mutex
	blocks []*cachedBlock
	clock  uint64
}

// cachedBlocks bounds them: with blocks of 128 KiB, 4 MiB for a disk.
const cachedBlocks = 32

type cachedBlock struct {
	// Guarded by the cache's mu.
	owner *compressed
	n     int
	users int
	used  uint64

	mu   sync.Mutex
	full bool
	data []byte
}

// read copies the content of block n of c, from a position within the block on, to p.
func (k *blockCache) read(c *compressed, n int, p []byte, from int) (int, error) {
	b := k.take(c, n)
	defer k.leave(b)
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.full {
		var err error
		if b.data, err = c.load(n, b.data); err != nil {
			return 0, err
		}
		b.full = true
	}
	return copy(p, b.data[from:]), nil
}

// take returns the cached block, or a free place for it. While all places are in use, it returns a
// place outside of the cache.
func (k *blockCache) take(c *compressed, n int) *cachedBlock {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.clock++
	var oldest *cachedBlock
	for _, b := range k.blocks {
		if b.owner == c && b.n == n {
			b.users++
			b.used = k.clock
			return b
		}
		if b.users == 0 && (oldest == nil || b.used < oldest.used) {
			oldest = b
		}
	}
	if len(k.blocks) < cachedBlocks && (oldest == nil || oldest.owner != nil) {
		oldest = &cachedBlock{}
		k.blocks = append(k.blocks, oldest)
	}
	if oldest == nil {
		oldest = &cachedBlock{}
	}
	oldest.owner, oldest.n, oldest.users, oldest.used, oldest.full = c, n, 1, k.clock, false
	return oldest
}

func (k *blockCache) leave(b *cachedBlock) {
	k.mu.Lock()
	defer k.mu.Unlock()
	b.users--
}

// drop removes the blocks of a file that is no longer read.
func (k *blockCache) drop(c *compressed) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, b := range k.blocks {
		if b.owner == c {
			b.owner, b.used = nil, 0
		}
	}
}
