package topic

import (
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/sender"
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
		case !v.lead || s.closing.Load() || a.Epoch < shard.begun || a.Epoch > shard.epoch.Load() || s.acker.unanswered.Load() > 2*maxUnanswered:
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
