package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// Facts is the input of a plan.
type Facts struct {
	Brokers []coordination.Broker // the members
	// Former are the brokers that are still registered in an earlier generation of etcd.
	Former []coordination.Broker
	// Settling reports that brokers may be alive that are not registered at all, since the
	// generation began lately.
	Settling bool
	// Drains are the drains of brokers by id. The brokers need not be members.
	Drains map[string]coordination.DrainMode
	Topics []*coordination.Topic
	Shards func(topicID string) []*coordination.Shard // the existing ones, sorted by number
	// Reported returns what a broker reports about its copy; false: it reports nothing. nil: no
	// broker does.
	Reported func(broker, topicID string, shard int) (coordination.Suspect, bool)
	// Generation is that of etcd. The in-sync set of a shard of an earlier one is not believed.
	Generation int64
	// Raised is the revision of etcd at which the generation began. Topics that were made later are
	// new.
	Raised int64
	// ReportedIn returns the generation whose restored copies of a Topic a broker has reported.
	// nil: none has.
	ReportedIn func(broker, topicID string) int64
	// Stride is by how much an election raises the epoch, random in each plan; 0: by 1. An etcd
	// that was restored from a backup has epochs granted again that had leaders, until a broker
	// notices. Two histories then have different epochs, so that logs show where they diverge.
	Stride int64
	// MaxShards is the number of shards of one Topic that brokers can serve.
	MaxShards int
	// HoldMoves forbids moves of leaderships for balance in this plan.
	HoldMoves bool
}

// FactsOf returns the facts of a State about the given Topics, or about all if none is given.
func FactsOf(state *coordination.State, topics ...*coordination.Topic) Facts {
	facts := Facts{
		Brokers: state.Brokers, Former: state.Former, Settling: state.Settling, Drains: state.Drains(), Topics: topics,
		Shards: state.Shards, Reported: state.Reported, MaxShards: MaxShards, Generation: state.Generation, Raised: state.Raised, ReportedIn: state.ReportedIn,
	}
	if len(topics) == 0 {
		for t := range state.Topics() {
			facts.Topics = append(facts.Topics, t)
		}
	}
	return facts
}

// PreferredFirst returns all Topics of a State in the order in which a broker opens its copies:
// first the Topics with a shard whose preferred leader it is. After a restart of all brokers, each
// opens different shards first: a shard has a leader as soon as one broker has opened it, and the
// brokers seldom write its key at the same time.
func PreferredFirst(state *coordination.State, broker string) []*coordination.Topic {
	var first, rest []*coordination.Topic
	for t := range state.Topics() {
		leads := func(s *coordination.Shard) bool { return s.Replicas[0] == broker }
		if slices.ContainsFunc(state.Shards(t.ID), leads) {
			first = append(first, t)
		} else {
			rest = append(rest, t)
		}
	}
	return append(first, rest...)
}

// MaxShards is the number of shards of one Topic that brokers serve. One shard uses the write
// bandwidth of a disk, and no cluster is expected to have more than 64 disks. A request for a whole
// Topic asks every shard, and has to be answered in a moment.
const MaxShards = 64

const (
	// MaxReplicas is the number of replicas of a shard that brokers keep.
	MaxReplicas = 5
	// maxPlanWrites bounds a plan to the writes of about a tenth of a second. The next plan has
	// newer facts.
	maxPlanWrites = 10 * coordination.MaxShardWrites
	// maxSweeps bounds the deletions of one plan, which take longer than writes.
	maxSweeps = 10
	// leaderMovesPerPlan bounds the leaderships that one plan moves for balance. During each move
	// the shard's publishers wait for a moment.
	leaderMovesPerPlan = 10
	// repairsUnderWay bounds the shards whose replicas are changed at a time because there are too
	// few, too many, or one on a drained broker. Each change copies a whole shard.
	repairsUnderWay = 32
	// movesUnderWay is the same limit for balance. Repairs under way count, too.
	movesUnderWay = 4
)

