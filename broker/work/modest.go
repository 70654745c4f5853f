package work

import (
	"context"
	"sync"
	"time"
)

const (
	// restAfter is the work after which there is a rest. Shorter rests would be inexact.
	restAfter = time.Millisecond
	// maxRest bounds a rest, and mostRest does by the work before it: on a machine that is always busy
	// work takes five times as long, and what waits for it is not kept waiting until nobody wants it.
	maxRest  = 100 * time.Millisecond
	mostRest = 4
	// lateRest is the delay of a rest's end that says that processors are wanted elsewhere. On an idle
	// machine the delay is a tenth of that.
	lateRest = time.Millisecond
)

// Modest has work that takes a processor for long give way to messages, each of which crosses some
// goroutines. Who has worked rests as long as that took, and longer while rests end late: then
// goroutines wait for processors. The zero Modest is ready. It is safe for concurrent use: its
// users give way together.
type Modest struct {
	mu    sync.Mutex
	owed  time.Duration // work since the last rest
	extra time.Duration // by which rests are longer
}

// Rest is called behind work that took so long. It returns after the rest, if one is due, or when
// ctx ends.
func (m *Modest) Rest(ctx context.Context, worked time.Duration) {
	rest := m.due(worked)
	if rest == 0 {
		return
	}
	began := time.Now()
	if Sleep(ctx, rest) {
		m.rested(rest, time.Since(began)-rest)
	}
}

// due returns how long to rest after work, or 0.
func (m *Modest) due(worked time.Duration) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.owed += worked; m.owed < restAfter {
		return 0
	}
	rest := min(m.owed+m.extra, mostRest*m.owed, maxRest)
	m.owed = 0
	return rest
}

// rested notes that a rest ended late. Rests grow at once, and shrink slowly.
func (m *Modest) rested(rest, late time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if late >= lateRest {
		m.extra = min(max(2*m.extra, 4*rest), maxRest)
	} else {
		m.extra -= m.extra / 8
	}
}
