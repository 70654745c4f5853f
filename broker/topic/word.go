package topic

import (
	"errors"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/replica"
)

// say writes a word about the copy to the shard's key, unless one is under way.
func (s *Service) say(p *Shard, v *view, what replica.Word, leads bool) {
	me, registered := s.State().Broker(s.config.Self)
	if !registered || !p.own.word.Begin(what, v.shard, me.Replica()) {
		return
	}
	s.config.Exchange.Say(what, me.Replica(), v.shard, p.reach(), leads, func(after *coordination.Shard, err error) {
		_, stale := errors.AsType[*coordination.StaleError](err)
		p.own.word.Answered(err == nil, err == nil || stale)
		switch {
		case err == nil && what == replica.Withdraw:
			s.log.Warn("withdrew a copy from the in-sync set", "topic", p.Name(), "epoch", after.Epoch)
		case err == nil && what == replica.Resign:
			s.log.Warn("resigned, to lead under another epoch only", "topic", p.Name(), "epoch", after.Epoch)
		case err != nil && !stale && s.ctx.Err() == nil:
			s.log.Debug("could not say in the shard's key what a copy is; trying again", "topic", p.Name(), "saying", what.String(), "error", err)
			s.openMu.Lock()
			s.unsaid[p] = struct{}{}
			s.openMu.Unlock()
			return
		}
		s.wake(p) // another word may be due
	})
}

// sayAgain wakes the shards whose last word was not written.
func (s *Service) sayAgain() {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	for p := range s.unsaid {
		s.wake(p)
	}
	clear(s.unsaid)
}