// Plan is the controller's next writes, and the reasons why other shards wait.
type Plan struct {
	Writes []Write               // at most maxPlanWrites, each of a different shard
	Sweeps []*coordination.Topic // Topics whose deletion is to be finished
	Waits  []Wait                // sorted by Topic and shard
	More   bool                  // the plan is full, and there is more to do
	Held   bool                  // moves of leaderships for balance are left to a later plan
	Moves  int                   // writes that move a leadership for balance
}

// Write is one change of a shard, and its reason.
type Write struct {
	coordination.ShardWrite
	Reason WriteReason
}

// WriteReason is one of the reasons below.
type WriteReason string

// The reasons for writes.
const (
	// Placed: the shard is new.
	Placed WriteReason = "Placed"
	// LeaderElected: the shard had no leader, and another member of the in-sync set leads now,
	// without known loss.
	LeaderElected WriteReason = "LeaderElected"
	// LeaderReturned: the former leader is named again, with everything that was acknowledged. Its
	// broker is of an earlier version, or a torn tail of its copy was cut. Other brokers vouch for
	// their copies, and lead on or are elected.
	LeaderReturned WriteReason = "LeaderReturned"
	// LeaderReturnedUnsynced: the same, but the Topic's durability promises less, so acknowledged
	// records may be lost.
	LeaderReturnedUnsynced WriteReason = "LeaderReturnedUnsynced"
	// LeastLoss: no member vouches for its copy, and the copy of the last in-sync set that goes
	// furthest leads. Acknowledged records may be lost.
	LeastLoss WriteReason = "LeastLoss"
	// Unclean: no in-sync member can lead, and the Topic prefers a loss to waiting.
	Unclean WriteReason = "Unclean"
	// Restored: etcd was restored from a backup, and the copy that goes furthest leads.
	Restored WriteReason = "Restored"
	// LeaderMoved: another in-sync member leads, because the leader is drained or to be removed, or
	// for balance.
	LeaderMoved WriteReason = "LeaderMoved"
	// ReplicaAdded: a replica is to catch up, as an additional one or as a replacement.
	ReplicaAdded WriteReason = "ReplicaAdded"
	// ReplicaJoined: an added replica has caught up or was given up, or a replica to be removed
	// stays.
	ReplicaJoined WriteReason = "ReplicaJoined"
	// ReplicaMoved: a replica was removed after its replacement had caught up.
	ReplicaMoved WriteReason = "ReplicaMoved"
	// ReplicaRemoved: a surplus replica was removed.
	ReplicaRemoved WriteReason = "ReplicaRemoved"
)

// Wait is the reason why a Topic or one of its shards is not served, or why a drain does not end.
type Wait struct {
	Topic  *coordination.Topic
	Shard  int // -1: the whole Topic
	Reason WaitReason
	Why    string // for people, with the way out
}

// WaitReason is one of the reasons below.
type WaitReason string

// The reasons for waiting.
const (
	// NoBroker: no broker can take a new shard.
	NoBroker WaitReason = "NoBroker"
	// NotEnoughBrokers: fewer brokers can take a new shard than must be in sync.
	NotEnoughBrokers WaitReason = "NotEnoughBrokers"
	// BrokerAway: the only broker with a replica of the shard is not a member.
	BrokerAway WaitReason = "BrokerAway"
	// NoLeaderCandidate: all members of the in-sync set are away, or the set is empty.
	NoLeaderCandidate WaitReason = "NoLeaderCandidate"
	// AllSuspect: members of the in-sync set are present, but none vouches for its copy.
	AllSuspect WaitReason = "AllSuspect"
	// CopiesOpening: members of the in-sync set are present, but have not judged their copies yet.
	CopiesOpening WaitReason = "CopiesOpening"
	// EtcdRestored: etcd was restored from a backup, so its in-sync set is not believed, and not
	// all replicas are there to be compared.
	EtcdRestored WaitReason = "EtcdRestored"
	// DrainBlocked: no broker can take the replicas of a drained broker. The shard is served.
	DrainBlocked WaitReason = "DrainBlocked"
	// ShardsUnsupported: the Topic asks for more shards than brokers can serve.
	ShardsUnsupported WaitReason = "ShardsUnsupported"
	// ReplicasUnsupported: the Topic asks for more replicas than brokers can keep.
	ReplicasUnsupported WaitReason = "ReplicasUnsupported"
)

