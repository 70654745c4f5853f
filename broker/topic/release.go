package topic

import (
	"errors"
	"fmt"
	"slices"

	"github.com/carillon-mq/carillon/broker/copystate"
	"github.com/carillon-mq/carillon/broker/inventory"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/replica"
)

// stepDown ends leading or following a shard whose copy is in doubt. It confirms nothing any more.
func (s *Service) stepDown(p *Shard) {
	s.unfollow(p)
	if shard := p.leading.Load(); shard != nil {
		_ = s.closeLeader(p, shard, &publish.LeadershipLostError{Topic: p.topic.name, Why: "its copy on broker " + s.config.Name + " is damaged"})
	}
}

// demote ends leading the shard and keeps its logs open. Pending publishes go to the next leader.
func (s *Service) demote(p *Shard, v *view) {
	shard := p.leading.Load()
	if shard == nil {
		return
	}
	why := "nobody was chosen to lead it yet"
	if v.leader != "" && v.leader != s.config.Self {
		why = fmt.Sprintf("broker %s leads it now", s.BrokerName(v.leader))
	}
	_ = s.closeLeader(p, shard, &publish.LeadershipLostError{Topic: p.topic.name, Why: why})
}

// release ends leading or following a shard, and closes its logs.
func (s *Service) release(p *Shard, why error) error {
	s.unfollow(p)
	if shard := p.leading.Load(); shard != nil {
		if of := p.view.Load().shard; of == nil || len(of.InSync) == 1 {
			// Closing the log completes all accepted messages.
			return s.closeLeader(p, shard, nil)
		}
		_ = s.closeLeader(p, shard, why)
	}
	return s.closeLogs(p)
}

// setAside sets a damaged copy aside and begins an empty one, which is fetched from the leader. The
// in-sync set doesn't have this incarnation, so nothing relies on the copy.
func (s *Service) setAside(p *Shard, v *view) error {
	s.unfollow(p)
	if err := s.closeLogs(p); err != nil {
		return err
	}
	s.apply(p, copystate.MovedAside{})
	p.own.reached = [replica.Parts]uint64{}
	s.counts.refetched.Add(1)
	if err := s.moveAside(p, "a damaged copy was set aside and is fetched anew from its leader"); err != nil {
		return err
	}
	return s.openLogs(p, v)
}

// moveAside sets the closed logs of a shard aside, for a reason.
func (s *Service) moveAside(p *Shard, reason string) error {
	ids := p.logIDs()
	return s.stored.MoveAside(ids[:], p.Name(), reason)
}

// forgetCopy resets the state of a copy whose logs are gone.
func (s *Service) forgetCopy(p *Shard) {
	s.apply(p, copystate.Gone{})
	p.own.reached = [replica.Parts]uint64{}
	p.own.events.Take()
	s.reports.Clear(p.topic.id, p.number)
	for _, id := range p.logIDs() {
		s.stored.Gone(id.Name())
	}
}

// drop ends serving a shard that has no replica on this broker any more. If the replica was moved
// away by plan, in this generation of etcd, its copy is deleted. Otherwise it is set aside.
func (s *Service) drop(p *Shard, v *view) error {
	if ids := p.logIDs(); p.logs == nil && !s.stored.Has(ids[replica.Data].Name()) && !s.stored.Has(ids[replica.State].Name()) {
		s.forgetCopy(p)
		return nil
	}
	if err := s.release(p, &publish.LeadershipLostError{Topic: p.topic.name, Why: "other brokers have its replicas now"}); err != nil {
		return err
	}
	if v.shard != nil && p.removing.Load() == 1+v.shard.Generation {
		s.log.Info("a replica was moved to other brokers; its copy here is deleted", "topic", p.Name())
		return s.deleteCopy(p)
	}
	defer s.forgetCopy(p)
	return s.moveAside(p, inventory.KeptElsewhere)
}

// clear notes that a shard of a removed Topic has no logs here any more. v is the view with which
// the pass began: the Topic may be back.
func (s *Service) clear(p *Shard, v *view) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.cleared = p.view.Load() == v
	if t := p.topic; !slices.ContainsFunc(t.shards, func(p *Shard) bool { return !p.cleared }) && s.removed[t.id] == t {
		delete(s.removed, t.id)
	}
}

// deleteLogs ends serving a shard of a deleted Topic, and deletes its copy.
func (s *Service) deleteLogs(p *Shard) error {
	if err := s.release(p, &publish.NotServedError{Topic: p.topic.name, Reason: publish.BeingDeleted, Why: "it is being deleted"}); err != nil {
		return err
	}
	return s.deleteCopy(p)
}

// deleteCopy deletes the closed logs of a shard.
func (s *Service) deleteCopy(p *Shard) error {
	var errs []error
	for _, id := range p.logIDs() {
		errs = append(errs, s.config.Disk.Delete(id.Name()))
	}
	s.forgetCopy(p)
	return errors.Join(errs...)
}
