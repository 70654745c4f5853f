package elsewhere

import (
	"math"
	"slices"
	"strings"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/replica"
)

// Query asks which replicas may have what is damaged in the leader's copy of a shard.
type Query struct {
	Self    string // id of the leader's broker
	Shard   *coordination.Shard
	State   *coordination.State
	Leading *replica.Leading
	Part    replica.Part // which is damaged
	Damage  *log.CorruptError
	Name    func(broker string) string
}

// MayHave returns the names of the other replicas that may have what is damaged.
//
//  1. A replica that is being added has never had everything.
//  2. A present replica that doubts its copy has what it reports, unless it says in its requests
//     that it lacks all of what is damaged (replica.Leading.Lacks). Its repair ends, since the
//     leader sends what is not damaged there, and what is may be in its own damaged segment. Then it
//     can lead.
//  3. If it doesn't say what it lacks and its repair is stalled (replica.Leading.Stalled), waiting
//     for it has no end, so it doesn't count: it may lack the same records.
//  4. A replica that follows, or did in this epoch, has what it confirmed.
//  5. Any other replica may have it: it is away, or has not opened its copy.
//
// If unclean election is allowed, the Topic prefers to go on without what only absent replicas
// have: then nobody asks.
func MayHave(q Query) (names []string) {
	damage := q.Damage
	if damage.Next <= damage.From {
		return nil
	}
	followers := q.Leading.Followers()
	for _, id := range q.Shard.Replicas {
		if id == q.Self || slices.Contains(q.Shard.Adding, id) {
			continue
		}
		said, reported := q.State.Reported(id, q.Shard.Topic, q.Shard.Number)
		at := slices.IndexFunc(followers, func(f replica.Follower) bool { return f.Broker == id && f.Safe[replica.Data] > 0 })
		end := uint64(math.MaxUint64)
		lacks, known := q.Leading.Lacks(id, q.Part, log.Span{From: damage.From, Next: damage.Next})
		switch {
		case said.Lacks > 0 && (lacks || !known && q.Leading.Stalled(id)):
			end = 0
		case said.Lacks == 0 && at >= 0:
			end = followers[at].Safe[q.Part]
		case reported && !said.Closed:
			end = [...]uint64{replica.Data: said.End, replica.State: said.State}[q.Part]
		}
		if end >= damage.Next {
			names = append(names, q.Name(id))
		}
	}
	return names
}

// OneOf names one of several brokers, for people.
func OneOf(names []string) string {
	if len(names) == 1 {
		return "broker " + names[0]
	}
	return "one of the brokers " + strings.Join(names, ", ")
}

// Missing returns which replicas of a shard are absent or not in sync, for people.
func Missing(state *coordination.State, shard *coordination.Shard, name func(broker string) string) string {
	var away, late []string
	for _, id := range shard.Replicas {
		b, ok := state.Broker(id)
		switch {
		case !ok:
			away = append(away, name(id))
		case !slices.Contains(shard.InSync, coordination.Replica{Broker: id, Incarnation: b.Incarnation}):
			late = append(late, name(id))
		}
	}
	switch {
	case len(away) > 0:
		return "away: " + strings.Join(away, ", ")
	case len(late) > 0:
		return "catching up: " + strings.Join(late, ", ")
	}
	return "try again"
}
