package sender

import (
	"sync"
	"time"
)

// Waiting has the senders whose messages wait for a shard: it is not open here, or looks something
// up. The zero Waiting has none.
type Waiting struct {
	mu      sync.Mutex
	senders []Back
	due     time.Time // the end of the pause that ReadySoon began last
}

// Add adds a sender, once.
func (w *Waiting) Add(b Back) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.senders {
		if w.senders[i].Same(b) {
			w.senders[i] = b
			return
		}
	}
	w.senders = append(w.senders, b)
}

// Ready has the senders send again, and removes them.
func (w *Waiting) Ready(id ID) {
	w.mu.Lock()
	away := w.senders
	w.senders = nil
	w.mu.Unlock()
	for i := range away {
		away[i].Ready(id)
	}
}

// ReadySoon is Ready after a pause. Calls during the pause are one: however often senders ask
// meanwhile, they send again once.
func (w *Waiting) ReadySoon(pause time.Duration, at func() ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if now.Before(w.due) {
		return
	}
	w.due = now.Add(pause)
	time.AfterFunc(pause, func() { w.Ready(at()) })
}
