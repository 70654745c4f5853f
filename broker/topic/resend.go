package topic

import (
	"github.com/carillon-mq/carillon/broker/forward"
	"math"
	"time"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
)

// What is published to the leader itself has numbers as well, of the same source and in the same order as what is forwarded, and its
// batches say so. So when others lead before it is safe everywhere, it goes to the next leader as what was forwarded does: that one knows which of
// it stands in its log. The messages themselves need no copy until then: they stand in this broker's log, which is not truncated before.

// reserve gives numbers to messages that this broker takes as the leader. It returns the first, and below which all is settled. There
// are none if meanwhile others have to go before: a number that is judged before a smaller one would have that forgotten.
func (f *sender) reserve(n int) (first, floor uint64, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.quiet.Load() {
		return 0, 0, false
	}
	first = f.box.Next()
	judged := f.landed == first
	f.box.Skip(n)
	if judged {
		f.landed = f.box.Next()
	}
	if f.direct.none() {
		f.direct.first = first
	}
	f.direct.next = f.box.Next()
	return first, f.floor(), true
}

// floor is below which all is settled. mu is held.
func (f *sender) floor() uint64 {
	if f.direct.none() {
		return f.box.First
	}
	return min(f.box.First, f.direct.first)
}

// unreserve takes back the last numbers that were given: nothing was kept.
func (f *sender) unreserve(first uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.direct.next = max(first, f.direct.first)
}

// took notes that all below a number that was taken here is answered, or has a place in the outbox.
func (f *sender) took(next uint64) {
	f.mu.Lock()
	f.direct.first = min(max(f.direct.first, next), f.direct.next)
	waits := f.direct.none() && !f.box.Empty()
	f.mu.Unlock()
	if waits {
		f.fw.poke()
	}
}

// numbers are those of messages that were taken here as the leader, as they stand in one batch.
type numbers struct {
	first  uint64 // number; 0: they have none
	count  int
	base   uint64 // offset
	header []byte // of the one message that brought all records, or nothing
}

func (n *numbers) next() uint64 { return n.first + uint64(n.count) }

// number gives numbers to the local messages of a batch. mu is held.
func (s *ShardLeader) number(in *intake, p *pending, count int) {
	f := s.shard.sender()
	first, floor, ok := f.reserve(count)
	if !ok {
		return
	}
	p.numbered.first, p.numbered.count, p.numbered.base = first, count, s.end
	in.origin = s.origins.Of(s.service.forwards.source, floor)
	in.origin.Heard = forward.Mono()
	in.spans = append(in.spans, forward.Span{First: first, Offset: s.end, Count: uint32(count), Records: uint32(in.append.Packed.Count)})
	in.sign(s.service.forwards.source, floor)
}

// settleAppends waits until the disk has said what became of all that was appended, and says whether all is there. Nothing is
// appended any more.
func (s *ShardLeader) settleAppends() bool {
	return s.durability == log.Memory || s.data.Flush() == nil
}

// resend puts messages into the outbox that are not safe everywhere and were taken here, while another broker leads. It
// returns the offset up to which it did: publishers of the others are told that it isn't known what became of them.
func (s *ShardLeader) resend(p *pending) (end uint64) {
	f, at := s.shard.sender(), forward.Mono()
	fw := f.fw
	f.mu.Lock()
	defer f.mu.Unlock()
	end = p.numbered.base
	full := func() bool { return fw.bytes.Load() > 2*outboxBytes || fw.messages.Load() > 2*outboxMessages }
	if full() {
		return end
	}
	answers := p.answers
	restore := func(seq, offset uint64, m *protocol.Message) {
		for len(answers) > 0 && (answers[0].kind != isKept || answers[0].offset < offset) {
			answers = answers[1:]
		}
		if len(answers) > 0 && answers[0].offset == offset {
			m.Reply = p.reply(&answers[0])
		}
		f.box.Restore(seq, m, at)
	}
	_, err := scanBatches(s.data, end, p.end, math.MaxInt64, func(b log.Batch, _ uint64) (more bool, err error) {
		if b.Base() >= p.end {
			return false, nil
		}
		if subject, records, packed := b.Packed(); packed {
			m := protocol.Message{Subject: subject, Header: len(p.numbered.header), Data: append(p.numbered.header, records...)}
			restore(p.numbered.first, p.end-1, &m)
			end = p.end
			return true, nil
		}
		it := b.Records()
		for r := (log.Record{}); it.Next(&r); end++ {
			restore(p.numbered.first+r.Offset-p.numbered.base, r.Offset, &protocol.Message{Subject: r.Subject, Header: r.Header, Data: r.Data})
		}
		return true, it.Err()
	})
	if err != nil {
		s.service.log.Warn("messages that are to go to the next leader can't be read", "topic", s.shard.name, "error", err)
	}
	f.broken, f.rest, f.landed = true, time.Time{}, 0 // another round, even if this broker leads again in the same epoch
	f.hush()
	if f.account(); !f.listed {
		f.list()
	}
	return end
}
