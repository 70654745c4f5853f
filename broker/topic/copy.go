package topic

import (
	"bytes"
	"fmt"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/copystate"
	"github.com/carillon-mq/carillon/broker/keptspec"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/replica"
)

// apply changes the state of a shard's copy. It belongs to the worker.
func (s *Service) apply(p *Shard, e copystate.Event) []copystate.Action {
	before := p.own.state
	after, actions := copystate.Apply(before, e)
	p.own.state = after
	p.own.follows.Store(after.Follows())
	p.own.doubted.Store(!after.Whole())
	p.own.grave.Store(after.Grave())
	if before.Doubts() != after.Doubts() && after.Opened() {
		level := s.log.Warn
		if after.Whole() {
			level = s.log.Info
		}
		level("what is known of a copy changed", "topic", p.Name(), "copy", after.String(), "before", before.Doubts().String())
	}
	return actions
}

// keepState writes the state of a copy to its data log's manifest, if it has changed.
func (p *Shard) keepState() error {
	if p.logs == nil {
		return nil // opening the logs keeps it
	}
	data := p.logs.parts[replica.Data]
	state := p.own.state.Encode()
	if before := data.Copy(); bytes.Equal(before, state) || len(before) == 0 && p.own.state.Whole() && !keptspec.SaysPartial(data) {
		return nil
	}
	return data.SetCopy(state)
}

// keptDoubt returns an error if the copy is in doubt and its manifest may not say so. Then this
// process must not end in order, since the next one would vouch for the copy.
func (p *Shard) keptDoubt() error {
	if p.logs == nil && p.own.state.Grave() {
		return fmt.Errorf("the copy of %s is in doubt, and its logs can't be opened to say so: %s", p.Name(), p.own.state.Reason())
	}
	return p.keepState()
}

// keptState returns the state of the copy in a data log's manifest.
func keptState(data *log.Log) copystate.State {
	state := data.Copy()
	if len(state) == 0 && keptspec.SaysPartial(data) {
		return copystate.Missing(true, data.Meta().Epoch)
	}
	return copystate.Decode(state)
}

// judgeOpened applies what opening the logs found to the state of the copy.
func (s *Service) judgeOpened(p *Shard, v *view, known, counted bool, missing copystate.State) {
	before := keptState(p.logs.parts[replica.Data])
	if !known && missing.Grave() {
		before = missing // also if an attempt that failed has made the log
	}
	found := p.logs.parts.Opening(p.own.reached, func(name string, bytes int64) {
		s.log.Info("a write that was under way when the broker died was cut", "topic", p.Name(), "log", name, "bytes", bytes)
	})
	if found.Damage != "" {
		s.log.Error("a Topic's log is damaged", "topic", p.Name(), "damage", found.Damage)
	}
	s.apply(p, copystate.Opened{
		Kept: before, Counted: counted, Orderly: s.endedOrderly(v), Durability: v.durability, Epoch: v.epoch,
		Lost: found.Lost, Anew: found.Anew, Torn: found.Torn, Short: found.Short, Damage: found.Damage, EndLost: found.EndLost,
	})
}

// counted reports whether others may rely on what an earlier process of this broker confirmed.
func (s *Service) counted(v *view) bool {
	m, in := v.shard.Member(s.config.Self)
	return in && (m.Incarnation < s.firstLife.Load() || v.leader == s.config.Self && !v.shard.New())
}

// endedOrderly reports whether the incarnation in the in-sync set ended in order, with all its
// writes here.
func (s *Service) endedOrderly(v *view) bool {
	m, in := v.shard.Member(s.config.Self)
	if !in {
		return true
	}
	me, registered := s.State().Broker(s.config.Self)
	return registered && me.Holds(m.Incarnation)
}

// seen returns the shard's key from the point of view of this broker's copy.
func (s *Service) seen(p *Shard, v *view) copystate.ShardSeen {
	state := s.State()
	e := copystate.ShardSeen{
		Epoch: v.epoch, Leading: p.leading.Load() != nil, Alone: len(v.shard.Replicas) == 1, Others: s.othersCanLead(v),
		Doubted: v.shard.Doubt.Leader == s.config.Self && uint64(v.shard.Doubt.Epoch) == v.epoch,
	}
	e.Unwanted = p.repair != nil && v.epoch > 0 && uint64(p.repair.unwanted.Load()) == v.epoch
	e.CaughtUp = p.following != nil && uint64(p.following.CaughtUp()) == v.epoch
	me, registered := state.Broker(s.config.Self)
	if m, in := v.shard.Member(s.config.Self); in {
		switch {
		case registered && m.Incarnation == me.Incarnation:
			e.Entry = copystate.Current
		case registered && p.own.entry.MayHaveVouched(v.shard, me.Replica()):
			e.Entry = copystate.Undecided
		default:
			e.Entry = copystate.Earlier
		}
	}
	switch leader, there := state.Broker(v.leader); {
	case v.lead:
		e.Leader = copystate.Self
	case v.leader != s.config.Self && there && v.shard.Vouched(leader):
		e.Leader = copystate.Other
	}
	return e
}

// queueDamage queues damage that was found in a shard's open logs for the worker.
func (s *Service) queueDamage(p *Shard, damage string) {
	p.own.events.Add(copystate.DamageFound{Reason: damage, Epoch: p.view.Load().epoch})
	s.wake(p)
}

// damageFound begins the reason of a doubt.
const damageFound = "damage was found in its log: "

// noteDamage writes damage that was met to the logs' manifests: opening the logs doesn't find all
// of it.
func (s *Service) noteDamage(p *Shard) {
	for _, part := range p.logs.parts {
		if err := part.NoteDamage(); err != nil {
			s.log.Warn("that a Topic's log is damaged could not be kept beside it", "topic", p.Name(), "log", part.Name(), "error", err)
		}
	}
}

// noticeSet queues an event if the in-sync set of v has this incarnation and the copy has caught
// up. The worker may see only a later view, of another epoch, which does not show which leader
// added the copy. mu is held.
func (s *Service) noticeSet(p *Shard, v *view) {
	if f := p.copying.Load(); v.follow && f != nil && uint64(f.CaughtUp()) == v.epoch && v.epoch > 0 && p.own.follows.Load() == v.epoch {
		if m, in := v.shard.Member(s.config.Self); in && m.Incarnation != 0 && m.Incarnation == s.incarnation {
			p.own.events.Add(copystate.CaughtUp{Epoch: v.epoch})
		}
	}
}

// reach returns how far the copy's data log goes.
func (p *Shard) reach() (r coordination.Reach) {
	if p.logs == nil {
		return r
	}
	return p.logs.parts.Reach()
}
