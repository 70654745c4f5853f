package batching

import (
	"slices"
	"sort"

	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
)

// Fast has the open fast batches of one shard's publishers on this broker. Their messages are not
// staged: each goes to the leader as it comes, and Fast follows which of them are answered.
//
// It is pure: no clock, no I/O, no lock. Times are in nanoseconds of any clock that never goes
// back. Messages have the numbers of the shard's sender, whose lock guards all (package sender).
type Fast struct {
	open map[string]*fast
}

// Answers is where Fast puts the answers to publishers. What it says of messages is of one Topic.
type Answers struct {
	Codec interface {
		publish.Codec
		publish.FastCodec
	}
	Topic  string
	Silent bool // no message is answered
	Out    *publish.Replies
}

// Outcome is what became of a message.
type Outcome struct {
	Refused   bool
	Refusal   []byte // encoded; empty: the publisher expects none
	Offset    uint64 // of a kept one
	Duplicate bool
}

// fast is an open fast batch.
type fast struct {
	gapOK   bool
	ended   bool   // it takes no more messages, and is answered for good once all are settled
	reply   []byte // where that answer goes; empty: nowhere
	last    uint64 // the sequence of its last message
	settled uint64 // all of its messages up to this sequence are settled
	said    uint64 // the sequence in the last flow answer
	offset  uint64 // of its last kept message
	again   bool   // that one is a duplicate
	number  uint64 // of the last message that was sent to the leader
	most    uint16 // the most messages between two answers that its publisher allows
	every   uint16 // the messages between two answers now
	until   int64  // when it ends without another message

	sent    []sentOn // to the leader; those before head are passed
	head    int
	refusal []byte // of the last one in sent, if gaps are not ok and it is refused
}

// sentOn is a message that was sent to the leader. A settled one stays while one before it is not.
type sentOn struct {
	number, sequence         uint64
	done, refused, duplicate bool
	offset                   uint64
}

// Len returns the number of open batches.
func (f *Fast) Len() int { return len(f.open) }

// Has reports whether a batch is open.
func (f *Fast) Has(id []byte) bool { return f.open[string(id)] != nil }

// Take judges a message of a fast batch, which would get a number. goesOn reports that it is to be
// sent to the leader, which keeps it behind the message with the number behind only; 0: in any
// case. room reports whether this broker takes another batch.
func (f *Fast) Take(t *Topic, m *protocol.Message, p *publish.FastPart, number uint64, room bool, now int64, to *Answers) (behind uint64, goesOn bool) {
	switch {
	case t != nil && t.Sealed:
		return f.refuse(to, m, &publish.SealedError{Topic: to.Topic})
	case t != nil && t.MaxMessage > 0 && len(m.Data) > t.MaxMessage:
		return f.refuse(to, m, &publish.TooLargeError{Topic: to.Topic, Size: len(m.Data), Max: t.MaxMessage})
	case t == nil || !t.Fast:
		return f.refuse(to, m, &publish.BatchError{Topic: to.Topic, Fault: publish.FastDisabled})
	case p.Invalid:
		return f.refuse(to, m, &publish.BatchError{Topic: to.Topic, Fault: publish.FastInvalid})
	case len(p.Batch) > maxID:
		return f.refuse(to, m, &publish.BatchError{Topic: to.Topic, Fault: publish.FastInvalidID})
	}
	b := f.open[string(p.Batch)]
	switch {
	case b != nil:
	case p.Sequence != 1 || p.Op == publish.FastPing:
		return f.refuse(to, m, &publish.BatchError{Topic: to.Topic, Fault: publish.FastUnknown})
	case !room || len(f.open) >= maxFast:
		return f.refuse(to, m, &publish.BatchError{Topic: to.Topic, Fault: publish.FastsOpen})
	default:
		b = f.begin(p)
	}
	if p.Unserved {
		f.drop(b, string(p.Batch))
		return f.refuse(to, m, &publish.BatchError{Topic: to.Topic, Fault: publish.BatchUnserved})
	}
	b.until = now + int64(maxAge)
	switch {
	case p.Op == publish.FastPing:
		f.ping(b, m, p, to)
		return 0, false
	case b.ended:
		return 0, false // its publisher waits for the answer to its end
	case p.Sequence != b.last+1:
		to.add(m.Reply, to.Codec.AppendGap(nil, b.last+1, p.Sequence))
		if !b.gapOK || p.Sequence <= b.last {
			f.end(b, p.Batch, m.Reply, to)
			return 0, false
		}
	}
	if p.Op == publish.FastEnd {
		b.last = p.Sequence - 1
		f.end(b, p.Batch, m.Reply, to)
		return 0, false
	}
	b.last = p.Sequence
	if p.Op == publish.FastCommit {
		b.ended, b.reply = true, slices.Clone(m.Reply)
	} else if p.Sequence == 1 {
		to.add(m.Reply, to.Codec.AppendFlow(nil, 0, b.every))
	}
	if !b.gapOK {
		behind = b.number
	}
	b.number = number
	b.sent = append(b.sent, sentOn{number: number, sequence: p.Sequence})
	strip(m, p.Strip)
	return behind, true
}

