package session

import "github.com/carillon-mq/carillon/broker/protocol"

// Message is one message on its way through this broker.
type Message = protocol.Message

// Link is the way to one other broker, as this node sees it; package route implements it.
// Forward and Announce may not block, call back into the Hub or keep what they are given.
type Link interface {
	// Forward queues the message for that broker. It is called at most once per message and
	// link, and in each publisher's order.
	// behind says that more waits on the link than its bound, so that the publisher must Wait.
	Forward(m *Message, reach Reach) (behind bool)
	// Wait blocks while the link is behind; it returns at once when the link is down.
	Wait()
	// Announce queues a change of this node's interest. It precedes, on the link, whatever the
	// client that caused it publishes later.
	Announce(change Interest)
}

// Reach says whom a message is for on another broker.
type Reach struct {
	Plain  bool     // all matching plain subscriptions
	Keep   bool     // the Takers that offer its subject
	Queues []string // one member of each of these groups
}

// Interest says how many subscriptions of one broker's own clients share a pattern and
// queue group. Announced when a plain one begins or ends (Count 1 or 0), and whenever a
// group's size changes; Count 0 ends it.
type Interest struct {
	Pattern string
	Queue   string // empty: plain
	Count   int
}