// Decide returns the next plan. Its order is:
//
//  1. Leaders for shards without one, since clients wait for them.
//  2. Other leaders for shards whose leader is to stop.
//  3. New shards, the oldest Topic's first.
//  4. Replicas to add or to remove.
//  5. Balance.
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
		if !p.replaceLeader(it) {
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

// item is an existing shard.
type item struct {
	topic *coordination.Topic
	*coordination.Shard
}

// place is a missing shard.
type place struct {
	topic  *coordination.Topic
	number int
}

type planner struct {
	Plan
	facts    Facts
	topics   []*coordination.Topic // oldest first
	alive    map[string]*load
	takers   []*load // brokers that may get replicas, by id
	zones    map[string]int
	underWay int // shards of which replicas are being added or removed

	pairs map[[2]string]int // shards that two brokers have in common; nil: not counted yet

	missing   []place
	unled     []item // without a leader that is present and vouches
	unsettled []item // led, but with other replicas or another leader than wanted
	settled   []item // led, with as many replicas as wanted
}

// load is what one broker holds.
type load struct {
	coordination.Broker
	replicas  int            // without those to be removed
	of        map[string]int // of these, by Topic id
	leads     int            // shards that it leads now
	preferred int            // shards whose first replica it holds
}

func newPlanner(facts Facts) *planner {
	p := &planner{facts: facts, topics: slices.Clone(facts.Topics), alive: map[string]*load{},
		zones: map[string]int{}}
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

// sort counts the load of the Topic's shards, and adds each to missing, unled, unsettled or
// settled.
func (p *planner) sort(t *coordination.Topic, shards []*coordination.Shard) {
	wait, unsupported := p.unsupported(t)
	if unsupported { // its existing shards are served and repaired nevertheless
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
		case p.asWanted(it):
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
	if len(it.Removing) > 0 ||
		slices.ContainsFunc(it.Adding, func(id string) bool { return p.alive[id] != nil }) {
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
		return Wait{t, -1, ReplicasUnsupported,
			fmt.Sprintf("topic %s asks for %d replicas, %d of them in sync; brokers keep at most %d (write replicas: %d or fewer)",
				t.Name, t.Spec.Replicas, t.Spec.MinInSync, MaxReplicas, MaxReplicas)}, true
	case t.Spec.Shards > p.facts.MaxShards:
		return Wait{t, -1, ShardsUnsupported,
			fmt.Sprintf("topic %s asks for %d shards; brokers serve at most %d (make it anew with shards: %d or fewer)",
				t.Name, t.Spec.Shards, p.facts.MaxShards, p.facts.MaxShards)}, true
	}
	return Wait{}, false
}

// Unsupported returns why a Topic can't be served, for people, or "".
func Unsupported(t *coordination.Topic) string {
	if t.Spec.Shards > MaxShards {
		return fmt.Sprintf("it asks for %d shards, and brokers serve Topics of at most %d (make it anew with shards: %d or fewer)", t.Spec.Shards, MaxShards, MaxShards)
	}
	if t.Spec.Replicas > MaxReplicas || t.Spec.MinInSync > MaxReplicas {
		return fmt.Sprintf("it asks for %d replicas, %d of them in sync, and brokers keep %d at most", t.Spec.Replicas, t.Spec.MinInSync, MaxReplicas)
	}
	return ""
}

func (p *planner) wait(it item, reason WaitReason, why string) {
	p.Waits = append(p.Waits, Wait{it.topic, it.Number, reason,
		fmt.Sprintf("shard %d of topic %s %s", it.Number, it.topic.Name, why)})
}

// write adds a change to the plan. It reports whether there was room.
func (p *planner) write(t *coordination.Topic, after coordination.Shard, reason WriteReason) bool {
	if len(p.Writes) == maxPlanWrites {
		p.More = true
		return false
	}
	after.Generation = p.facts.Generation
	p.Writes = append(p.Writes, Write{coordination.ShardWrite{Shard: after, Topic: t}, reason})
	return true
}

// order returns 0 for false and 1 for true, to sort by.
func order(b bool) int {
	if b {
		return 1
	}
	return 0
}
