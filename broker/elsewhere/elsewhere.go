package elsewhere

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/publish"
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

// Words says for people that some replicas may have what is damaged on a broker; empty: none may.
func Words(broker string, damage *log.CorruptError, names []string) string {
	if len(names) == 0 {
		return ""
	}
	others := "broker " + names[0]
	if len(names) > 1 {
		others = "one of the brokers " + strings.Join(names, ", ")
	}
	return fmt.Sprintf("the copy on broker %s is damaged from %d to %d, which %s may have; try again when it is in sync (bring it back with its volume, or allow unclean election to give up what only it has)",
		broker, damage.From, damage.Next-1, others)
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

// Away is a shard that a broker does not lead.
type Away struct {
	Self, SelfName string // the broker, by id and by name
	Restored       bool   // etcd was restored, and no leader is named since
	Leader         string // id of a broker; empty: none
	Shard          *coordination.Shard
	State          *coordination.State // nil: none was read
	Name           func(broker string) string
}

// NotHere returns why a shard is not served on a broker that does not lead it: the reason, and words
// for people.
func NotHere(a Away) (reason publish.NotServedReason, why string) {
	switch {
	case a.Restored:
		return publish.Unplaced, "etcd was restored from a backup, and all copies are compared before one leads; try again"
	case a.Leader == "":
		return publish.Unplaced, "no broker was chosen for it yet; try again"
	case a.Leader == a.Self:
		return publish.NotConfirmed, fmt.Sprintf("broker %s has its messages and waits to be named its leader again; try again", a.SelfName)
	}
	if a.State != nil {
		if leader, ok := a.State.Broker(a.Leader); ok {
			return publish.LedElsewhere, fmt.Sprintf("broker %s leads it, and broker %s has no link there now; try again", leader.Name, a.SelfName)
		}
	}
	if len(a.Shard.Replicas) > 1 {
		return publish.LeaderAway, fmt.Sprintf("broker %s, which led it, is away, and another is being chosen; try again", a.Name(a.Leader))
	}
	return publish.LeaderAway, fmt.Sprintf("its messages are on broker %s, which is away; it is served again when that broker is back", a.Name(a.Leader))
}

// CanLead reports whether a member of the in-sync set other than this broker is present and may
// lead.
func CanLead(state *coordination.State, shard *coordination.Shard, self string) bool {
	return slices.ContainsFunc(shard.InSync, func(m coordination.Replica) bool {
		b, ok := state.Broker(m.Broker)
		return ok && m.Broker != self && shard.Vouched(b) && state.Drain(m.Broker) == "" && !state.Suspect(m.Broker, shard.Topic, shard.Number)
	})
}
