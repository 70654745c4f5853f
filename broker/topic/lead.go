package topic

import (
	"errors"
	"time"

	"github.com/carillon-mq/carillon/broker/copystate"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/replica"
	"github.com/carillon-mq/carillon/broker/retention"
)

// newLeader begins to lead with the open logs of p. doubt says what is wrong with the copy, for
// people; empty: nothing.
func (s *Service) newLeader(p *Shard, v *view, doubt string) (*ShardLeader, error) {
	data, state := p.logs.parts[replica.Data], p.logs.parts[replica.State]
	if v.durability != log.Memory {
		// A follower may have written without a sync. Only what is durable counts.
		for _, l := range p.logs.parts {
			if err := l.Flush(); err != nil {
				return nil, err
			}
		}
	}
	shard := &ShardLeader{service: s, topic: p.topic, shard: p, data: data, state: state, damage: doubt, begun: v.epoch, origins: p.origins, ids: &p.ids}
	shard.acks.Init(s.acker, (*answering)(shard), &shard.mu)
	shard.appends.Init(replica.AppendsConfig{Log: state, Epoch: shard.epoch.Load, Leading: shard.leading.Load, Over: shard.hasEnded,
		Persisted: func(end uint64) { shard.persisted(replica.State, end) }, Touch: func() { shard.acks.Touch() }})
	shard.index = s.indexes.Of(data, shard.Removed(), shard.Unreadable)
	shard.Reader.Init(shard, p.name, data, shard.index)
	shard.republish.Init(s.republish, shard)
	first, end, _ := data.Offsets()
	_, stateEnd, _ := state.Offsets()
	shard.end, shard.inherited = end, end
	shard.visible.Store(first)
	shard.high.Store(first)
	shard.retention.Init(retention.Shard{Name: p.name, Data: data, High: &shard.high, Visible: &shard.visible, Removed: shard.Removed(), Young: func() time.Duration { return max(p.view.Load().window, s.config.Compact.Age) }, Settled: shard.removing.Settled, Clock: s.config.Clock, Logger: s.log})
	for _, info := range data.SegmentInfos() {
		if info.End > info.Base {
			shard.lastTime = info.Last.UnixNano()
		}
	}
	s.config.Clock.Wrote(shard.lastTime)
	if len(v.shard.Replicas) > 1 {
		s.config.Clock.AwaitVotes(s.ctx) // the ages of message ids in the log depend on them
	}
	if err := shard.knowIDs(v); err != nil {
		return nil, err
	}
	if err := shard.knowRemovals(v); err != nil {
		shard.removing.Close() // it may hold records that the next leader's replica removes
		return nil, err
	}
	shard.safe[replica.Data].Store(end)
	shard.safe[replica.State].Store(stateEnd)
	// Followers may be connected already: their progress queues the shard as soon as leading is
	// set.
	shard.mu.Lock()
	shard.begin(v, p.high)
	shard.mu.Unlock()
	shard.removing.Raise(v.limits.PerSubject, v.durability)
	shard.totals = s.counters.Of(data, shard.Unreadable, p.announceOpen)
	return shard, nil
}

// begin leads in the epoch of v. mu is held.
func (s *ShardLeader) begin(v *view, high [replica.Parts]uint64) {
	s.appends.Lock()
	defer s.appends.Unlock()
	if before := s.leading.Load(); before != nil {
		before.End()
	}
	l := s.service.config.Exchange.LeadOn(replica.LeadConfig{
		ID: s.shard.id(), Shard: v.shard, MinInSync: v.minInSync, Durability: v.durability,
		Logs: [...]*log.Log{replica.Data: s.data, replica.State: s.state}, High: high, Moved: s.advanced,
		Unreadable: func(err error) { _ = s.Unreadable(err) },
	}, s.shard.rest)
	s.askAgain(l) // completions go there from now on; earlier ones are in safe
	s.epoch.Store(v.epoch)
	s.durability = v.durability
	for part := range replica.Parts {
		l.Safe(part, s.safe[part].Load())
	}
}

// advanced is called when progress of followers, or a change of the set, has moved a watermark.
func (s *ShardLeader) advanced() {
	if s.leading.Load() == nil {
		return // Lead has not returned: nothing waits yet, and Service.lead advances again
	}
	s.advance()
	s.confirmed()
	s.acks.Touch()
}

