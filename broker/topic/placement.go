package topic

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// Facts is what a plan is made from.
type Facts struct {
	Brokers  []coordination.Broker // that are members
	Draining map[string]bool       // ids of those that are given nothing new
	Topics   []*coordination.Topic
	Shards   func(topicID string) []*coordination.Shard // that are written, sorted by number
	// MaxShards is how many shards of one Topic brokers can serve.
	MaxShards int
}

// maxReplicas is how many replicas of a shard brokers can serve.
const maxReplicas = 1

// maxSweeps bounds the deletions of one plan, which take longer than writes.
const maxSweeps = 10

// Plan is what the controller does next, and why the rest is not served.
type Plan struct {
	Writes []Write               // at most coordination.MaxShardWrites, for one call
	Sweeps []*coordination.Topic // whose deletion is to be finished
	Waits  []Wait                // sorted by Topic and shard
	More   bool                  // there was more to do than one plan holds
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
	// LeaderReturned: the broker that holds the shard is there in another life than before, with everything that was acknowledged.
	LeaderReturned WriteReason = "LeaderReturned"
	// LeaderReturnedUnsynced: the same, but the Topic asked for less than that, so something may be lost.
	LeaderReturnedUnsynced WriteReason = "LeaderReturnedUnsynced"
)

// Wait says why a Topic, or one of its shards, is not served and is not going to be by itself.
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
	// BrokerAway: the broker that alone holds the shard is not a member now.
	BrokerAway WaitReason = "BrokerAway"
	// ShardsUnsupported: the Topic asks for more shards than brokers can serve.
	ShardsUnsupported WaitReason = "ShardsUnsupported"
	// ReplicasUnsupported: it asks for more replicas than they can keep.
	ReplicasUnsupported WaitReason = "ReplicasUnsupported"
)

// PlanPlacement says what to do next. Shards that lost their leader's life come first, since
// they have data that somebody waits for; then new ones, the oldest Topic's first.
func PlanPlacement(facts Facts) Plan {
	p := newPlanner(facts)
	var missing []place
	for _, t := range p.topics {
		if t.Deleting {
			p.sweep(t)
			continue
		}
		shards := facts.Shards(t.ID)
		for _, shard := range shards {
			p.keep(t, shard)
		}
		if wait, ok := p.unsupported(t); ok { // what it has is served all the same
			p.Waits = append(p.Waits, wait)
			continue
		}
		for number := range t.Spec.Shards {
			if len(shards) > 0 && shards[0].Number == number {
				shards = shards[1:]
			} else {
				missing = append(missing, place{t, number})
			}
		}
	}
	for _, m := range missing {
		p.place(m)
	}
	slices.SortFunc(p.Waits, func(a, b Wait) int {
		return cmp.Or(strings.Compare(a.Topic.Name, b.Topic.Name), cmp.Compare(a.Shard, b.Shard))
	})
	return p.Plan
}

// place is where a shard is missing.
type place struct {
	topic  *coordination.Topic
	number int
}

type planner struct {
	Plan
	topics []*coordination.Topic // oldest first
	alive  map[string]*load
	takers []*load // those that may be given something, by id
	zones  map[string]int

	maxShards int
}

// load is what one broker has.
type load struct {
	coordination.Broker
	shards int
	of     map[string]int // by id of the Topic
}

func newPlanner(facts Facts) *planner {
	p := &planner{topics: slices.Clone(facts.Topics), alive: map[string]*load{}, zones: map[string]int{}, maxShards: facts.MaxShards}
	slices.SortFunc(p.topics, func(a, b *coordination.Topic) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name))
	})
	for _, b := range facts.Brokers {
		l := &load{Broker: b, of: map[string]int{}}
		p.alive[b.ID] = l
		if !facts.Draining[b.ID] {
			p.takers = append(p.takers, l)
		}
	}
	slices.SortFunc(p.takers, func(a, b *load) int { return strings.Compare(a.ID, b.ID) })
	for _, t := range p.topics {
		if t.Deleting {
			continue // its shards are as good as gone
		}
		for _, shard := range facts.Shards(t.ID) {
			for _, id := range shard.Replicas {
				if l := p.alive[id]; l != nil {
					p.count(l, t.ID)
				}
			}
		}
	}
	return p
}

