package replica

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
)

// MayHave returns the ids of the other replicas of a shard that may have what is damaged in the
// copy of its leader, on broker self. state is the name of the shard's state log.
//
//  1. A replica that is being added has never had everything.
//  2. A present replica that doubts its copy has what it reports, unless it says in its requests
//     that it lacks all of what is damaged here (Leading.Lacks). Its repair ends, since this leader
//     sends what is not damaged here, and what is may be in its own damaged segment. Then it can
//     lead.
//  3. If it doesn't say what it lacks and its repair is stalled (Leading.Stalled), waiting for it
//     has no end, so it doesn't count: it may lack the same records.
//  4. A replica that follows, or did in this epoch, has what it confirmed.
//  5. Any other replica may have it: it is away, or has not opened its copy.
func (l *Leading) MayHave(self string, in *coordination.State, shard *coordination.Shard, state string, damage *log.CorruptError) (ids []string) {
	part := Data
	if filepath.Base(damage.File) == state || filepath.Base(filepath.Dir(damage.File)) == state {
		part = State
	}
	followers := l.Followers()
	for _, id := range shard.Replicas {
		if id == self || slices.Contains(shard.Adding, id) {
			continue
		}
		said, reported := in.Reported(id, shard.Topic, shard.Number)
		at := slices.IndexFunc(followers, func(f Follower) bool { return f.Broker == id && f.Safe[Data] > 0 })
		end := uint64(math.MaxUint64)
		lacks, known := l.Lacks(id, part, log.Span{From: damage.From, Next: damage.Next})
		switch {
		case said.Lacks > 0 && (lacks || !known && l.Stalled(id)):
			end = 0
		case said.Lacks == 0 && at >= 0:
			end = followers[at].Safe[part]
		case reported && !said.Closed:
			end = [...]uint64{Data: said.End, State: said.State}[part]
		}
		if end >= damage.Next {
			ids = append(ids, id)
		}
	}
	return ids
}

// Elsewhere returns, for people, which other replicas may have what is damaged (MayHave), and what
// to do; empty: none has it. name returns the name of a broker.
func (l *Leading) Elsewhere(self, selfName string, in *coordination.State, shard *coordination.Shard, state string, damage *log.CorruptError, name func(id string) string) string {
	ids := l.MayHave(self, in, shard, state, damage)
	if len(ids) == 0 {
		return ""
	}
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = name(id)
	}
	return fmt.Sprintf("the copy on broker %s is damaged from %d to %d, which %s may have; try again when it is in sync (bring it back with its volume, or allow unclean election to give up what only it has)",
		selfName, damage.From, damage.Next-1, coordination.OneOf(names))
}
