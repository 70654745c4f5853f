package work

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Watchers are functions that want to be called when something has changed. The zero Watchers are
// none. Goroutines may share them.
type Watchers struct {
	all atomic.Pointer[[]*func()] // replaced as a whole, under mu
	mu  sync.Mutex
}

// Watch has changed called after each change until stop, and perhaps once more. changed must not
// block.
func (w *Watchers) Watch(changed func()) (stop func()) {
	one := &changed
	w.set(func(all []*func()) []*func() { return append(all, one) })
	return func() {
		w.set(func(all []*func()) []*func() {
			return slices.DeleteFunc(all, func(other *func()) bool { return other == one })
		})
	}
}

func (w *Watchers) set(change func([]*func()) []*func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []*func()
	if now := w.all.Load(); now != nil {
		all = slices.Clone(*now)
	}
	all = change(all)
	w.all.Store(&all)
}

// Call calls all of them.
func (w *Watchers) Call() {
	if all := w.all.Load(); all != nil {
		for _, changed := range *all {
			(*changed)()
		}
	}
}
