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

// PublishCodec decodes what publishers ask for and encodes the answers to them.
type PublishCodec interface {
	// Conditions reads what a message's header asks for. A refusal is for AppendRefusal.
	Conditions(header []byte) (c Conditions, refusal error)
	// AppendAck appends the answer to a message that is kept at offset, or had been kept there before. If the message
	// carried records, offset is the last one's.
	AppendAck(dst []byte, topic string, offset uint64, records int, duplicate bool) []byte
	// AppendRefusal appends the answer to a message that is not kept. err is one of this package's, of
	// broker/log's, or a refusal from Conditions.
	AppendRefusal(dst []byte, topic string, err error) []byte
}

// Conditions is what a publisher asks for beyond being kept. Its slices point into the header.
type Conditions struct {
	ID             []byte // one message per id and deduplication window; empty: none
	ExpectedTopic  []byte // empty: any
	ExpectedLastID []byte // of the last message; empty: any
	// After is the id of a message that must have been kept within the deduplication window; empty: none. A publisher with
	// several messages under way names the one before, and what has to come again comes in its order.
	After []byte
	// ExpectedLast is the offset that the last message must have, if ExpectsLast; 0: none was ever kept.
	ExpectedLast uint64
	ExpectsLast  bool
	// ExpectedLastBySubject is the offset that the last message of ExpectedSubject, or of the
	// message's own subject if that is empty, must have, if ExpectsLastBySubject; 0: there is none.
	ExpectedLastBySubject uint64
	ExpectsLastBySubject  bool
	ExpectedSubject       []byte
	// Records is how many records the message carries, each behind its length; 0: it is one itself.
	Records int
}

func (c *Conditions) any() bool {
	return c.ExpectsLast || c.ExpectsLastBySubject || len(c.ID) > 0 || len(c.After) > 0 || len(c.ExpectedTopic) > 0 || len(c.ExpectedLastID) > 0
}
