package session

import "github.com/carillon-mq/carillon/broker/protocol"

// Peer is another broker in the interest index. The reader of its link passes on what that broker
// sends.
//
// An Offer is in the index as a Peer, too, with only hub and offer set.
type Peer struct {
	hub      *Hub
	link     Link
	broker   string           // id of the broker
	interest map[Interest]int // announced interest by pattern and queue (Count is 0)
	detached bool
	incoming slabCopier
	offer    *Offer
}

// Attach registers the link to the named broker: from now on it gets all announcements and
// messages. It returns the complete interest of this broker's clients at that instant.
func (h *Hub) Attach(l Link, broker string) (*Peer, []Interest) {
	p := &Peer{hub: h, link: l, broker: broker, interest: make(map[Interest]int), incoming: slabCopier{batch: h.newBatch()}}
	p.incoming.batch.forwarded = true
	h.lock.Lock()
	defer h.lock.Unlock()
	h.peers = append(h.peers, p)
	h.brokers[broker] = p
	return p, h.interest()
}

// SetInterest records the interest of the other broker's clients.
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
	p.hub.interestChanged(i.Pattern, i.Queue)
}

// Deliver adds a message from the other broker for this broker's own clients and Takers. It copies
// what it keeps. The link's reader calls Flush after the last message of a read. full asks it to
// call Flush and Wait before the next message.
func (p *Peer) Deliver(m *Message, reach Reach) (full bool) {
	p.incoming.batch.deliver(p.incoming.copyIn(m), reach)
	return p.incoming.batch.full()
}

// Flush queues what Deliver has gathered. A receiver that is close to its bound does not slow down
// a link as it does a publisher, because many publishers share the link.
func (p *Peer) Flush() { p.incoming.flush() }

// Wait blocks while loops are behind that messages of the other broker went to since the last Wait.
// The link's reader calls it after Flush, before the next read.
func (p *Peer) Wait() { p.incoming.batch.behind.Wait() }

// Detach removes the other broker and all its interest at once.
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
		h.interestChanged(key.Pattern, key.Queue)
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