// refuse answers a message that belongs to no open batch of the Topic, or changes none.
func (f *Fast) refuse(to *Answers, m *protocol.Message, err error) (uint64, bool) {
	if !to.Silent {
		to.Out.Refusal(to.Codec, m.Reply, to.Topic, err)
	}
	return 0, false
}

// begin begins a batch with its first message. While others are open it begins slowly.
func (f *Fast) begin(p *publish.FastPart) *fast {
	b := &fast{gapOK: p.GapOK, most: p.Flow, every: min(p.Flow, maxFlow)}
	if len(f.open) > 0 {
		b.every = 1
	}
	if f.open == nil {
		f.open = map[string]*fast{}
	}
	f.open[string(p.Batch)] = b
	return b
}

// ping answers how far a batch has come. A ping behind its last message says that some are missing.
func (f *Fast) ping(b *fast, m *protocol.Message, p *publish.FastPart, to *Answers) {
	if p.Sequence > b.last && !b.ended {
		to.add(m.Reply, to.Codec.AppendGap(nil, b.last+1, p.Sequence+1))
		if !b.gapOK {
			if f.end(b, p.Batch, m.Reply, to) {
				return
			}
		} else if b.last = p.Sequence; f.flow(b, m.Reply, to) {
			return
		}
	}
	to.add(m.Reply, to.Codec.AppendFlow(nil, b.said, b.every))
}

// end ends a batch with its last message. done reports that all of them are settled, so that it is
// answered.
func (f *Fast) end(b *fast, id, reply []byte, to *Answers) (done bool) {
	b.ended, b.reply = true, slices.Clone(reply)
	return f.finish(b, id, to)
}

// finish answers the end of a batch if all of its messages are settled.
func (f *Fast) finish(b *fast, id []byte, to *Answers) (done bool) {
	if !b.ended || !b.allSettled() {
		return false
	}
	if !to.Silent && len(b.reply) > 0 {
		to.Out.Ack(to.Codec, b.reply, to.Topic, publish.Ack{Offset: b.offset, Records: int(b.last), Duplicate: b.again && b.last == 1, Batch: id})
	}
	delete(f.open, string(id))
	return true
}

