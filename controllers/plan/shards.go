package plan

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// catchUpPatience is how long brokers that are all ready are given to bring their replicas in sync
// before pods are replaced all the same. A replica that never gets there, say on a disk that
// failed, must not stand in the way of the change that may mend it; what has been acknowledged is
// safe either way.
const catchUpPatience = 15 * time.Minute

// Shards are facts about the shards of all Topics, and about who holds them.
type Shards struct {
	// Known says that what is in etcd has been read; nothing of the rest counts before.
	Known           bool
	Total           int
	UnderReplicated int // led, and with fewer replicas in sync than there should be
	Leaderless      int
	Example         string // the name of a Topic that one of those belongs to
	// Generation is how often etcd was restored from a backup. Uncompared are the shards whose
	// copies were not compared since the last restore: they have no leader. UncomparedExample is
	// the name of a Topic with one.
	Generation        int64
	Uncompared        int
	UncomparedExample string
	// CatchingUp has, by pod, how many replicas are not in sync, of shards that lack some, on
	// brokers that are there: those can be waited for. Shards of one replica don't count.
	CatchingUp map[string]int
	// PodsWithoutBroker are the pods whose broker is not a member; empty unless some shard has
	// several replicas.
	PodsWithoutBroker []string
	// Controller is the pod whose broker places shards; empty: none does.
	Controller string
	// Demanding are the Topics that ask for more replicas than there would be brokers.
	Demanding []string
	// LeavingPods are the pods that a scale-down removes, the highest ordinal first.
	LeavingPods []LeavingPod
	// LostBrokers are brokers that shards list and that can't come back, because their pods have
	// other volumes; only those that are not drained yet.
	LostBrokers []DrainTarget
	// DrainsToEnd are the brokers that are drained and need not be any more.
	DrainsToEnd []DrainTarget
}

// LeavingPod is a pod that a scale-down removes once its broker has no replicas.
type LeavingPod struct {
	Pod     string
	Brokers []string // ids of its brokers; none: it has no replicas, or its id is unknown
	Unknown bool     // its id is unknown: it is down, and so are others
	Away    bool     // it is not a member
	Drained []string // those of Brokers that are marked as drained in etcd
	Shards  int      // shards that list it
	Alone   int      // of those, shards without another in-sync replica
	Example string   // the name of a Topic with such a shard
	// Settled says that it has had no replicas for long enough that no placement under way gives it
	// one.
	Settled bool
}

// DrainTarget is a broker whose drain is to begin or to end.
type DrainTarget struct {
	ID  string
	Pod string // empty: it is not known by a name
}

// healing says what is to be waited for before a ready broker may go: replicas that are not in sync
// on the brokers of other pods. Those of its own are no reason: it may be just what they wait for.
func (f Facts) healing(except string) (why string, is bool) {
	s := f.Shards
	if f.steadyFor() >= catchUpPatience {
		return "", false
	}
	for _, pod := range s.PodsWithoutBroker {
		if pod != except {
			return fmt.Sprintf("the broker of pod %s has not joined", pod), true
		}
	}
	pods := slices.SortedFunc(maps.Keys(s.CatchingUp), func(a, b string) int {
		return cmp.Or(s.CatchingUp[b]-s.CatchingUp[a], cmp.Compare(a, b))
	})
	for _, pod := range pods {
		if n := s.CatchingUp[pod]; pod != except && n > 0 {
			return fmt.Sprintf("%s to be in sync on %s", count(n, "replica"), pod), true
		}
	}
	return "", false
}

// steadyFor is for how long no broker has become ready; 0: not all of them are.
func (f Facts) steadyFor() time.Duration {
	if !f.Brokers.whole("") || f.Brokers.Replicas == 0 {
		return 0
	}
	least := time.Duration(math.MaxInt64)
	for _, p := range f.Brokers.Pods {
		if !p.Surplus {
			least = min(least, p.ReadyFor)
		}
	}
	return least
}

// Disruptable says that Kubernetes may evict a broker. It may not while replicas catch up, since
// the one that it takes may have one of the few that are in sync.
func Disruptable(f Facts) bool {
	_, healing := f.healing("")
	return !healing
}

// Shortage says in words which shards lack replicas or leaders; empty: none does.
func Shortage(s Shards) (reason Reason, message string) {
	if s.UnderReplicated+s.Leaderless == 0 {
		return "", ""
	}
	message = fmt.Sprintf("of %s, %d have fewer replicas in sync than they should and %d have no leader", count(s.Total, "shard"), s.UnderReplicated, s.Leaderless)
	if s.Example != "" {
		message += fmt.Sprintf(" (such as one of topic %s)", s.Example)
	}
	if s.Leaderless > 0 {
		return NoLeader, message
	}
	return UnderReplicated, message
}

// Comparison says in words which shards wait since etcd was restored from a backup; empty: none
// does.
func Comparison(s Shards) string {
	if s.Uncompared == 0 {
		return ""
	}
	return fmt.Sprintf("etcd was restored from a backup (generation %d): %d of %s can't be published to until the brokers have compared their copies (such as one of topic %s); "+
		"if this lasts, bring all brokers back with their volumes, and look at what the controller broker logs", s.Generation, s.Uncompared, count(s.Total, "shard"), s.UncomparedExample)
}

// Restore says in words that brokers noticed a restore of etcd, and what that means.
func Restore(s Shards) string {
	return fmt.Sprintf("etcd was restored from a backup, and is in generation %d now: the brokers compare their copies of all shards, and the one that goes furthest leads; "+
		"Topics that were made since the backup are gone, and their logs are in DATA/set-aside on the brokers' volumes", s.Generation)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
