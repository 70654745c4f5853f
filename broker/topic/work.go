package topic

import (
	"slices"
	"strings"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/work"
)

// wake has a worker look at p soon.
func (s *Service) wake(p *Shard) { s.tasks.Wake(p, work.Normal) }

// postpone has a worker look at p while no other shard has to be looked at.
func (s *Service) postpone(p *Shard) { s.tasks.Wake(p, work.Later) }

// stumble notes what went wrong with a shard's logs and when to try again: soon, and less often
// while it goes on.
func (s *Service) stumble(p *Shard, doing string, err error) {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	now := time.Now()
	if now.Sub(p.stumbled) > 2*lastRetry {
		p.stumbles = 0
	}
	p.stumbles, p.stumbled = p.stumbles+1, now
	wait := min(firstRetry<<min(p.stumbles-1, 10), lastRetry)
	p.trouble.Store(&trouble{err: err, again: now.Add(wait)})
	s.retries[p] = struct{}{}
	s.log.Error("trouble with a Topic's log", "topic", p.Name(), "doing", doing, "error", err, "again", wait)
}

// retry has the shards looked at whose time has come.
func (s *Service) retry(now time.Time) {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	for p := range s.retries {
		if trouble := p.trouble.Load(); trouble == nil {
			delete(s.retries, p)
		} else if !now.Before(trouble.again) {
			s.wake(p)
		}
	}
}

// movedAway says whether a shard's replicas are all on other brokers.
func (s *Service) movedAway(state *coordination.State, topicID string, number int) bool {
	shard := state.Shard(topicID, number)
	return shard != nil && shard.Generation == state.Generation && !slices.Contains(shard.Replicas, s.config.Self)
}

// setAsideStrangers moves logs of Topics out of the way that there are not, and says so. Nobody was
// seen deleting them, so it isn't ours to delete what they hold.
func (s *Service) setAsideStrangers(first *coordination.State) {
	for _, key := range first.Unreadable() {
		if strings.HasPrefix(key, "topics/") || strings.Contains(key, "/topics/") {
			s.log.Warn("logs of unknown Topics are left where they are, since not every Topic's key can be read", "key", key)
			return
		}
	}
	found := s.found
	s.found = nil
	for _, stored := range found {
		id := stored.Meta.Topic
		if stored.Err != nil {
			id = stored.Name
			if at := strings.LastIndexByte(id, '-'); at >= 0 {
				id = id[:at]
			}
		}
		if s.ctx.Err() != nil {
			return
		}
		if first.TopicByID(id) != nil || s.State().TopicByID(id) != nil {
			if stored.Err != nil || !s.movedAway(first, id, stored.Meta.Shard) || !s.movedAway(s.State(), id, stored.Meta.Shard) {
				continue
			}
		}
		to, err := s.config.Disk.SetAside(stored.Name)
		if err != nil {
			s.log.Error("a log of an unknown Topic could not be set aside", "log", stored.Name, "error", err)
			continue
		}
		s.counts.setAside.Add(1)
		s.log.Warn("a log of a Topic that does not exist, or is kept by other brokers, was set aside; delete it if nobody misses it", "log", stored.Name, "to", to, "spec", string(stored.Meta.Spec))
	}
}
