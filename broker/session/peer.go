package session

import "github.com/carillon-mq/carillon/broker/protocol"

// Peer is another broker as the index knows it, and the way for a link's reader to hand over
// what that broker sends.
type Peer struct {
	hub      *Hub
	link     Link
	interest map[Interest]int // what it has announced, by pattern and queue (Count left 0)
	detached bool
	batch    *batch
	open     bool
	used     int
}

// Attach makes a link part of this node: what is announced and forwarded from now on reaches it. It
// returns the whole interest of this node's clients at that instant.
func (h *Hub) Attach(l Link) (*Peer, []Interest) {
	p := &Peer{hub: h, link: l, interest: make(map[Interest]int), batch: h.newBatch()}
	h.lock.Lock()
	defer h.lock.Unlock()
	h.peers = append(h.peers, p)
	return p, h.interest()
}

// SetInterest records what the other broker's clients want.
func (p *Peer) SetInterest(i Interest) {
	p.Flush()
	p.hub.lock.Lock()
	defer p.hub.lock.Unlock()
	if p.detached {
		return
	}
	p.hub.index.SetPeer(i.Pattern, i.Queue, p, i.Count)
	key := Interest{Pattern: i.Pattern, Queue: i.Queue}
	if i.Count > 0 {
		p.interest[key] = i.Count
	} else {
		delete(p.interest, key)
	}
}

// arenaSize is how much of what a link brings shares one slab.
const arenaSize = fullChunk

// Deliver queues a message from the other broker for this node's clients: for all matching plain
// subscriptions if plain, and for one member of each of queues. It copies what it keeps. Flush
// hands the messages over; the link's reader calls it after the last one of a read.
func (p *Peer) Deliver(m *Message, plain bool, queues []string) {
	b := p.batch
	need := len(m.Subject) + len(m.Reply) + len(m.Data)
	if b.from == nil || len(b.from.buf)-p.used < need {
		p.Flush()
		if b.from != nil {
			b.from.release()
		}
		b.from, p.used = newSlab(max(need, arenaSize)), 0
	}
	if !p.open {
		p.open = true
		b.begin()
	}
	keep := func(part []byte) []byte {
		n := copy(b.from.buf[p.used:], part)
		kept := b.from.buf[p.used : p.used+n : p.used+n]
		p.used += n
		return kept
	}
	b.msg = Message{Subject: keep(m.Subject), Reply: keep(m.Reply), Header: m.Header, Data: keep(m.Data)}
	b.deliver(&b.msg, plain, queues)
}

// Flush hands over what Deliver has gathered. A receiver that is close to its bound does not hold a link
// back as it does a publisher: many publishers share the link.
func (p *Peer) Flush() {
	if p.open {
		p.open = false
		p.batch.end()
		p.batch.outpaced = nil
	}
}

// Wait blocks while this node's sender loops are over their bound. The link's reader calls it, with nothing
// unflushed, before it reads on.
func (p *Peer) Wait() {
	for _, l := range p.hub.loops {
		l.wait()
	}
}

// Detach forgets the other broker and all its interest at once.
func (p *Peer) Detach() {
	p.Flush()
	if p.batch.from != nil {
		p.batch.from.release()
		p.batch.from = nil
	}
	h := p.hub
	h.lock.Lock()
	defer h.lock.Unlock()
	if p.detached {
		return
	}
	p.detached = true
	for key := range p.interest {
		h.index.SetPeer(key.Pattern, key.Queue, p, 0)
	}
	p.interest = nil
	for i := range h.peers {
		if h.peers[i] == p {
			h.peers = append(h.peers[:i:i], h.peers[i+1:]...)
			break
		}
	}
}

var linePong, linePing, lineOK = []byte(protocol.LinePong), []byte(protocol.LinePing), []byte(protocol.LineOK)
