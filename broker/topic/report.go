package topic

import (
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/copystate"
	"github.com/carillon-mq/carillon/broker/replica"
)

// Suspects returns for how many shards this broker doesn't vouch for its copy.
func (s *Service) Suspects() int {
	return s.reports.Doubted()
}

// report notes how far a copy goes for the controller, if it is in doubt or of a restored shard. v
// is the view with which the pass began.
func (s *Service) report(p *Shard, v *view) {
	state := p.own.state
	if state.Whole() && !v.restored {
		s.changeReport(p, v, func() { s.reports.Clear(p.topic.id, p.number) })
		return
	}
	if p.logs == nil {
		return // reported once the logs are open again
	}
	one := p.logs.parts.Suspect(p.topic.id, p.number)
	one.Cut = state.Doubts() == copystate.Cut
	if !state.Anew() {
		one.Lacks = p.logs.parts.Lacking()
	}
	if v.restored {
		one.Whole, one.Known = state.Whole(), max(p.known.Load(), p.logs.parts[replica.Data].Meta().Epoch)
		one.StateEpoch = p.logs.parts.StateEpoch()
	}
	s.changeReport(p, v, func() { s.reports.Set(one) })
}

// changeReport changes the report about a copy, unless etcd was restored since the pass began: the
// copy may still be led or followed here then. The next pass, in which it no longer changes,
// reports how far it goes.
func (s *Service) changeReport(p *Shard, v *view, change func()) {
	s.mu.RLock() // Follow sets the view and enters the generation at once
	defer s.mu.RUnlock()
	if now := p.view.Load(); now == v || !now.restored {
		change()
	}
}

// suspectClosed returns the report of a copy whose logs can't be opened: how far it went when this
// process last closed them.
func (p *Shard) suspectClosed() coordination.Suspect {
	return coordination.Suspect{Topic: p.topic.id, Shard: p.number, Epoch: p.own.epoch,
		End: p.own.reached[replica.Data], State: p.own.reached[replica.State], Closed: true}
}

// notReported logs that the reports could not be written to etcd.
func (s *Service) notReported(err error) {
	s.log.Warn("which copies this broker doubts could not be reported; trying again", "error", err)
}
