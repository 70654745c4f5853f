package session

import (
	"maps"
	"slices"

	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/work"
)

// Taker is a component of this broker that receives what is published on the subjects that it
// offers, besides the subscribers: a Topic, an API. It must be safe for concurrent use.
type Taker interface {
	// Take receives, in the publisher's order, the messages of one read of a connection or link.
	// They are valid during the call, and longer if memory, which they alias, is retained. memory
	// is nil for small messages and for messages from links: a Taker copies what it keeps of those.
	// forwarded reports that another broker's Taker sent them here. behind asks the publisher to
	// call Wait; it has no effect for messages from links.
	Take(messages []Message, memory protocol.Memory, forwarded bool) (behind bool)
	// Wait blocks while the Taker is behind. A connection's reader calls it, without locks.
	Wait()
}

// ClientTaker is optionally implemented by a Taker that has to know which client published.
type ClientTaker interface {
	// TakeOf is Take for messages of a client of this broker. client is the number of its
	// connection (Hub.Connected). It adds to behind what this client is to wait for, instead of
	// Wait.
	TakeOf(client uint64, messages []Message, memory protocol.Memory, behind *work.Behind)
}

// Offer registers a Taker's subjects in the interest index.
type Offer struct {
	hub      *Hub
	taker    Taker
	self     *Peer    // the Taker's place in the index
	patterns []string // guarded by the index lock
}

// Offer registers a Taker without subjects. Set adds them.
func (h *Hub) Offer(t Taker) *Offer {
	o := &Offer{hub: h, taker: t}
	o.self = &Peer{hub: h, offer: o}
	return o
}

// Set replaces the patterns whose messages go to the Taker.
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

// Close removes all patterns. Messages that were matched before may still reach the Taker.
func (o *Offer) Close() { o.Set(nil) }

// callTakers passes each Taker its messages. No lock is held, since a Taker may create a file.
func (b *batch) callTakers() {
	if !slices.ContainsFunc(b.takers, func(t Taker) bool { return t != b.takers[0] }) {
		b.callTaker(b.takers[0], b.forTakers) // as it nearly always is
	} else {
		b.callEachTaker()
	}
	clear(b.forTakers)
	clear(b.takers)
	b.forTakers, b.takers = b.forTakers[:0], b.takers[:0]
}

// taking is one Taker's part of a read: its first message, and its last one so far.
type taking struct {
	taker       Taker
	first, last int
}

// fewTakers is up to how many Takers of a read are searched one by one: 16 comparisons take as long
// as a map.
const fewTakers = 16

// callEachTaker calls the Takers in the order of their first messages. Its work is proportional to
// the number of messages, whatever the number of Takers: each message names the next one of its
// Taker.
func (b *batch) callEachTaker() {
	for i, t := range b.takers {
		b.nextOf = append(b.nextOf, 0)
		if to := b.takingOf(t); to == nil {
			b.takings = append(b.takings, taking{t, i, i})
		} else {
			b.nextOf[to.last], to.last = i, i
		}
	}
	for i := range b.takings {
		to := &b.takings[i]
		for at := to.first; ; at = b.nextOf[at] {
			if b.takerScratch = append(b.takerScratch, b.forTakers[at]); at == to.last {
				break
			}
		}
		b.callTaker(to.taker, b.takerScratch)
		clear(b.takerScratch)
		b.takerScratch = b.takerScratch[:0]
	}
	clear(b.takings)
	clear(b.manyTakers)
	b.takings, b.nextOf = b.takings[:0], b.nextOf[:0]
}

// takingOf returns a Taker's part of the read, or nil before its first message.
func (b *batch) takingOf(t Taker) *taking {
	n := len(b.takings)
	for i := range b.takings[:min(n, fewTakers)] {
		if b.takings[i].taker == t {
			return &b.takings[i]
		}
	}
	if n < fewTakers {
		return nil
	}
	if i, ok := b.manyTakers[t]; ok {
		return &b.takings[i]
	}
	if b.manyTakers == nil {
		b.manyTakers = map[Taker]int{}
	}
	b.manyTakers[t] = n
	return nil
}

func (b *batch) callTaker(t Taker, messages []Message) {
	var memory protocol.Memory
	if b.origin != nil && b.from != nil && len(b.from.buf) > fullChunk {
		memory = b.from // of one large message; others share their slab
	}
	if of, ok := t.(ClientTaker); ok && b.origin != nil && !b.forwarded {
		of.TakeOf(b.origin.id, messages, memory, &b.behindTakers)
	} else if t.Take(messages, memory, b.forwarded) {
		b.behindTakers.Add(t)
	}
}

// Send publishes this broker's own messages to all subscribers, on this and on linked brokers, but
// to no Taker. It copies them and never waits. It returns which loops and links are behind, of
// those that the messages went to: a caller that sends much waits for them, holding no lock.
func (h *Hub) Send(messages []Message) work.Behind { return h.send(messages, true, false) }

// SendSoon is Send for a caller that is about to send more. It leaves the writing to the loops'
// goroutines, which write what gathers meanwhile together.
func (h *Hub) SendSoon(messages []Message) work.Behind { return h.send(messages, true, true) }

// Publish publishes messages as a client of this broker does: to subscribers and to Takers. It
// copies them and waits for nobody, as Send. Takers are not in what it returns.
func (h *Hub) Publish(messages []Message) work.Behind { return h.send(messages, false, false) }

func (h *Hub) send(messages []Message, internal, more bool) work.Behind {
	c := h.senders.Get().(*slabCopier)
	c.batch.internal, c.batch.more = internal, more
	for i := range messages {
		c.batch.publish(c.copyIn(&messages[i]))
	}
	c.flush()
	c.batch.internal, c.batch.more = true, false
	return h.releaseSender(c)
}

// releaseSender returns a sender to the pool. It returns what is behind.
func (h *Hub) releaseSender(c *slabCopier) work.Behind {
	b := c.batch
	behind := b.behind.Take()
	if b.cache != nil {
		h.caches.Put(b.cache)
		b.cache = nil
	}
	h.senders.Put(c)
	return behind
}

func (h *Hub) newSender() any {
	c := &slabCopier{batch: h.newBatch()}
	c.batch.internal = true
	return c
}

// Interested reports whether a message on the subject would have a receiver, here or on a linked
// broker. Takers don't count.
func (h *Hub) Interested(of []byte) bool { return h.reaches(of, false) }

// Reaches reports whether a message on the subject would have a receiver or a Taker.
func (h *Hub) Reaches(of []byte) bool { return h.reaches(of, true) }

func (h *Hub) reaches(of []byte, takers bool) bool {
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
		if p.offer == nil || takers {
			return true
		}
	}
	return len(match.Groups) > 0
}

// Peers returns the ids of the brokers to which there is a link.
func (h *Hub) Peers() []string {
	h.lock.RLock()
	defer h.lock.RUnlock()
	return slices.Collect(maps.Keys(h.brokers))
}

// Forward sends a message to the Takers of another broker that offer its subject. It reports
// whether there is a link to that broker, and returns the link if that is behind.
func (h *Hub) Forward(broker string, m *Message) (linked bool, behind work.Behind) {
	h.lock.RLock()
	defer h.lock.RUnlock()
	p := h.brokers[broker]
	if p == nil {
		return false, behind
	}
	if p.link.Forward(m, Reach{Keep: true}) {
		behind.Add(p.link)
	}
	return true, behind
}
