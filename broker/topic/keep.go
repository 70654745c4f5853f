package topic

import (
	"context"
	"time"

	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/work"
)

// keeper does what is due by time: retention, expiry of ids, retries, and late confirmations.
func (s *Service) keeper() {
	ticker := work.NewTicker(tick)
	defer ticker.Stop()
	var due, asking, open []*ShardLeader
	for n := 0; ; n++ {
		var now time.Time
		select {
		case <-s.ctx.Done():
			return
		case now = <-ticker.C:
			ticker.Next()
		}
		s.retry(now)
		s.retryEntries()
		s.acker.WakePublishers()
		c := s.config.Clock
		mono, verdict := c.Mono(), c.Verdict()
		due, open = due[:0], open[:0]
		asking = asking[:0]
		s.openMu.Lock()
		for shard := range s.open {
			if verdict.Steps != s.steps {
				open = append(open, shard)
			}
			if shard.retention.IsDue(shard.shard.view.Load().retention, mono) {
				due = append(due, shard)
			}
			if shard.confirms.Waiting() {
				asking = append(asking, shard)
			}
		}
		s.openMu.Unlock()
		sortLeaders(due)
		sortLeaders(asking)
		sortLeaders(open)
		for _, shard := range asking {
			shard.confirmed()
			shard.acks.Touch()
		}
		s.readIDsAgain(open, verdict)
		for _, shard := range due {
			if s.ctx.Err() == nil {
				shard.retention.Retain(shard.shard.view.Load().retention)
				shard.Removed().Trim(shard.data.Start())
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

// AgePaused returns why deletion by age is paused, as a reason and for people; empty: it isn't.
func (s *ShardLeader) AgePaused() (reason clock.Reason, why string) {
	if v := s.shard.view.Load(); v.expiry.On {
		return v.expiry.Paused(s.service.config.Clock)
	}
	return s.retention.AgePaused()
}

// Purge deletes the records below an offset and returns their number. Records that are not
// acknowledged, or that a reader holds, stay.
func (s *ShardLeader) Purge(ctx context.Context, below uint64) (purged uint64, err error) {
	if err = ctx.Err(); err != nil {
		return 0, err
	}
	start, end := s.Offsets()
	if below = min(below, end); below <= start {
		return 0, nil
	}
	if err = s.removing.LetGo(ctx, below, s.shard.view.Load().durability); err == nil {
		purged, err = s.retention.Purge(start, end, below, s.Messages)
	}
	if err != nil {
		err = &publish.StoreError{Topic: s.shard.name, Err: err}
	}
	return purged, err
}
