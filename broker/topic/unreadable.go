package topic

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/replica"
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
	if names := s.mayHave(v, damage); len(names) > 0 {
		return no("the copy on broker %s is damaged from %d to %d, which %s may have; try again when it is in sync (bring it back with its volume, or allow unclean election to give up what only it has)",
			self.Name, damage.From, damage.Next-1, oneOf(names))
	}
	return err
}

// mayHave returns the names of the other replicas that may have what is damaged here.
//
//  1. A replica that is being added has never had everything.
//  2. A present replica that doubts its copy has what it reports. The segments that it lacks are
//     most likely others than what is damaged here. Its repair ends, since this leader sends what
//     is not damaged here, and what is may be in its own damaged segment. Then it can lead.
//  3. If its repair is stalled (replica.Leading.Stalled), waiting for it has no end, so it doesn't
//     count: it may lack the same records.
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
		switch {
		case said.Lacks > 0 && leading.Stalled(id):
			end = 0
		case said.Lacks == 0 && at >= 0:
			end = followers[at].Safe[part]
		case reported && !said.Closed:
			end = [...]uint64{replica.Data: said.End, replica.State: said.State}[part]
		}
		if end >= damage.Next {
			names = append(names, s.service.nameOf(id))
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

// oneOf names one of several brokers, for people.
func oneOf(names []string) string {
	if len(names) == 1 {
		return "broker " + names[0]
	}
	return "one of the brokers " + strings.Join(names, ", ")
}
