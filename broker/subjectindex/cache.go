package subjectindex

import (
	"errors"
	"io/fs"
	"sync"
	"sync/atomic"

	"github.com/carillon-mq/carillon/broker/env"
)

// Cache holds the blocks of index files that were read last, and the files that are open. All
// shards of a disk share one. A block that was handed out stays valid for as long as it is
// referenced; it never changes.
type Cache struct {
	stripes [cacheStripes]stripe
	files   files
	ids     atomic.Uint64 // of runs
}

const cacheStripes = 16

// blockKey is where a block stands.
type blockKey struct {
	run uint64
	pos int64
}

// stripe is a part of the cache with its own lock, so that lookups of several shards don't wait for
// each other. It evicts with a clock: a block is passed over as often as it has chances, and gets
// them back when it is used. Filters and index blocks have more than data: each is used by many
// lookups.
type stripe struct {
	mu     sync.Mutex
	blocks map[blockKey]*cachedBlock
	clock  []*cachedBlock
	hand   int
	used   int
	budget int
}

type cachedBlock struct {
	key     blockKey
	data    []byte
	chances uint8
	most    uint8
}

// blockOverhead is about what a block takes beside its data.
const blockOverhead = 160

// Chances of blocks.
const (
	dataChances = 1
	metaChances = 3
)

// NewCache returns a cache for files of a file system. bytes is how much memory blocks may take; 0
// is CacheBytes.
func NewCache(fs env.FS, bytes int) *Cache {
	if bytes == 0 {
		bytes = CacheBytes
	}
	c := &Cache{files: files{disk: fs, keep: openFiles}}
	for i := range c.stripes {
		c.stripes[i].blocks, c.stripes[i].budget = map[blockKey]*cachedBlock{}, bytes/cacheStripes
	}
	return c
}

// Bytes returns how much memory the blocks take.
func (c *Cache) Bytes() (n int) {
	for i := range c.stripes {
		s := &c.stripes[i]
		s.mu.Lock()
		n += s.used
		s.mu.Unlock()
	}
	return n
}

func (c *Cache) stripeOf(k blockKey) *stripe {
	return &c.stripes[fold(k.run^0x9e3779b97f4a7c15, uint64(k.pos)^0xd6e8feb86659fd93)%cacheStripes]
}

// block returns a block of a run, from memory or from the file.
func (c *Cache) block(r *run, pos int64, size int, chances uint8) ([]byte, error) {
	key := blockKey{r.id, pos}
	s := c.stripeOf(key)
	s.mu.Lock()
	if b := s.blocks[key]; b != nil {
		b.chances = b.most
		data := b.data
		s.mu.Unlock()
		return data, nil
	}
	s.mu.Unlock()
	data, err := r.read(pos, size, nil)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.blocks[key]; b != nil {
		return b.data, nil
	}
	s.insert(&cachedBlock{key: key, data: data, chances: chances, most: chances})
	return data, nil
}

// insert adds a block, and evicts others for it. mu is held.
func (s *stripe) insert(b *cachedBlock) {
	need := len(b.data) + blockOverhead
	if need > s.budget {
		return
	}
	for s.used+need > s.budget {
		s.hand %= len(s.clock)
		old := s.clock[s.hand]
		if old.chances > 0 {
			old.chances--
			s.hand++
			continue
		}
		last := len(s.clock) - 1
		s.clock[s.hand] = s.clock[last]
		s.clock[last] = nil
		s.clock = s.clock[:last]
		delete(s.blocks, old.key)
		s.used -= len(old.data) + blockOverhead
	}
	s.blocks[b.key] = b
	s.clock = append(s.clock, b)
	s.used += need
}

// files keeps the files of runs open that were used last: keep of them, or as many as are in use.
type files struct {
	disk env.FS
	keep int

	mu   sync.Mutex
	open []*run
	hand int
}

// handle is the open file of a run. files.mu guards it.
type handle struct {
	f      env.File
	users  int
	recent bool
	over   bool // the run is not used any more
}

// acquire returns the open file of r. release has to follow.
func (h *files) acquire(r *run) (env.File, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.handle.f == nil {
		h.mu.Unlock()
		f, err := h.disk.Open(r.path)
		h.mu.Lock()
		if errors.Is(err, fs.ErrNotExist) { // the log deletes a file with its segment
			return nil, r.wrong(0, "the file is gone")
		}
		if err != nil {
			return nil, err
		}
		if r.handle.f == nil {
			r.handle.f = f
			h.open = append(h.open, r)
		} else {
			_ = f.Close() // it was only read
		}
	}
	r.handle.users++
	r.handle.recent = true
	h.evict()
	return r.handle.f, nil
}

func (h *files) release(r *run) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.handle.users--
	if r.handle.over && r.handle.users == 0 {
		h.shut(r)
	}
}

// forget closes the file of r as soon as nobody reads it.
func (h *files) forget(r *run) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.handle.over = true
	if r.handle.users == 0 {
		h.shut(r)
	}
}

// evict closes a file that was not used lately, if too many are open. mu is held.
func (h *files) evict() {
	for steps := 0; len(h.open) > h.keep && steps < 2*len(h.open); steps++ {
		h.hand %= len(h.open)
		r := h.open[h.hand]
		if r.handle.users > 0 || r.handle.recent {
			r.handle.recent = false
			h.hand++
			continue
		}
		h.remove(h.hand)
	}
}

func (h *files) shut(r *run) {
	for i := range h.open {
		if h.open[i] == r {
			h.remove(i)
			return
		}
	}
}

// remove closes the file at a place of open. It was only read, so closing it loses nothing.
func (h *files) remove(i int) {
	r := h.open[i]
	_ = r.handle.f.Close()
	r.handle.f = nil
	last := len(h.open) - 1
	h.open[i] = h.open[last]
	h.open[last] = nil
	h.open = h.open[:last]
}
