package topic

import (
	"github.com/carillon-mq/carillon/broker/copystate"
	"github.com/carillon-mq/carillon/broker/replica"
)

// repair starts to fetch the segments that the logs lack. repaired reports that they lack none.
func (s *Service) repair(p *Shard, v *view) (repaired bool, err error) {
	if p.repair != nil && !p.repair.offers {
		p.following.Adopt(v.shard)
		return false, nil
	}
	s.unfollow(p)
	p.mended = true
	for _, part := range p.logs.parts {
		if _, err := part.SealDamagedTail(); err != nil {
			return false, err
		}
	}
	n := p.logs.parts.Lacking()
	if n == 0 {
		s.apply(p, copystate.Repaired{}) // retention deleted what was damaged
		return true, nil
	}
	s.log.Warn("the damaged segments of a copy are fetched from its leader, and set aside", "topic", p.Name(), "segments", n, "leader", s.BrokerName(v.leader))
	if err := p.mayHoldIDs(v); err != nil {
		return false, err
	}
	m := &repair{}
	p.repair, p.followed = m, v.durability
	p.following = s.config.Exchange.Follow(replica.FollowConfig{
		ID: p.id(), Shard: v.shard, Durability: v.durability, Logs: p.logs.parts,
		RepairEnded: func(err error) { m.done.Store(&err); s.wake(p) }, Failed: p.failed(s),
	})
	return false, nil
}

// offer lets the leader take what it lacks of a copy that is to be set aside.
func (s *Service) offer(p *Shard, v *view) {
	if m := p.repair; m != nil && m.offers && m.unwanted.Load() == 0 {
		p.following.Adopt(v.shard)
		return
	}
	s.unfollow(p)
	m := &repair{offers: true}
	p.repair, p.followed = m, v.durability
	p.following = s.config.Exchange.Follow(replica.FollowConfig{
		ID: p.id(), Shard: v.shard, Durability: v.durability, Logs: p.logs.parts, Failed: p.failed(s),
		Unwanted: func(epoch int64) { m.unwanted.Store(epoch); s.wake(p) },
	})
}

// finishRepair ends a repair that is done. The logs are then closed, or the copy is unrepairable.
func (s *Service) finishRepair(p *Shard) error {
	if p.repair == nil || p.repair.done.Load() == nil {
		return nil
	}
	err := *p.repair.done.Load()
	s.unfollow(p)
	if err != nil {
		s.log.Warn("damaged segments can't be fetched alone, so the whole copy is", "topic", p.Name(), "error", err)
		s.apply(p, copystate.Unrepairable{Reason: "damaged segments can't be fetched alone: " + err.Error()})
		return p.keepState()
	}
	s.log.Info("a damaged copy is whole again", "topic", p.Name())
	s.apply(p, copystate.Repaired{})
	if err := p.keepState(); err != nil {
		return err
	}
	return s.closeLogs(p) // opening them judges the copy again
}

// takeEvents applies the queued events of the copy.
func (s *Service) takeEvents(p *Shard) {
	for _, e := range p.own.events.Take() {
		if _, damage := e.(copystate.DamageFound); damage {
			if p.logs == nil {
				continue // opening them finds it
			}
			s.noteDamage(p)
		}
		if _, contradicted := e.(copystate.Contradicted); contradicted {
			s.unfollow(p) // following again as a copy in doubt sets its committed records aside
		}
		s.apply(p, e)
	}
}
