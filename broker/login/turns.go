package login

import (
	"context"
	"slices"
	"sync"
)

// turns bounds how many callers compute at a time. Addresses take turns, and each address has its
// own callers wait in the order of their arrival.
type turns struct {
	mu      sync.Mutex
	free    int
	waiting []*address // in the order of their turns
}

// address is the callers that wait from one address.
type address struct {
	name    string
	callers []chan struct{}
}

// take waits for a turn. It reports false if ctx ended before.
func (t *turns) take(ctx context.Context, from string) bool {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return true
	}
	turn := make(chan struct{})
	i := slices.IndexFunc(t.waiting, func(a *address) bool { return a.name == from })
	if i < 0 {
		i = len(t.waiting)
		t.waiting = append(t.waiting, &address{name: from})
	}
	t.waiting[i].callers = append(t.waiting[i].callers, turn)
	t.mu.Unlock()
	select {
	case <-turn:
		return true
	case <-ctx.Done():
	}
	t.mu.Lock()
	for i, a := range t.waiting {
		if at := slices.Index(a.callers, turn); at >= 0 {
			if a.callers = slices.Delete(a.callers, at, at+1); len(a.callers) == 0 {
				t.waiting = slices.Delete(t.waiting, i, i+1)
			}
			t.mu.Unlock()
			return false
		}
	}
	t.mu.Unlock()
	t.leave() // the turn came at the same moment
	return false
}

// leave ends a turn, and gives it to the next address.
func (t *turns) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) == 0 {
		t.free++
		return
	}
	next := t.waiting[0]
	t.waiting = t.waiting[1:]
	close(next.callers[0])
	if next.callers = next.callers[1:]; len(next.callers) > 0 {
		t.waiting = append(t.waiting, next)
	}
}
