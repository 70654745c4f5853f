package plan

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// catchUpPatience is how long brokers that are all ready are given to bring their replicas in sync before
// pods are replaced all the same. A replica that never gets there, say on a disk that failed, must not
// stand in the way of the change that may mend it; what has been acknowledged is safe either way.
const catchUpPatience = 15 * time.Minute

// Shards are facts about the shards of all Topics, and about who holds them.
type Shards struct {
	// Known says that what is in etcd has been read; nothing of the rest counts before.
	Known           bool
	Total           int
	UnderReplicated int // led, and with fewer replicas in sync than there should be
	Leaderless      int
	Example         string // the name of a Topic that one of those belongs to
	// CatchingUp has, by pod, how many replicas are not in sync, of shards that lack some, on brokers that
	// are there: those can be waited for. Shards of one replica don't count.
	CatchingUp map[string]int
	// Absent are the pods of which no broker is a member, if there is any shard of several replicas.
	Absent []string
	// Controller is the pod whose broker places shards; empty: none does.
	Controller string
	// Demanding are the Topics that ask for more replicas than there would be brokers.
	Demanding []string
	// Leavers are the pods that are not wanted any more, the highest ordinal first.
	Leavers []Leaver
	// Lost are brokers that shards list and that nobody will be again, since their pods have other volumes;
	// those that are not drained yet.
	Lost []Relieved
	// Relieved are the brokers that are drained and need not be.
	Relieved []Relieved
}

// Leaver is a pod whose broker is to hand over what it holds.
type Leaver struct {
	Pod     string
	Brokers []string // ids that it has; none: it holds nothing, or who it is can't be known
	Unknown bool     // who it is can't be known: it is down, and so are others
	Away    bool     // it is not a member
	Drained []string // of Brokers, those that are to be relieved of everything, as etcd has it
	Shards  int      // that list it
	Alone   int      // of those, the ones that it alone has a replica of that is in sync
	Example string   // the name of a Topic of one that is left
	// Rested says that it has held nothing for long enough that nobody is about to give it something.
	Rested bool
}

// Relieved is a broker whose drain is to begin or to end.
type Relieved struct {
	ID  string
	Pod string // empty: it is not known by a name
}

// healing says what is to be waited for before a ready broker may go: replicas that are not in sync on
// the brokers of other pods. Those of its own are no reason: it may be just what they wait for.
func (f Facts) healing(except string) (why string, is bool) {
	s := f.Shards
	if f.steadyFor() >= catchUpPatience {
		return "", false
	}
	for _, pod := range s.Absent {
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

// Disruptable says that Kubernetes may evict a broker. It may not while replicas catch up, since the one
// that it takes may have one of the few that are in sync.
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

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
