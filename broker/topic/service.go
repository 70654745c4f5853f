package topic

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/carillon-mq/carillon/broker/acking"
	"github.com/carillon-mq/carillon/broker/ahead"
	"github.com/carillon-mq/carillon/broker/batching"
	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/counting"
	"github.com/carillon-mq/carillon/broker/expiring"
	"github.com/carillon-mq/carillon/broker/indexing"
	"github.com/carillon-mq/carillon/broker/inventory"
	"github.com/carillon-mq/carillon/broker/limiting"
	"github.com/carillon-mq/carillon/broker/placement"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/republish"
	"github.com/carillon-mq/carillon/broker/upkeep"
	"github.com/carillon-mq/carillon/broker/work"
)

// Open lists the logs on the disk and starts a Service without Topics: Follow brings them. Close
// ends it.
func Open(config Config) (*Service, error) {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.Clock == nil {
		config.Clock = clock.New(clock.Config{Logger: config.Logger})
	}
	if config.Compact == (upkeep.Compacting{}) {
		config.Compact = upkeep.AfterAge(compactAge)
	}
	stored, err := inventory.New(config.Disk, config.Logger)
	if err != nil {
		return nil, err
	}
	s := &Service{config: config, log: config.Logger, stored: stored,
		changed: make(chan struct{}), brokers: map[string]string{}, byName: map[string]*Topic{}, byID: map[string]*Topic{}, removed: map[string]*Topic{},
		open: map[*ShardLeader]struct{}{}, retries: map[*Shard]struct{}{}, entryRetries: map[*Shard]struct{}{}, reports: coordination.NewSuspects()}
	if s.aheadBound = config.Ahead; s.aheadBound == (ahead.Bound{}) {
		s.aheadBound = ahead.Default
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.acker = acking.New(acking.Config{Hub: config.Hub, Codec: config.Codec, Refused: &s.counts.refused})
	s.indexes = indexing.New(config.Disk, s.log)
	s.republish = republish.NewPublisher(config.Republish, config.Payload, config.MayPublish, s.log)
	s.counters = counting.New(config.Codec)
	s.newSenders()
	answer := func(messages []protocol.Message) { config.Hub.Send(messages) }
	s.staging = batching.New(batching.Config{Codec: config.Codec, Payload: config.Payload, Send: answer, Refused: &s.counts.refused, Abandoned: config.Abandoned})
	s.upkeep = upkeep.New(upkeep.Config{Disk: config.Disk, Clock: config.Clock, Compact: config.Compact, After: config.UpkeepAfter, Shards: s.upkeepShards, Logger: s.log})
	s.tasks = work.NewTasks(openers, func(_ *struct{}, p *Shard, lane work.Lane) (more bool) {
		s.work(p, lane == work.Later)
		return false
	})
	s.running.Go(s.keeper)
	if config.Report != nil {
		s.running.Go(func() { s.reports.Keep(s.ctx, config.Report, s.notReported) })
	}
	s.running.Go(func() { s.upkeep.Run(s.ctx) })
	s.running.Go(func() { limiting.Run(s.ctx, s.Leaders, s.Changed, s.log) })
	expiry := expiring.Config[*ShardLeader]{Led: s.Leaders, Changed: s.Changed, Clock: config.Clock, Codec: config.Codec, Logger: s.log}
	s.running.Go(func() { expiring.Run(s.ctx, expiry) })
	return s, nil
}

// Follow applies a State of the cluster. Logs are opened and closed in the background.
func (s *Service) Follow(state *coordination.State, changes coordination.Changes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Load() {
		return
	}
	before := s.state.Swap(state)
	first := before == nil
	s.stamps.Store(state.AllHave(coordination.FeatureStamps))
	entered := !first && before.Generation != state.Generation
	defer s.senders.Poke()
	close(s.changed)
	s.changed = make(chan struct{})
	for _, b := range state.Brokers {
		s.brokers[b.ID] = b.Name
	}
	me, _ := state.Broker(s.config.Self)
	reborn := me.Incarnation != s.incarnation
	s.incarnation = me.Incarnation
	s.firstLife.CompareAndSwap(0, me.Incarnation)
	s.restoring = changes.Restored
	if first || reborn || entered {
		for _, t := range placement.PreferredFirst(state, s.config.Self) {
			s.applyTopic(t)
		}
	}
	defer s.enter(state)
	s.reports.Registered(me.Incarnation)
	if first {
		known := inventory.Cluster{Self: s.config.Self, State: s.State, Deleted: s.config.Deleted}
		s.running.Go(func() { s.stored.Settle(s.ctx, state, known) })
		return
	}
	if !reborn && (changes.Brokers || changes.Drains || changes.Reports) {
		s.wakeUnvouched()
	}
	for _, c := range changes.Topics {
		for _, t := range []*coordination.Topic{c.Before, c.After} {
			if t != nil {
				s.refreshTopic(t.ID)
			}
		}
	}
	for _, c := range changes.Shards {
		for _, shard := range []*coordination.Shard{c.Before, c.After} {
			if shard != nil {
				s.refreshTopic(shard.Topic)
			}
		}
	}
}

// wakeUnvouched wakes the shards whose copy is in doubt, or is in the in-sync set with an earlier
// incarnation: if their leader is gone, this broker vouches or reports. mu is held.
func (s *Service) wakeUnvouched() {
	for _, t := range s.byID {
		for _, p := range t.shards {
			v := p.view.Load()
			if !v.member {
				continue
			}
			if m, in := v.shard.Member(s.config.Self); in && m.Incarnation != s.incarnation || p.own.doubted.Load() {
				s.wake(p)
			}
		}
	}
}

// refreshTopic applies the State to one Topic. mu is held.
func (s *Service) refreshTopic(id string) {
	if desired := s.state.Load().TopicByID(id); desired != nil {
		s.applyTopic(desired)
	} else if t := s.byID[id]; t != nil {
		s.removeTopic(t)
	}
}

// applyTopic applies the desired spec and the shards of an existing Topic. mu is held.
func (s *Service) applyTopic(desired *coordination.Topic) {
	t := s.byID[desired.ID]
	if t == nil {
		if other := s.byName[desired.Name]; other != nil {
			s.removeTopic(other) // a deleted Topic of the same name
		}
		// A restored etcd may have a removed Topic again. Its shards keep their one worker.
		if t = s.removed[desired.ID]; t == nil {
			t = newTopic(s, desired)
		}
		delete(s.removed, t.id)
		s.byID[t.id], s.byName[t.name] = t, t
	}
	var before, after *view
	state := s.state.Load()
	for n, p := range t.shards {
		was := p.view.Load()
		v := newView(s.config.Self, desired, n, state, was, s.config.Payload)
		s.holdUnplaced(p, v, state)
		p.view.Store(v)
		s.noticeSet(p, v)
		if v.member && slices.Contains(v.shard.Removing, s.config.Self) {
			p.removing.Store(1 + v.shard.Generation)
		} else if v.member {
			p.removing.Store(0)
		}
		if n == 0 {
			before, after = was, v
		}
		p.known.Store(max(v.epoch, p.known.Load()))
		if v.member || v.lead || v.gone || v.restored || was != nil && (was.member || was.lead || was.restored) {
			s.wake(p)
		}
	}
	switch {
	case after.gone && t.offer != nil:
		t.offer.Close()
		t.offer = nil
	case !after.gone:
		isNew := t.offer == nil
		if isNew {
			t.offer = s.config.Hub.Offer((*taker)(t))
		}
		if isNew || !slices.Equal(before.desired.Spec.Subjects, desired.Spec.Subjects) {
			t.offer.Set(desired.Spec.Subjects)
		}
	}
}

// removeTopic removes a deleted Topic. Workers remove its logs. mu is held.
func (s *Service) removeTopic(t *Topic) {
	if t.offer != nil {
		t.offer.Close()
		t.offer = nil
	}
	delete(s.byID, t.id)
	if s.byName[t.name] == t {
		delete(s.byName, t.name)
	}
	s.removed[t.id] = t
	for _, p := range t.shards {
		p.cleared = false
		v := *p.view.Load()
		v.gone, v.lead, v.follow, v.member = true, false, false, false
		v.vanished, v.restored = s.restoring, false
		p.view.Store(&v)
		s.wake(p)
	}
}

// Committed sends the answers of a round of the disk's committer, which calls it after each round.
// idle means that the committer has nothing else to do.
func (s *Service) Committed(idle bool) {
	s.acker.Committed(idle)
	s.config.Exchange.Committed()
}

// Close refuses new messages, completes accepted ones and closes the logs, but not the disk.
func (s *Service) Close() error {
	if s.closing.Swap(true) {
		return nil
	}
	s.cancel()
	s.mu.Lock()
	for _, t := range s.byID {
		if t.offer != nil {
			t.offer.Close()
			t.offer = nil
		}
	}
	s.mu.Unlock()
	s.tasks.Close()
	s.running.Wait() // from here on nothing else opens or closes logs
	err := s.closeAll()
	s.indexes.Close()
	s.republish.Close()
	s.counters.Close()
	s.acker.Close() // acknowledges what the logs have kept,
	s.staging.Close()
	s.senders.Close() // and only then the rest is refused
	return err
}

// closeAll closes all open logs, several at once.
func (s *Service) closeAll() error {
	all := map[*Shard]struct{}{}
	for _, shard := range s.Leaders() { // also of Topics that were deleted
		all[shard.shard] = struct{}{}
	}
	s.mu.RLock()
	for _, t := range s.byID {
		for _, p := range t.shards {
			all[p] = struct{}{}
		}
	}
	s.mu.RUnlock()
	return work.Each(openers, slices.Values(inOrder(all)), func(p *Shard) error {
		err := p.keptDoubt()
		return errors.Join(err, s.release(p, &publish.NotServedError{Topic: p.topic.name, Reason: publish.ServiceIsClosing, Why: "its broker stopped before it was safe on all replicas"}))
	})
}
