package topic

import "github.com/carillon-mq/carillon/broker/protocol"

// Hub is what Topics need of this broker's clients and links.
type Hub interface {
	// Offer lets t take what is published on some subjects.
	Offer(t Taker) Offer
	// Send routes messages by interest, over links if need be. It copies them and never blocks; any goroutine may call it.
	Send(messages []protocol.Message)
	// Wait blocks while more was sent than this broker's loops and links have brought on their way.
	Wait()
	// Interested says whether anybody, here or on a linked broker, is subscribed to subject.
	Interested(subject []byte) bool
	// Forward brings a message to the Takers on another broker whose offer matches its subject, and
	// says whether there is a link to it. It copies the message and never blocks.
	Forward(broker string, m *protocol.Message) bool
}

// Offer is what one Taker takes.
type Offer interface {
	// Set says on which subjects, at once.
	Set(patterns []string)
	// Close ends it: what is matched later is not taken. Calls that are under way may still run.
	Close()
}

// Taker takes what is published on the subjects that it offered to take.
type Taker interface {
	// Take gets, in the publisher's order, what one read of one connection or link brought. The
	// memory is valid during the call only. It waits for neither disk nor network, but for the
	// log's next segment to be made. behind asks the caller to Wait before it reads on.
	Take(messages []protocol.Message, forwarded bool) (behind bool)
	// Wait blocks while too much waits. Links don't call it: what comes over them is refused when
	// there is no room.
	Wait()
}
