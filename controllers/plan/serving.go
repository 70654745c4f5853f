package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// ShardFacts are facts about a shard's leader and replicas.
type ShardFacts struct {
	// Leader is the name of the present or last leader, or its id if the name is unknown.
	Leader   string
	LeaderID string
	Led      bool // Leader leads in its present incarnation
	Want     int  // wanted number of replicas
	Min      int  // minInSync
	Replicas []ReplicaFacts
	Unclean  bool // unclean election is allowed
	// Uncompared reports that its copies were not compared since etcd was restored from a backup.
	Uncompared bool
}

// ReplicaFacts are facts about one replica of a shard.
type ReplicaFacts struct {
	Broker, ID string
	Away       bool // its broker is not a member
	Member     bool // it is in the in-sync set, in any incarnation
	Current    bool // in its present incarnation, or one whose writes its volume holds
	Suspect    bool // its broker can't vouch for it
	// Lacks is the number of damaged segments that it fetches from the leader. A suspect replica
	// with 0 fetches the whole copy.
	Lacks    int
	Removing bool // it will be removed when the others are in sync
}

// InSync reports whether the replica is present and in sync.
func (r ReplicaFacts) InSync() bool { return r.Current && !r.Away }

// InSync returns the number of present replicas in sync.
func (s ShardFacts) InSync() (n int) {
	for _, r := range s.Replicas {
		if r.InSync() {
			n++
		}
	}
	return n
}

func (s ShardFacts) single() bool { return s.Want <= 1 && len(s.Replicas) <= 1 }

func (s ShardFacts) names(which func(ReplicaFacts) bool) (names []string) {
	for _, r := range s.Replicas {
		if which(r) {
			names = append(names, r.Broker)
		}
	}
	return names
}

// placed waits until all shards have a present leader and enough replicas in sync.
func placed(link Link, shards []ShardFacts, spec *coordination.TopicSpec) (Action, bool) {
	want, least := spec.Shards, spec.ResolvedMinInSync(spec.ResolvedReplicas(link.Joined))
	for _, s := range shards {
		if s.single() && len(s.Replicas) == 1 && s.Replicas[0].Away {
			return Action{Kind: Wait, Reason: BrokerAway, Target: s.Leader, Message: fmt.Sprintf("the records are on broker %s alone, which is away; they come back with it and its volume", s.Leader)}, true
		}
	}
	switch {
	case len(shards) < want && link.Joined == 0:
		return Action{Kind: Wait, Reason: WaitingForBroker, Message: fmt.Sprintf("no broker of Broker %s has joined yet", link.Broker)}, true
	case len(shards) < want && link.Joined < least && link.Wanted < least:
		return Action{Kind: Stall, Reason: NotEnoughBrokers, Message: fmt.Sprintf("%s must be in sync, and Broker %s asks for %s: raise its spec.replicas, or ask for fewer replicas",
			count(least, "replica"), link.Broker, count(link.Wanted, "broker"))}, true
	case len(shards) < want && link.Joined < least:
		return Action{Kind: Wait, Reason: NotEnoughBrokers, Message: fmt.Sprintf("%s must be in sync, and %s of Broker %s have joined so far", count(least, "replica"), count(link.Joined, "broker"), link.Broker)}, true
	case len(shards) < want:
		return Action{Kind: Wait, Reason: Placing, Message: "a broker is being chosen"}, true
	}
	for _, s := range shards {
		switch {
		case s.Led:
		case s.Uncompared:
			return s.uncompared(), true
		case s.single():
			return Action{Kind: Wait, Reason: Placing, Target: s.Leader, Message: fmt.Sprintf("broker %s, which has the records, is back and is about to lead again", s.Leader)}, true
		default:
			return s.leaderless(), true
		}
	}
	for _, s := range shards {
		if n := s.InSync(); n < s.Min {
			return Action{Kind: Wait, Reason: NotEnoughInSync, Target: s.Leader, Message: fmt.Sprintf(
				"publishing waits, since %d of %s are in sync and minInSync is %d: %s; it goes on when more are, or with a lower minInSync",
				n, count(s.Want, "replica"), s.Min, strings.Join(s.missing(), ", "))}, true
		}
	}
	return Action{}, false
}

