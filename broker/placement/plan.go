package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// Facts is what a plan is made from.
type Facts struct {
	Brokers []coordination.Broker // that are members
	// Drains is what brokers are to be relieved of, by id; they need not be members.
	Drains map[string]coordination.DrainMode
	Topics []*coordination.Topic
	Shards func(topicID string) []*coordination.Shard // that are written, sorted by number
	// Reported is how far a replica goes that its broker can't vouch for; false: it can. nil: all can.
	Reported func(broker, topicID string, shard int) (coordination.Suspect, bool)
	// MaxShards is how many shards of one Topic brokers can serve.
	MaxShards int
	// HoldMoves says that leaderships are not to be moved for the sake of balance just now.
	HoldMoves bool
}

// FactsOf are those of a State, about these Topics, or all if none is named.
func FactsOf(state *coordination.State, topics ...*coordination.Topic) Facts {
	facts := Facts{
		Brokers: state.Brokers, Drains: state.Drains(), Topics: topics,
		Shards: state.Shards, Reported: state.Reported, MaxShards: MaxShards,
	}
	if len(topics) == 0 {
		for t := range state.Topics() {
			facts.Topics = append(facts.Topics, t)
		}
	}
	return facts
}

// MaxShards is how many shards of one Topic brokers serve. One shard takes what a disk writes, so 64 are more than the brokers
// of a cluster have disks; and whoever asks for the whole Topic asks each of them, which is to be done in a moment.
const MaxShards = 64

const (
	// MaxReplicas is how many replicas of a shard brokers keep.
	MaxReplicas = 5
	// maxPlanWrites bounds one plan: what is written within about a tenth of a second, after which
	// the next plan knows better.
	maxPlanWrites = 10 * coordination.MaxShardWrites
	// maxSweeps bounds the deletions of one plan, which take longer than writes.
	maxSweeps = 10
	// leaderMovesPerPlan is how many leaderships one plan moves for balance; each is a moment in which
	// the publishers of that shard wait.
	leaderMovesPerPlan = 10
	// repairsUnderWay is how many shards may have replicas added or removed at a time because they have too
	// few, too many, or one on a broker that is drained; each is a copy of the whole shard.
	repairsUnderWay = 32
	// movesUnderWay is the same for the sake of balance, with the repairs counted in.
	movesUnderWay = 4
)

// Plan is what the controller does next, and why the rest is not served.
type Plan struct {
	Writes []Write               // at most maxPlanWrites, each of another shard
	Sweeps []*coordination.Topic // whose deletion is to be finished
	Waits  []Wait                // sorted by Topic and shard
	More   bool                  // there was more to do than one plan holds
	Held   bool                  // leaderships are to be moved when HoldMoves ends
	Moves  int                   // writes that move a leadership for balance
}

// Write is one change of a shard, and its reason.
type Write struct {
	coordination.ShardWrite
	Reason WriteReason
}

// WriteReason is from a closed list.
type WriteReason string

// The reasons for writes.
const (
	// Placed: the shard is new.
	Placed WriteReason = "Placed"
	// LeaderElected: the shard had no leader, and a member of the in-sync set leads now that vouches for its copy.
	LeaderElected WriteReason = "LeaderElected"
	// LeaderReturned: the leader, of an earlier version, is there in another life than before, with everything that was
	// acknowledged. Others vouch for their copies in that life, and are elected.
	LeaderReturned WriteReason = "LeaderReturned"
	// LeaderReturnedUnsynced: the same, but the Topic asked for less than that, so something may be lost.
	LeaderReturnedUnsynced WriteReason = "LeaderReturnedUnsynced"
	// LeastLoss: nobody can vouch for everything that was acknowledged; of the whole last in-sync set the one that
	// goes furthest leads. Something may be lost.
	LeastLoss WriteReason = "LeastLoss"
	// Unclean: nobody in sync is there, and the Topic would rather lose what it must than wait.
	Unclean WriteReason = "Unclean"
	// LeaderMoved: another member of the in-sync set leads, because the leader is drained or for balance.
	LeaderMoved WriteReason = "LeaderMoved"
	// ReplicaAdded: another replica is to catch up, as one more or in place of another.
	ReplicaAdded WriteReason = "ReplicaAdded"
	// ReplicaJoined: one that was added has caught up, or was given up.
	ReplicaJoined WriteReason = "ReplicaJoined"
	// ReplicaMoved: a replica went in whose place another is in sync.
	ReplicaMoved WriteReason = "ReplicaMoved"
	// ReplicaRemoved: a replica went that was one too many.
	ReplicaRemoved WriteReason = "ReplicaRemoved"
)

