package plan

import (
	"fmt"
	"slices"
)

// roll replaces pods that were made from an old template, one after the other: coordinators before
// brokers, and a ready pod only while every other one of its set is ready. A ready broker goes only
// while the replicas on the others are in sync; then each Topic of several replicas is served while
// it is away.
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
	// A lone member is the whole quorum: without it there is none, and waiting would not help.
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
	switch {
	// A broker that comes back needs coordination to join: it goes only while that is whole.
	case !f.Coordinators.whole(""):
		return Action{Kind: Wait, Reason: CoordinatorsStarting, Message: waiting("coordinators", f.Coordinators, "") + thenReplaced(p)}, true
	case !set.whole(p.Name):
		return Action{Kind: Wait, Reason: BrokersStarting, Message: waiting("brokers", set, "") + thenReplaced(p)}, true
	case !p.Ready:
		return replace(p, Rolling), true
	case !f.Shards.Known:
		return Action{Kind: Wait, Reason: CatchingUp, Message: "which replicas are in sync is not known yet" + thenReplaced(p)}, true
	}
	// All are ready. One whose own replicas are all that is missing need not wait for itself.
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

// outdatedOf are the pods that are to be replaced, in the order in which they go: those that are
// not ready before those that are, then from the highest ordinal down, as a StatefulSet would have
// it, and last the one that should not go before it must: the broker that places shards, which
// would have to be elected anew.
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