// uncompared returns what a shard waits for since etcd was restored from a backup.
func (s ShardFacts) uncompared() Action {
	message := "nobody leads, since etcd was restored from a backup, until the brokers have compared their copies; " +
		"if this lasts, no broker that is there has records of it, as it was deleted or its replicas were moved after the backup: delete it, or bring their brokers back with their volumes"
	if away := s.names(func(r ReplicaFacts) bool { return r.Away }); len(away) > 0 {
		message = fmt.Sprintf("nobody leads, since etcd was restored from a backup, until %s can be compared with the other copies: bring it back with its volume", strings.Join(away, ", "))
	}
	return Action{Kind: Wait, Reason: ComparingCopies, Target: s.Leader, Message: message}
}

// leaderless returns what a shard with several replicas and no leader waits for.
func (s ShardFacts) leaderless() Action {
	able := s.names(func(r ReplicaFacts) bool { return r.Member && !r.Away && !r.Suspect })
	suspect := s.names(func(r ReplicaFacts) bool { return r.Member && !r.Away && r.Suspect })
	away := s.names(func(r ReplicaFacts) bool { return r.Member && r.Away })
	unclean := "; or write uncleanElection: Allowed, which gives up what only they have"
	if s.Unclean {
		unclean = ""
	}
	wait := func(reason Reason, message string) Action {
		return Action{Kind: Wait, Reason: reason, Target: s.Leader, Message: message}
	}
	switch {
	case len(able) > 0:
		return wait(NoLeader, fmt.Sprintf("nobody leads at this moment; one of %s is about to", strings.Join(able, ", ")))
	case len(suspect) > 0 && len(away) > 0:
		return wait(Suspect, fmt.Sprintf("nobody leads: %s may lack acknowledged records after a power cut or a fault of the disk; it goes on when %s is back%s",
			strings.Join(suspect, ", "), strings.Join(away, ", "), unclean))
	case len(suspect) > 0:
		return wait(Suspect, fmt.Sprintf("nobody leads at this moment: %s may each lack acknowledged records after a power cut or a fault of the disk; the one that lacks least is about to", strings.Join(suspect, ", ")))
	}
	return wait(NoLeader, fmt.Sprintf("nobody leads: what was acknowledged is on %s, which is away; it goes on when one of them is back%s", strings.Join(away, ", "), unclean))
}

// missing describes why each out-of-sync replica is not in sync.
func (s ShardFacts) missing() (missing []string) {
	for _, r := range s.Replicas {
		switch {
		case r.InSync() || r.Removing:
		case r.Away:
			missing = append(missing, r.Broker+" is away")
		case r.Lacks > 0:
			missing = append(missing, fmt.Sprintf("%s fetches %s from the leader", r.Broker, count(r.Lacks, "damaged segment")))
		case r.Suspect:
			missing = append(missing, r.Broker+" is not in sync yet, since its copy is damaged or lost power and is made equal to the leader's")
		default:
			missing = append(missing, r.Broker+" is not in sync yet")
		}
	}
	if there := len(s.Replicas) - len(s.names(func(r ReplicaFacts) bool { return r.Removing })); there < s.Want {
		missing = append(missing, fmt.Sprintf("there are brokers for %d of %s", there, count(s.Want, "replica")))
	}
	return missing
}

// served describes who serves a Topic, and what is missing.
func served(shards []ShardFacts) Action {
	for _, s := range shards {
		if s.InSync() >= s.Want {
			continue
		}
		if missing := s.missing(); len(missing) > 0 {
			return Action{Kind: None, Reason: UnderReplicated, Message: strings.Join(missing, ", ") + "; " + s.says()}
		}
	}
	says := make([]string, 0, len(shards))
	for _, s := range shards {
		says = append(says, s.says())
	}
	return Action{Kind: None, Reason: Served, Message: strings.Join(slices.Compact(says), ", ")}
}

func (s ShardFacts) says() string {
	if s.single() {
		return "served by broker " + s.Leader
	}
	message := "replicated on " + s.Leader + " (leader)"
	for _, r := range s.Replicas {
		if r.ID != s.LeaderID && r.InSync() {
			message += ", " + r.Broker
		}
	}
	return message
}

func leaders(shards []ShardFacts) (names []string) {
	for _, s := range shards {
		names = append(names, s.Leader)
	}
	return names
}

// Transient reports whether that state usually lasts for a moment only, which is not worth an
// event.
func Transient(reason Reason) bool {
	return reason == NoLeader || reason == NotEnoughInSync || reason == Suspect || reason == ComparingCopies
}
