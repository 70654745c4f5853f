package session

import (
	"slices"

	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/subject"
	"github.com/carillon-mq/carillon/broker/work"
)

// batch gathers the effects of one read of a connection or link. From begin to end it holds the
// index's read lock. What it gathers is in the loops' queues before that lock is released (S1).
type batch struct {
	hub    *Hub
	origin *Conn  // nil for a link
	cache  *cache // from the first match on
	from   *slab  // the memory that the messages' slices alias
	msg    Message

	perLoop      []gathered
	receivers    int
	own          int         // the origin's loop, which is queued last
	exhausted    []*Sub      // subscriptions that have reached their maximum
	behind       work.Behind // loops and links that messages went to
	crowded      bool        // a loop is to get no more messages by this batch
	slowReceiver *Conn       // a receiver that is close to its bound
	forwards     []forward

	forTakers    []Message     // messages for Takers of this broker
	takers       []Taker       // of each of them
	takerScratch []Message     // scratch list of one Taker's messages
	takings      []taking      // scratch list, of callEachTaker
	nextOf       []int         // the next message of the same Taker, for each but the last
	manyTakers   map[Taker]int // where those stand in takings that come after the first few
	behindTakers work.Behind   // Takers, or parts of them
	forwarded    bool          // the messages came from another broker
	internal     bool          // the messages are this broker's own, and not for Takers
	more         bool          // the caller sends more at once

	claimFunc func(*Sub) bool // b.claimFor, allocated once
	matched   []byte          // the subject of the current match
	// picked is called with the receiver that a queue group has chosen, for a traced message; else
	// it is nil.
	picked func(s *Sub, p *Peer, queue string)
}

// gathered is what one loop is to get.
type gathered struct {
	entries    []entry
	deliveries int
	bytes      int // of messages
}

type cache = subject.Cache[*Sub, *Peer]

// match returns what a subject reaches. Caches are large and have a pool of their own, since most
// batches (of clients that subscribe or send PING) need none.
func (b *batch) match(of []byte) *subject.Match[*Sub, *Peer] {
	if b.cache == nil {
		b.cache = b.hub.caches.Get().(*cache)
	}
	b.matched = of
	return b.cache.Match(b.hub.index, of)
}

// reset prepares the batch for another connection.
func (b *batch) reset() {
	if b.cache != nil {
		b.hub.caches.Put(b.cache)
		b.cache = nil
	}
	b.behind.Clear()
	b.behindTakers.Clear()
	b.origin, b.from, b.slowReceiver = nil, nil, nil
}

// forward is one peer's part of a message.
type forward struct {
	peer  *Peer
	reach Reach
}

func (h *Hub) newBatch() *batch {
	b := &batch{hub: h, perLoop: make([]gathered, len(h.loops))}
	b.claimFunc = b.claimFor
	return b
}

func (b *batch) begin() { b.hub.lock.RLock() }

// end queues what was gathered, releases the lock, calls the Takers and wakes or drains the loops.
func (b *batch) end() {
	var touched uint64 // a bit per loop; loops above 64 share bits, which costs an unneeded wake only
	few := !b.more && (b.receivers <= limits.InlineReceivers || b.internal && b.receivers <= limits.InlineSends)
	for i := range b.perLoop {
		if i != b.own && len(b.perLoop[i].entries) > 0 {
			b.queue(i)
			touched |= 1 << (i % 64)
		}
	}
	// The origin's loop comes last, since a PONG says that everything else is queued.
	if len(b.perLoop[b.own].entries) > 0 {
		b.queue(b.own)
		touched |= 1 << (b.own % 64)
	}
	b.hub.lock.RUnlock()
	if len(b.forTakers) > 0 {
		// The Takers come before the loops, since a PONG says that they have the messages.
		b.callTakers()
	}
	for i, l := range b.hub.loops {
		switch {
		case touched&(1<<(i%64)) == 0:
		case few:
			l.inline()
		default:
			l.signal()
		}
	}
	b.receivers, b.crowded = 0, false
	if len(b.exhausted) > 0 {
		b.hub.retire(b.exhausted)
		clear(b.exhausted)
		b.exhausted = b.exhausted[:0]
	}
}

