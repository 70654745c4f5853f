package log

import (
	"container/list"
	"sync"

	"github.com/carillon-mq/carillon/broker/env"
)

// handle is a segment's open file, shared by its users. All fields are guarded by handles.mu.
type handle struct {
	f     env.File
	users int
	place *list.Element // in handles.open
	// dirty means that the file was written and not synced: closing it could lose a write-back
	// error.
	dirty bool
	gone  bool // the file was removed
}

// handles keeps the most recently used segment files open: keep of them, or more if more are in use
// or not synced.
type handles struct {
	fs    env.FS
	keep  int
	cache blockCache

	mu   sync.Mutex
	open *list.List // of *segment, the one used last at the front
}

// acquire returns the open file of s. release has to follow.
func (h *handles) acquire(s *segment) (env.File, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.handle.f == nil {
		f, err := openSegment(h.fs, s.path, &h.cache)
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
	if s.handle.place == nil {
		s.handle.place = h.open.PushFront(s)
	} else {
		h.open.MoveToFront(s.handle.place)
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
		h.shut(s)
		return
	}
	steps := 0
	for at := h.open.Back(); at != nil && h.open.Len() > h.keep && steps < evictSteps; steps++ {
		oldest := at.Value.(*segment)
		at = at.Prev()
		if !oldest.handle.dirty && oldest.handle.users == 0 {
			h.shut(oldest)
		}
	}
}

// evictSteps bounds the search for a file that can be closed.
const evictSteps = 32

// idleDirty acquires and returns some of the unused files that exceed keep and can't be closed
// because they are not synced.
func (h *handles) idleDirty() []*segment {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []*segment
	at := h.open.Back()
	for steps := 0; at != nil && h.open.Len()-len(out) > h.keep && steps < evictSteps; steps++ {
		s := at.Value.(*segment)
		at = at.Prev()
		if s.handle.dirty && s.handle.users == 0 {
			h.use(s)
			out = append(out, s)
		}
	}
	return out
}

// shut closes the file. Its bytes are synced, so an error of the close is ignored.
func (h *handles) shut(s *segment) {
	if s.handle.f != nil {
		_ = s.handle.f.Close()
		h.open.Remove(s.handle.place)
	}
	s.handle.f, s.handle.place = nil, nil
	s.lookup.Store(nil)
}

func (h *handles) setDirty(s *segment, dirty bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.handle.dirty = dirty
}

// forget closes the file of s once it has no users.
func (h *handles) forget(s *segment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.handle.gone, s.handle.dirty = true, false
	if s.handle.users == 0 {
		h.shut(s)
	}
}
