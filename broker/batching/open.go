package batching

import (
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
)

// key names an open batch.
type key struct{ topic, id string }

// open is a batch whose commit has not come. Staging.mu guards it.
type open struct {
	key   key
	name  string // of the Topic
	last  uint64 // the sequence of its last message
	data  []byte // its messages, as entries of an outbox
	begin int    // of the last one in data
	// counted is how many bytes of data are counted in Staging. Marking the last message adds less
	// than reserved.
	counted int
	until   time.Time
	timer   *time.Timer
}

// add adds a message at the end, without its reply.
func (o *open) add(m *protocol.Message) {
	part := protocol.Message{Subject: m.Subject, Header: m.Header, Data: m.Data}
	o.begin = len(o.data)
	o.data = forward.AppendEntry(slices.Grow(o.data, forward.EntrySize(&part)), &part)
}

// strip takes a header out of a message, which others may hold, too.
func strip(m *protocol.Message, name string) {
	if name == "" || m.Header == 0 {
		return
	}
	header := protocol.Header(m.Data[:m.Header]).Without(name)
	m.Data, m.Header = append(header, m.Data[m.Header:]...), len(header)
}

// mark marks the last message as the one that commits the batch.
func (o *open) mark(codec publish.Codec) {
	m, _, _ := forward.ParseEntry(slices.Clone(o.data[o.begin:]))
	header := codec.AppendCommit(nil, m.Data[:m.Header])
	o.data = o.data[:o.begin]
	o.add(&protocol.Message{Subject: m.Subject, Header: len(header), Data: append(header, m.Data[m.Header:]...)})
}

// message returns the batch as one message, whose answer goes to reply.
func (o *open) message(reply []byte) protocol.Message {
	id := []byte(o.key.id)
	return protocol.Message{To: id, Subject: id, Reply: reply, Data: o.data}
}

// Parts appends the messages of a committed batch. They point into it. ok is false if it is
// malformed.
func Parts(to []protocol.Message, batch *protocol.Message) (parts []protocol.Message, ok bool) {
	for rest := batch.Data; len(rest) > 0; {
		var m protocol.Message
		if m, rest, ok = forward.ParseEntry(rest); !ok || len(m.Subject) == 0 || len(m.To) > 0 || len(to) == MaxMessages {
			return to, false
		}
		to = append(to, m)
	}
	return to, len(to) > 0
}
