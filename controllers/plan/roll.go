package plan

import (
	"fmt"
	"slices"
)

// roll replaces outdated pods one by one: coordinators before brokers, and a ready pod only while
// every other pod of its set is ready. A ready broker is replaced only while the replicas on the
// others are in sync, so that each Topic with several replicas is served meanwhile.
func roll(f Facts) (Action, bool) {
	for _, next := range []func(Facts) (Action, bool){rollCoordinators, rollBrokers} {
		if action, ok := next(f); ok {
			return action, true
		}
	}
	return Action{}, false
}

func rollCoordinators(f Facts) (Action, bool) {
	set := f.Coordinators
	pods := outdatedOf(set, "")
	if !set.Settled || len(pods) == 0 {
		return Action{}, false
	}
	p := pods[0]
	switch {
	case !set.whole(p.Name):
		return Action{Kind: Wait, Reason: CoordinatorsStarting, Message: waiting("coordinators", set, "") + thenReplaced(p)}, true
	// A single member is the whole quorum, so waiting for one without it would never end.
	case set.Replicas > 1 && !set.quorumWithout(p.Name):
		return Action{Kind: Wait, Reason: CoordinatorsStarting, Message: fmt.Sprintf("pod %s is replaced once the other coordinators are a quorum without it", p.Name)}, true
	}
	return replace(p, Rolling), true
}

func rollBrokers(f Facts) (Action, bool) {
	set := f.Brokers
	pods := outdatedOf(set, f.Shards.Controller)
	if !set.Settled || len(pods) == 0 {
		return Action{}, false
	}
	p := pods[0]
	if action, ok := MissingSecrets(f); ok && p.Ready {
		action.Message += thenReplaced(p)
		return action, true
	}
	switch {
	// A broker needs etcd to join again, so it is replaced only while all coordinators are ready.
	case !f.Coordinators.whole(""):
		return Action{Kind: Wait, Reason: CoordinatorsStarting, Message: waiting("coordinators", f.Coordinators, "") + thenReplaced(p)}, true
	case !set.whole(p.Name):
		return Action{Kind: Wait, Reason: BrokersStarting, Message: waiting("brokers", set, "") + thenReplaced(p)}, true
	case !p.Ready:
		return replace(p, Rolling), true
	case !f.Shards.Known:
		return Action{Kind: Wait, Reason: CatchingUp, Message: "which replicas are in sync is not known yet" + thenReplaced(p)}, true
	}
	// All are ready. A broker does not wait for its own out-of-sync replicas.
	why := ""
	for _, p := range pods {
		reason, healing := f.healing(p.Name)
		if !healing {
			return replace(p, Rolling), true
		}
		if why == "" {
			why = reason
		}
	}
	return Action{Kind: Wait, Reason: CatchingUp, Message: "waiting for " + why + thenReplaced(p)}, true
}

func thenReplaced(p Pod) string { return fmt.Sprintf("; then pod %s is replaced: %s", p.Name, p.Why) }

// outdatedOf returns the outdated pods in the order of their replacement: pods that are not ready
// first, then from the highest ordinal down, as a StatefulSet does. The pod named last comes last:
// it is the controller broker's, and its replacement costs an election of another one.
func outdatedOf(set Set, last string) []Pod {
	var pods []Pod
	for _, p := range set.Pods {
		if p.Outdated && !p.Held && !p.Leaving && !p.Surplus {
			pods = append(pods, p)
		}
	}
	slices.Reverse(pods)
	rank := func(p Pod) int {
		switch {
		case !p.Ready:
			return 0
		case p.Name != last:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(pods, func(a, b Pod) int { return rank(a) - rank(b) })
	return pods
}
