package topic

import (
	"errors"
	"fmt"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/publish"
)

// Unreadable judges why a log of this shard cannot be read. A *log.CorruptError is returned as it
// is only if no other replica may have what is damaged: it is lost, and readers skip it. Otherwise
// the copy is in doubt, and the error is a *publish.NotServedError: reading is to be tried again,
// until another replica leads. Any other error is returned as it is.
func (s *ShardLeader) Unreadable(err error) error {
	damage, ok := errors.AsType[*log.CorruptError](err)
	if !ok || s.leading.Load() == nil { // a follower asks already, and will ask again
		return err
	}
	v, self := s.shard.view.Load(), s.service.config
	no := func(format string, args ...any) error {
		return &publish.NotServedError{Topic: s.topic.name, Reason: publish.Troubled, Leader: self.Self, Why: fmt.Sprintf(format, args...)}
	}
	others := s.service.othersCanLead(v)
	if (others || v.shard != nil && len(v.shard.Replicas) > 1 && damage.Next > damage.From) && !s.shard.own.grave.Load() {
		s.service.queueDamage(s.shard, damageFound+damage.Error())
	}
	if others {
		return no("the copy on broker %s is damaged, and another one is to lead; try again", self.Name)
	}
	if elsewhere := s.elsewhere(v, damage); elsewhere != "" {
		return no("%s", elsewhere)
	}
	return err
}