// Wait says why a Topic, or one of its shards, is not served and is not going to be by itself; or why
// a drain does not come to its end.
type Wait struct {
	Topic  *coordination.Topic
	Shard  int // -1: the whole Topic
	Reason WaitReason
	Why    string // for people, with the way out
}

// WaitReason is from a closed list.
type WaitReason string

// The reasons for waiting.
const (
	// NoBroker: there is none to put a new shard on.
	NoBroker WaitReason = "NoBroker"
	// NotEnoughBrokers: there are fewer to put a new shard on than must be in sync.
	NotEnoughBrokers WaitReason = "NotEnoughBrokers"
	// BrokerAway: the broker that alone holds the shard is not a member now.
	BrokerAway WaitReason = "BrokerAway"
	// NoLeaderCandidate: all that were in sync are away.
	NoLeaderCandidate WaitReason = "NoLeaderCandidate"
	// AllSuspect: of those that were in sync some are there, but none can vouch for its data.
	AllSuspect WaitReason = "AllSuspect"
	// CopiesOpening: of those that were in sync some are there, and have not judged their copies yet.
	CopiesOpening WaitReason = "CopiesOpening"
	// DrainBlocked: there is no broker to take what a drained one holds. The shard is served.
	DrainBlocked WaitReason = "DrainBlocked"
	// ShardsUnsupported: the Topic asks for more shards than brokers can serve.
	ShardsUnsupported WaitReason = "ShardsUnsupported"
	// ReplicasUnsupported: it asks for more replicas than they can keep.
	ReplicasUnsupported WaitReason = "ReplicasUnsupported"
)

// Decide says what to do next. Shards without a leader come first, since somebody waits for
// them; then those whose leader is to stop; then new ones, the oldest Topic's first; then replicas that
// are missing or to go, and at last balance.
func Decide(facts Facts) Plan {
	p := newPlanner(facts)
	for _, t := range p.topics {
		if t.Deleting {
			p.sweep(t)
		} else {
			p.sort(t, facts.Shards(t.ID))
		}
	}
	for _, it := range p.unled {
		p.elect(it)
	}
	elections := len(p.Writes)
	unsettled := p.unsettled[:0:0]
	for _, it := range p.unsettled {
		if !p.relieve(it) {
			unsettled = append(unsettled, it)
		}
	}
	for _, m := range p.missing {
		p.place(m)
	}
	for _, it := range unsettled {
		p.rearrange(it)
	}
	if elections == 0 && !p.More {
		p.balance()
	}
	slices.SortFunc(p.Waits, func(a, b Wait) int {
		return cmp.Or(strings.Compare(a.Topic.Name, b.Topic.Name), cmp.Compare(a.Shard, b.Shard))
	})
	return p.Plan
}

// item is a shard that is there.
type item struct {
	topic *coordination.Topic
	*coordination.Shard
}

// place is where a shard is missing.
type place struct {
	topic  *coordination.Topic
	number int
}

type planner struct {
	Plan
	facts    Facts
	topics   []*coordination.Topic // oldest first
	alive    map[string]*load
	takers   []*load // those that may be given something, by id
	zones    map[string]int
	underWay int // shards of which replicas are being added or removed

	pairs map[[2]string]int // how many shards two brokers have in common; nil: not counted yet

	missing   []place
	unled     []item // those whose leader is not there, or can't vouch for what it has
	unsettled []item // led, but not as they are meant to be
	settled   []item // led, with as many replicas as they should have, wherever these are
}

