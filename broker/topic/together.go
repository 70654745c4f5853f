package topic

import (
	"slices"

	"github.com/carillon-mq/carillon/broker/acking"
	"github.com/carillon-mq/carillon/broker/batching"
	"github.com/carillon-mq/carillon/broker/dedup"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
)

// judgeBatch judges an atomic batch as judge does a message: all of its messages are gathered, or
// none is. If others were gathered, in.alone is set, and they are appended first. mu is held.
func (s *ShardLeader) judgeBatch(in *intake, p *acking.Pending, v *view, batch *protocol.Message, now, mono int64) bool {
	if in.alone = len(in.records) > 0; in.alone {
		return false
	}
	ok := false
	if in.parts, ok = batching.Parts(in.parts[:0], batch); !ok || v.batches == nil || !v.batches.Atomic {
		in.refuse(s.shard, &publish.BatchError{Topic: s.shard.name})
		return false
	}
	parts := publish.Transformed(v.transform, in.parts)
	in.rules.Reset()
	for i := range parts { // before anything of the batch is noted
		if !s.mayJoin(in, p, v, &parts[i], s.end+uint64(i), now) {
			in.parts = append(in.parts[:0], parts[i:]...)
			return false
		}
	}
	known, id, idKnown := s.ids.Len(), slices.Clone(s.lastID), s.lastKnown
	if s.subjects != nil {
		s.subjects.Try()
	}
	for i := range parts {
		m := &parts[i]
		c, _ := s.conditions(m)
		if i > 0 && in.removed.Full() {
			in.refuse(s.shard, &publish.BatchError{Topic: s.shard.name, Fault: publish.BatchTooLarge, What: "it removes too many messages"})
		} else if s.accept(in, p, v, m, &c, now, mono) {
			in.records = append(in.records, in.record(m, now))
			continue
		}
		s.undo(known) // of other subjects everything stays known
		s.lastID, s.lastKnown = id, idKnown
		clear(in.records)
		in.records, in.again, in.stored = in.records[:0], in.again[:0], 0
		in.removed.Reset()
		return false
	}
	in.alone = true
	p.Kept(s.end, acking.Answer{Offset: s.end + uint64(len(parts)) - 1, Records: uint32(len(parts)), Seq: in.seq})
	return true
}

// mayJoin reports whether a message may be part of the batch at an offset. If not, it refuses the
// batch, or the batch waits. mu is held.
func (s *ShardLeader) mayJoin(in *intake, p *acking.Pending, v *view, m *protocol.Message, next uint64, now int64) bool {
	in.noted = true
	c, refusal := s.conditions(m)
	if refusal == nil && c.Copied {
		refusal = &publish.CopyError{Topic: s.shard.name}
	}
	if refusal == nil {
		refusal = in.rules.Refusal(s.shard.name, m.Subject, &c, next-1)
	}
	if refusal == nil && len(c.ID) > 0 && v.window > 0 {
		if in.first = !s.marked; in.first {
			return false
		}
		if _, ok := s.ids.Find(dedup.HashOf(c.ID)); ok {
			refusal = &publish.BatchError{Topic: s.shard.name, Fault: publish.BatchDuplicate}
		}
	}
	expires := int64(0)
	if refusal == nil {
		expires, refusal = v.expiry.Expires(s.shard.name, m.Subject, &c, now, &s.removing)
	}
	switch {
	case publish.Falsifiable(refusal):
		s.answer(in, p, v, nil, acking.Answer{Offset: s.end - 1, Kind: acking.Refusal, Err: refusal})
		return false
	case refusal != nil:
		in.refuse(s.shard, refusal)
		return false
	case expires > 0 && !s.removing.Marked():
		in.lookup = awaitsMark
		return false
	case c.ExpectsLast && c.ExpectedLast != next-1:
		s.condition(in, p, v, nil, &publish.WrongLastError{Topic: s.shard.name, Last: next - 1})
		return false
	}
	return s.count(in, v, m, &c) && (!c.ExpectsLastBySubject || s.lastIs(in, p, v, c.LastOf(m.Subject), c.ExpectedLastBySubject)) && s.displaces(in, v, m, &c) &&
		s.follows(in, v, m)
}
