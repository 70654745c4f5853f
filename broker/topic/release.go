package topic

import (
	"errors"
	"fmt"

	"github.com/carillon-mq/carillon/broker/copystate"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/replica"
)

// stepDown ends leading or following a shard whose copy is in doubt. Nothing is confirmed any more.
func (s *Service) stepDown(p *Shard) {
	s.unfollow(p)
	if shard := p.leading.Load(); shard != nil {
		_ = s.closeLeader(p, shard, &publish.LeadershipLostError{Topic: p.topic.name, Why: "its copy on broker " + s.config.Name + " is damaged"}) // it closes no log
	}
}

// demote ends leading the shard, and keeps its logs open. Who waits for an answer is told that it isn't known.
func (s *Service) demote(p *Shard, v *view) {
	shard := p.leading.Load()
	if shard == nil {
		return
	}
	why := "nobody was chosen to lead it yet"
	if v.leader != "" && v.leader != s.config.Self {
		why = fmt.Sprintf("broker %s leads it now", s.nameOf(v.leader))
	}
	_ = s.closeLeader(p, shard, &publish.LeadershipLostError{Topic: p.topic.name, Why: why}) // it closes no log
}

// release ends whatever this broker does for the shard and closes its logs.
func (s *Service) release(p *Shard, why error) error {
	s.unfollow(p)
	if shard := p.leading.Load(); shard != nil {
		if of := p.view.Load().shard; of == nil || len(of.InSync) == 1 {
			// What was accepted is answered when the log is closed.
			return s.closeLeader(p, shard, nil)
		}
		_ = s.closeLeader(p, shard, why) // it closes no log
	}
	return s.closeLogs(p)
}

// setAside moves a damaged copy out of the way, so that it is fetched anew from the leader, and begins an empty
// one. The set doesn't name this life, so nobody counts on it.
func (s *Service) setAside(p *Shard, v *view) error {
	s.unfollow(p)
	if err := s.closeLogs(p); err != nil {
		return err
	}
	s.apply(p, copystate.Aside{})
	p.own.reached = [replica.Parts]uint64{}
	s.counts.refetched.Add(1)
	if err := s.moveAside(p, "a damaged copy was set aside and is fetched anew from its leader; delete it if nobody misses it"); err != nil {
		return err
	}
	return s.openLogs(p, v)
}

// forgetCopy is for a copy that isn't there any more.
func (s *Service) forgetCopy(p *Shard) {
	p.own.state, p.own.reached, p.own.closed = copystate.State{}, [replica.Parts]uint64{}, 0
	p.own.follows.Store(0)
	p.own.doubted.Store(false)
	p.own.grave.Store(false)
	p.own.events.Take()
	s.reports.Clear(p.topic.id, p.number)
	s.unknow(p, replica.Data, replica.State)
}

// drop lets go of a shard that this broker has no replica of any more. If that was planned, other brokers
// took it over and its copy goes. Otherwise it isn't ours to delete.
func (s *Service) drop(p *Shard) error {
	if ids := p.logIDs(); p.logs == nil && !s.stands(ids[replica.Data].Name()) && !s.stands(ids[replica.State].Name()) {
		s.forgetCopy(p)
		return nil
	}
	if err := s.release(p, &publish.LeadershipLostError{Topic: p.topic.name, Why: "other brokers have its replicas now"}); err != nil {
		return err
	}
	if p.removing.Load() {
		s.log.Info("a replica was moved to other brokers; its copy here is deleted", "topic", p.Name())
		return s.deleteCopy(p)
	}
	defer s.forgetCopy(p)
	return s.moveAside(p, "other brokers keep the replicas of a shard that this one had; its copy here was set aside; delete it if nobody misses it")
}

func (s *Service) deleteLogs(p *Shard) error {
	if err := s.release(p, &publish.NotServedError{Topic: p.topic.name, Reason: publish.BeingDeleted, Why: "it is being deleted"}); err != nil {
		return err
	}
	return s.deleteCopy(p)
}

func (s *Service) deleteCopy(p *Shard) error {
	var errs []error
	for _, id := range p.logIDs() {
		errs = append(errs, s.config.Disk.Delete(id.Name()))
	}
	s.forgetCopy(p)
	return errors.Join(errs...)
}