// Settle notes what became of a message. abandoned are the numbers of messages that are not to be
// sent to another leader: a message before them in their batch is not kept.
func (f *Fast) Settle(p *publish.FastPart, number uint64, reply []byte, is Outcome, to *Answers) (abandoned []uint64) {
	b := f.open[string(p.Batch)]
	if b == nil {
		return nil
	}
	i := b.find(number)
	if i < 0 {
		return nil // of a former batch of that id
	}
	m := &b.sent[i]
	m.done, m.refused, m.offset, m.duplicate = true, is.Refused, is.Offset, is.Duplicate
	switch {
	case !is.Refused:
	case b.gapOK:
		if len(is.Refusal) > 0 {
			to.add(reply, to.Codec.AppendFailed(nil, m.sequence, is.Refusal))
		}
		if b.ended && m.sequence == b.last { // the commit itself
			b.last--
		}
	default: // of the refused messages this is the first, as far as is known
		for k := range b.sent[i+1:] {
			if behind := &b.sent[i+1+k]; !behind.done {
				abandoned = append(abandoned, behind.number)
			}
		}
		b.sent, b.refusal = b.sent[:i+1], slices.Clone(is.Refusal)
		if !b.ended {
			b.ended, b.reply = true, slices.Clone(reply)
		}
	}
	f.advance(b, p.Batch, reply, to)
	return abandoned
}

// find returns where an unsettled message stands in b.sent, or -1.
func (b *fast) find(number uint64) int {
	waiting := b.sent[b.head:]
	i := sort.Search(len(waiting), func(i int) bool { return waiting[i].number >= number })
	if i == len(waiting) || waiting[i].number != number || waiting[i].done {
		return -1
	}
	return b.head + i
}

// advance passes the messages that are settled, in their order, and answers what is due.
func (f *Fast) advance(b *fast, id, reply []byte, to *Answers) {
	for ; b.head < len(b.sent) && b.sent[b.head].done; b.head++ {
		switch m := &b.sent[b.head]; {
		case !m.refused:
			b.settled, b.offset, b.again = m.sequence, m.offset, m.duplicate
		case b.gapOK:
			b.settled = m.sequence
		case m.sequence == 1:
			if len(b.refusal) > 0 {
				to.add(b.reply, b.refusal)
			}
			delete(f.open, string(id))
			return
		default:
			if b.last = m.sequence - 1; len(b.refusal) > 0 {
				to.add(b.reply, to.Codec.AppendFailed(nil, m.sequence, b.refusal))
			}
		}
	}
	if b.head > 64 && b.head > len(b.sent)/2 || b.allSettled() {
		if b.sent, b.head = slices.Delete(b.sent, 0, b.head), 0; len(b.sent) == 0 && cap(b.sent) > 4*maxFlow {
			b.sent = nil
		}
	}
	if !f.finish(b, id, to) && !b.ended {
		f.flow(b, reply, to)
	}
}

// flow answers how far a batch has come if as many messages are settled as were announced. Then it
// announces the next number: half as many or twice as many, towards this batch's share.
func (f *Fast) flow(b *fast, reply []byte, to *Answers) bool {
	if b.allSettled() {
		b.settled = b.last // also what is missing
	}
	every := uint64(b.every)
	if b.settled < b.said+every {
		return false
	}
	b.said += (b.settled - b.said) / every * every
	share := min(b.most, uint16(max(maxFlow/len(f.open), 1)))
	if b.every < share {
		b.every = min(2*b.every, share)
	} else {
		b.every = max(b.every/2, share)
	}
	to.add(reply, to.Codec.AppendFlow(nil, b.said, b.every))
	return true
}

// Expire ends, without an answer, the batches for which nothing has come for maxAge and whose
// messages are all settled. If the Topic takes no fast batches, it ends all.
func (f *Fast) Expire(t *Topic, now int64) {
	for id, b := range f.open {
		if t == nil || !t.Fast || now >= b.until && b.allSettled() {
			f.drop(b, id)
		}
	}
}

// drop ends a batch without an answer. It stays until its messages are settled, so that those
// behind a refused one are abandoned.
func (f *Fast) drop(b *fast, id string) {
	if b.ended, b.reply = true, nil; b.allSettled() {
		delete(f.open, id)
	}
}

// allSettled reports whether no message of b waits for its leader.
func (b *fast) allSettled() bool { return b.head == len(b.sent) }

// add adds an answer. A batch that was dropped has no reply.
func (a *Answers) add(reply, answer []byte) {
	if !a.Silent && len(reply) > 0 {
		a.Out.Encoded(reply, answer)
	}
}
