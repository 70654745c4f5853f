package subscription

import (
	"fmt"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/retention"
)

// Endangered returns why the Topic's retention is about to delete a record that was not
// acknowledged, or "". info is of just now. The record may be one that no filter matches, if later
// ones match, and one that the condition has not judged yet.
func (s *Subscription) Endangered(info *Info) string {
	shard := s.store.shard
	if shard.topic == nil {
		return ""
	}
	keep := shard.topic.Desired().Spec.Retention
	return s.endangeredBy(info, log.Retention{Age: keep.Age, Bytes: keep.Bytes, Messages: uint64(max(keep.Messages, 0))})
}

func (s *Subscription) endangeredBy(info *Info, policy log.Retention) string {
	s.mu.Lock()
	was := s.endangered
	s.mu.Unlock()
	why := ""
	if (info.Lag > 0 || info.Pending > 0) && policy != (log.Retention{}) {
		why = s.endangeredNow(info, policy, was)
	}
	s.mu.Lock()
	s.endangered = why != ""
	s.mu.Unlock()
	return why
}

func (s *Subscription) endangeredNow(info *Info, policy log.Retention, was bool) string {
	clock := s.service.config.Clock
	if clock.InDoubt() {
		policy.Age = 0 // nothing is deleted by age
	}
	start, end := s.store.shard.Offsets()
	oldest := max(info.FloorOffset+1, start)
	if info.Pending == 0 {
		oldest = max(oldest, s.judgedTo())
	}
	why := retention.Soon(s.store.shard.Data().SegmentInfos(), policy, s.store.shard.Removed(), end, oldest, clock.Time(), was)
	if why == "" {
		return ""
	}
	return fmt.Sprintf("the oldest message that is not acknowledged has sequence %d: %s", oldest, why)
}
