package topic

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/placement"
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
	names := s.mayHave(v, damage)
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("the copy on broker %s is damaged from %d to %d, which %s may have; try again when it is in sync (bring it back with its volume, or allow unclean election to give up what only it has)",
		s.service.config.Name, damage.From, damage.Next-1, placement.OneOf(names))
}

// mayHave returns the names of the other replicas that may have what is damaged here.
//
//  1. A replica that is being added has never had everything.
//  2. A present replica that doubts its copy has what it reports, unless it says in its requests
//     that it lacks all of what is damaged here (replica.Leading.Lacks). Its repair ends, since
//     this leader sends what is not damaged here, and what is may be in its own damaged segment.
//     Then it can lead.
//  3. If it doesn't say what it lacks and its repair is stalled (replica.Leading.Stalled), waiting
//     for it has no end, so it doesn't count: it may lack the same records.
//  4. A replica that follows, or did in this epoch, has what it confirmed.
//  5. Any other replica may have it: it is away, or has not opened its copy.
//
// If unclean election is allowed, the Topic prefers to go on without what only absent replicas
// have.
func (s *ShardLeader) mayHave(v *view, damage *log.CorruptError) (names []string) {
	if v.shard == nil || v.desired.Spec.UncleanElection || damage.Next <= damage.From {
		return nil
	}
	part, state := s.damagedPart(damage), s.service.State()
	leading := s.leading.Load()
	followers := leading.Followers()
	for _, id := range v.shard.Replicas {
		if id == s.service.config.Self || slices.Contains(v.shard.Adding, id) {
			continue
		}
		said, reported := state.Reported(id, v.shard.Topic, v.shard.Number)
		at := slices.IndexFunc(followers, func(f replica.Follower) bool { return f.Broker == id && f.Safe[replica.Data] > 0 })
		end := uint64(math.MaxUint64)
		lacks, known := leading.Lacks(id, part, log.Span{From: damage.From, Next: damage.Next})
		switch {
		case said.Lacks > 0 && (lacks || !known && leading.Stalled(id)):
			end = 0
		case said.Lacks == 0 && at >= 0:
			end = followers[at].Safe[part]
		case reported && !said.Closed:
			end = [...]uint64{replica.Data: said.End, replica.State: said.State}[part]
		}
		if end >= damage.Next {
			names = append(names, s.service.BrokerName(id))
		}
	}
	return names
}

// damagedPart returns which of the shard's logs is damaged.
func (s *ShardLeader) damagedPart(damage *log.CorruptError) replica.Part {
	if name := s.state.Name(); filepath.Base(damage.File) == name || filepath.Base(filepath.Dir(damage.File)) == name {
		return replica.State
	}
	return replica.Data
}
