package topic

import (
	"errors"
	"fmt"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/copystate"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/publish"
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
	data := p.logs.parts[replica.Data]
	one := coordination.Suspect{
		Topic: p.topic.id, Shard: p.number, End: reach(data), State: reach(p.logs.parts[replica.State]),
		Cut: state.Doubts() == copystate.Cut,
	}
	if !state.Anew() {
		one.Lacks = p.logs.lacking()
	}
	if epochs := data.Epochs(); len(epochs) > 0 {
		one.Epoch = epochs[len(epochs)-1].Epoch
	}
	if v.restored {
		one.Whole, one.Known = state.Whole(), max(p.known.Load(), data.Meta().Epoch)
		if epochs := p.logs.parts[replica.State].Epochs(); len(epochs) > 0 {
			one.StateEpoch = epochs[len(epochs)-1].Epoch
		}
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

// Unreadable judges why a log of this shard cannot be read. A *log.CorruptError is returned as it
// is only if no other replica may have what is damaged: it is lost, and readers skip it. Otherwise
// the copy is in doubt, and the error is a *publish.NotServedError: reading is to be tried again,
// until another replica leads. Any other error is returned as it is.
func (s *ShardLeader) Unreadable(err error) error {
	damage, ok := errors.AsType[*log.CorruptError](err)
	if !ok || s.leading.Load() == nil { // a follower asks already, and will ask again
		return err
	}
	v, self := s.shard.view.Load(), s.service.config
	no := func(format string, args ...any) error {
		return &publish.NotServedError{Topic: s.topic.name, Reason: publish.Troubled, Leader: self.Self, Why: fmt.Sprintf(format, args...)}
	}
	others := s.service.othersCanLead(v)
	if (others || v.shard != nil && len(v.shard.Replicas) > 1 && damage.Next > damage.From) && !s.shard.own.grave.Load() {
		s.service.queueDamage(s.shard, damageFound+damage.Error())
	}
	if others {
		return no("the copy on broker %s is damaged, and another one is to lead; try again", self.Name)
	}
	if elsewhere := s.elsewhere(v, damage); elsewhere != "" {
		return no("%s", elsewhere)
	}
	return err
}
