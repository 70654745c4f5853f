package session

import "github.com/carillon-mq/carillon/broker/protocol"

// Message is one message on its way through this broker.
type Message = protocol.Message

// Link is the connection to one other broker; package route implements it. Forward and Announce
// must not block, call back into the Hub, or keep their arguments.
type Link interface {
	// Forward queues the message for that broker. It is called at most once per message and link,
	// in each publisher's order. behind reports that more is pending on the link than its bound,
	// and asks the publisher to call Wait.
	Forward(m *Message, reach Reach) (behind bool)
	// Wait blocks while the link is behind. It returns at once when the link is down.
	Wait()
	// Announce queues a change of this broker's interest. On the link it precedes whatever the
	// client that caused it publishes later.
	Announce(change Interest)
}

// Reach is the receivers of a message on another broker.
type Reach struct {
	Plain  bool     // all matching subscriptions without a queue group
	Keep   bool     // the Takers that offer its subject
	Queues []string // one member of each of these queue groups
}

// Interest is the number of subscriptions of one broker's own clients with one pattern and queue
// group. A plain one (no queue group) is announced when the first subscription begins (Count 1) and
// the last one ends (Count 0); a group whenever its size changes, with 0 at its end.
type Interest struct {
	Pattern string
	Queue   string // empty: plain
	Count   int
}
