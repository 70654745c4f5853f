package plan

import (
	"fmt"
	"strings"
	"time"
)

// bootstrapPatience is how long MarkBootstrapped waits for members that have not joined, once there
// is a quorum: longer than pulling an image takes, and short beside the risk that a volume of a
// member is lost meanwhile.
const bootstrapPatience = 5 * time.Minute

// Next is the one next thing to do. The order of the steps is the order of importance: what can't
// go on, what must never be forgotten, repairs, growth, and only then what waits for a gate.
func Next(f Facts) Action {
	for _, step := range []func(Facts) (Action, bool){
		stopped,  // something is not ours to change
		remember, // what coordination must know before any member may be lost
		repair,   // pods that never came up; no gate stands before this
		grow,     // volumes that ask for less than they should
		agree,    // a cluster that can't agree rolls nothing
		resize,   // brokers that are not wanted any more, or wanted again
		roll,     // ready pods of an old template, one at a time
		resizing, // shards on their way off brokers that are to go
		settle,   // what is still on its way
		refused,  // what is asked for and can't be done, all else being well
	} {
		if action, ok := step(f); ok {
			return action
		}
	}
	return Action{Kind: None, Reason: AllReady, Message: fmt.Sprintf("all %d brokers are ready", f.Brokers.Replicas)}
}

// Stalled is what only a person can help with, whatever else is going on.
func Stalled(f Facts) (Action, bool) {
	if action, ok := stopped(f); ok && action.Kind == Stall {
		return action, true
	}
	return refused(f)
}

func stopped(f Facts) (Action, bool) {
	switch {
	case f.Leftovers != "":
		return Action{Kind: Wait, Reason: Leftovers, Message: fmt.Sprintf("%s of a deleted Broker of the same name is still going away", f.Leftovers)}, true
	case f.Taken != "":
		return Action{Kind: Stall, Reason: NameTaken, Message: fmt.Sprintf("%s exists and does not belong to this Broker: rename or delete it, or make a Broker of another name", f.Taken)}, true
	case f.Etcd.Owner == OwnerOther:
		return Action{Kind: Stall, Reason: AlreadyOwned, Message: fmt.Sprintf("the keys in etcd belong to %s: delete that Broker and its volumes, or make a Broker of another name", f.Etcd.OtherOwner)}, true
	}
	return Action{}, false
}

func remember(f Facts) (Action, bool) {
	if !f.Etcd.Quorum {
		return Action{}, false
	}
	if !f.Bootstrapped && (f.Etcd.AllStarted || f.Coordinators.Age > bootstrapPatience) {
		return Action{Kind: MarkBootstrapped, Reason: Bootstrapped, Message: "coordination has a quorum; from now on a member that lost its volume joins anew"}, true
	}
	if f.Etcd.Owner == OwnerNobody {
		return Action{Kind: ClaimOwner, Reason: Claiming, Message: "claiming the keys in etcd for this Broker"}, true
	}
	return Action{}, false
}

// repair replaces pods that serve nobody and would not come up as they are. One whose container
// never started needs no gate at all. One that started and is not ready may only be between two
// elections; it is replaced when nothing is under way that might cure it.
func repair(f Facts) (Action, bool) {
	for _, set := range []Set{f.Coordinators, f.Brokers} {
		if !set.Settled {
			continue
		}
		for _, p := range set.Pods {
			if broken(p) && !p.Started {
				return replace(p, Repairing), true
			}
		}
		for _, p := range set.Pods {
			if !broken(p) || set.underWay() {
				continue
			}
			if set.Name == f.Coordinators.Name && f.Etcd.Quorum && !set.quorumWithout(p.Name) {
				continue
			}
			return replace(p, Repairing), true
		}
	}
	return Action{}, false
}

func broken(p Pod) bool {
	return p.Outdated && !p.Ready && !p.Leaving && !p.Surplus && (!p.Held || !p.Started)
}

func replace(p Pod, reason Reason) Action {
	return Action{Kind: ReplacePod, Target: p.Name, Reason: reason, Message: fmt.Sprintf("replacing pod %s: %s", p.Name, p.Why)}
}

