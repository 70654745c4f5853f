package mirror

import (
	"slices"
	"strings"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/controllers/plan"
)

// leavers are facts about the brokers of pods that are to go.
func leavers(state *coordination.State, name func(id string) string, pods Pods) (all []plan.Leaver) {
	leaving := pods.leaving()
	if len(leaving) == 0 {
		return nil
	}
	joined := map[string][]string{} // ids of members by pod
	for _, broker := range state.Brokers {
		joined[broker.Name] = append(joined[broker.Name], broker.ID)
	}
	strangers := absent(state)
	for _, pod := range leaving {
		l := plan.Leaver{Pod: pod, Brokers: joined[pod], Away: len(joined[pod]) == 0}
		if l.Away {
			l.Brokers, l.Unknown = whoWas(pod, pods.names(), joined, strangers, name)
		}
		for _, id := range l.Brokers {
			if state.Drain(id) == coordination.DrainAll {
				l.Drained = append(l.Drained, id)
			}
		}
		for shard := range state.AllShards() {
			if !slices.ContainsFunc(l.Brokers, func(id string) bool { return slices.Contains(shard.Replicas, id) }) {
				continue
			}
			l.Shards++
			others := slices.ContainsFunc(shard.InSync, func(m coordination.Replica) bool { return !slices.Contains(l.Brokers, m.Broker) })
			topic := state.TopicByID(shard.Topic)
			if !others {
				l.Alone++
			}
			if topic != nil && !others && (l.Example == "" || topic.Name < l.Example) {
				l.Example = topic.Name
			}
		}
		all = append(all, l)
	}
	return all
}

// absent are the ids of brokers that shards list and that are not there, sorted.
func absent(state *coordination.State) (ids []string) {
	found := map[string]bool{}
	for shard := range state.AllShards() {
		for _, id := range shard.Replicas {
			if _, there := state.Broker(id); !there && !found[id] {
				found[id] = true
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// lostOf are brokers that shards list and that will not come back: the pod of their name has another volume
// now, or there is no such pod any more. Whose name is forgotten is lost only if no pod is left that it could be.
func lostOf(state *coordination.State, name func(id string) string, pods []string, joined map[string]bool) (ids []string) {
	all := !slices.ContainsFunc(pods, func(pod string) bool { return !joined[pod] })
	for _, id := range absent(state) {
		if pod := name(id); pod == "" && all || pod != "" && (joined[pod] || !slices.Contains(pods, pod)) {
			ids = append(ids, id)
		}
	}
	return ids
}

// whoWas finds the broker of a pod that is down among those that shards list and that are away. Which of
// them it is may have been forgotten; then it may be any, unless they can be of nobody else.
func whoWas(pod string, pods []string, joined map[string][]string, strangers []string, name func(id string) string) (ids []string, unknown bool) {
	nameless := false
	for _, id := range strangers {
		switch name(id) {
		case pod:
			ids = append(ids, id)
		case "":
			ids, nameless = append(ids, id), true
		}
	}
	if nameless {
		for _, other := range pods {
			if other != pod && len(joined[other]) == 0 {
				return nil, true
			}
		}
	}
	return ids, false
}

// relieved are those whose drain is to end: they are wanted again, or they are gone and hold nothing.
func relieved(state *coordination.State, name func(id string) string, pods Pods, leavers []plan.Leaver, lost []string, blocked bool) (all []plan.Relieved) {
	for id, mode := range state.Drains() {
		if mode != coordination.DrainAll {
			continue
		}
		broker, there := state.Broker(id)
		goes := !pods.wants(broker.Name)
		if !there {
			goes = holds(state, id) || slices.ContainsFunc(leavers, func(l plan.Leaver) bool { return slices.Contains(l.Brokers, id) })
			broker.Name = name(id)
		}
		if !goes || blocked && !slices.Contains(lost, id) {
			all = append(all, plan.Relieved{ID: id, Pod: broker.Name})
		}
	}
	slices.SortFunc(all, func(a, b plan.Relieved) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// holds says that some shard lists the broker.
func holds(state *coordination.State, id string) bool {
	for shard := range state.AllShards() {
		if slices.Contains(shard.Replicas, id) {
			return true
		}
	}
	return false
}
