package route

import "github.com/carillon-mq/carillon/broker/session"

// Hub is this broker's own clients, as the links need them.
type Hub interface {
	// Attach registers l, the link to the broker of that id, and returns this broker's whole interest
	// at that instant. Every later change reaches l.Announce, in order.
	Attach(l session.Link, broker string) (Peer, []session.Interest)
}

// Peer is the hub's side of one link. All its methods are called by one goroutine, the link's
// reader.
type Peer interface {
	// SetInterest changes what the hub forwards to the link.
	SetInterest(session.Interest)
	// Deliver gives a message that came over the link to those of this broker whom it is for. The
	// message and the slices are valid during the call only.
	Deliver(m *session.Message, reach session.Reach)
	// Flush follows the last Deliver of what one read brought.
	Flush()
	// Wait blocks while this broker's clients take less than the link brings.
	Wait()
	// Detach ends the link: its interest is gone and nothing more is forwarded to it.
	Detach()
}

// Clients makes a node's session hub the Hub of its links.
func Clients(h *session.Hub) Hub { return clients{h} }

type clients struct{ hub *session.Hub }

func (c clients) Attach(l session.Link, broker string) (Peer, []session.Interest) {
	return c.hub.Attach(l, broker)
}