// closeLeader ends leading and fails pending answers with over. If over is nil it closes the logs
// first, which completes all appends, and may fail.
func (s *Service) closeLeader(p *Shard, shard *ShardLeader, over error) (err error) {
	shard.mu.Lock()
	shard.closed = true
	subjects := shard.subjects
	shard.mu.Unlock()
	p.leading.CompareAndSwap(shard, nil)
	shard.ending.Store(true)
	shard.republish.Close()
	shard.removing.Close()
	if shard.index.Close(); subjects != nil {
		subjects.Close()
	}
	shard.totals.Close()
	s.announce(shard, false)
	s.openMu.Lock()
	delete(s.open, shard)
	s.openMu.Unlock()
	if over == nil {
		if shard.failed.Load() != nil {
			p.fault.CompareAndSwap(nil, shard.failed.Load())
		}
		err = s.closeLogs(p)
		over = &publish.LeadershipLostError{Topic: p.topic.name, Why: "its log was closed"}
	}
	shard.leading.Load().End()
	p.high = [...]uint64{replica.Data: shard.leading.Load().High(replica.Data), replica.State: shard.leading.Load().High(replica.State)}
	p.rest = shard.leading.Load().Rest()
	shard.confirms.End(over)
	shard.failPending(over)
	shard.mu.Lock()
	shard.origins.HandOver()
	shard.mu.Unlock()
	p.ids.Count(&s.counts.followedIDs, nil)
	return err
}

// announce notifies Config.Leading of a readable leader, and of its end. A request that finds the
// leader through Shard.Led may rely on Config.Leading having returned.
func (s *Service) announce(shard *ShardLeader, open bool) {
	if shard.announced.Load() == open || open && !shard.readable.Load() {
		return
	}
	if s.config.Leading != nil {
		s.config.Leading(shard, open)
	}
	shard.announced.Store(open)
}

// follow applies a changed view to the leader.
func (s *ShardLeader) follow(v *view) {
	s.mu.Lock()
	if v.epoch > s.epoch.Load() {
		l := s.leading.Load()
		s.begin(v, [...]uint64{replica.Data: l.High(replica.Data), replica.State: l.High(replica.State)})
	} else {
		s.leading.Load().Adopt(v.shard, v.minInSync)
	}
	s.mu.Unlock()
	s.advanced()
	s.retention.Renew()
	s.removing.Raise(v.limits.PerSubject, v.durability)
}

// lead begins to lead the shard, or applies a changed view. harmed reports that this found damage
// in the copy.
func (s *Service) lead(p *Shard, v *view, idle bool, doubt string) (harmed bool, err error) {
	durability := v.durability // by which this process has confirmed in this epoch, if it led it
	if shard := p.leading.Load(); shard != nil && shard.durability != v.durability && len(v.shard.Replicas) > 1 {
		durability = max(durability, shard.durability)
		// Followers confirm by the durability with which they began to follow.
		_ = s.closeLeader(p, shard, &publish.LeadershipLostError{Topic: p.topic.name, Why: "its durability was changed"})
	}
	if shard := p.leading.Load(); shard != nil {
		if idle {
			shard.keepSpec(v)
			return false, nil
		}
		shard.follow(v)
		s.announce(shard, true)
		s.postpone(p)
		return false, nil
	}
	s.unfollow(p)
	if doubt != "" {
		s.log.Error("a copy in doubt leads, since no other replica can", "topic", p.Name(), "epoch", v.epoch, "doubt", doubt)
	}
	shard, err := s.newLeader(p, v, doubt)
	if damage, ok := errors.AsType[*log.CorruptError](err); ok && s.othersCanLead(v) {
		s.noteDamage(p)
		s.apply(p, copystate.DamageFound{Reason: damageFound + damage.Error(), Epoch: v.epoch, Led: v.epoch})
		return true, nil
	}
	if failure, ok := errors.AsType[*log.FailedError](err); ok {
		// Followers may have records that are lost here, so this process leads under a later epoch
		// only.
		s.apply(p, copystate.Failed{Led: v.epoch, Durability: durability, Reason: failure.Error(), Epoch: v.epoch})
		err = errors.Join(err, p.keepState())
	}
	if err != nil {
		return false, errors.Join(err, s.closeLogs(p))
	}
	p.untrouble()
	s.openMu.Lock()
	s.open[shard] = struct{}{}
	s.openMu.Unlock()
	shard.advance()
	s.announce(shard, true) // first: a publisher with an ack finds the leader
	p.leading.Store(shard)
	p.announceOpen()
	if shard.readable.Load() {
		s.announce(shard, true)
	} else {
		shard.advance() // the watermark may have moved before p.leading was set
	}
	s.postpone(p)
	return false, nil
}