func grow(f Facts) (Action, bool) {
	for _, set := range []Set{f.Coordinators, f.Brokers} {
		for _, v := range set.Volumes {
			if v.Small {
				return Action{Kind: GrowVolume, Target: v.Name, Reason: GrowingVolume, Message: fmt.Sprintf("asking for more room in volume claim %s", v.Name)}, true
			}
		}
		// While pods are missing and fewer are wanted, how many there were would not be known in
		// between.
		if set.Exists && set.SmallTemplate && (set.Name != f.Brokers.Name || set.missing() == 0 || !f.shrinking()) {
			return Action{Kind: RecreateSet, Target: set.Name, Reason: RecreatingSet,
				Message: fmt.Sprintf("making StatefulSet %s again around its running pods, since the size in its claim template can't be changed", set.Name)}, true
		}
	}
	return Action{}, false
}

func agree(f Facts) (Action, bool) {
	set := f.Coordinators
	switch {
	case !set.Exists || !set.Settled:
		return Action{Kind: Wait, Reason: CoordinatorsStarting, Message: "the coordinators are being made"}, true
	case len(f.Etcd.Corrupt) > 0:
		return Action{Kind: Wait, Reason: CoordinationCorrupt, Message: fmt.Sprintf("coordination has stopped, since data differ on %s: delete the volume claim and the pod of that member, which then copies from the others", strings.Join(f.Etcd.Corrupt, ", "))}, true
	case len(f.Etcd.NoSpace) > 0:
		return Action{Kind: Wait, Reason: CoordinationOutOfSpace, Message: fmt.Sprintf("coordination takes no writes, since %s ran out of room: raise spec.coordination.managed.storage.size", strings.Join(f.Etcd.NoSpace, ", "))}, true
	case !f.Etcd.Quorum && !f.Bootstrapped:
		return Action{Kind: Wait, Reason: CoordinatorsStarting, Message: waiting("coordinators", set, f.Etcd.Trouble)}, true
	case !f.Etcd.Quorum:
		return Action{Kind: Wait, Reason: CoordinationUnavailable, Message: waiting("coordinators", set, f.Etcd.Trouble)}, true
	}
	return Action{}, false
}

func settle(f Facts) (Action, bool) {
	if f.AuthTrouble != "" {
		return Action{Kind: Wait, Reason: AuthSecretUnusable, Message: f.AuthTrouble}, true
	}
	if f.Coordinators.ReadyPods() < f.Coordinators.Replicas {
		return Action{Kind: Wait, Reason: CoordinatorsStarting, Message: waiting("coordinators", f.Coordinators, "")}, true
	}
	if !f.Brokers.Exists || !f.Brokers.Settled {
		return Action{Kind: Wait, Reason: BrokersStarting, Message: "the brokers are being made"}, true
	}
	if f.Brokers.ReadyPods() < f.Brokers.Replicas {
		return Action{Kind: Wait, Reason: BrokersStarting, Message: waiting("brokers", f.Brokers, "")}, true
	}
	if f.Etcd.Owner == OwnerUnknown || !f.Bootstrapped {
		return Action{Kind: Wait, Reason: CoordinatorsStarting, Message: "waiting for every coordinator to have joined"}, true
	}
	for _, set := range []Set{f.Coordinators, f.Brokers} {
		for _, v := range set.Volumes {
			if v.Resizing {
				return Action{Kind: Wait, Reason: GrowingVolume, Message: fmt.Sprintf("volume claim %s is being made larger", v.Name)}, true
			}
		}
	}
	return Action{}, false
}

// waiting says how many are ready, and what is known of those that are not.
func waiting(what string, set Set, trouble string) string {
	message := fmt.Sprintf("%d of %d %s are ready", set.ReadyPods(), set.Replicas, what)
	var troubles []string
	for _, p := range set.Pods {
		if !p.Ready && p.Trouble != "" {
			troubles = append(troubles, p.Name+": "+p.Trouble)
		}
	}
	if trouble != "" {
		troubles = append(troubles, trouble)
	}
	if len(troubles) > 0 {
		message += " (" + strings.Join(troubles, "; ") + ")"
	}
	return message
}
