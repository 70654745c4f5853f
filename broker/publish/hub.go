package publish

import (
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/work"
)

// Hub is the clients and links of this broker as Topics use them.
type Hub interface {
	// Offer lets t take messages that are published on some subjects.
	Offer(t Taker) Offer
	// Send routes messages by interest, also over links. It copies them and never blocks. Any
	// goroutine may call it. It returns which sender loops and links are behind, of those that the
	// messages went to. Whoever sends much waits for them before it sends more.
	Send(messages []protocol.Message) work.Behind
	// Interested reports whether a client, here or on a linked broker, is subscribed to subject.
	Interested(subject []byte) bool
	// Forward sends a message to the Takers on another broker whose offer matches its subject. It
	// copies the message and never blocks. It reports whether there is a link, and returns the link
	// if that is behind.
	Forward(broker string, m *protocol.Message) (linked bool, behind work.Behind)
}

// Offer is the set of subjects of one Taker.
type Offer interface {
	// Set replaces the subjects.
	Set(patterns []string)
	// Close ends the offer. Calls of Take that are under way may still run.
	Close()
}

// Taker takes messages that are published on the subjects of its Offer.
type Taker interface {
	// Take takes the messages of one read of one connection or link, in the publisher's order.
	// They are valid during the call, and longer if memory, which they alias, is retained; memory
	// may be nil. Take waits for neither disk nor network, except for the log's next segment file.
	// behind asks the caller to Wait before it reads on.
	Take(messages []protocol.Message, memory protocol.Memory, forwarded bool) (behind bool)
	// Wait blocks while publishers have to wait. Links don't call it: their messages are refused
	// when there is no room.
	Wait()
}
