package topic

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/replica"
)

// suspect reports that this broker can't vouch for its copy of a shard, so that it isn't chosen to
// lead while another one can. It returns when that is known to all.
func (s *Service) suspect(p *Shard, v *view) error {
	s.noteDamage(p)
	epochs := p.logs.parts[replica.Data].Epochs()
	end, state := reach(p.logs.parts[replica.Data]), reach(p.logs.parts[replica.State])
	one := coordination.Suspect{Topic: p.topic.id, Shard: p.number, End: end, State: state, Lacks: p.logs.lacking()}
	if n := len(epochs); n > 0 {
		one.Epoch = epochs[n-1].Epoch
	}
	if err := s.say(one); err != nil {
		return fmt.Errorf("its copy on broker %s is damaged (%s), and that could not be reported: %w", s.config.Name, p.logs.damage, err)
	}
	p.suspectSince = v.epoch
	return nil
}

// reach is how far a log goes. If its last segments are missing that is less than where its next record will stand.
func reach(l *log.Log) (end uint64) {
	start, _, _ := l.Offsets()
	if infos := l.SegmentInfos(); len(infos) > 0 {
		return max(start, infos[len(infos)-1].End)
	}
	return start
}

// say reports one replica.
func (s *Service) say(one coordination.Suspect) error {
	s.suspectMu.Lock()
	defer s.suspectMu.Unlock()
	id := replica.ID{Topic: one.Topic, Shard: one.Shard}
	before, ok := s.suspects[id]
	if ok && before == one {
		return nil
	}
	s.suspects[id] = one
	if err := s.reportLocked(); err != nil {
		delete(s.suspects, id)
		return err
	}
	return nil
}

// spend reports that this broker needs another epoch to lead: its logs failed, and are open again without what was under way,
// which followers may have. What is appended under the old epoch now would make two records of one offset and epoch.
func (s *Service) spend(p *Shard, v *view) error {
	s.log.Warn("a log that failed is open again; it is led under the next epoch", "topic", p.Name(), "epoch", v.epoch)
	if err := s.say(coordination.Suspect{Topic: p.topic.id, Shard: p.number, Spent: p.spent}); err != nil {
		return fmt.Errorf("that broker %s needs another epoch could not be reported: %w", s.config.Name, err)
	}
	return nil
}

// Suspects is of how many shards this broker can't vouch for its copy.
func (s *Service) Suspects() (n int) {
	s.suspectMu.Lock()
	defer s.suspectMu.Unlock()
	for _, one := range s.suspects {
		if one.Spent == 0 {
			n++
		}
	}
	return n
}

// forget takes a report back.
func (s *Service) forget(p *Shard) {
	s.suspectMu.Lock()
	defer s.suspectMu.Unlock()
	one, ok := s.suspects[p.id()]
	if !ok {
		return
	}
	delete(s.suspects, p.id())
	p.suspectSince = 0
	if err := s.reportLocked(); err != nil {
		s.suspects[p.id()] = one
		s.log.Warn("that a copy is well again could not be reported; trying again", "topic", p.Name(), "error", err)
	}
}

// revouch has those looked at that were reported.
func (s *Service) revouch() {
	s.suspectMu.Lock()
	ids := slices.Collect(maps.Keys(s.suspects))
	s.suspectMu.Unlock()
	for _, id := range ids {
		if t := s.ByID(id.Topic); t != nil && id.Shard < len(t.shards) {
			s.wake(t.shards[id.Shard])
		}
	}
}

// reportLocked tells what is suspect. suspectMu is held.
func (s *Service) reportLocked() error {
	if s.config.Report == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(s.ctx, reportTime)
	defer cancel()
	return s.config.Report(ctx, slices.Collect(maps.Values(s.suspects)))
}

// steppedBack says whether another replica is to lead instead of this damaged one. That is reported, and
// whoever is named leader under a later epoch all the same has nobody better.
func (s *Service) steppedBack(p *Shard, v *view) (bool, error) {
	damage := p.logs.damage
	if damage == "" && p.logs.partial {
		damage = "it was being fetched anew and is not whole"
	}
	if damage == "" || len(v.shard.Replicas) == 1 {
		return false, nil
	}
	if p.suspectSince > 0 && v.epoch > p.suspectSince {
		s.log.Error("a damaged copy leads, since no other replica can", "topic", p.Name(), "damage", damage)
		return false, nil
	}
	s.log.Warn("this copy is damaged, so another replica is to lead", "topic", p.Name(), "damage", damage)
	return true, s.suspect(p, v)
}

// harmed notes damage that was found in a shard's open logs.
func (s *Service) harmed(p *Shard, damage string) {
	p.harm.Store(&damage)
	s.wake(p)
}

