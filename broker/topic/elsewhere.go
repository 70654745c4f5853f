package topic

import (
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/publish"
)

// idHidden returns why it isn't known whether a message with an unknown id was kept, or nil: the id
// may stand in damaged records of this copy that another replica may have. mu is held.
func (s *ShardLeader) idHidden(v *view) error {
	for _, u := range s.ids.Unread() {
		if elsewhere := s.elsewhere(v, u.Damage); elsewhere != "" {
			return &publish.NotServedError{Topic: s.topic.name, Reason: publish.Troubled, Leader: s.service.config.Self,
				Why: "it isn't known whether the message was kept before, and it was not kept now: " + elsewhere}
		}
	}
	return nil
}

// elsewhere returns, for people, which other replicas may have what is damaged here; empty: none.
// If unclean election is allowed, the Topic prefers to go on without what only absent replicas
// have.
func (s *ShardLeader) elsewhere(v *view, damage *log.CorruptError) string {
	if v.shard == nil || v.desired.Spec.UncleanElection || damage.Next <= damage.From {
		return ""
	}
	self := s.service.config
	return s.leading.Load().Elsewhere(self.Self, self.Name, s.service.State(), v.shard, s.state.Name(), damage, s.service.BrokerName)
}
