package log

import (
	"container/list"
	"sync"

	"github.com/carillon-mq/carillon/broker/env"
)

// handle is a segment's open file, shared by whoever uses it. All fields are guarded by handles.mu.
type handle struct {
	f     env.File
	users int
	idle  *list.Element // in handles.idle
	dirty bool          // written and not synced: closing it could lose what the kernel would say about it
	gone  bool          // the file was removed
}

// handles keeps the segment files that were used last open, and no more than keep of the idle ones.
type handles struct {
	fs   env.FS
	keep int

	mu   sync.Mutex
	idle *list.List // of *segment, the one used last at the front
}

// acquire returns the open file of s. release has to follow.
func (h *handles) acquire(s *segment) (env.File, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.handle.f == nil {
		f, err := h.fs.Open(s.path)
		if err != nil {
			return nil, err
		}
		s.handle.f = f
	}
	h.use(s)
	return s.handle.f, nil
}

// adopt makes f, just created, the file of s, and acquires it.
func (h *handles) adopt(s *segment, f env.File) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.handle.f = f
	h.use(s)
}

func (h *handles) use(s *segment) {
	s.handle.users++
	if s.handle.idle != nil {
		h.idle.Remove(s.handle.idle)
		s.handle.idle = nil
	}
}

func (h *handles) release(s *segment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.handle.users--
	if s.handle.users > 0 {
		return
	}
	if s.handle.gone {
		s.shut()
		return
	}
	s.handle.idle = h.idle.PushFront(s)
	for at := h.idle.Back(); at != nil && h.idle.Len() > h.keep; {
		oldest := at.Value.(*segment)
		at = at.Prev()
		if !oldest.handle.dirty {
			h.idle.Remove(oldest.handle.idle)
			oldest.shut()
		}
	}
}

// shut closes the file. A close that fails after what was written was synced has nothing to lose.
func (s *segment) shut() {
	if s.handle.f != nil {
		_ = s.handle.f.Close()
	}
	s.handle.f, s.handle.idle = nil, nil
	s.lookup.Store(nil)
}

func (h *handles) setDirty(s *segment, dirty bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.handle.dirty = dirty
}

// forget closes the file of s as soon as nobody uses it.
func (h *handles) forget(s *segment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.handle.gone, s.handle.dirty = true, false
	if s.handle.users == 0 {
		if s.handle.idle != nil {
			h.idle.Remove(s.handle.idle)
		}
		s.shut()
	}
}
