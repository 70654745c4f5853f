package plan

import (
	"fmt"
	"strings"
	"time"
)

// bootstrapPatience is how long MarkBootstrapped waits for members that have not joined, once there
// is a quorum. It is longer than pulling an image takes, and short, because a member may lose its
// volume meanwhile.
const bootstrapPatience = 5 * time.Minute

// Next returns the next action. The steps are in the order of importance: conflicts of ownership,
// state that must not be lost, a status by which pods can't be judged, repairs, growth, and then
// actions that wait for a gate.
func Next(f Facts) Action {
	for _, step := range []func(Facts) (Action, bool){
		stopped,  // another owner's objects or keys
		remember, // what etcd must hold before a member may be lost
		renew,    // a status by which pods can't be judged
		repair,   // pods that don't start; without a gate
		grow,     // claims that are smaller than wanted
		admit,    // users of etcd, without whom there may be no answer
		agree,    // without a quorum no pod is replaced
		resize,   // drains and removes brokers, or ends drains
		roll,     // ready pods of an old template, one at a time
		resizing, // waits for shards to leave drained brokers
		settle,   // waits for pods that start
		separate, // changes whom pods trust, once all of them are as wanted
		restrict, // then etcd refuses whoever is no user
		refused,  // wanted and impossible, while all else is well
	} {
		if action, ok := step(f); ok {
			return action
		}
	}
	return Action{Kind: None, Reason: AllReady, Message: fmt.Sprintf("all %d brokers are ready", f.Brokers.Replicas)}
}

// Stalled returns an action that requires a person, whatever else is under way.
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

// renew corrects the status of a StatefulSet that Kubernetes' controller took for a former one of
// that name. Until then no pod of the set is judged.
func renew(f Facts) (Action, bool) {
	for _, set := range []Set{f.Coordinators, f.Brokers} {
		if set.Stale {
			return Action{Kind: RenewStatus, Target: set.Name, Reason: RenewingStatus,
				Message: fmt.Sprintf("having the status of StatefulSet %s written anew, since it is of a former one", set.Name)}, true
		}
	}
	return Action{}, false
}

// repair replaces outdated pods that don't become ready. A pod whose container never started is
// replaced without a gate. One that started and is not ready may be waiting for an election, and is
// replaced when nothing is under way that may cure it.
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
		// While pods are missing and fewer are wanted, deleting the set would lose their number.
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

// MissingSecrets returns what Secrets of the user brokers wait for: one that starts now would not
// come up. The StatefulSet of the brokers is left as it is meanwhile.
func MissingSecrets(f Facts) (Action, bool) {
	switch {
	case f.AuthTrouble != "":
		return Action{Kind: Wait, Reason: AuthSecretUnusable, Message: f.AuthTrouble}, true
	case f.TLSTrouble.Message != "":
		return Action{Kind: Wait, Reason: f.TLSTrouble.Reason, Message: f.TLSTrouble.Message}, true
	}
	return Action{}, false
}

func settle(f Facts) (Action, bool) {
	if action, ok := MissingSecrets(f); ok {
		return action, true
	}
	if f.Coordinators.ReadyPods() < f.Coordinators.Replicas {
		return Action{Kind: Wait, Reason: CoordinatorsStarting, Message: waiting("coordinators", f.Coordinators, "")}, true
	}
	if f.UsersTrouble != "" {
		return Action{Kind: Wait, Reason: WritingUsers, Message: f.UsersTrouble}, true
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

// waiting describes how many pods are ready, and why others are not.
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
