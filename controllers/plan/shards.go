package plan

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// catchUpPatience is how long a rolling change waits for replicas on ready brokers to be in sync. A
// replica that never catches up, for example on a failed disk, must not prevent the change that may
// repair it. Acknowledged records are safe either way.
const catchUpPatience = 15 * time.Minute

// Shards are facts about the shards of all Topics and their brokers.
type Shards struct {
	// Known reports that etcd has been read. Otherwise all other fields are unset.
	Known           bool
	Total           int
	UnderReplicated int // led, with fewer in-sync replicas than wanted
	Leaderless      int
	Example         string // the name of a Topic with such a shard
	// Generation is how often etcd was restored from a backup. Uncompared is the number of shards
	// without a leader, whose copies were not compared since the last restore. UncomparedExample is
	// the name of a Topic with one.
	Generation        int64
	Uncompared        int
	UncomparedExample string
	// CatchingUp is the number of out-of-sync replicas by pod, on present brokers, of
	// under-replicated shards: these can be waited for. Shards with one replica don't count.
	CatchingUp map[string]int
	// PodsWithoutBroker are the pods whose broker is not a member; empty unless some shard has
	// several replicas.
	PodsWithoutBroker []string
	// Controller is the pod of the controller broker; empty: none.
	Controller string
	// Demanding are the Topics with more replicas than there would be brokers.
	Demanding []string
	// LeavingPods are the pods that a scale-down removes, the highest ordinal first.
	LeavingPods []LeavingPod
	// LostBrokers are brokers that shards list and that can't come back, because their pods have
	// other volumes; only those that are not drained yet.
	LostBrokers []DrainTarget
	// DrainsToEnd are the drained brokers that need no drain any more.
	DrainsToEnd []DrainTarget
}

// LeavingPod is a pod that a scale-down removes once its broker has no replicas.
type LeavingPod struct {
	Pod     string
	Brokers []string // ids of its brokers; none: it has no replicas, or its id is unknown
	Unknown bool     // its id is unknown: it is down, and so are others
	Away    bool     // it is not a member
	Drained []string // those of Brokers that are marked as drained in etcd
	Shards  int      // shards that list its brokers
	Alone   int      // of those, shards without another in-sync replica
	Example string   // the name of a Topic with such a shard
	// Settled says that it has had no replicas for long enough that no placement under way gives it
	// one.
	Settled bool
}

// DrainTarget is a broker whose drain is to begin or to end.
type DrainTarget struct {
	ID  string
	Pod string // empty: the name is unknown
}

// healing describes the out-of-sync replicas, on the brokers of other pods, for which the
// replacement of a ready broker waits. Its own replicas are no reason: its replacement may be what
// they need.
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

// steadyFor returns the time since the last broker became ready; 0: not all are.
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

// Disruptable reports whether Kubernetes may evict a broker. It may not while replicas catch up,
// since the evicted broker may have one of the few in-sync replicas.
func Disruptable(f Facts) bool {
	_, healing := f.healing("")
	return !healing
}

// Shortage describes which shards lack replicas or leaders; empty: none.
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

// Comparison describes which shards wait since etcd was restored from a backup; empty: none.
func Comparison(s Shards) string {
	if s.Uncompared == 0 {
		return ""
	}
	return fmt.Sprintf("etcd was restored from a backup (generation %d): %d of %s can't be published to until the brokers have compared their copies (such as one of topic %s); "+
		"if this lasts, bring all brokers back with their volumes, and look at what the controller broker logs", s.Generation, s.Uncompared, count(s.Total, "shard"), s.UncomparedExample)
}

// Restore describes that brokers noticed a restore of etcd, and what follows.
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
