package topic

import (
	"path/filepath"

	"github.com/carillon-mq/carillon/broker/elsewhere"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/replica"
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
func (s *ShardLeader) elsewhere(v *view, damage *log.CorruptError) string {
	return elsewhere.Words(s.service.config.Name, damage, s.mayHave(v, damage))
}

// mayHave returns the names of the other replicas that may have what is damaged here.
func (s *ShardLeader) mayHave(v *view, damage *log.CorruptError) (names []string) {
	if v.shard == nil || v.desired.Spec.UncleanElection {
		return nil
	}
	return elsewhere.MayHave(elsewhere.Query{Self: s.service.config.Self, Shard: v.shard, State: s.service.State(),
		Leading: s.leading.Load(), Part: s.damagedPart(damage), Damage: damage, Name: s.service.BrokerName})
}

// damagedPart returns which of the shard's logs is damaged.
func (s *ShardLeader) damagedPart(damage *log.CorruptError) replica.Part {
	if name := s.state.Name(); filepath.Base(damage.File) == name || filepath.Base(filepath.Dir(damage.File)) == name {
		return replica.State
	}
	return replica.Data
}
