package sender

import (
	"slices"

	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/publish"
)

// Back is where a leader's answers go: to a sender on this broker or on another one.
type Back struct {
	link   *Link
	source uint64
	round  uint32
}

// Back returns where the answers to a's messages go.
func (a *Arrival) Back(l *Link) Back { return Back{l, a.Source, a.Round} }

// Same reports whether the answers go to the same sender.
func (b *Back) Same(other Back) bool { return b.source == other.source }

// Again has the sender send all messages of its round again.
func (b *Back) Again(id ID) {
	b.link.sendHead(forward.FrameAgain, id.TopicID, id.Number, b.source, b.round)
}

// Ready tells the sender that the shard is open.
func (b *Back) Ready(id ID) {
	b.link.sendHead(forward.FrameReady, id.TopicID, id.Number, b.source, b.round)
}

// Carry sends the answers in a over the sender's link, and empties a. It returns head's memory.
func (b *Back) Carry(a *forward.Answers, id ID, head []byte) []byte {
	if a.Flush(); len(a.Buf) > 0 {
		head = forward.AppendFrameHead(head[:0], forward.FrameAnswers, id.TopicID, id.Number, b.source, b.round)
		b.link.out.Carry(head, a.Buf)
	}
	a.Reset()
	return slices.Grow(head[:0], 64)
}

// Answer is Carry, but gives the answers to a sender on this broker by a call: the replies are
// added to out, and stand in memory that done.Free frees.
func (b *Back) Answer(a *forward.Answers, shard Shard, id ID, head []byte, out *publish.Replies, done *Settled) []byte {
	if b.link != b.link.senders.self {
		return b.Carry(a, id, head)
	}
	a.Flush()
	if f := shard.Sender().of(b.source); f != nil {
		_ = f.Answered(b.round, a.Buf, out, done) // this broker's own frames are well-formed
	}
	a.Reset()
	return head
}
