package route

import "github.com/carillon-mq/carillon/broker/session"

// Hub holds this broker's own clients, as links use it.
type Hub interface {
	// Attach registers l, the link to the named broker, and returns this broker's complete interest
	// at that instant. Every later change is passed to l.Announce, in order.
	Attach(l session.Link, broker string) (ClientSide, []session.Interest)
}

// ClientSide is the hub's end of one link. Only the link's reader goroutine calls its methods.
type ClientSide interface {
	// SetInterest changes what the hub forwards to the link.
	SetInterest(session.Interest)
	// Deliver delivers a message that came over the link to this broker's own clients and Takers.
	// The message and the slices are valid during the call only. full asks for Flush and Wait before
	// the next message.
	Deliver(m *session.Message, reach session.Reach) (full bool)
	// Flush releases the lock that Deliver holds, and queues what was delivered since the last
	// Flush. It must follow Deliver before anything else is done, and may be called without a
	// Deliver before.
	Flush()
	// Wait blocks while sender loops are behind that messages of the link went to. It follows Flush.
	Wait()
	// Detach ends the link: it drops the peer's interest and forwards nothing more to it.
	Detach()
}

// Topics forwards messages to the leaders of shards, and receives what other brokers forward.
type Topics interface {
	// Attach registers the link to the named broker.
	Attach(broker string, way Carrier) TopicsSide
}

// Carrier is a link as Topics use it.
type Carrier interface {
	// Carry queues one frame for the peer, the concatenation of parts. It copies them and never
	// blocks. behind reports that more is pending on the link than its bound.
	Carry(parts ...[]byte) (behind bool)
	// Wait blocks while the link is behind. It returns when the link is down.
	Wait()
}

// TopicsSide is the Topics' end of one link. Only the link's reader goroutine calls its methods.
type TopicsSide interface {
	// Take handles a frame from the link. The frame is valid until Flush. An error ends the link.
	Take(frame []byte) error
	// Flush follows the last Take of a read.
	Flush()
	// Detach ends the link.
	Detach()
}

// noTopics serves no Topics.
type noTopics struct{}

func (noTopics) Attach(string, Carrier) TopicsSide { return noTopics{} }
func (noTopics) Take([]byte) error                 { return nil }
func (noTopics) Flush()                            {}
func (noTopics) Detach()                           {}

// Clients returns a session hub as the Hub of links.
func Clients(h *session.Hub) Hub { return clients{h} }

type clients struct{ hub *session.Hub }

func (c clients) Attach(l session.Link, broker string) (ClientSide, []session.Interest) {
	return c.hub.Attach(l, broker)
}
