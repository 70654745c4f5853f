package topic

import (
	"context"
	"errors"
	"time"

	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/publish"
)

// keeper does what is due by time: retention, expiry of ids, retries, and late confirmations.
func (s *Service) keeper() {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	var due, asking, open []*ShardLeader
	for n := 0; ; n++ {
		var now time.Time
		select {
		case <-s.ctx.Done():
			return
		case now = <-ticker.C:
		}
		s.retry(now)
		s.retryEntries()
		s.acker.wakePublishers()
		c := s.config.Clock
		mono, verdict := c.Mono(), c.Verdict()
		due, open = due[:0], open[:0]
		asking = asking[:0]
		s.openMu.Lock()
		for shard := range s.open {
			if verdict.Steps != s.steps {
				open = append(open, shard)
			}
			if shard.isDue(mono) {
				due = append(due, shard)
			}
			if shard.confirms.pending.Load() > 0 {
				asking = append(asking, shard)
			}
		}
		s.openMu.Unlock()
		for _, shard := range asking {
			shard.confirmed()
			s.acker.touch(shard)
		}
		s.readIDsAgain(open, verdict)
		for _, shard := range due {
			if s.ctx.Err() == nil {
				shard.retain()
			}
		}
		if n%expireTicks == 0 {
			for _, p := range s.Shards() {
				p.ids.ExpireNow(mono - int64(p.view.Load().window))
				if shard := p.leading.Load(); shard != nil {
					shard.forgetSources(forward.Mono() - int64(forward.OriginTime))
				}
			}
		}
	}
}

// expireTicks is the number of ticks between two expiries of the ids of idle shards.
const expireTicks = 64

// forgetSources forgets senders that have been silent since before a time; see forward.Origins.
func (s *ShardLeader) forgetSources(before int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.origins.Expire(before)
		s.sources.Store(int64(s.origins.Sources()))
	}
}

// isDue reports whether retention may have something to delete.
func (s *ShardLeader) isDue(mono int64) bool {
	policy := s.shard.view.Load().retention
	if due := s.retention.due.Load(); due == 0 || policy.Age > 0 && mono >= due {
		return true
	}
	return (policy.Bytes > 0 || policy.Messages > 0 || policy.Age > 0) &&
		s.high.Load() != s.retention.seen.Load()
}

// retain deletes records by the retention policy. While the time is in doubt, nothing is deleted by
// age. It belongs to the keeper.
func (s *ShardLeader) retain() {
	policy := s.shard.view.Load().retention
	s.retention.seen.Store(s.high.Load()) // first: later records are looked at next time
	c := s.service.config.Clock
	now, mono := c.Read()
	s.retention.due.Store(mono + int64(time.Hour))
	pause := policy.Age > 0 && c.InDoubt()
	s.pauseAge(pause)
	if pause {
		policy.Age = 0
		s.retention.due.Store(mono + int64(tick))
	}
	err := s.applyRetention(time.Unix(0, now), mono, policy)
	if err != nil && !errors.Is(err, log.ErrClosed) {
		s.retention.due.Store(mono + int64(lastRetry))
		s.service.log.Warn("old records of a Topic could not be deleted", "topic", s.shard.name,
			"error", err)
	}
}

// pauseAge notes whether deletion by age is paused, and logs it when that begins and ends.
func (s *ShardLeader) pauseAge(pause bool) {
	if s.retention.paused.Swap(pause) == pause {
		return
	}
	if pause {
		s.service.log.Warn("Records of a Topic are not deleted by their age, as the time is in doubt",
			"topic", s.shard.name, "why", s.service.config.Clock.Verdict().Why)
		return
	}
	s.service.log.Info("Records of a Topic are deleted by their age again", "topic", s.shard.name)
}

// AgePaused returns why deletion by age is paused, as a reason and for people; empty: it isn't.
func (s *ShardLeader) AgePaused() (reason clock.Reason, why string) {
	if v := s.service.config.Clock.Verdict(); s.retention.paused.Load() {
		return v.Doubt, v.Why
	}
	return clock.None, ""
}

// applyRetention deletes records by policy, and notes when the next ones are due.
func (s *ShardLeader) applyRetention(now time.Time, mono int64, policy log.Retention) error {
	before := s.retention.policy
	s.retention.policy = policy
	if before.Messages > 0 && policy.Messages != before.Messages {
		// Records that were hidden must stay hidden when more is kept.
		if end := s.high.Load(); end > before.Messages {
			if _, err := s.data.Trim(s.visible.Raise(end - before.Messages)); err != nil {
				return err
			}
		}
	}
	if policy == (log.Retention{}) {
		return nil
	}
	if _, err := s.data.Retain(now, policy); err != nil {
		return err
	}
	if policy.Age > 0 {
		// No sooner than the next tick: a reader may be holding a segment.
		next := policy.Next(s.data.SegmentInfos(), now).Sub(now)
		s.retention.due.Store(mono + int64(max(next, tick)))
	}
	return nil
}

// Purge deletes the records below an offset and returns their number. Records that are not
// acknowledged, or that a reader holds, stay.
func (s *ShardLeader) Purge(ctx context.Context, below uint64) (purged uint64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	start, end := s.Offsets()
	if below = min(below, end); below <= start {
		return 0, nil
	}
	s.data.CountHoles(start)
	before := s.Messages(start, end)
	now, err := s.data.Trim(below)
	if err != nil {
		return 0, &publish.StoreError{Topic: s.shard.name, Err: err}
	}
	if now = s.visible.Raise(now); now <= start {
		return 0, nil
	}
	s.data.CountHoles(now)
	return before - min(s.Messages(now, end), before), nil
}