// load is what one broker has.
type load struct {
	coordination.Broker
	replicas  int            // without those that are to go
	of        map[string]int // of these, by id of the Topic
	leads     int            // shards that it leads now
	preferred int            // shards of which it is the first replica
}

func newPlanner(facts Facts) *planner {
	p := &planner{facts: facts, topics: slices.Clone(facts.Topics), alive: map[string]*load{}, zones: map[string]int{}}
	slices.SortFunc(p.topics, func(a, b *coordination.Topic) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name))
	})
	for _, b := range facts.Brokers {
		l := &load{Broker: b, of: map[string]int{}}
		p.alive[b.ID] = l
		if facts.Drains[b.ID] == "" {
			p.takers = append(p.takers, l)
		}
	}
	slices.SortFunc(p.takers, func(a, b *load) int { return strings.Compare(a.ID, b.ID) })
	return p
}

func (p *planner) sweep(t *coordination.Topic) {
	if len(p.Sweeps) == maxSweeps {
		p.More = true
		return
	}
	p.Sweeps = append(p.Sweeps, t)
}

// sort counts what the Topic's shards are to brokers, and puts each where it belongs.
func (p *planner) sort(t *coordination.Topic, shards []*coordination.Shard) {
	wait, unsupported := p.unsupported(t)
	if unsupported { // what it has is served and cared for all the same
		p.Waits = append(p.Waits, wait)
	}
	next := 0
	for _, s := range shards {
		for ; !unsupported && next < min(s.Number, t.Spec.Shards); next++ {
			p.missing = append(p.missing, place{t, next})
		}
		next = s.Number + 1
		it := item{t, s}
		p.count(it)
		switch {
		case !p.led(it):
			p.unled = append(p.unled, it)
		case p.asMeant(it):
			p.settled = append(p.settled, it)
		default:
			p.unsettled = append(p.unsettled, it)
		}
	}
	for ; !unsupported && next < t.Spec.Shards; next++ {
		p.missing = append(p.missing, place{t, next})
	}
}

func (p *planner) count(it item) {
	for i, id := range it.Replicas {
		if l := p.alive[id]; l != nil && !slices.Contains(it.Removing, id) {
			p.give(l, it.topic.ID)
			if i == 0 {
				l.preferred++
			}
		}
	}
	if len(it.Removing) > 0 || slices.ContainsFunc(it.Adding, func(id string) bool { return p.alive[id] != nil }) {
		p.underWay++
	}
}

func (p *planner) give(l *load, topicID string) {
	l.replicas++
	l.of[topicID]++
	p.zones[l.Zone]++
}

func (p *planner) unsupported(t *coordination.Topic) (Wait, bool) {
	switch {
	case t.Spec.Replicas > MaxReplicas || t.Spec.MinInSync > MaxReplicas:
		return Wait{t, -1, ReplicasUnsupported, fmt.Sprintf("topic %s asks for %d replicas, %d of them in sync; brokers keep at most %d (write replicas: %d or fewer)",
			t.Name, t.Spec.Replicas, t.Spec.MinInSync, MaxReplicas, MaxReplicas)}, true
	case t.Spec.Shards > p.facts.MaxShards:
		return Wait{t, -1, ShardsUnsupported, fmt.Sprintf("topic %s asks for %d shards; brokers serve at most %d (make it anew with shards: %d or fewer)",
			t.Name, t.Spec.Shards, p.facts.MaxShards, p.facts.MaxShards)}, true
	}
	return Wait{}, false
}

func (p *planner) wait(it item, reason WaitReason, why string) {
	p.Waits = append(p.Waits, Wait{it.topic, it.Number, reason, fmt.Sprintf("shard %d of topic %s %s", it.Number, it.topic.Name, why)})
}

// write adds a change to the plan, if there is room.
func (p *planner) write(t *coordination.Topic, after coordination.Shard, reason WriteReason) bool {
	if len(p.Writes) == maxPlanWrites {
		p.More = true
		return false
	}
	p.Writes = append(p.Writes, Write{coordination.ShardWrite{Shard: after, Topic: t}, reason})
	return true
}

// order makes false the smaller for a sort.
func order(b bool) int {
	if b {
		return 1
	}
	return 0
}
