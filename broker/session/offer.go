package session

// Taker is something of this node that takes what is published on the subjects that it offers,
// besides the subscribers: a Topic, an API.
type Taker interface {
	// Take gets, in the publisher's order, what one read of one connection or link brought. The
	// messages are valid during the call only. forwarded says that another broker sent them here.
	// behind asks the publisher to Wait; what comes over links can't.
	Take(messages []Message, forwarded bool) (behind bool)
	// Wait blocks while the Taker has no room. A connection's reader calls it, without locks.
	Wait()
}

// Offer is a Taker's place in the index of this node.
type Offer struct {
	hub      *Hub
	taker    Taker
	self     *Peer    // how the index knows it
	patterns []string // guarded by the index lock
}

// Offer makes a place for a Taker; Set says what it takes.
func (h *Hub) Offer(t Taker) *Offer {
	o := &Offer{hub: h, taker: t}
	o.self = &Peer{hub: h, offer: o}
	return o
}

// Set says that messages on the patterns are for the Taker.
func (o *Offer) Set(patterns []string) {
	o.hub.lock.Lock()
	defer o.hub.lock.Unlock()
	stay := make(map[string]bool, len(patterns))
	for _, p := range patterns {
		stay[p] = true
		o.hub.index.SetPeer(p, "", o.self, 1)
	}
	for _, p := range o.patterns {
		if !stay[p] {
			o.hub.index.SetPeer(p, "", o.self, 0)
		}
	}
	o.patterns = append([]string(nil), patterns...)
}

// Close takes the offer back. What was matched before may still reach the Taker.
func (o *Offer) Close() { o.Set(nil) }

// takerMessage is a message for a Taker of this broker.
type takerMessage struct {
	taker Taker
	msg   Message
}

// callTakers passes each Taker its messages. No lock is held: a Taker may have to create a file.
func (b *batch) callTakers() {
	for i := range b.kept {
		t := b.kept[i].taker
		if t == nil {
			continue // went with an earlier one
		}
		for j := i; j < len(b.kept); j++ {
			if b.kept[j].taker == t {
				b.taken = append(b.taken, b.kept[j].msg)
				b.kept[j].taker = nil
			}
		}
		if t.Take(b.taken, b.forwarded) {
			b.behind = append(b.behind, t)
		}
		clear(b.taken)
		b.taken = b.taken[:0]
	}
	clear(b.kept)
	b.kept = b.kept[:0]
}

// Send routes messages of this node's own making to whoever is interested, here and on linked
// brokers, but to no Taker. It copies them, and never waits; Wait does.
func (h *Hub) Send(messages []Message) {
	c := h.senders.Get().(*slabCopier)
	for i := range messages {
		c.batch.publish(c.copyIn(&messages[i]))
	}
	c.flush()
	h.restSender(c)
}

// restSender keeps a sender for the next.
func (h *Hub) restSender(c *slabCopier) {
	clear(c.batch.hurried)
	c.batch.hurried = c.batch.hurried[:0]
	if b := c.batch; b.cache != nil {
		h.caches.Put(b.cache)
		b.cache = nil
	}
	h.senders.Put(c)
}

func (h *Hub) newSender() any {
	c := &slabCopier{batch: h.newBatch()}
	c.batch.internal = true
	return c
}

// Wait blocks while this node's sender loops, or its links, have more to send than their bounds.
func (h *Hub) Wait() {
	for _, l := range h.loops {
		l.wait()
	}
	h.lock.RLock()
	peers := h.peers
	h.lock.RUnlock()
	for _, p := range peers {
		p.link.Wait()
	}
}

// Interested says whether anybody, here or on a linked broker, would get a message on the subject.
func (h *Hub) Interested(of []byte) bool {
	c := h.caches.Get().(*cache)
	defer h.caches.Put(c)
	h.lock.RLock()
	defer h.lock.RUnlock()
	match := c.Match(h.index, of)
	for _, leaf := range match.Leaves {
		if leaf.Size() > 0 {
			return true
		}
	}
	for _, p := range match.Peers {
		if p.offer == nil {
			return true
		}
	}
	return len(match.Groups) > 0
}

// Forward sends a message to the Takers of another broker that offer its subject. It says whether
// there is a link.
func (h *Hub) Forward(broker string, m *Message) bool {
	h.lock.RLock()
	defer h.lock.RUnlock()
	p := h.brokers[broker]
	if p == nil {
		return false
	}
	p.link.Forward(m, Reach{Keep: true})
	return true
}
