package topic

import (
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/replica"
)

// enter begins the generation of a State, if it is another one: all copies of restored shards are
// to be reported, also those that the restored shard does not name. mu is held.
func (s *Service) enter(state *coordination.State) {
	if s.reports.Generation() == state.Generation {
		return
	}
	var opening []coordination.Suspect
	var held []*Shard
	for _, t := range s.byID {
		for _, p := range t.shards {
			if s.heldBack(p, p.view.Load()) {
				opening, held = append(opening, coordination.Suspect{Topic: t.id, Shard: p.number, Opening: true}), append(held, p)
			}
		}
	}
	if s.reports.Enter(state.Generation, opening) {
		for _, p := range held { // a worker may have reported it already; it reports it again
			s.wake(p)
		}
	}
}

// heldBack reports whether this broker has, or is to have, a copy of a shard of an earlier
// generation.
func (s *Service) heldBack(p *Shard, v *view) bool {
	return v.restored && (v.member || s.stored.Has(p.logIDs()[replica.Data].Name()))
}

// holdUnplaced treats a shard without a key as one of an earlier generation if there is a log of it
// here: the backup that etcd was restored from is older than the shard. mu is held.
func (s *Service) holdUnplaced(p *Shard, v *view, state *coordination.State) {
	if v.shard == nil && !v.gone && state.Generation > 0 && s.stored.Has(p.logIDs()[replica.Data].Name()) {
		v.shard, v.restored = &coordination.Shard{Topic: p.topic.id, Number: p.number}, true
	}
}

// standStill ends leading and following a shard of an earlier generation, and reports how far its
// copy goes. From then on the copy doesn't change until the controller has compared all of them.
func (s *Service) standStill(p *Shard, v *view) error {
	if s.firstLife.Load() == 0 {
		return nil
	}
	if !s.heldBack(p, v) && p.logs == nil {
		s.forgetCopy(p)
		return nil
	}
	s.demote(p, v)
	if err := s.finishRepair(p); err != nil {
		return err
	}
	s.unfollow(p)
	if err := s.openLogs(p, v); err != nil {
		s.cannotOpen(p, v)
		return err
	}
	s.takeEvents(p)
	if err := p.keepState(); err != nil {
		return err
	}
	s.report(p, v)
	return nil
}

// setVanishedAside moves the logs of a Topic aside that etcd lacks since it was restored from a
// backup: the Topic was not deleted.
func (s *Service) setVanishedAside(p *Shard) error {
	if err := s.release(p, &publish.NotServedError{Topic: p.topic.name, Reason: publish.BeingDeleted, Why: "etcd was restored from a backup that lacks it"}); err != nil {
		return err
	}
	if err := s.moveAside(p, "etcd was restored from a backup that lacks this Topic; its log was set aside"); err != nil {
		return err
	}
	s.forgetCopy(p)
	return nil
}
