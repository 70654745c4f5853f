package route

import "github.com/carillon-mq/carillon/broker/session"

// Hub is this broker's own clients, as the links need them.
type Hub interface {
	// Attach registers l, the link to the broker of that id, and returns this broker's whole interest
	// at that instant. Every later change reaches l.Announce, in order.
	Attach(l session.Link, broker string) (ClientSide, []session.Interest)
}

// ClientSide is the hub's end of one link. Only the link's reader goroutine calls its methods.
type ClientSide interface {
	// SetInterest changes what the hub forwards to the link.
	SetInterest(session.Interest)
	// Deliver gives a message that came over the link to those of this broker whom it is for. The
	// message and the slices are valid during the call only.
	Deliver(m *session.Message, reach session.Reach)
	// Flush follows a Deliver before anything else is done, and hands over what was delivered since the last; it may be nothing.
	Flush()
	// Wait blocks while this broker's clients take less than the link brings.
	Wait()
	// Detach ends the link: its interest is gone and nothing more is forwarded to it.
	Detach()
}

// Topics is this broker's part in bringing messages to the leaders of shards.
type Topics interface {
	// Attach makes the way to the broker of that id known.
	Attach(broker string, way Carrier) TopicsSide
}

// Carrier is a link as Topics use it.
type Carrier interface {
	// Carry queues a frame for the peer, of parts that stand one behind the other. It copies them and never blocks.
	// behind says that more waits on the link than its bound.
	Carry(parts ...[]byte) (behind bool)
	// Wait blocks while the link is behind; it returns when it is down.
	Wait()
}

// TopicsSide is the Topics' end of one link. Only the link's reader goroutine calls its methods.
type TopicsSide interface {
	// Take takes a frame that came over the link; it is valid until Flush. An error ends the link.
	Take(frame []byte) error
	// Flush follows the last Take of what one read brought.
	Flush()
	// Detach ends the link.
	Detach()
}

// noTopics is a broker that serves none.
type noTopics struct{}

func (noTopics) Attach(string, Carrier) TopicsSide { return noTopics{} }
func (noTopics) Take([]byte) error                 { return nil }
func (noTopics) Flush()                            {}
func (noTopics) Detach()                           {}

// Clients makes a node's session hub the Hub of its links.
func Clients(h *session.Hub) Hub { return clients{h} }

type clients struct{ hub *session.Hub }

func (c clients) Attach(l session.Link, broker string) (ClientSide, []session.Interest) {
	return c.hub.Attach(l, broker)
}
