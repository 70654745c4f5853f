package sender

import "sync"

// Waiting has the senders whose messages wait for a shard: it is not open here, or looks something
// up. The zero Waiting has none.
type Waiting struct {
	mu      sync.Mutex
	senders []Back
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
