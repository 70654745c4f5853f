package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// shrinking reports whether fewer brokers are wanted and possible.
func (f Facts) shrinking() bool {
	return f.Brokers.Exists && f.WantBrokers < f.Brokers.Replicas && len(f.Shards.Demanding) == 0
}

// resize removes brokers. All of them are drained at once, so that no replica moves from one to the
// next. Then they are removed from the highest ordinal down, as a StatefulSet does, each when no
// shard lists it. It ends the drain of a broker that is wanted again.
func resize(f Facts) (Action, bool) {
	if !f.Shards.Known || f.Etcd.Owner != OwnerOurs {
		return Action{}, false
	}
	if len(f.Shards.DrainsToEnd) > 0 {
		r := f.Shards.DrainsToEnd[0]
		return Action{Kind: EndDrain, Target: r.ID, Reason: DrainEnded, Message: fmt.Sprintf("%s is drained no longer", cmp.Or(r.Pod, "broker "+r.ID))}, true
	}
	if len(f.Shards.LostBrokers) > 0 {
		l := f.Shards.LostBrokers[0]
		return Action{Kind: Drain, Target: l.ID, Reason: Draining, Message: fmt.Sprintf("draining broker %s, whose volume %s has no more: others take its replicas", l.ID, cmp.Or(l.Pod, "no pod"))}, true
	}
	if !f.shrinking() || !f.Brokers.Settled || len(f.Shards.LeavingPods) == 0 {
		return Action{}, false
	}
	for _, l := range f.Shards.LeavingPods {
		for _, id := range l.Brokers {
			if !slices.Contains(l.Drained, id) {
				return Action{Kind: Drain, Target: id, Reason: Draining, Message: fmt.Sprintf("draining %s, since spec.replicas asks for %s: its shards move to the others", l.Pod, count(int(f.WantBrokers), "broker"))}, true
			}
		}
	}
	if highest := f.Shards.LeavingPods[0]; highest.empty() && highest.Settled && !f.Brokers.surplus() {
		return Action{Kind: Shrink, Target: highest.Pod, Reason: ScalingDown, Message: fmt.Sprintf("removing %s, which holds nothing any more", highest.Pod)}, true
	}
	return Action{}, false
}

// Retiring reports whether brokers are being removed, or pods of removed ones still exist.
func (f Facts) Retiring() bool { return f.shrinking() || f.Brokers.surplus() }

func (s Set) surplus() bool {
	return slices.ContainsFunc(s.Pods, func(p Pod) bool { return p.Surplus })
}

// empty reports whether no replica is lost with the pod.
func (l LeavingPod) empty() bool { return !l.Unknown && l.Shards == 0 }

// resizing returns what a scale-down waits for.
func resizing(f Facts) (Action, bool) {
	for _, p := range f.Brokers.Pods {
		if p.Surplus && !f.shrinking() {
			return Action{Kind: Wait, Reason: ScalingDown, Message: fmt.Sprintf("%s, which is not wanted any more, is on its way out", p.Name)}, true
		}
	}
	if !f.shrinking() {
		return Action{}, false
	}
	if !f.Shards.Known || len(f.Shards.LeavingPods) == 0 {
		return Action{Kind: Wait, Reason: Draining, Message: fmt.Sprintf("spec.replicas asks for %s; what the others hold is not known yet", count(int(f.WantBrokers), "broker"))}, true
	}
	var pods, troubles []string
	shards := 0
	for _, l := range f.Shards.LeavingPods {
		if !l.empty() {
			pods = append(pods, l.Pod)
		}
		shards += l.Shards
		switch {
		case l.Unknown:
			troubles = append(troubles, fmt.Sprintf("%s is away, and what it holds is not known while others are away, too: bring it back, or them", l.Pod))
		case l.Away && l.Alone > 0:
			troubles = append(troubles, fmt.Sprintf("%s is away, and %s (such as one of topic %s) can't be had from anyone else: bring it back, or delete those Topics", l.Pod, count(l.Alone, "shard"), l.Example))
		}
	}
	if len(pods) == 0 {
		return Action{Kind: Wait, Reason: ScalingDown, Message: fmt.Sprintf("%s holds nothing any more and is about to go", f.Shards.LeavingPods[0].Pod)}, true
	}
	message := fmt.Sprintf("draining %s: %s to move", strings.Join(pods, ", "), count(shards, "shard"))
	if !f.Brokers.whole("") {
		troubles = append(troubles, waiting("brokers", f.Brokers, ""))
	}
	if len(troubles) > 0 {
		message += " (" + strings.Join(troubles, "; ") + ")"
	}
	return Action{Kind: Wait, Reason: Draining, Message: message}, true
}

// refused stalls a Broker whose spec asks for something impossible.
func refused(f Facts) (Action, bool) {
	if !f.Brokers.Exists || f.WantBrokers >= f.Brokers.Replicas || len(f.Shards.Demanding) == 0 {
		return Action{}, false
	}
	return Action{Kind: Stall, Reason: ScaleDownBlocked, Message: fmt.Sprintf(
		"%d brokers run and spec.replicas asks for %d, but %s: nothing was changed; set spec.replicas to %d, or let those Topics ask for fewer replicas first",
		f.Brokers.Replicas, f.WantBrokers, demands(f.Shards.Demanding), f.Brokers.Replicas)}, true
}

// maxNamed is the number of Topics that a message names at most.
const maxNamed = 5

func demands(topics []string) string {
	named := topics[:min(len(topics), maxNamed)]
	more := ""
	if n := len(topics) - len(named); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	verb := "Topics %s%s ask"
	if len(topics) == 1 {
		verb = "Topic %s%s asks"
	}
	return fmt.Sprintf(verb+" for more replicas than that", strings.Join(named, ", "), more)
}