func (p *planner) count(l *load, topicID string) {
	l.shards++
	l.of[topicID]++
	p.zones[l.Zone]++
}

func (p *planner) sweep(t *coordination.Topic) {
	if len(p.Sweeps) == maxSweeps {
		p.More = true
		return
	}
	p.Sweeps = append(p.Sweeps, t)
}

func (p *planner) unsupported(t *coordination.Topic) (Wait, bool) {
	switch {
	case t.Spec.Replicas > maxReplicas || t.Spec.MinInSync > maxReplicas:
		return Wait{t, -1, ReplicasUnsupported, fmt.Sprintf("topic %s asks for %d replicas, %d of them in sync; brokers keep %d so far (write replicas: %d, or leave both out)",
			t.Name, t.Spec.Replicas, t.Spec.MinInSync, maxReplicas, maxReplicas)}, true
	case t.Spec.Shards > p.maxShards:
		return Wait{t, -1, ShardsUnsupported, fmt.Sprintf("topic %s asks for %d shards; brokers serve %d so far (make it anew with shards: %d)",
			t.Name, t.Spec.Shards, p.maxShards, p.maxShards)}, true
	}
	return Wait{}, false
}

// keep sees to a shard that is placed.
func (p *planner) keep(t *coordination.Topic, shard *coordination.Shard) {
	if len(shard.Replicas) > maxReplicas {
		p.Waits = append(p.Waits, Wait{t, shard.Number, ReplicasUnsupported,
			fmt.Sprintf("shard %d of topic %s has %d replicas, which this controller does not know how to serve (upgrade the brokers)", shard.Number, t.Name, len(shard.Replicas))})
		return
	}
	id := shard.Replicas[0]
	holder := p.alive[id]
	if holder == nil {
		p.Waits = append(p.Waits, Wait{t, shard.Number, BrokerAway,
			fmt.Sprintf("shard %d of topic %s is on broker %s alone, which is away (bring that broker back with its volume)", shard.Number, t.Name, id)})
		return
	}
	now := coordination.Replica{Broker: id, Incarnation: holder.Incarnation}
	if shard.Leader == id && len(shard.InSync) == 1 && shard.InSync[0] == now {
		return
	}
	after := *shard
	after.Epoch++
	after.Leader, after.InSync = id, []coordination.Replica{now}
	reason := LeaderReturned
	if t.Spec.Durability != "" && t.Spec.Durability != coordination.Synced {
		reason = LeaderReturnedUnsynced
	}
	p.write(Write{coordination.ShardWrite{Shard: after, Topic: t}, reason})
}

// place gives a new shard to a broker.
func (p *planner) place(where place) {
	t := where.topic
	if len(p.takers) == 0 {
		p.Waits = append(p.Waits, Wait{t, where.number, NoBroker,
			fmt.Sprintf("there is no broker to put shard %d of topic %s on (start one, or end a drain)", where.number, t.Name)})
		return
	}
	if len(p.Writes) == coordination.MaxShardWrites {
		p.More = true
		return
	}
	to := slices.MinFunc(p.takers, func(a, b *load) int { // of equals the first, so by id
		return cmp.Or(cmp.Compare(a.shards, b.shards), cmp.Compare(a.of[t.ID], b.of[t.ID]), cmp.Compare(p.zones[a.Zone], p.zones[b.Zone]))
	})
	p.count(to, t.ID)
	p.write(Write{coordination.ShardWrite{Topic: t, Shard: coordination.Shard{
		Topic: t.ID, Number: where.number, Epoch: 1, Leader: to.ID,
		Replicas: []string{to.ID}, InSync: []coordination.Replica{{Broker: to.ID, Incarnation: to.Incarnation}},
	}}, Placed})
}

func (p *planner) write(w Write) {
	if len(p.Writes) == coordination.MaxShardWrites {
		p.More = true
		return
	}
	p.Writes = append(p.Writes, w)
}
