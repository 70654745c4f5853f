package replica

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/work"
)

// reconsiderSet starts a swap if the leader wants another set, and schedules further checks while
// the set may change. mu is held.
func (l *Leading) reconsiderSet(now time.Duration) {
	if l.ended.Load() || len(l.leader.shard.Replicas) < 2 {
		return
	}
	if set := l.leader.Want(now); set != nil {
		self, before := l.leader.self, l.leader.Shard()
		l.x.swaps.Submit(func() { l.swap(self, before, set) }, 0)
	}
	if l.toSweep || !l.leader.unsettled() {
		return
	}
	l.toSweep = true
	x := l.x
	x.mu.Lock()
	x.unsettled = append(x.unsettled, l)
	first := len(x.unsettled) == 1
	x.mu.Unlock()
	if first { // the sweeper may be at rest
		x.wakeSweeper()
	}
}

// unsettled reports whether the set may change soon: a swap is unanswered, a member's incarnation
// ended or it is disconnected, or a replica outside of the set copies.
func (l *Leader) unsettled() bool {
	if l.unanswered != nil {
		return true
	}
	for id, f := range l.followers {
		in := slices.ContainsFunc(l.shard.InSync,
			func(m coordination.Replica) bool { return m.Broker == id })
		if in && (f.gone || !f.joined) ||
			f.joined && !f.gone && !slices.Contains(l.shard.InSync, f.Replica) {
			return true
		}
	}
	return !slices.Contains(l.shard.InSync, l.self)
}

// swap swaps the in-sync set in etcd.
func (l *Leading) swap(self coordination.Replica, before *coordination.Shard,
	set []coordination.Replica) {
	x := l.x
	ctx, cancel := context.WithTimeout(x.ctx, swapTimeout)
	defer cancel()
	after, err := x.config.Store.SwapInSync(ctx, self, before, set)
	if err != nil {
		after = nil
	}
	if _, stale := errors.AsType[*coordination.StaleError](err); stale {
		var shards []*coordination.Shard
		if shards, _, err = x.config.Store.ReadShards(ctx, before.Topic); err == nil {
			numbered := func(s *coordination.Shard) bool { return s.Number == before.Number }
			if i := slices.IndexFunc(shards, numbered); i >= 0 {
				after = shards[i]
			}
		}
	}
	if err == nil && after != nil && slices.Equal(after.InSync, set) {
		x.counters.swaps.Add(1)
		x.log.Debug("In-sync set changed", "topic_id", before.Topic, "shard", before.Number,
			"epoch", before.Epoch, "in_sync", brokersOf(set), "before", brokersOf(before.InSync))
	} else {
		x.counters.swapsFailed.Add(1)
		if err != nil && ctx.Err() != context.Canceled {
			x.warnThrottled("swap",
				"Could not change an in-sync set, keeping the current one and trying again",
				"topic_id", before.Topic, "shard", before.Number, "error", err)
		}
	}
	now := x.config.Now()
	l.mu.Lock()
	was := l.leader.Shard()
	moved := l.leader.SwapAnswered(after, now)
	l.refuseWithdrawn(was)
	l.publish()
	l.reconsiderSet(now)
	l.mu.Unlock()
	if moved {
		l.notifyMoved()
	}
}

func brokersOf(set []coordination.Replica) (ids []string) {
	for _, m := range set {
		ids = append(ids, m.Broker)
	}
	return ids
}

// notifyLater calls Moved from the sweeper, without a lock.
func (x *Exchange) notifyLater(l *Leading) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.moved = append(x.moved, l)
	x.wakeSweeper()
}

func (x *Exchange) wakeSweeper() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// sweep does the periodic checks that no event triggers.
func (x *Exchange) sweep() {
	ticker := work.NewTicker(sweepAll)
	defer ticker.Stop()
	all, pace := x.config.Now(), sweepAll
	swapped := uint64(0)
	for {
		ticked := false
		select {
		case <-x.ctx.Done():
			return
		case <-x.wake:
		case <-ticker.C:
			ticked = true
			now := x.config.Now()
			x.sweepUnsettled(now)
			if now-all >= sweepAll-sweepTick/2 { // ticks come a little early or late
				all = now
				x.sweepLeads(now)
				x.sweepTrims()
				swapped = x.logSwaps(swapped)
			}
		}
		x.mu.Lock()
		moved, before := x.moved, pace
		x.moved = nil
		if pace = sweepAll; len(x.unsettled) > 0 {
			pace = sweepTick
		}
		x.mu.Unlock()
		if ticked || pace != before {
			ticker.Pace(pace)
		}
		for _, l := range moved {
			l.notifyMoved()
		}
	}
}

// logSwaps logs the number of changed sets since the last call, in one line: thousands change when
// a broker returns.
func (x *Exchange) logSwaps(before uint64) uint64 {
	now := x.counters.swaps.Load()
	if now > before {
		x.log.Info("In-sync sets changed", "shards", now-before)
	}
	return now
}

func (x *Exchange) sweepUnsettled(now time.Duration) {
	x.mu.Lock()
	unsettled := x.unsettled
	x.unsettled = nil
	x.mu.Unlock()
	for _, l := range unsettled {
		l.mu.Lock()
		l.toSweep = false
		l.reconsiderSet(now)
		l.mu.Unlock()
	}
}

// sweepLeads checks for lag and for moved starts of logs.
func (x *Exchange) sweepLeads(now time.Duration) {
	x.mu.Lock()
	x.sweeping = x.sweeping[:0]
	for _, l := range x.leads {
		x.sweeping = append(x.sweeping, l)
	}
	x.mu.Unlock()
	for _, l := range x.sweeping {
		l.checkStarts()
		l.mu.Lock()
		l.reconsiderSet(now)
		l.mu.Unlock()
	}
	clear(x.sweeping)
}

func (l *Leading) checkStarts() {
	l.use.RLock()
	defer l.use.RUnlock()
	if l.ended.Load() {
		return
	}
	changed := false
	for p, lg := range l.config.Logs {
		if start := lg.Start(); start != l.start[p].Load() {
			l.start[p].Store(start)
			changed = true
		}
	}
	if changed {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, s := range l.streams {
			s.markHigh()
		}
	}
}

func (x *Exchange) sweepTrims() {
	x.mu.Lock()
	trims := x.trims
	x.trims = nil
	x.mu.Unlock()
	for _, f := range trims {
		x.disk.Submit(f.trim, 0)
	}
}
