package mirror

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/controllers/observe"
	"github.com/carillon-mq/carillon/controllers/plan"
)

// Shards returns facts about the shards of a Topic. name returns the last name of an absent broker
// that this process has never seen; it may be nil.
func (m *Mirror) Shards(topicID string, name func(id string) string) (facts []plan.ShardFacts) {
	state := m.State()
	named := func(id string) string {
		known := m.NameOf(id)
		if known == "" && name != nil {
			known = name(id)
		}
		return cmp.Or(known, id)
	}
	spec := coordination.TopicSpec{}
	if topic := state.TopicByID(topicID); topic != nil {
		spec = topic.Spec
	}
	for _, shard := range state.Shards(topicID) {
		facts = append(facts, shardFacts(state, shard, &spec, named))
	}
	return facts
}

// NameOf returns the last name of a broker; empty: this process has never seen it.
func (m *Mirror) NameOf(id string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.names[id]
}

// Without returns the name of a broker that does not announce a feature, or "".
func (m *Mirror) Without(feature coordination.Feature) string {
	for _, b := range m.State().Brokers {
		if !b.Features.Has(feature) {
			return b.Name
		}
	}
	return ""
}

func shardFacts(state *coordination.State, shard *coordination.Shard, spec *coordination.TopicSpec, name func(id string) string) plan.ShardFacts {
	id := shard.Leader
	if id == "" {
		id = shard.Replicas[0]
	}
	facts := plan.ShardFacts{
		Leader: name(id), LeaderID: id, Led: leads(state, shard),
		Want: wanted(shard, spec), Min: shard.MinInSync(spec), Unclean: spec.UncleanElection, Uncompared: !believed(state, shard),
	}
	synced := spec.Durability == "" || spec.Durability == coordination.Synced
	for _, id := range shard.Replicas {
		broker, there := state.Broker(id)
		member, in := shard.Member(id)
		said, _ := state.Reported(id, shard.Topic, shard.Number)
		facts.Replicas = append(facts.Replicas, plan.ReplicaFacts{
			Broker: name(id), ID: id, Away: !there || said.Closed,
			Member:   in,
			Current:  inSync(state, shard, id),
			Suspect:  state.Suspect(id, shard.Topic, shard.Number) || in && there && !synced && !broker.Holds(member.Incarnation),
			Lacks:    said.Lacks,
			Removing: slices.Contains(shard.Removing, id),
		})
	}
	slices.SortStableFunc(facts.Replicas, func(a, b plan.ReplicaFacts) int {
		switch {
		case a.ID == id:
			return -1
		case b.ID == id:
			return 1
		}
		return cmp.Compare(a.Broker, b.Broker)
	})
	return facts
}

// leads reports whether the shard has a present leader, in the incarnation that the shard names.
func leads(state *coordination.State, shard *coordination.Shard) bool {
	leader, there := state.Broker(shard.Leader)
	member, in := shard.Member(shard.Leader)
	return there && in && member.Incarnation == leader.Incarnation
}

// inSync reports whether the broker is present and its replica is in sync.
func inSync(state *coordination.State, shard *coordination.Shard, id string) bool {
	broker, there := state.Broker(id)
	member, in := shard.Member(id)
	return there && in && believed(state, shard) && broker.Holds(member.Incarnation)
}

// believed reports whether the in-sync set is of this generation. After etcd was restored from a
// backup it is not, until the controller has compared all copies.
func believed(state *coordination.State, shard *coordination.Shard) bool {
	return shard.Generation == state.Generation
}

// wanted returns the wanted number of replicas of a shard. Without one in the spec, it is the
// present number.
func wanted(shard *coordination.Shard, spec *coordination.TopicSpec) int {
	if spec.Replicas > 0 {
		return spec.Replicas
	}
	return max(1, len(shard.Replicas)-max(len(shard.Adding), len(shard.Removing)))
}