// queue moves the entries of loop i to its queue. They share one reference to the slab they alias.
func (b *batch) queue(i int) {
	g, l := &b.perLoop[i], b.hub.loops[i]
	if b.from != nil && g.bytes > 0 {
		b.from.Retain()
		last := &g.entries[len(g.entries)-1]
		last.from, last.ownsSlab = b.from, true
	}
	if l.hand(&g.entries, g.deliveries, g.bytes) {
		b.behind.Add(l)
	}
	clear(g.entries)
	*g = gathered{entries: g.entries[:0]}
}

// full reports whether the messages so far are to be queued, and room to be waited for, before more
// are added: what one read may make is bounded by nothing else. So is how many requests of it are
// refused at once.
func (b *batch) full() bool { return b.crowded || b.behind.Any() || b.behindTakers.Pauses() }

// pause releases the lock within a batch, for an operation that changes the index. resume takes it
// again.
func (b *batch) pause()  { b.end() }
func (b *batch) resume() { b.begin() }

func (b *batch) add(e *entry, receivers int) {
	i := b.own
	switch {
	case e.kind == deliverOne:
		i = e.sub.conn.loop.sink
	case e.conn != nil:
		i = e.conn.loop.sink
	}
	b.addTo(i, e, receivers)
}

func (b *batch) addTo(i int, e *entry, receivers int) {
	if receivers <= limits.StallReceivers {
		b.findSlow(e)
	}
	g := &b.perLoop[i]
	if len(g.entries) == 0 && b.hub.loops[i].behind.Load() {
		b.crowded = true
	}
	g.entries = append(g.entries, *e)
	g.bytes += e.size()
	g.deliveries += receivers
	if g.deliveries >= limits.BatchDeliveries {
		b.crowded = true
	}
	b.receivers += receivers
}

// findSlow notes a receiver that is close to its bound. It is called for messages with few
// receivers only: one slow receiver of many must not slow down the others.
func (b *batch) findSlow(e *entry) {
	if e.sub != nil && e.sub.conn.nearBound.Load() {
		b.slowReceiver = e.sub.conn
	}
	for _, s := range e.subs {
		if s.conn.nearBound.Load() {
			b.slowReceiver = s.conn
		}
	}
}

// send queues raw bytes for a client. It does not copy them.
func (b *batch) send(c *Conn, data []byte, thenClose bool) {
	kind := sendRaw
	if thenClose {
		kind = sendRawAndClose
	}
	g := &b.perLoop[c.loop.sink]
	g.entries = append(g.entries, entry{kind: kind, conn: c, msg: visible{Data: data}})
	g.deliveries++
	b.receivers++
}

// claimFor claims a delivery for s. It is called for each candidate of a queue group and each
// counted subscription, and reports false if s must not have the message.
func (b *batch) claimFor(s *Sub) bool {
	if s.conn == b.origin && !s.conn.echo || s.filtered && !s.conn.identity.Load().MayReceive(b.matched, s.queue) {
		return false
	}
	switch s.claim() {
	case refused:
		return false
	case last:
		b.exhausted = append(b.exhausted, s)
	}
	return true
}

// publish matches a client's message and queues it for everything it reaches. It reports whether it
// reached a subscription, peer or Taker.
func (b *batch) publish(m *Message) bool {
	match, taken := b.match(m.Route()), len(b.forTakers)
	reached := b.plain(match, m)
	for i := range match.Groups {
		g := &match.Groups[i]
		sub, peer, found := g.Pick(b.claimFunc)
		if b.picked != nil {
			b.picked(sub, peer, g.Queue())
		}
		switch found {
		case subject.Local:
			b.add(&entry{kind: deliverOne, sub: sub, msg: visibleOf(m), from: b.from}, 1)
			reached = true
		case subject.Remote:
			f := b.forwardTo(peer)
			f.reach.Queues = append(f.reach.Queues, g.Queue())
			reached = true
		}
	}
	for _, p := range match.Peers {
		if p.offer == nil {
			b.forwardTo(p).reach.Plain = true
			reached = true
		} else if !b.internal {
			b.forTakers, b.takers = append(b.forTakers, *m), append(b.takers, p.offer.taker)
			reached = true
		}
	}
	for i := range b.forwards {
		f := &b.forwards[i]
		if f.peer.link.Forward(m, f.reach) {
			b.behind.Add(f.peer.link)
		}
		f.reach.Queues = f.reach.Queues[:0]
	}
	b.forwards = b.forwards[:0]
	if len(b.forTakers) > taken && len(m.Reply) > 0 {
		b.findAnswered(m.Reply)
	}
	return reached
}

