package topic

import (
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/removing"
	"github.com/carillon-mq/carillon/broker/replica"
	"github.com/carillon-mq/carillon/broker/sender"
	"github.com/carillon-mq/carillon/broker/sourcing"
)

// arrive judges messages that a sender brought to this broker as the shard's leader. If it can't
// judge all of them, it asks the sender to send the rest again.
func (p *Shard) arrive(l *sender.Link, a *sender.Arrival) {
	s := p.topic.service
	in := intakes.Get().(*intake)
	in.from, in.seq = a, a.First
	in.back = a.Back(l)
	messages := publish.Transformed(p.view.Load().transform, a.Messages)
	took := true
	for len(messages) > 0 && took {
		v, shard := p.view.Load(), p.leading.Load()
		switch {
		case v.gone || v.unsupported != "" || v.lead && shard == nil && p.trouble.Load() != nil:
			in.refuseAll(p, messages, p.refusal())
			messages = nil
		case shard == nil:
			took = false
			p.waiters.Add(a.Back(l))
		case !v.lead || s.closing.Load() || a.Epoch < shard.begun || a.Epoch > shard.epoch.Load() || s.acker.FarBehind():
			took = false
		default:
			if in.why = shard.ahead.Refusal(&s.aheadBound, p.name); !shard.enough() {
				in.why = p.refusal()
			} else if in.why == nil && shard.ahead.Beyond(&s.aheadBound, 2) {
				took = false
				continue
			}
			messages = shard.appendMessages(in, v, messages)
			if took = !in.gap && !in.gone && in.lookup == 0; in.lookup > 0 {
				defer shard.awaitLookup(l, a, in.lookup, in.unread)
			}
		}
	}
	if !took {
		in.back.Again(p.at())
	}
	in.finish(p)
}

// Sources returns the sources of the shard, its durability, and the Keeper that knows how far they
// have come. Nothing is copied while nothing is readable, and into a sealed Topic.
func (s *ShardLeader) Sources() (all []coordination.StreamSource, d log.Durability, removed *removing.Keeper) {
	v := s.shard.view.Load()
	if s.readable.Load() && v.lead && !v.bound.Sealed && v.unsupported == "" {
		all = v.desired.Spec.Stream.Copies()
	}
	return all, v.durability, &s.removing
}

// Place returns where the shard is in its Topic.
func (s *ShardLeader) Place() sourcing.Place {
	return sourcing.Place{Number: s.shard.number, Topic: &s.shard.view.Load().desired.Spec}
}

// AppendSourced judges and appends messages of a source, in order, up to one that is refused or has
// to wait. What is appended is as durable as if it were published, and nobody is told when it is.
func (s *ShardLeader) AppendSourced(b *sourcing.Batch) {
	in := intakes.Get().(*intake)
	defer in.finish(s.shard)
	in.sourced = b
	for b.Err == nil && !b.Wait && b.Taken < len(b.Messages) {
		v := s.shard.view.Load()
		switch progress := s.removing.Progress(); {
		case !v.lead || v.gone || !s.enough() || !b.OneOf(v.desired.Spec.Stream.Copies()):
			b.Err = s.shard.refusal()
		case s.ahead.PushesBack(&s.service.aheadBound):
			b.Wait = true
			return
		default:
			_, end, _ := s.data.Offsets()
			b.Pass(&progress, end)
			if next, removed := b.Gap(s.data); next > 0 {
				in.lookup, b.Err = s.skip(in, v, next, removed)
			} else if b.Err == nil {
				s.appendMessages(in, v, publish.Transformed(v.transform, b.Rest()))
			}
		}
		if in.lookup == awaitsMark {
			s.removing.Mark(s.high.Load(), v.durability, func() {})
		}
		if b.Wait = in.lookup > 0; in.gone {
			b.Err = s.shard.refusal()
		}
	}
	if b.Passed(&s.removing) { // the records may be on all in-sync replicas for long
		s.removing.Commit(s.high.Load(), s.shard.view.Load().durability)
	}
}

// skip appends a batch without records up to an offset. If removed, limits don't count its offsets.
func (s *ShardLeader) skip(in *intake, v *view, next uint64, removed bool) (lookup uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed || next <= s.end:
		return 0, s.shard.refusal()
	case !s.removing.Marked():
		return awaitsMark, nil
	case removed:
		in.removed.Add(s.epoch.Load(), s.end, next)
	}
	defer in.removed.Reset()
	extensions, carries := in.removed.Carry(&s.removing, next, nil)
	p := s.acks.New(sender.Back{})
	p.Durability, p.End = v.durability, next
	if err = s.data.AppendBatch(log.Gap(s.epoch.Load(), s.end, next, in.sourced.Time(0), extensions), v.durability, p); err != nil {
		if carries {
			s.removing.Forget()
		}
		return 0, err
	}
	s.end = next
	s.leading.Load().Appended(replica.Data, s.end, true)
	if s.subjects != nil {
		s.subjects.Appended(s.end)
	}
	return 0, nil
}