// Pods are the brokers' pods, present and wanted.
type Pods struct {
	Set       string // the prefix of their names
	Now, Want int32
	// Demands reports whether a Topic has more replicas than there would be brokers.
	Demands func(*coordination.Topic) bool
}

func (p Pods) names() (names []string) {
	for i := range p.Now {
		names = append(names, fmt.Sprintf("%s-%d", p.Set, i))
	}
	return names
}

// leaving returns the names of the pods that a scale-down removes, the highest ordinal first.
func (p Pods) leaving() (names []string) {
	for i := p.Now - 1; i >= p.Want; i-- {
		names = append(names, fmt.Sprintf("%s-%d", p.Set, i))
	}
	return names
}

// wants reports whether the pod of that name is a wanted one.
func (p Pods) wants(pod string) bool {
	n, ok := observe.Ordinal(pod)
	return ok && int32(n) < p.Want
}

// Cluster returns facts about a Broker's shards, for planning. ok is false if the content of etcd
// is unknown.
func (m *Mirror) Cluster(pods Pods) (facts plan.Shards, ok bool) {
	state := m.State()
	if state == nil {
		return plan.Shards{}, false
	}
	return clusterFacts(state, m.NameOf, pods), true
}

func clusterFacts(state *coordination.State, name func(id string) string, pods Pods) plan.Shards {
	facts := plan.Shards{Known: true, Total: state.ShardCount(), CatchingUp: map[string]int{}, Generation: state.Generation}
	if broker, there := state.Broker(state.Controller.Broker); there {
		facts.Controller = broker.Name
	}
	several := false
	for shard := range state.AllShards() {
		topic := state.TopicByID(shard.Topic)
		if topic == nil {
			continue
		}
		want := wanted(shard, &topic.Spec)
		several = several || want > 1
		judge(&facts, state, shard, topic.Name, want)
		if !believed(state, shard) && !topic.Deleting {
			facts.Uncompared++
			if facts.UncomparedExample == "" || topic.Name < facts.UncomparedExample {
				facts.UncomparedExample = topic.Name
			}
		}
	}
	for topic := range state.Topics() {
		if pods.Want < pods.Now && !topic.Deleting && pods.Demands(topic) {
			facts.Demanding = append(facts.Demanding, topic.Name)
		}
	}
	slices.Sort(facts.Demanding)
	joined := map[string]bool{}
	for _, broker := range state.Brokers {
		joined[broker.Name] = true
	}
	for _, pod := range pods.names() {
		if several && !joined[pod] {
			facts.PodsWithoutBroker = append(facts.PodsWithoutBroker, pod)
		}
	}
	facts.LeavingPods = leavingPods(state, name, pods)
	lost := lostBrokers(state, name, pods.names(), joined)
	for _, id := range lost {
		if state.Drain(id) != coordination.DrainAll {
			facts.LostBrokers = append(facts.LostBrokers, plan.DrainTarget{ID: id, Pod: name(id)})
		}
	}
	facts.DrainsToEnd = drainsToEnd(state, name, pods, facts.LeavingPods, lost, len(facts.Demanding) > 0)
	return facts
}

// judge adds a shard to the counts, and its out-of-sync replicas to those that have to catch up.
func judge(facts *plan.Shards, state *coordination.State, shard *coordination.Shard, topic string, want int) {
	n := 0
	for _, id := range shard.Replicas {
		if inSync(state, shard, id) {
			n++
		}
	}
	led := leads(state, shard)
	switch {
	case !led:
		facts.Leaderless++
	case n < want:
		facts.UnderReplicated++
	default:
		return
	}
	if facts.Example == "" || topic < facts.Example {
		facts.Example = topic
	}
	if want <= 1 {
		return
	}
	for _, id := range shard.Replicas {
		broker, there := state.Broker(id)
		if there && !(led && inSync(state, shard, id)) && !slices.Contains(shard.Removing, id) {
			facts.CatchingUp[broker.Name]++
		}
	}
}