// findAnswered adds the loops that are behind and that an answer of a Taker would go to. A Taker
// does not wait when it answers, so the publisher does: an answer may have thousands of receivers.
func (b *batch) findAnswered(reply []byte) {
	if !slices.ContainsFunc(b.hub.loops, (*loop).isBehind) {
		return
	}
	for _, leaf := range b.match(reply).Leaves {
		for i, l := range b.hub.loops {
			if len(leaf.Plain(i)) > 0 && l.isBehind() {
				b.behind.Add(l)
			}
		}
		for _, s := range leaf.Counted() {
			if l := s.conn.loop; l.isBehind() {
				b.behind.Add(l)
			}
		}
	}
}

// plain queues a message for the matching subscriptions without a queue group.
func (b *batch) plain(match *subject.Match[*Sub, *Peer], m *Message) (reached bool) {
	for _, leaf := range match.Leaves {
		if leaf.Listed() > 0 {
			leaf.Matched.Add(1)
			for i := range b.hub.loops {
				if subs := leaf.Plain(i); len(subs) > 0 {
					b.addTo(i, &entry{kind: deliverMany, subs: subs, msg: visibleOf(m), from: b.from}, len(subs))
				}
			}
			reached = true
		}
		for _, s := range leaf.Counted() {
			if b.claimFor(s) {
				b.add(&entry{kind: deliverOne, sub: s, msg: visibleOf(m), from: b.from}, 1)
				reached = true
			}
		}
	}
	return reached
}

func (b *batch) forwardTo(p *Peer) *forward {
	for i := range b.forwards {
		if b.forwards[i].peer == p {
			return &b.forwards[i]
		}
	}
	if n := len(b.forwards); n < cap(b.forwards) {
		b.forwards = b.forwards[:n+1] // keeps the Queues slice of an earlier message, emptied
		b.forwards[n].peer, b.forwards[n].reach = p, Reach{Queues: b.forwards[n].reach.Queues}
	} else {
		b.forwards = append(b.forwards, forward{peer: p})
	}
	return &b.forwards[len(b.forwards)-1]
}

// deliver queues a message from a link for this broker's own clients and Takers.
func (b *batch) deliver(m *Message, reach Reach) {
	match := b.match(m.Route())
	if reach.Plain {
		b.plain(match, m)
	}
	if reach.Keep {
		for _, p := range match.Peers {
			if p.offer != nil {
				b.forTakers, b.takers = append(b.forTakers, *m), append(b.takers, p.offer.taker)
			}
		}
	}
	for _, queue := range reach.Queues {
		for i := range match.Groups {
			g := &match.Groups[i]
			if g.Queue() != queue {
				continue
			}
			if sub, _, found := g.Pick(b.claimFunc); found == subject.Local {
				b.add(&entry{kind: deliverOne, sub: sub, msg: visibleOf(m), from: b.from}, 1)
			}
		}
	}
}

// noResponders sends a requester, on its own subscription to the reply subject, the notice that
// nobody listens.
func (b *batch) noResponders(m *Message, block []byte) {
	notice := visible{Subject: m.Reply, Header: len(block), Data: block}
	match := b.match(m.Reply)
	for _, leaf := range match.Leaves {
		for _, s := range leaf.Plain(b.own) {
			if s.conn == b.origin && s.Listed() {
				// The notice must not count as a match. Only s's own reader reads base without the
				// lock.
				s.base--
				b.add(&entry{kind: deliverOne, sub: s, msg: notice}, 1)
				return
			}
		}
		for _, s := range leaf.Counted() {
			if s.conn != b.origin {
				continue
			}
			switch s.claim() {
			case refused:
				continue
			case last:
				b.exhausted = append(b.exhausted, s)
			}
			b.add(&entry{kind: deliverOne, sub: s, msg: notice}, 1)
			return
		}
	}
}