const damageFound = "damage was found in its log: "

// Unreadable judges why records of this copy can't be read. If they are damaged and another replica can lead, that one is to, and has
// them: this copy is reported, and the error is a *NotServedError. Any other error is returned as it is: what is damaged can't be had.
func (s *ShardLeader) Unreadable(err error) error {
	damage, ok := errors.AsType[*log.CorruptError](err)
	if !ok || !s.service.othersCanLead(s.shard.view.Load()) {
		return err
	}
	s.service.harmed(s.shard, damageFound+damage.Error())
	return &NotServedError{Topic: s.topic.name, Reason: Troubled, Leader: s.service.config.Self,
		Why: fmt.Sprintf("the copy on broker %s is damaged, and another one is to lead; try again", s.service.config.Name)}
}

// takeHarm ends what this broker does with a copy that turned out to be damaged, if another one can do it:
// a follower's copy is fetched anew, and a leader steps back. A leader that nobody can follow on serves what it has.
func (s *Service) takeHarm(p *Shard, v *view, damage string) {
	if p.logs == nil {
		return
	}
	p.logs.damage = damage
	s.noteDamage(p)
	switch {
	case v.follow:
		s.unfollow(p)
	case v.lead && s.othersCanLead(v):
		if shard := p.leading.Load(); shard != nil {
			_ = s.closeLeader(p, shard, &LeadershipLostError{Topic: p.topic.name, Why: "its copy on broker " + s.config.Name + " is damaged"}) // it closes no log
		}
	}
}

// noteDamage has the logs say which damage was met, for the next life: opening them doesn't find all of it.
func (s *Service) noteDamage(p *Shard) {
	for _, part := range p.logs.parts {
		if err := part.NoteDamage(); err != nil {
			s.log.Warn("that a Topic's log is damaged could not be kept beside it", "topic", p.Name(), "log", part.Name(), "error", err)
		}
	}
}

// othersCanLead says whether another member of the in-sync set is there to lead.
func (s *Service) othersCanLead(v *view) bool {
	state := s.State()
	if v.shard == nil {
		return false
	}
	return slices.ContainsFunc(v.shard.InSync, func(m coordination.Replica) bool {
		b, ok := state.Broker(m.Broker)
		return ok && m.Broker != s.config.Self && b.Incarnation == m.Incarnation && state.Drain(m.Broker) == "" && !state.Suspect(m.Broker, v.shard.Topic, v.shard.Number)
	})
}

// judgeLife reports a copy that may have lost, when this process began, what its broker had confirmed in a life that
// the in-sync set still names: a Topic that isn't synced promised no more. Whoever elects a leader
// then waits for all such copies, and takes the best.
func (s *Service) judgeLife(p *Shard, v *view) error {
	if v.durability == log.Synced || p.judged || !v.member {
		return nil
	}
	me, ok := s.State().Broker(s.config.Self)
	if !ok {
		return nil // it isn't registered, so nobody elects it
	}
	at := slices.IndexFunc(v.shard.InSync, func(m coordination.Replica) bool { return m.Broker == me.ID })
	if at >= 0 {
		life := v.shard.InSync[at].Incarnation
		if life < s.firstLife.Load() && (v.durability == log.Memory || !me.Holds(life)) && len(v.shard.Replicas) > 1 {
			if err := s.openLogs(p, v); err != nil {
				return err
			}
			if err := s.suspect(p, v); err != nil {
				return err
			}
		}
	}
	p.judged = true
	return nil
}

// vouch takes the report back of a copy that has caught up with its leader, in the life that this broker
// is in; or that leads, so that there is nothing better.
func (s *Service) vouch(p *Shard, v *view) {
	s.suspectMu.Lock()
	said, ok := s.suspects[p.id()]
	s.suspectMu.Unlock()
	if !ok || p.logs == nil {
		return
	}
	if said.Spent > 0 {
		if int64(v.epoch) > said.Spent {
			s.forget(p)
		}
		return
	}
	me, ok := s.State().Broker(s.config.Self)
	if !ok || !slices.Contains(v.shard.InSync, coordination.Replica{Broker: me.ID, Incarnation: me.Incarnation}) {
		return
	}
	well := v.lead && p.leading.Load() != nil
	if !v.lead && p.following != nil {
		_, end, _ := p.logs.parts[replica.Data].Offsets()
		high := p.following.High(replica.Data)
		well = high > 0 && end >= high
	}
	if !well {
		return
	}
	if err := p.logs.complete(); err != nil {
		s.log.Warn("that a copy has caught up could not be kept beside its log; trying again", "topic", p.Name(), "error", err)
		return
	}
	s.forget(p)
}
