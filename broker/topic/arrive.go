package topic

import (
	"github.com/carillon-mq/carillon/broker/dedup"
	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/sender"
)

// arrive judges messages that a sender brought to this broker as the shard's leader. If it can't judge all of
// them, it tells the sender to send them again.
func (p *Shard) arrive(l *sender.Link, a *sender.Arrival) {
	s := p.topic.service
	in := intakes.Get().(*intake)
	in.from, in.seq = a, a.First
	in.back = a.Back(l)
	messages := a.Messages
	took := true
	for len(messages) > 0 && took {
		v, shard := p.view.Load(), p.leading.Load()
		switch {
		case v.gone || v.unsupported != "" || v.lead && shard == nil && p.trouble.Load() != nil:
			in.refuseAll(p, messages, p.refusal())
			messages = nil
		case shard == nil:
			took = false
			p.callLater(l, a)
		case !v.lead || s.closing.Load() || a.Epoch < shard.begun || a.Epoch > shard.epoch.Load() || s.acker.unanswered.Load() > 2*maxUnanswered:
			took = false
		default:
			if in.why = shard.stall(); !shard.enough() {
				in.why = p.refusal()
			} else if in.why == nil && shard.ahead.beyond(&s.aheadBound, 2) {
				took = false
				continue
			}
			messages = shard.put(in, v, messages)
			took = !in.gap && !in.gone
		}
	}
	if !took {
		in.back.Again(p.at())
	}
	in.finish(p)
}

// callLater has a broker told when the shard is open.
func (p *Shard) callLater(l *sender.Link, a *sender.Arrival) {
	p.turned.Lock()
	defer p.turned.Unlock()
	b := a.Back(l)
	for i := range p.turned.away {
		if p.turned.away[i].Same(b) {
			p.turned.away[i] = b
			return
		}
	}
	p.turned.away = append(p.turned.away, b)
}

// call tells those that were turned away that the shard is open.
func (p *Shard) call() {
	p.turned.Lock()
	away := p.turned.away
	p.turned.away = nil
	p.turned.Unlock()
	for i := range away {
		away[i].Ready(p.at())
	}
}

// met is what came of a forwarded message before it is judged.
type met uint8

const (
	isNew   met = iota
	isKnown     // it was judged before, and is answered again
	isGap       // others have to come before
)

// meet looks whether a forwarded message was judged before. mu is held.
func (s *ShardLeader) meet(in *intake, p *pending, v *view, m *protocol.Message) met {
	o, seq := in.origin, in.seq
	switch {
	case seq > o.Last+1:
		return isGap
	case seq > o.Last && len(m.Subject) == 0: // its source doesn't want to know
		o.Last = seq
		return isKnown
	case seq > o.Last && (seq >= in.from.Below || s.origins.Knows(o, o.Heard-2*int64(forward.OutboxTime))):
		if in.why == nil {
			return isNew
		}
		o.Last = seq
		in.refuse(s.shard, in.why)
		return isKnown
	}
	if len(m.Subject) == 0 {
		return isKnown
	}
	if offset, records, ok := o.Find(seq); ok {
		s.service.counts.deduplicated.Add(1)
		if offset >= s.high.Load() {
			p.answers = append(p.answers, answer{offset: offset, records: records, seq: seq})
		} else {
			in.answers.Single(seq, offset, records, false)
		}
		return isKnown
	}
	out, ok := o.Settled[seq]
	switch {
	case ok && out.Duplicate, ok && publish.Falsifiable(out.Err):
		kind := isDuplicate
		if !out.Duplicate {
			kind = isRefusal
		}
		s.answer(in, p, v, nil, answer{offset: out.Offset, kind: kind, err: out.Err})
	case ok:
		in.answers.Refused(seq, s.service.config.Codec, s.shard.name, out.Err)
	default:
		if offset, known := s.knownID(v, m); known {
			s.answer(in, p, v, nil, answer{offset: offset, kind: isDuplicate})
			break
		}
		o.Last = max(o.Last, seq)
		in.refuse(s.shard, &publish.ForgottenError{Topic: s.shard.name})
	}
	return isKnown
}

// knownID says where the message with the same id is kept. mu is held.
func (s *ShardLeader) knownID(v *view, m *protocol.Message) (offset uint64, ok bool) {
	if m.Header == 0 || v.window <= 0 {
		return 0, false
	}
	c, err := s.service.config.Codec.Conditions(m.Data[:m.Header])
	if err != nil || len(c.ID) == 0 {
		return 0, false
	}
	return s.ids.Find(dedup.HashOf(c.ID))
}

// note keeps that a forwarded message was judged, for when it comes again, and for the log if it is kept: with its first record at
// offset. mu is held.
func (in *intake) note(keep bool, offset uint64, records int) {
	o, seq := in.origin, in.seq
	o.Last = seq
	switch n := len(in.spans); {
	case !keep:
		if _, said := o.Settled[seq]; !said { // it was not meant to be kept
			o.Settle(seq, forward.Outcome{})
			in.answers.Refused(seq, nil, "", nil)
		}
	case n > 0 && records == 0 && in.spans[n-1].End() == seq:
		in.spans[n-1].Count++
	default:
		in.spans = append(in.spans, forward.Span{First: seq, Offset: offset, Count: 1, Records: uint32(records)})
	}
}

// sign has the batch say whose messages it holds.
func (in *intake) sign(source, floor uint64) {
	in.signature = forward.AppendExtension(in.signature[:0], source, floor, in.spans)
	in.extensions = append(in.extensions, log.Extension{Type: forward.ExtensionType, Data: in.signature})
}

// appended notes of the messages that were appended, or that they weren't. mu is held.
func (in *intake) appended(err error) {
	for i := range in.spans {
		k := &in.spans[i]
		if err == nil {
			in.origin.Keep(*k, in.origin.Heard)
			continue
		}
		for seq := k.First; seq < k.End(); seq++ {
			in.origin.Settle(seq, forward.Outcome{Err: err})
		}
	}
	in.spans = in.spans[:0]
}
