package session

import "github.com/carillon-mq/carillon/broker/protocol"

// Peer is another broker as the index knows it, and the way for a link's reader to hand over
// what that broker sends.
//
// An Offer stands in the index as a Peer, too, with nothing but offer set.
type Peer struct {
	hub      *Hub
	link     Link
	broker   string           // its id
	interest map[Interest]int // what it has announced, by pattern and queue (Count left 0)
	detached bool
	incoming slabCopier
	offer    *Offer
}

// Attach makes a link to the broker of that id part of this node: what is announced and forwarded
// from now on reaches it. It returns the whole interest of this node's clients at that instant.
func (h *Hub) Attach(l Link, broker string) (*Peer, []Interest) {
	p := &Peer{hub: h, link: l, broker: broker, interest: make(map[Interest]int), incoming: slabCopier{batch: h.newBatch()}}
	p.incoming.batch.forwarded = true
	h.lock.Lock()
	defer h.lock.Unlock()
	h.peers = append(h.peers, p)
	h.brokers[broker] = p
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

// Deliver queues a message from the other broker for this node's clients and Takers. It copies what
// it keeps. Flush hands the messages over; the link's reader calls it after the last one of a read.
func (p *Peer) Deliver(m *Message, reach Reach) {
	p.incoming.batch.deliver(p.incoming.copyIn(m), reach)
}

// Flush hands over what Deliver has gathered. A receiver that is close to its bound does not hold a link
// back as it does a publisher: many publishers share the link.
func (p *Peer) Flush() { p.incoming.flush() }

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
	p.incoming.drop()
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
	if h.brokers[p.broker] == p {
		delete(h.brokers, p.broker)
	}
	for i := range h.peers {
		if h.peers[i] == p {
			h.peers = append(h.peers[:i:i], h.peers[i+1:]...)
			break
		}
	}
}

var linePong, linePing, lineOK = []byte(protocol.LinePong), []byte(protocol.LinePing), []byte(protocol.LineOK)
