package session

import "sync/atomic"

// Watch knows whether a subject has subscribers. Its methods are safe for concurrent use.
type Watch struct {
	hub     *Hub
	of      watched
	changed func()
	present atomic.Bool
}

// watched are the subscriptions with exactly this pattern, in this queue group or, if it is empty,
// in none.
type watched struct{ pattern, queue string }

// Watch watches the subscriptions to exactly this subject, here and on linked brokers: those of the
// queue group, or those outside of groups if queue is empty. Subscriptions with wildcards do not
// count. changed is called after the first one began and after the last one ended. The index lock
// is held then, so changed must neither block nor call the Hub.
//
// nats-server counts the same for push consumers. So a Watch costs a map lookup when a subscription
// begins or ends, however many Watches there are.
func (h *Hub) Watch(subject, queue string, changed func()) *Watch {
	w := &Watch{hub: h, of: watched{subject, queue}, changed: changed}
	h.lock.Lock()
	defer h.lock.Unlock()
	if h.watches == nil {
		h.watches = make(map[watched][]*Watch)
	}
	h.watches[w.of] = append(h.watches[w.of], w)
	w.present.Store(h.subscribed(w.of))
	return w
}

// Present reports whether there is a subscription. It takes no lock.
func (w *Watch) Present() bool { return w.present.Load() }

// Stop ends the Watch. changed is not called after it returns.
func (w *Watch) Stop() {
	h := w.hub
	h.lock.Lock()
	defer h.lock.Unlock()
	all := h.watches[w.of]
	for i := range all {
		if all[i] == w {
			all[i] = all[len(all)-1]
			all[len(all)-1] = nil
			all = all[:len(all)-1]
			break
		}
	}
	if len(all) == 0 {
		delete(h.watches, w.of)
	} else {
		h.watches[w.of] = all
	}
}

// subscribed reports whether there is such a subscription. The index lock is held.
func (h *Hub) subscribed(of watched) bool {
	return h.index.Subscribed(of.pattern, of.queue, func(p *Peer) bool { return p.offer == nil })
}

// Subscribers returns how many connections of this broker are subscribed to exactly this subject,
// in the queue group or, if it is empty, in none.
func (h *Hub) Subscribers(subject, queue string) int {
	conns := map[*Conn]bool{}
	h.lock.RLock()
	defer h.lock.RUnlock()
	h.index.Local(subject, queue, func(s *Sub) { conns[s.conn] = true })
	return len(conns)
}

// interestChanged updates the Watches of subscriptions that began or ended. The index lock is held
// for writing.
func (h *Hub) interestChanged(pattern, queue string) {
	if len(h.watches) == 0 {
		return
	}
	of := watched{pattern, queue}
	all := h.watches[of]
	if len(all) == 0 {
		return
	}
	present := h.subscribed(of)
	for _, w := range all {
		if w.present.Swap(present) != present {
			w.changed()
		}
	}
}
