package mirror

import (
	"slices"
	"strings"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/controllers/plan"
)

// leavingPods returns facts about the pods that a scale-down removes.
func leavingPods(state *coordination.State, name func(id string) string, pods Pods) (all []plan.LeavingPod) {
	leaving := pods.leaving()
	if len(leaving) == 0 {
		return nil
	}
	joined := map[string][]string{} // ids of members by pod
	for _, broker := range state.Brokers {
		joined[broker.Name] = append(joined[broker.Name], broker.ID)
	}
	strangers := absentBrokers(state)
	for _, pod := range leaving {
		l := plan.LeavingPod{Pod: pod, Brokers: joined[pod], Away: len(joined[pod]) == 0}
		if l.Away {
			l.Brokers, l.Unknown = brokersOf(pod, pods.names(), joined, strangers, name)
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

// absentBrokers returns the ids of brokers that shards list as replicas and that are not members,
// sorted.
func absentBrokers(state *coordination.State) (ids []string) {
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

// lostBrokers returns the absent brokers that can't come back:
//
//  1. The pod of their name has another volume now, or no longer exists.
//  2. A broker of unknown name is lost only once every pod has joined under another identity.
func lostBrokers(state *coordination.State, name func(id string) string, pods []string, joined map[string]bool) (ids []string) {
	all := !slices.ContainsFunc(pods, func(pod string) bool { return !joined[pod] })
	for _, id := range absentBrokers(state) {
		if pod := name(id); pod == "" && all || pod != "" && (joined[pod] || !slices.Contains(pods, pod)) {
			ids = append(ids, id)
		}
	}
	return ids
}

// brokersOf returns the absent brokers that a pod without a member may hold. An absent broker of
// unknown name may belong to any such pod; if there are several, the result is unknown.
func brokersOf(pod string, pods []string, joined map[string][]string, strangers []string, name func(id string) string) (ids []string, unknown bool) {
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

// drainsToEnd returns the drained brokers that spec.replicas includes again, or that are gone and
// have no replicas.
func drainsToEnd(state *coordination.State, name func(id string) string, pods Pods, leavers []plan.LeavingPod, lost []string, blocked bool) (all []plan.DrainTarget) {
	for id, mode := range state.Drains() {
		if mode != coordination.DrainAll {
			continue
		}
		broker, there := state.Broker(id)
		goes := !pods.wants(broker.Name)
		if !there {
			goes = hasReplica(state, id) || slices.ContainsFunc(leavers, func(l plan.LeavingPod) bool { return slices.Contains(l.Brokers, id) })
			broker.Name = name(id)
		}
		if !goes || blocked && !slices.Contains(lost, id) {
			all = append(all, plan.DrainTarget{ID: id, Pod: broker.Name})
		}
	}
	slices.SortFunc(all, func(a, b plan.DrainTarget) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// hasReplica reports whether some shard lists the broker as a replica.
func hasReplica(state *coordination.State, id string) bool {
	for shard := range state.AllShards() {
		if slices.Contains(shard.Replicas, id) {
			return true
		}
	}
	return false
}
