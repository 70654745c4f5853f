package topic

import (
	"errors"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/replica"
)

// changeEntry changes this broker's entry in the shard's in-sync set, unless a change is under way.
func (s *Service) changeEntry(p *Shard, v *view, change replica.EntryChange, leads bool) {
	me, registered := s.State().Broker(s.config.Self)
	if !registered || !p.own.entry.Begin(change, v.shard, me.Replica()) {
		return
	}
	done := func(after *coordination.Shard, err error) { s.entryChanged(p, change, after, err) }
	s.config.Exchange.ChangeEntry(change, me.Replica(), v.shard, p.reach(), leads, done)
}

// entryChanged handles the result of a change.
func (s *Service) entryChanged(p *Shard, change replica.EntryChange, after *coordination.Shard, err error) {
	_, stale := errors.AsType[*coordination.StaleError](err)
	p.own.entry.Answered(err == nil, err == nil || stale)
	switch {
	case err == nil && change == replica.Withdraw:
		s.log.Warn("withdrew a copy from the in-sync set", "topic", p.Name(), "epoch", after.Epoch)
	case err == nil && change == replica.Resign:
		s.log.Warn("resigned, to lead under another epoch only", "topic", p.Name(), "epoch", after.Epoch)
	case err != nil && !stale && s.ctx.Err() == nil:
		s.log.Debug("could not change this broker's entry in the in-sync set; trying again",
			"topic", p.Name(), "change", change.String(), "error", err)
		s.openMu.Lock()
		s.entryRetries[p] = struct{}{}
		s.openMu.Unlock()
		return
	}
	s.wake(p) // another change may be due
}

// retryEntries wakes the shards with a failed change of their entry.
func (s *Service) retryEntries() {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	for _, p := range inOrder(s.entryRetries) {
		s.wake(p)
	}
	clear(s.entryRetries)
}
